/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens of one or many files, as a series of sequences of equal length. They are cut from one
 * concatenated series of tokens. With chats, each sequence is filled with as many chats as fit. */
#ifndef SLUICE_TEXT_TOKENS_TOKENS_H
#define SLUICE_TEXT_TOKENS_TOKENS_H

#include <stdbool.h>
#include <stdint.h>

#include <sluice/status.h>

#include "text/tokens/pairs.h"
#include "text/tokens/shuffle.h"

typedef struct sli_tokens sli_tokens;

/* Files to read, and how. */
typedef struct sli_tokens_options {
  /* one per line: FILE, FILE:TYPE, or a folder, whose token files are read in strcmp order */
  const char *paths;
  int64_t context; /* tokens per sequence */
  int64_t vocab;   /* every token must be less */
  /* 0: sequences in file order; otherwise the seed of their shuffle, which differs in each epoch */
  uint64_t shuffle;
  const char *tokenizer; /* a tokenizer.json for text files; NULL: their bytes are the tokens */
  /* for chats */
  const char *chat_template; /* name or file; NULL: the one beside the tokenizer */
  const char *learn;         /* "answers" (NULL), or "all": all tokens */
  const char *long_chats; /* for chats longer than a sequence: "cut" (NULL), "drop" or "refuse" */
  bool chats, alone;      /* the reader supports chats; each sequence holds only one */
} sli_tokens_options;

/* Values in the empty part of a sequence of chats: the document of padding, and the target of a
 * token after which nothing is learned. */
enum { SLI_TOKENS_PADDING = -1, SLI_TOKENS_UNLEARNED = -100 };

/* Numbers of chats read, cut and left out; of tokens in sequences of chats, and of learned ones
 * among them. */
typedef struct sli_tokens_chats {
  int64_t chats, cut, dropped, tokens, learned;
} sli_tokens_chats;

/* Maps all files; their tokens are concatenated. There must be enough tokens for one sequence and
 * the target after it. SL_E_INPUT, or SL_E_IO if reading fails, names the file and the position in
 * it. */
sl_status sli_tokens_open(const sli_tokens_options *options, sli_tokens **out);
void sli_tokens_close(sli_tokens *tokens);

/* Returns the number of whole sequences. The first has tokens 0..context-1 with targets 1..context,
 * the next begins at token `context`, and so on. */
int64_t sli_tokens_sequences(const sli_tokens *tokens);

/* Returns the index of the sequence that is number `i` of an endless run. Any thread. */
int64_t sli_tokens_sequence(const sli_tokens *tokens, int64_t i);

/* Arrays to read a sequence into; any may be NULL. Targets are one token ahead. Documents are
 * numbered from 0 in each sequence, and positions count from the beginning of each document. Only
 * chats are documents. */
typedef struct sli_tokens_out {
  int32_t *tokens, *targets, *documents, *positions;
} sli_tokens_out;
/* Copies `count` tokens of sequence `i` of an endless run, starting at its token `first`. Any
 * thread. */
void sli_tokens_read(const sli_tokens *tokens, int64_t i, int64_t first, int64_t count,
                     const sli_tokens_out *out);

/* Returns how many tokens are learned in `count` sequences of chats, from number `i` of the run
 * on. */
int64_t sli_tokens_learned(const sli_tokens *tokens, int64_t i, int64_t count);

/* Returns whether some of these paths may hold chats, judging by their names. */
bool sli_tokens_may_be_chats(const char *paths);

/* Returns whether sequences consist of chats, and if so their numbers in *numbers (may be NULL). */
bool sli_tokens_are_chats(const sli_tokens *tokens, sli_tokens_chats *numbers);
/* Returns chat `i` of the files, with the bit SLI_CHATS_LEARNED set in learned tokens, or NULL if
 * there are fewer chats. */
const uint32_t *sli_tokens_chat(const sli_tokens *tokens, int64_t i, int64_t *count);

/* The files in order: their number, paths and fingerprints (sli_file_fingerprint). */
int sli_tokens_files(const sli_tokens *tokens);
const char *sli_tokens_path(const sli_tokens *tokens, int file);
void sli_tokens_fingerprint(const sli_tokens *tokens, int file, uint64_t *bytes, uint64_t *hash);
/* Checks that no file has changed since it was opened. SL_E_INPUT names a file that was written to.
 * Any thread. */
sl_status sli_tokens_check(const sli_tokens *tokens);

/* Returns the path of the file mapped at an address, or NULL if unknown. Async-signal-safe. */
const char *sli_token_file_at(const void *address);

#endif
