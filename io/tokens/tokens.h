/* Tokens of one file or of many, as one row of sequences of the same length. */
#ifndef SLUICE_IO_TOKENS_H
#define SLUICE_IO_TOKENS_H

#include <stdint.h>

#include <sluice/status.h>

typedef struct sli_tokens sli_tokens;

/* What to read, and how. */
typedef struct sli_tokens_options {
  const char *paths; /* one a line: FILE, FILE:TYPE, or a folder, of which all token files are taken
                        by name, in the order of strcmp */
  int64_t context;   /* of a sequence */
  int64_t vocab;     /* every token is less */
  uint64_t shuffle;  /* 0: sequences in the order of the files; else the seed of their order, another
                        one each time that all have been read */
  const char *tokenizer; /* a tokenizer.json for files of text, or NULL: their bytes are the tokens */
} sli_tokens_options;

/* Maps all files; their tokens follow one another as if they were one. There must be enough for one
 * sequence and the target after it: SL_E_INPUT, or SL_E_IO where reading fails, with the file and the
 * position in the text. */
sl_status sli_tokens_open(const sli_tokens_options *options, sli_tokens **out);
void sli_tokens_close(sli_tokens *tokens);

/* Whole sequences: tokens 0..context-1 with targets 1..context, and so on from `context` on. */
int64_t sli_tokens_sequences(const sli_tokens *tokens);

/* Copies `count` tokens of sequence `i` of a run that goes on for ever, beginning with its token
 * `first`, and as targets the same one further. Either may be NULL. Any thread. */
void sli_tokens_read(const sli_tokens *tokens, int64_t i, int64_t first, int64_t count,
                     int32_t *out, int32_t *targets);

/* The files in order: how many, the path of each, and what it holds, as sli_file_fingerprint. */
int sli_tokens_files(const sli_tokens *tokens);
const char *sli_tokens_path(const sli_tokens *tokens, int file);
void sli_tokens_fingerprint(const sli_tokens *tokens, int file, uint64_t *bytes, uint64_t *hash);
/* Are all files as they were when they were opened? SL_E_INPUT names one that was written to since. Any thread. */
sl_status sli_tokens_check(const sli_tokens *tokens);

/* The path of the file that is mapped there; NULL: none that is known. For signal handlers too. */
const char *sli_token_file_at(const void *address);

#endif
