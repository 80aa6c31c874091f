/* SPDX-License-Identifier: Apache-2.0 */
/* Preferences: prompts, each with an answer that was chosen and one that was rejected, as rows of
 * tokens. */
#ifndef SLUICE_IO_PAIRS_H
#define SLUICE_IO_PAIRS_H

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
  const char *end;       /* text behind the answer to a text; NULL: none */
  /* Renders messages, a JSON array, as the text that an answer continues; the caller frees it.
   * NULL: prompts are texts only. */
  sl_status (*render)(void *ctx, const char *messages, size_t bytes, char **text);
  const char *chat_end; /* text behind the answer to messages; NULL: none */
  void *ctx;
  bool drop; /* pairs that are longer than a row are left out; else they are errors */
} sli_pairs_options;

/* Reads all pairs. SL_E_INPUT names the file and the line. */
sl_status sli_pairs_open(const sli_pairs_options *options, sli_pairs **out);
void sli_pairs_close(sli_pairs *pairs);

/* Returns the number of pairs; *dropped, if not NULL: of those left out. */
int64_t sli_pairs_count(const sli_pairs *pairs, int64_t *dropped);

/* Returns the most positions of a row whose targets are of its answer. */
int64_t sli_pairs_longest(const sli_pairs *pairs);

/* Writes an answer of a pair as a row of `context` positions: tokens, each with the next one as its
 * target. Positions behind the answer hold token 0. Each array may be NULL. Any thread. */
void sli_pairs_row(const sli_pairs *pairs, int64_t pair, bool rejected, int32_t *tokens,
                   int32_t *targets);

/* Writes `count` positions of such a row, at least sli_pairs_longest, among them all whose targets
 * are of the answer; the targets there, and weights that are 1 for these and 0 for others. Each
 * array may be NULL. Any thread. */
void sli_pairs_answer(const sli_pairs *pairs, int64_t pair, bool rejected, int64_t count,
                      int32_t *positions, int32_t *targets, float *weights);

#endif
