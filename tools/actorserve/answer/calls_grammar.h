/* SPDX-License-Identifier: Apache-2.0 */
/* Grammar of answers that call tools: in the syntax of a format, with arguments that conform to the
 * tools' schemas. */
#ifndef SLUICE_TOOLS_ACTORSERVE_ANSWER_CALLS_GRAMMAR_H
#define SLUICE_TOOLS_ACTORSERVE_ANSWER_CALLS_GRAMMAR_H

#include "text/grammar/grammar.h"
#include "tools/actorserve/answer/formats.h"

typedef struct answer_calls {
  const answer_format *format;
  const sli_token_trie *tokens;
  const cJSON *tools; /* OpenAI's array, already checked */
  const char *only;   /* the function to call; NULL: any of them */
  bool several;       /* an answer may have several calls */
  bool thinks;        /* reasoning in <think> may come before the calls */
  bool within;        /* the answer begins inside reasoning */
} answer_calls;

/* Checks that the format can express arguments for the tools' schemas. SL_E_USAGE names a keyword
 * that it cannot. */
sl_status answer_calls_check(const answer_calls *how);
/* Returns the grammar of answers that consist of calls, at least one. */
sli_term answer_calls_term(sli_grammar *g, const answer_calls *how);

#endif
