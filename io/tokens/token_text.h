/* Texts made into tokens by a tokenizer.json, once: those of long texts are kept in files. */
#ifndef SLUICE_IO_TOKEN_TEXT_H
#define SLUICE_IO_TOKEN_TEXT_H

#include "io/tokens/token_file.h"

typedef struct sli_token_text sli_token_text;

/* `path` is a tokenizer.json, which is read when it is first needed, and outlives this. */
sli_token_text *sli_token_text_create(const char *path);
void sli_token_text_destroy(sli_token_text *t);

/* Puts a text's tokens in place of its bytes. SL_E_INPUT names the file; nothing is left to close
 * then. */
sl_status sli_token_text_encode(sli_token_text *t, int64_t vocab, sli_token_file *file);

#endif
