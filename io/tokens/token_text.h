/* SPDX-License-Identifier: Apache-2.0 */
/* Encoding of text files with a tokenizer.json, once: tokens of long texts are cached in files. */
#ifndef SLUICE_IO_TOKEN_TEXT_H
#define SLUICE_IO_TOKEN_TEXT_H

#include "io/tokens/token_file.h"

typedef struct sli_token_text sli_token_text;

/* Creates an encoder. `path` is a tokenizer.json, which is read on first use; the string must
 * outlive the encoder. */
sli_token_text *sli_token_text_create(const char *path);
void sli_token_text_destroy(sli_token_text *t);

/* Replaces a text's bytes by its tokens. SL_E_INPUT names the file; nothing is left to close
 * then. */
sl_status sli_token_text_encode(sli_token_text *t, int64_t vocab, sli_token_file *file);

#endif
