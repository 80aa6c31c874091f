/* Between text and tokens: by the model's tokenizer; byte by byte, where a model has no more tokens than
 * that; or, of tokens that stand for nothing known, as numbers. */
#ifndef SLUICE_TOOLS_ACTORSERVE_CODEC_H
#define SLUICE_TOOLS_ACTORSERVE_CODEC_H

#include "io/tokenizer/tokenizer.h"

typedef struct codec {
  sli_tokenizer *tokenizer; /* NULL: there is none */
  int64_t vocabulary;
} codec;

/* `path`: of a tokenizer.json or a GGUF file, or NULL. */
sl_status codec_open(const char *path, int64_t vocabulary, codec *out);
void codec_close(codec *c);

/* Adds the tokens of so many bytes of UTF-8. `whole`: with what the tokenizer puts around a text. SL_E_USAGE: there are none
 * of texts, or one is outside the vocabulary. SL_E_STOPPED soon after *stop is set (NULL: it never is). One thread at a
 * time; others may decode meanwhile. */
sl_status codec_encode(const codec *c, const char *text, size_t bytes, bool whole, const atomic_bool *stop,
                       sli_token_row *out);
/* The most bytes of text that a token stands for; 0: there is no bound. */
size_t codec_longest(const codec *c);
/* UTF-8, with a zero behind it, the caller's to free; what is none is U+FFFD, as half a character at the
 * end. */
char *codec_decode(const codec *c, const int32_t *tokens, size_t count, size_t *bytes);
/* The bytes themselves, with a zero behind them, of marks as well. */
char *codec_decode_raw(const codec *c, const int32_t *tokens, size_t count, size_t *bytes);
/* A copy with U+FFFD for each byte that is no UTF-8. */
char *codec_good(const char *text, size_t bytes);

#endif
