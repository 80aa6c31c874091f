/* SPDX-License-Identifier: Apache-2.0 */
/* Tokenizer: text to tokens and back, as described by a Hugging Face tokenizer.json. Byte-level BPE
 * (GPT-2, LLaMA 3, SmolLM2, Qwen), and BPE over characters with a byte fallback (LLaMA 2, Mistral).
 * The tokens equal those of Hugging Face's library. Unsupported features are rejected with an error
 * that names them. */
#ifndef SLUICE_TEXT_TOKENIZER_TOKENIZER_H
#define SLUICE_TEXT_TOKENIZER_TOKENIZER_H

#include <cjson/cJSON.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/allowance.h"
#include "text/spans.h"

typedef struct sli_tokenizer sli_tokenizer;

/* A growing row of tokens; zeroed it is empty. The caller frees `items`, and returns their memory
 * to the allowance. */
typedef struct sli_token_row {
  int32_t *items;
  size_t count, capacity;
  const sli_allowance *allowance;
  bool refused; /* the allowance did not suffice, so tokens are missing */
} sli_token_row;
void sli_token_row_add(sli_token_row *row, int32_t token);

/* Reads a tokenizer.json, or the tokenizer of a GGUF file. SL_E_INPUT names the file and the
 * error or unknown feature. */
sl_status sli_tokenizer_open(const char *path, sli_tokenizer **out);
void sli_tokenizer_close(sli_tokenizer *t);

/* Converts the tokenizer of a GGUF file to a tokenizer.json. The caller deletes it with
 * cJSON_Delete(). SL_E_INPUT names the file and the unknown key. */
sl_status sli_tokenizer_of_gguf(const char *path, cJSON **out);

/* Returns GGUF's name for the way in which a tokenizer.json splits texts into words, or NULL if
 * there is none. */
const char *sli_tokenizer_gguf_name(const cJSON *tokenizer);

/* Appends the text's tokens to the row. `whole` adds the special tokens around a text (a begin
 * token, for example). SL_E_INPUT says where the text is not UTF-8, or which pattern exceeded its
 * memory or steps. One thread at a time. */
sl_status sli_tokenizer_encode(sli_tokenizer *t, const char *text, size_t bytes, bool whole,
                               sli_token_row *out);

/* Encodes like sli_tokenizer_encode(), but returns SL_E_STOPPED soon after another thread has set
 * *stop; the row may have grown. Working memory is charged to the allowance meanwhile, and the row
 * to the row's allowance. SL_E_MEMORY: one of them does not suffice. */
sl_status sli_tokenizer_encode_until(sli_tokenizer *t, const char *text, size_t bytes, bool whole,
                                     const atomic_bool *stop, const sli_allowance *allowance,
                                     sli_token_row *out);

/* Encodes without special tokens around the text. Appends to `marks` for each token 1 if it
 * represents some of the text in one of the spans, otherwise 0. Spans are in order and do not
 * overlap. */
sl_status sli_tokenizer_encode_marked(sli_tokenizer *t, const char *text, size_t bytes,
                                      const sli_text_spans *spans, sli_token_row *out,
                                      sli_token_row *marks);

/* Returns N, the most bytes of text that one token represents: a text of more than N n bytes has
 * more than n tokens. Returns 0 if unbounded, because the tokenizer drops or joins parts of a
 * text. */
size_t sli_tokenizer_longest(const sli_tokenizer *t);

/* Returns the text of tokens, 0-terminated; *bytes is its length. The caller frees it. Malformed
 * UTF-8, such as half a character at the end, becomes U+FFFD. `special` includes special tokens. */
char *sli_tokenizer_decode(const sli_tokenizer *t, const int32_t *tokens, size_t count,
                           bool special, size_t *bytes);
/* Decodes with special tokens, and keeps malformed UTF-8. */
char *sli_tokenizer_decode_raw(const sli_tokenizer *t, const int32_t *tokens, size_t count,
                               size_t *bytes);
/* Returns the bytes that a token adds after other text; the caller frees them. Returns NULL for a
 * special token, or if there is no such token. */
char *sli_tokenizer_piece(const sli_tokenizer *t, int32_t token, size_t *bytes);

#endif
