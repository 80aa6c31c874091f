/* From text to tokens and back, as the tokenizer.json of a Hugging Face model says: byte-level BPE
 * (GPT-2, LLaMA 3, SmolLM2, Qwen) and BPE over characters with a fallback to bytes (LLaMA 2,
 * Mistral). Gives the tokens that Hugging Face's own library gives; what a file asks for beyond
 * that is refused by name. */
#ifndef SLUICE_IO_TOKENIZER_TOKENIZER_H
#define SLUICE_IO_TOKENIZER_TOKENIZER_H

#include <cjson/cJSON.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <sluice/status.h>

typedef struct sli_tokenizer sli_tokenizer;

/* A growing row of tokens; zeroed it is empty. The caller frees `items`. */
typedef struct sli_token_row {
  int32_t *items;
  size_t count, capacity;
} sli_token_row;

/* Reads a tokenizer.json, or what a GGUF file says of its tokenizer. SL_E_INPUT names the file and what is wrong in it or not known. */
sl_status sli_tokenizer_open(const char *path, sli_tokenizer **out);
void sli_tokenizer_close(sli_tokenizer *t);

/* What a GGUF file says, as a tokenizer.json; the caller's to cJSON_Delete(). SL_E_INPUT names the
 * file and the key that is not known. */
sl_status sli_tokenizer_of_gguf(const char *path, cJSON **out);

/* Adds the text's tokens to the row. `whole`: with what the file puts around a text (a token for
 * its begin, say). SL_E_INPUT says where the text is no UTF-8, or which pattern took more memory or
 * steps than it may. One thread at a time. */
sl_status sli_tokenizer_encode(sli_tokenizer *t, const char *text, size_t bytes, bool whole,
                               sli_token_row *out);

/* The same, but SL_E_STOPPED soon after another thread has set *stop; the row may have grown. */
sl_status sli_tokenizer_encode_until(sli_tokenizer *t, const char *text, size_t bytes, bool whole,
                                     const atomic_bool *stop, sli_token_row *out);

/* The most bytes of text that one token stands for: a text of more than N times as many has more
 * than N tokens. 0: there is no bound, since the file says to drop or to join parts of a text. */
size_t sli_tokenizer_longest(const sli_tokenizer *t);

/* The text of tokens, with a zero behind it, the caller's to free; *bytes is its length. Bytes that
 * are no UTF-8 become U+FFFD, as half a character at the end does. `special`: with the tokens that
 * are marks and no text. */
char *sli_tokenizer_decode(const sli_tokenizer *t, const int32_t *tokens, size_t count,
                           bool special, size_t *bytes);
/* The same with marks, and with bytes that are no UTF-8 as they are. */
char *sli_tokenizer_decode_raw(const sli_tokenizer *t, const int32_t *tokens, size_t count, size_t *bytes);

#endif
