/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens of one or many files, as a series of sequences of equal length. */
#ifndef SLUICE_IO_TOKENS_H
#define SLUICE_IO_TOKENS_H

#include <stdint.h>

#include <sluice/status.h>

#include "io/tokens/pairs.h"
#include "io/tokens/shuffle.h"

typedef struct sli_tokens sli_tokens;

/* Files to read, and how. */
typedef struct sli_tokens_options {
  /* one per line: FILE, FILE:TYPE, or a folder, whose token files are read in strcmp order */
  const char *paths;
  int64_t context; /* tokens per sequence */
  int64_t vocab;   /* every token must be less */
  /* 0: sequences in the order of the files; else the seed of their shuffle, which differs in
   * each epoch */
  uint64_t shuffle;
  const char *tokenizer; /* a tokenizer.json for text files; NULL: their bytes are the tokens */
} sli_tokens_options;

/* Maps all files; their tokens are concatenated. There must be enough for one sequence and the
 * target after it: SL_E_INPUT, or SL_E_IO where reading fails, with the file and the position in
 * the text. */
sl_status sli_tokens_open(const sli_tokens_options *options, sli_tokens **out);
void sli_tokens_close(sli_tokens *tokens);

/* Returns the number of whole sequences: tokens 0..context-1 with targets 1..context, the next
 * from `context` on, and so on. */
int64_t sli_tokens_sequences(const sli_tokens *tokens);

/* Copies `count` tokens of sequence `i` of an endless run, from its token `first` on, and the
 * targets, which are one token further. Either may be NULL. Any thread. */
void sli_tokens_read(const sli_tokens *tokens, int64_t i, int64_t first, int64_t count,
                     int32_t *out, int32_t *targets);

/* The files in order: their number, paths and fingerprints (sli_file_fingerprint). */
int sli_tokens_files(const sli_tokens *tokens);
const char *sli_tokens_path(const sli_tokens *tokens, int file);
void sli_tokens_fingerprint(const sli_tokens *tokens, int file, uint64_t *bytes, uint64_t *hash);
/* Checks that no file has changed since it was opened; SL_E_INPUT names one that was written to.
 * Any thread. */
sl_status sli_tokens_check(const sli_tokens *tokens);

/* Returns the path of the file mapped at an address; NULL: unknown. Async-signal-safe. */
const char *sli_token_file_at(const void *address);

#endif
