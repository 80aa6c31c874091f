/* SPDX-License-Identifier: Apache-2.0 */
/* Conversion between text and tokens: with the model's tokenizer; byte by byte, if there are no
 * more tokens than bytes; or as numbers, for tokens without a known meaning. */
#ifndef SLUICE_TOOLS_ACTORSERVE_CODEC_H
#define SLUICE_TOOLS_ACTORSERVE_CODEC_H

#include "text/grammar/grammar.h"
#include "text/tokenizer/tokenizer.h"

typedef struct codec {
  sli_tokenizer *tokenizer; /* NULL if there is none */
  int64_t vocabulary;
  sli_token_trie *tokens; /* bytes of the tokens, for grammars; NULL if unknown */
} codec;

/* Opens a codec. `path` is a tokenizer.json or a GGUF file, or NULL. */
sl_status codec_open(const char *path, int64_t vocabulary, codec *out);
void codec_close(codec *c);

/* Appends the tokens of UTF-8 text. `whole` adds the special tokens that the tokenizer puts around
 * a text. SL_E_USAGE: the codec has no text, or a token is outside the vocabulary. SL_E_STOPPED:
 * returned soon after *stop is set (NULL: never). SL_E_MEMORY: the allowance does not suffice. Only
 * one thread at a time may encode; others may decode meanwhile. */
sl_status codec_encode(const codec *c, const char *text, size_t bytes, bool whole,
                       const atomic_bool *stop, const sli_allowance *allowance, sli_token_row *out);
/* Returns the most bytes of text that a token can represent; 0 if unbounded. */
size_t codec_longest(const codec *c);
/* Decodes to zero-terminated UTF-8, which the caller frees. Invalid bytes, and an incomplete
 * character at the end, become U+FFFD. `special` includes special tokens. */
char *codec_decode(const codec *c, const int32_t *tokens, size_t count, bool special,
                   size_t *bytes);
/* Decodes to zero-terminated raw bytes, including special tokens. */
char *codec_decode_raw(const codec *c, const int32_t *tokens, size_t count, size_t *bytes);
/* Copies a text, with U+FFFD for each byte that is not valid UTF-8. */
char *codec_good(const char *text, size_t bytes, size_t *count);

#endif
