/* SPDX-License-Identifier: Apache-2.0 */
/* Answers that call tools, as a grammar: in the words of a format, and with arguments that the
 * tools' schemas accept. */
#ifndef SLUICE_TOOLS_ACTORSERVE_ANSWER_CALLS_GRAMMAR_H
#define SLUICE_TOOLS_ACTORSERVE_ANSWER_CALLS_GRAMMAR_H

#include "io/grammar/grammar.h"
#include "tools/actorserve/answer/formats.h"

typedef struct answer_calls {
  const answer_format *format;
  const sli_token_trie *tokens;
  const cJSON *tools; /* OpenAI's array, which has been checked */
  const char *only;   /* the function that is called; NULL: any of them */
  bool several;       /* an answer may have several calls */
  bool thinks;        /* reasoning in <think> may come before the calls */
  bool within;        /* the answer begins within reasoning */
} answer_calls;

/* Checks that the format can hold the arguments to the tools' schemas. SL_E_USAGE names a keyword
 * with which it cannot. */
sl_status answer_calls_check(const answer_calls *how);
/* Answers that are calls, at least one. */
sli_term answer_calls_term(sli_grammar *g, const answer_calls *how);

#endif
