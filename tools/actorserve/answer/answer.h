/* SPDX-License-Identifier: Apache-2.0 */
/* Incremental parser of an answer's text: content, reasoning, and tool calls.
 *
 * The pieces do not depend on how the text is split. Text that may become a call is held back until
 * that is certain, and is content if it is no call. White space around calls and around reasoning
 * is dropped. */
#ifndef SLUICE_TOOLS_ACTORSERVE_ANSWER_ANSWER_H
#define SLUICE_TOOLS_ACTORSERVE_ANSWER_ANSWER_H

#include "tools/actorserve/answer/calls_grammar.h"
#include "tools/actorserve/answer/formats.h"
#include "tools/actorserve/answer/functions.h"

/* CALL: a call begins, and the piece's text is the function's name. ARGUMENTS: the next part of the
 * arguments of this call. */
typedef enum answer_kind {
  ANSWER_CONTENT,
  ANSWER_REASONING,
  ANSWER_CALL,
  ANSWER_ARGUMENTS
} answer_kind;

typedef struct answer_piece {
  answer_kind kind;
  int call;         /* index of the call, from 0 */
  const char *text; /* [bytes] valid until the next call of a parser function */
  size_t bytes;
} answer_piece;

typedef struct answer_settings {
  const answer_format *format;       /* NULL: the answer is not searched for calls and messages */
  const answer_functions *functions; /* NULL: no functions are known */
  bool thinks;                       /* <think> begins reasoning at the start of the answer */
  bool within;                       /* the answer begins inside reasoning */
  int most_calls;                    /* limit on the number of calls; 0: no limit */
} answer_settings;

typedef struct answer_parser answer_parser;
answer_parser *answer_parser_create(const answer_settings *how);
void answer_parser_destroy(answer_parser *p);
/* Appends text. All pieces of the earlier text must have been taken. */
void answer_parser_add(answer_parser *p, const char *text, size_t bytes);
/* Marks the end of the text. */
void answer_parser_end(answer_parser *p);
/* Returns the next piece in *out, or false if there is none yet. */
bool answer_parser_next(answer_parser *p, answer_piece *out);
int answer_parser_calls(const answer_parser *p); /* number of calls so far */
/* Returns whether the wanted number of calls is complete, so that the rest of the answer is
 * ignored. */
bool answer_parser_is_full(const answer_parser *p);
size_t answer_parser_bytes(const answer_parser *p); /* memory that the parser holds */

#endif
