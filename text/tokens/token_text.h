/* SPDX-License-Identifier: Apache-2.0 */
/* Encodes texts and chats with a tokenizer.json once: tokens of long files are cached in files. */
#ifndef SLUICE_TEXT_TOKENS_TOKEN_TEXT_H
#define SLUICE_TEXT_TOKENS_TOKEN_TEXT_H

#include "text/chats/chats.h"
#include "text/tokens/token_file.h"

typedef struct sli_token_text sli_token_text;

/* Creates an encoder. The tokenizer is read on first use, and a template for the first chats. The
 * options' strings must outlive the encoder. */
sli_token_text *sli_token_text_create(const sli_chats_options *options);
void sli_token_text_destroy(sli_token_text *t);

/* Replaces a text's bytes, or chats, by their tokens. SL_E_INPUT names the file; nothing is left to
 * close then. */
sl_status sli_token_text_encode(sli_token_text *t, sli_token_file *file);

#endif
