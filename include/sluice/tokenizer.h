/* SPDX-License-Identifier: Apache-2.0 */
/* Tokenizer: text to tokens and back, as a Hugging Face tokenizer.json or a GGUF file describes it.
 * The tokens equal those of Hugging Face's library; an unsupported feature is an error that names
 * it. */
#ifndef SLUICE_TOKENIZER_H
#define SLUICE_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <sluice/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sl_tokenizer sl_tokenizer;

/* Reads a tokenizer.json, or the tokenizer of a GGUF file. SL_E_INPUT names the file and the error
 * or the unknown feature. */
sl_status sl_tokenizer_open(const char *path, sl_tokenizer **out);
void sl_tokenizer_close(sl_tokenizer *t);

/* Sets *tokens, which the caller frees with free(), and *count. `whole`: adds the special tokens
 * around a text, such as a begin token. SL_E_INPUT says where the text is not valid UTF-8. One
 * thread at a time. */
sl_status sl_tokenizer_encode(sl_tokenizer *t, const char *text, size_t bytes, bool whole,
                              int32_t **tokens, size_t *count);

/* Returns the text of tokens, 0-terminated; the caller frees it with free(). *bytes is its length.
 * Malformed UTF-8, such as half a character at the end, becomes U+FFFD. `special`: special tokens
 * are included. Tokens that are not in the vocabulary have no text. */
char *sl_tokenizer_decode(const sl_tokenizer *t, const int32_t *tokens, size_t count, bool special,
                          size_t *bytes);

#ifdef __cplusplus
}
#endif
#endif
