/* SPDX-License-Identifier: Apache-2.0 */
/* Marks in an answer's text, and the states of the parser. */
#include "tools/actorserve/answer/answer.h"

#include <stdlib.h>

#include "tools/actorserve/answer/answer_inner.h"

static const answer_mark thinking[] = {{ANSWER_THINK, ANSWER_AT_START, ANSWER_THINKS, false},
                                       {"</think>", ANSWER_IN_THOUGHT, ANSWER_HAS_THOUGHT, false}};

/* ---- marks ----------------------------------------------------------------------------------- */

/* Returns the i-th mark that may occur in this answer, or NULL if there are no more. */
static const answer_mark *mark_at(const answer_parser *p, int i) {
  int own = p->how.thinks || p->how.within ? (int)SLI_COUNT(thinking) : 0;
  if (i < own) return &thinking[i];
  i -= own;
  const answer_format *f = p->how.format;
  return f && i < ANSWER_MARKS && f->marks[i].text ? &f->marks[i] : NULL;
}

/* A mark in the text, complete or partial. */
typedef struct found {
  size_t at; /* end of the text if there is none */
  const answer_mark *mark;
  bool whole;
} found;

static bool find_at(const answer_parser *p, size_t at, unsigned places, found *out) {
  const answer_mark *mark;
  for (int i = 0; (mark = mark_at(p, i)); i++) {
    int match = mark->places & places ? answer_match(p, at, mark->text) : 0;
    if (match) *out = (found){at, mark, match > 0};
    if (match) return true;
  }
  return false;
}

/* Finds the first mark for these places from `at` on, and keeps track of white space. */
static found find(answer_parser *p, unsigned places) {
  found f = {0};
  for (; p->at < p->bytes; p->at++) {
    bool start = !p->begun && p->solid <= p->from;
    if (find_at(p, p->at, places & ~(start ? 0u : ANSWER_AT_START), &f)) return f;
    if (!answer_is_space(p->text[p->at])) p->solid = p->at + 1;
  }
  return (found){.at = p->at};
}

static answer_step follow(answer_parser *p, const found *f) {
  if (!f->mark->kept) p->at += strlen(f->mark->text);
  if (f->mark->does == ANSWER_CALLS) {
    p->state = IN_CALLS;
    p->listed = p->in_array = false;
    return STEP_GOES;
  }
  answer_to_text(p);
  if (f->mark->does == ANSWER_THINKS) p->state = IN_THOUGHT;
  if (f->mark->does == ANSWER_HEADS) p->state = IN_HEADER;
  return STEP_GOES;
}

/* ---- texts ----------------------------------------------------------------------------------- */

/* Passes on content or reasoning up to a mark. White space is passed on with the text after it. */
static answer_step step_text(answer_parser *p, answer_piece *out) {
  bool thought = p->state == IN_THOUGHT;
  unsigned places = thought    ? ANSWER_IN_THOUGHT
                    : p->calls ? ANSWER_IN_TEXT | ANSWER_AFTER_CALL | ANSWER_AT_START
                               : ANSWER_IN_TEXT | ANSWER_AT_START;
  found f = find(p, places);
  size_t end = SLI_MAX(p->solid, p->from);
  if (p->ended && !f.mark && !thought && !p->fresh && !p->calls) end = p->bytes;
  while (p->fresh && p->from < end && answer_is_space(p->text[p->from])) p->from++;
  if (end > p->from) {
    const char *text = p->text + p->from;
    size_t bytes = end - p->from;
    p->from = end;
    p->fresh = false;
    p->begun |= !thought;
    return answer_give(out, thought ? ANSWER_REASONING : ANSWER_CONTENT, p, text, bytes);
  }
  return f.whole ? follow(p, &f) : STEP_WAITS;
}

/* Passes on arguments up to a mark. */
static answer_step step_raw(answer_parser *p, answer_piece *out) {
  found f = find(p, ANSWER_IN_RAW);
  const char *text = p->text + p->from;
  size_t bytes = f.at - p->from;
  p->from = p->at;
  if (bytes) {
    p->given = true;
    return answer_give(out, ANSWER_ARGUMENTS, p, text, bytes);
  }
  if (!f.whole && !p->ended) return STEP_WAITS;
  if (!p->given) {
    p->given = true;
    return answer_give(out, ANSWER_ARGUMENTS, p, "{}", 2);
  }
  if (f.whole && !f.mark->kept) p->at += strlen(f.mark->text);
  return answer_call_over(p, IN_TEXT);
}

/* ---- the parser ------------------------------------------------------------------------------ */

answer_parser *answer_parser_create(const answer_settings *how) {
  answer_parser *p = sli_calloc(1, sizeof *p);
  *p = (answer_parser){.how = *how, .state = how->within ? IN_THOUGHT : IN_TEXT};
  p->fresh = how->within;
  return p;
}

void answer_parser_destroy(answer_parser *p) {
  if (!p) return;
  free(p->text);
  free(p->made);
  free(p);
}

/* Drops the text that was passed on. */
static void drop(answer_parser *p) {
  size_t gone = p->from;
  if (gone) memmove(p->text, p->text + gone, p->bytes - gone);
  p->bytes -= gone;
  p->at -= gone;
  p->solid -= SLI_MIN(p->solid, gone);
  p->object.begin -= gone;
  p->object.arguments -= gone;
  p->object.until -= gone;
  p->from = 0;
}

void answer_parser_add(answer_parser *p, const char *text, size_t bytes) {
  if (p->full || !bytes) return;
  drop(p);
  if (p->bytes + bytes > p->room) {
    p->room = SLI_MAX(p->bytes + bytes, 2 * p->room);
    p->text = sli_realloc(p->text, p->room, 1);
  }
  memcpy(p->text + p->bytes, text, bytes);
  p->bytes += bytes;
}

void answer_parser_end(answer_parser *p) { p->ended = true; }

bool answer_parser_next(answer_parser *p, answer_piece *out) {
  static answer_step (*const steps[])(answer_parser *, answer_piece *) = {
      [IN_TEXT] = step_text,
      [IN_THOUGHT] = step_text,
      [IN_HEADER] = answer_step_header,
      [IN_RAW] = step_raw,
      [IN_CALLS] = answer_step_calls,
      [IN_OBJECT] = answer_step_object,
      [IN_ARGUMENTS] = answer_step_arguments,
      [IN_RECORDED] = answer_step_recorded,
      [IN_NAME] = answer_step_name,
      [IN_FUNCTION] = answer_step_function,
      [IN_PARAMETERS] = answer_step_parameters};
  answer_step step = STEP_GOES;
  while (!p->full && step == STEP_GOES) step = steps[p->state](p, out);
  return step == STEP_GIVES;
}

int answer_parser_calls(const answer_parser *p) { return p->calls; }
bool answer_parser_is_full(const answer_parser *p) { return p->full; }
size_t answer_parser_bytes(const answer_parser *p) { return sizeof *p + p->room + p->made_room; }
