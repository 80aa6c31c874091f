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

/* Adds the tokens of UTF-8. `whole`: with what the tokenizer puts around a text. SL_E_USAGE: there are none
 * of texts, or one is outside the vocabulary. One thread at a time; others may decode meanwhile. */
sl_status codec_encode(const codec *c, const char *text, bool whole, sli_token_row *out);
/* UTF-8, with a zero behind it, the caller's to free; what is none is U+FFFD, as half a character at the
 * end. */
char *codec_decode(const codec *c, const int32_t *tokens, size_t count, size_t *bytes);

#endif
