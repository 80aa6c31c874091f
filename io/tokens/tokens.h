/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens of one or many files, as a series of sequences of equal length: cut from one series of
 * tokens, or, of chats, filled with as many as go in. */
#ifndef SLUICE_IO_TOKENS_H
#define SLUICE_IO_TOKENS_H

#include <stdbool.h>
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
  /* of chats */
  const char *chat_template; /* name or file; NULL: the one beside the tokenizer */
  const char *learn;         /* "answers" (NULL), or "all": all tokens */
  const char *long_chats;    /* of those longer than a sequence: "cut" (NULL), "drop" or "refuse" */
  bool chats, alone;         /* the reader knows chats; a sequence holds one only */
} sli_tokens_options;

/* Marks of a sequence of chats where nothing is: the document of padding, the target of a token
 * after which nothing is learned. */
enum { SLI_TOKENS_PADDING = -1, SLI_TOKENS_UNLEARNED = -100 };

/* Numbers of chats: read, cut, left out; tokens of those in sequences, and those of them learned.
 */
typedef struct sli_tokens_chats {
  int64_t chats, cut, dropped, tokens, learned;
} sli_tokens_chats;

/* Maps all files; their tokens are concatenated. There must be enough for one sequence and the
 * target after it: SL_E_INPUT, or SL_E_IO where reading fails, with the file and the position in
 * the text. */
sl_status sli_tokens_open(const sli_tokens_options *options, sli_tokens **out);
void sli_tokens_close(sli_tokens *tokens);

/* Returns the number of whole sequences: tokens 0..context-1 with targets 1..context, the next
 * from `context` on, and so on. */
int64_t sli_tokens_sequences(const sli_tokens *tokens);

/* Returns which of the sequences is number `i` of an endless run. Any thread. */
int64_t sli_tokens_sequence(const sli_tokens *tokens, int64_t i);

/* Arrays to read a sequence into; any may be NULL. Targets are one token further; documents are
 * numbered from 0 in each sequence, and positions count from each one's begin. Only chats are
 * documents. */
typedef struct sli_tokens_out {
  int32_t *tokens, *targets, *documents, *positions;
} sli_tokens_out;
/* Copies `count` tokens of sequence `i` of an endless run, from its token `first` on. Any thread.
 */
void sli_tokens_read(const sli_tokens *tokens, int64_t i, int64_t first, int64_t count,
                     const sli_tokens_out *out);

/* Returns how many tokens are learned in sequences of chats from number `i` of the run on. */
int64_t sli_tokens_learned(const sli_tokens *tokens, int64_t i, int64_t count);

/* Returns whether some of these paths may be of chats, by their names. */
bool sli_tokens_may_be_chats(const char *paths);

/* Returns whether sequences are of chats; then the numbers of them, unless NULL. */
bool sli_tokens_are_chats(const sli_tokens *tokens, sli_tokens_chats *numbers);
/* Returns chat `i` of the files, with the bit SLI_CHATS_LEARNED at the tokens that are learned;
 * NULL: there are not so many. */
const uint32_t *sli_tokens_chat(const sli_tokens *tokens, int64_t i, int64_t *count);

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
