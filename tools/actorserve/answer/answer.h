/* SPDX-License-Identifier: Apache-2.0 */
/* Parser of an answer's text as it comes: content, reasoning, and calls of tools.
 *
 * The pieces do not depend on where the text is cut. Text that may become a call is held back
 * until that is known, and is content if it turns out to be none. White space around calls and
 * around reasoning is dropped. */
#ifndef SLUICE_TOOLS_ACTORSERVE_ANSWER_H
#define SLUICE_TOOLS_ACTORSERVE_ANSWER_H

#include "tools/actorserve/answer/calls_grammar.h"
#include "tools/actorserve/answer/formats.h"
#include "tools/actorserve/answer/functions.h"

/* CALL: a call begins, and the piece's text is the function's name. ARGUMENTS: the next part of
 * the arguments of this call. */
typedef enum answer_kind {
  ANSWER_CONTENT,
  ANSWER_REASONING,
  ANSWER_CALL,
  ANSWER_ARGUMENTS
} answer_kind;

typedef struct answer_piece {
  answer_kind kind;
  int call;         /* index of the call, from 0 */
  const char *text; /* [bytes] valid until the next call of a function of the parser */
  size_t bytes;
} answer_piece;

typedef struct answer_settings {
  const answer_format *format;       /* NULL: calls and messages are not looked for */
  const answer_functions *functions; /* NULL: none are known */
  bool thinks;                       /* <think> begins reasoning at the start of the answer */
  bool within;                       /* the answer begins within reasoning */
  int most_calls;                    /* 0: any number */
} answer_settings;

typedef struct answer_parser answer_parser;
answer_parser *answer_parser_create(const answer_settings *how);
void answer_parser_destroy(answer_parser *p);
/* Appends text, after all pieces of the text before were taken. */
void answer_parser_add(answer_parser *p, const char *text, size_t bytes);
/* Says that no text follows. */
void answer_parser_end(answer_parser *p);
/* Returns the next piece; false: there is none yet. */
bool answer_parser_next(answer_parser *p, answer_piece *out);
int answer_parser_calls(const answer_parser *p); /* calls so far */
/* Says whether as many calls as wanted are complete: the rest of the answer has no pieces. */
bool answer_parser_is_full(const answer_parser *p);
size_t answer_parser_bytes(const answer_parser *p); /* memory that it has */

#endif
