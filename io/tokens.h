/* Token files: text, whose bytes are the tokens, or flat uint16 tokens. */
#ifndef SLUICE_IO_TOKENS_H
#define SLUICE_IO_TOKENS_H

#include <stdint.h>

#include <sluice/status.h>

typedef struct sli_tokens sli_tokens;

/* Maps a token file. The suffix decides what it holds: .u16 and .bin are
 * little-endian uint16 tokens, anything else is bytes. Every token must be less
 * than `vocab`, and there must be enough for one sequence of `context` tokens
 * and the target after it: SL_E_INPUT, or SL_E_IO where reading fails, with the
 * file and the position in the text. */
sl_status sli_tokens_open(const char *path, int64_t context, int64_t vocab, sli_tokens **out);
void sli_tokens_close(sli_tokens *tokens);

/* Whole sequences in the file: tokens 0..context-1 with targets 1..context, and
 * so on from `context` on. */
int64_t sli_tokens_sequences(const sli_tokens *tokens);

/* Copies `count` tokens of sequence `i` modulo the number of sequences, beginning
 * with its token `first`, and as targets the same one further. Either may be
 * NULL. Any thread. */
void sli_tokens_read(const sli_tokens *tokens, int64_t i, int64_t first, int64_t count,
                     int32_t *out, int32_t *targets);

/* What the file holds, as sli_file_fingerprint. */
void sli_tokens_fingerprint(const sli_tokens *tokens, uint64_t *bytes, uint64_t *hash);

#endif
