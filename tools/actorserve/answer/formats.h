/* SPDX-License-Identifier: Apache-2.0 */
/* Formats of tool calls in the answers of models, as a table. */
#ifndef SLUICE_TOOLS_ACTORSERVE_ANSWER_FORMATS_H
#define SLUICE_TOOLS_ACTORSERVE_ANSWER_FORMATS_H

#include <stdbool.h>

#define ANSWER_THINK "<think>" /* begins a span of reasoning */

/* Effect of a mark: a span of reasoning begins or ends, calls follow, the header of a message
 * follows, or the mark is dropped. */
typedef enum answer_action {
  ANSWER_THINKS,
  ANSWER_HAS_THOUGHT,
  ANSWER_CALLS,
  ANSWER_HEADS,
  ANSWER_DROPS
} answer_action;

/* Places where a mark counts. */
enum {
  ANSWER_AT_START = 1,   /* in front of all text */
  ANSWER_IN_TEXT = 2,    /* in the content */
  ANSWER_AFTER_CALL = 4, /* in the content, behind a call */
  ANSWER_IN_THOUGHT = 8, /* in reasoning */
  ANSWER_IN_RAW = 16     /* in arguments that end with a mark */
};

typedef struct answer_mark {
  const char *text;
  unsigned places;
  answer_action does;
  bool kept; /* the mark's text is part of what follows */
} answer_mark;

/* How a model writes calls: `head`, calls with `between` in between, `tail`. A call is `begin`,
 * its name, `middle`, its arguments, `end`. Words like <name> and [NAME] are special tokens where
 * the vocabulary has such ones. */
typedef struct answer_spelling {
  const char *head, *begin, *middle, *end, *between, *tail; /* between NULL: there is one call */
} answer_spelling;

enum { ANSWER_MARKS = 6, ANSWER_ENDS = 2, ANSWER_ID_SHORT = 9, ANSWER_ID_LONG = 24 };

typedef struct answer_format {
  const char *name;
  const char *found; /* text that a template of the format has */
  answer_mark marks[ANSWER_MARKS];
  const char *close;             /* text behind the calls; NULL: none */
  bool always;                   /* all answers have the marks, also without tools */
  bool bare;                     /* calls have no mark: their functions must be known ones */
  bool named;                    /* a call may be a name and then its arguments */
  int id_letters;                /* letters of a call's id, behind "call_" unless ANSWER_ID_SHORT */
  const char *ends[ANSWER_ENDS]; /* tokens that end an answer, besides the model's own */
  const char *no_end;            /* token that never ends one; NULL: none */
  answer_spelling calls;
  const char *other_mark; /* special token of models that write calls as `others` */
  answer_spelling others;
  bool tagged;            /* arguments are <parameter=KEY>\nVALUE\n</parameter>\n, and not JSON */
  const char *thought[2]; /* begin and end of reasoning in front of calls; NULL: as `thinks` says */
} answer_format;

/* Returns the format called `name`; NULL: there is none. */
const answer_format *answer_format_named(const char *name);
/* Returns the format of a chat template; NULL: none of them. */
const answer_format *answer_format_of(const char *chat_template);
/* Says whether a chat template has spans of reasoning between <think> and </think>. */
bool answer_format_thinks(const char *chat_template);
/* Lists the names; the caller frees the text. */
char *answer_format_names(void);

#endif
