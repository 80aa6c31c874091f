/* SPDX-License-Identifier: Apache-2.0 */
/* Formats of tool calls in models' answers, as a table. */
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

/* Places where a mark has an effect. */
enum {
  ANSWER_AT_START = 1,   /* before all text */
  ANSWER_IN_TEXT = 2,    /* in the content */
  ANSWER_AFTER_CALL = 4, /* in the content, after a call */
  ANSWER_IN_THOUGHT = 8, /* in reasoning */
  ANSWER_IN_RAW = 16     /* in arguments that end with a mark */
};

typedef struct answer_mark {
  const char *text;
  unsigned places;
  answer_action does;
  bool kept; /* the mark's text is part of the text after it */
} answer_mark;

/* Syntax of a model's calls: `head`, calls separated by `between`, `tail`. A call is `begin`, its
 * name, `middle`, its arguments, `end`. Words like <name> and [NAME] are special tokens if the
 * vocabulary has them. */
typedef struct answer_spelling {
  const char *head, *begin, *middle, *end, *between, *tail; /* between NULL: only one call */
} answer_spelling;

enum { ANSWER_MARKS = 6, ANSWER_ENDS = 2, ANSWER_ID_SHORT = 9, ANSWER_ID_LONG = 24 };

typedef struct answer_format {
  const char *name;
  const char *found; /* text in templates of this format */
  answer_mark marks[ANSWER_MARKS];
  const char *close;             /* text after the calls; NULL if none */
  bool always;                   /* all answers have the marks, even without tools */
  bool bare;                     /* calls have no mark and are recognized by known function names */
  bool named;                    /* a call may be a name followed by its arguments */
  int id_letters;                /* letters of a call's id, after "call_" unless ANSWER_ID_SHORT */
  const char *ends[ANSWER_ENDS]; /* tokens that end an answer, in addition to the model's */
  const char *no_end;            /* token that never ends an answer; NULL if none */
  answer_spelling calls;
  const char *other_mark; /* special token of models whose calls follow `others` */
  answer_spelling others;
  bool tagged;            /* arguments are <parameter=KEY>\nVALUE\n</parameter>\n instead of JSON */
  const char *thought[2]; /* begin and end of reasoning before calls; NULL: see `thinks` */
} answer_format;

/* Returns the format called `name`, or NULL if there is none. */
const answer_format *answer_format_named(const char *name);
/* Returns the format of a chat template, or NULL if it is not a known one. */
const answer_format *answer_format_of(const char *chat_template);
/* Returns whether a chat template puts reasoning between <think> and </think>. */
bool answer_format_thinks(const char *chat_template);
/* Returns the names as a list; the caller frees it. */
char *answer_format_names(void);

#endif
