/* SPDX-License-Identifier: Apache-2.0 */
/* Preferences: prompts, each with a chosen and a rejected answer, as rows of tokens. */
#ifndef SLUICE_TEXT_TOKENS_PAIRS_H
#define SLUICE_TEXT_TOKENS_PAIRS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <sluice/status.h>

typedef struct sli_pairs sli_pairs;

typedef struct sli_pairs_options {
  const char *paths;     /* files of JSON lines, one path per line */
  int64_t context;       /* positions of a row */
  int64_t vocab;         /* every token must be less */
  const char *tokenizer; /* a tokenizer.json; NULL: bytes are tokens */
  const char *end;       /* text after the answer to a text; NULL if none */
  const char *template;  /* name or file of a chat template; NULL: that of the tokenizer's files */
  bool drop;             /* pairs longer than a row are left out; otherwise they are errors */
} sli_pairs_options;

/* Reads all pairs. SL_E_INPUT names the file and the line. */
sl_status sli_pairs_open(const sli_pairs_options *options, sli_pairs **out);
void sli_pairs_close(sli_pairs *pairs);

/* Returns the number of pairs. *dropped, if not NULL, is the number of pairs left out. */
int64_t sli_pairs_count(const sli_pairs *pairs, int64_t *dropped);

/* Returns the largest number of positions in a row whose targets are answer tokens. */
int64_t sli_pairs_longest(const sli_pairs *pairs);

/* Writes an answer of a pair as a row of `context` positions: tokens, each with the next one as its
 * target. Positions after the answer hold token 0. Each array may be NULL. Any thread. */
void sli_pairs_row(const sli_pairs *pairs, int64_t pair, bool rejected, int32_t *tokens,
                   int32_t *targets);

/* Writes `count` positions of such a row, including all positions whose targets are answer tokens;
 * `count` is at least sli_pairs_longest. Also writes the targets there, and weights that are 1 for
 * these positions and 0 for others. Each array may be NULL. Any thread. */
void sli_pairs_answer(const sli_pairs *pairs, int64_t pair, bool rejected, int64_t count,
                      int32_t *positions, int32_t *targets, float *weights);

#endif
