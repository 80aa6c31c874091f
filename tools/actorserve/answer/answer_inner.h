/* SPDX-License-Identifier: Apache-2.0 */
/* State of the answer parser, shared by its parts. Each state has a function that examines the text
 * from `at` on. */
#ifndef SLUICE_TOOLS_ACTORSERVE_ANSWER_ANSWER_INNER_H
#define SLUICE_TOOLS_ACTORSERVE_ANSWER_ANSWER_INNER_H

#include <ctype.h>
#include <string.h>

#include "base/base.h"
#include "tools/actorserve/answer/answer.h"

/* Result of a step: more text is needed, the state has changed, or there is a piece. */
typedef enum answer_step { STEP_WAITS, STEP_GOES, STEP_GIVES } answer_step;

typedef enum answer_state {
  IN_TEXT,      /* content */
  IN_THOUGHT,   /* reasoning */
  IN_HEADER,    /* header of a message, up to <|message|> */
  IN_RAW,       /* arguments up to a mark */
  IN_CALLS,     /* before a call, or after one */
  IN_OBJECT,    /* object with a name and arguments */
  IN_ARGUMENTS, /* value of the arguments, passed on as it arrives */
  IN_RECORDED,  /* the object is complete, but its arguments are not passed on yet */
  IN_NAME,      /* name before arguments */
  IN_FUNCTION,  /* <function=NAME> */
  IN_PARAMETERS /* parameters after it */
} answer_state;

/* A JSON value being scanned. */
typedef struct answer_value {
  int depth;
  bool quoted, escaped, plain; /* plain: a number or a word */
} answer_value;

typedef struct answer_object {
  enum {
    OBJECT_KEY,
    OBJECT_IN_KEY,
    OBJECT_COLON,
    OBJECT_VALUE,
    OBJECT_IN_VALUE,
    OBJECT_COMMA
  } expects;
  enum { MEMBER_OTHER, MEMBER_NAME, MEMBER_ARGUMENTS } member;
  bool called; /* a call was reported for it */
  bool named;
  size_t begin;            /* offset of the current key or value */
  size_t arguments, until; /* offsets of the recorded arguments; equal if none */
} answer_object;

struct answer_parser {
  answer_settings how;
  answer_state state;
  char *text; /* [bytes] */
  size_t bytes, room;
  size_t from;  /* offset of the first byte not yet passed on */
  size_t at;    /* offset of the first byte not yet examined */
  size_t solid; /* end of the last character that is not white space */
  bool ended, full;
  bool begun;      /* there was content or a call */
  bool fresh;      /* white space is dropped until other text arrives */
  bool listed;     /* a call followed the mark */
  bool in_array;   /* the calls are items of an array */
  bool given;      /* some arguments of the call were passed on */
  bool value_only; /* the arguments are not part of an object */
  int calls;
  answer_object object;
  answer_value value;
  char *made; /* [made_bytes] text that differs from the answer's text */
  size_t made_bytes, made_room;
  const answer_function *function; /* the function being called; NULL if unknown */
};

static inline bool answer_is_space(char c) {
  return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

/* Returns 1 if a word is at an offset, 0 if not, or -1 if that depends on text still to come. */
static inline int answer_match(const answer_parser *p, size_t at, const char *word) {
  size_t n = strlen(word), there = SLI_MIN(n, p->bytes - at);
  if (memcmp(p->text + at, word, there)) return 0;
  return there == n ? 1 : p->ended ? 0 : -1;
}

static inline answer_step answer_give(answer_piece *out, answer_kind kind, const answer_parser *p,
                                      const char *text, size_t bytes) {
  *out = (answer_piece){kind, p->calls - 1, text, bytes};
  return STEP_GIVES;
}

/* Begins a call of the function that `made` names. */
static inline answer_step answer_call(answer_parser *p, answer_piece *out) {
  p->calls++;
  p->begun = true;
  p->given = false;
  p->function = answer_functions_find(p->how.functions, p->made, p->made_bytes);
  return answer_give(out, ANSWER_CALL, p, p->made, p->made_bytes);
}

/* Ends a call. */
static inline answer_step answer_call_over(answer_parser *p, answer_state next) {
  p->from = p->at;
  p->listed = p->fresh = true;
  p->full = p->how.most_calls && p->calls >= p->how.most_calls;
  p->state = next;
  return STEP_GOES;
}

/* Returns to the content and drops the held text. */
static inline answer_step answer_to_text(answer_parser *p) {
  p->from = p->at;
  p->fresh = true;
  p->state = IN_TEXT;
  return STEP_GOES;
}

/* Passes on the held text as content, because it is not a call. */
static inline answer_step answer_refuse(answer_parser *p, answer_piece *out) {
  const char *text = p->text + p->from;
  size_t bytes = p->at - p->from;
  p->from = p->at;
  p->begun = true;
  p->fresh = false;
  p->state = IN_TEXT;
  return bytes ? answer_give(out, ANSWER_CONTENT, p, text, bytes) : STEP_GOES;
}

/* Appends to `made`; a callback of base/json_text.h. */
static inline void answer_make(void *to, const char *text, size_t bytes) {
  answer_parser *p = to;
  if (p->made_bytes + bytes > p->made_room) {
    p->made_room = SLI_MAX(p->made_bytes + bytes, 2 * p->made_room);
    p->made = sli_realloc(p->made, p->made_room, 1);
  }
  if (bytes) memcpy(p->made + p->made_bytes, text, bytes);
  p->made_bytes += bytes;
}

/* json.c: calls as JSON, IN_CALLS to IN_NAME. */
answer_step answer_step_calls(answer_parser *p, answer_piece *out);
answer_step answer_step_object(answer_parser *p, answer_piece *out);
answer_step answer_step_arguments(answer_parser *p, answer_piece *out);
answer_step answer_step_recorded(answer_parser *p, answer_piece *out);
answer_step answer_step_name(answer_parser *p, answer_piece *out);

/* xml.c: calls as <function=NAME><parameter=KEY>VALUE</parameter></function>. */
answer_step answer_step_function(answer_parser *p, answer_piece *out);
answer_step answer_step_parameters(answer_parser *p, answer_piece *out);

/* messages.c: messages with headers and channels. */
answer_step answer_step_header(answer_parser *p, answer_piece *out);

#endif
