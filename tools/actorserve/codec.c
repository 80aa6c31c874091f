/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/actorserve/codec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/utf8.h"
#include "tools/actorserve/json.h"

enum { BYTES = 256 };

/* Concatenated bytes of all tokens. */
typedef struct pieces {
  const codec *codec;
  char *text;
} pieces;

/* Returns the name of a special token after SLI_TOKEN_MARK, or NULL if it has none. */
static char *mark_of(const sli_tokenizer *t, int32_t token, size_t *bytes) {
  char *name = sli_tokenizer_decode_raw(t, &token, 1, bytes),
       *out = *bytes ? sli_format("%c%s", SLI_TOKEN_MARK, name) : NULL;
  free(name);
  *bytes = out ? strlen(out) : 0;
  return out;
}

static const char *piece_of(void *ctx, int32_t token, size_t *bytes) {
  pieces *p = ctx;
  const sli_tokenizer *t = p->codec->tokenizer;
  free(p->text);
  if (t && !(p->text = sli_tokenizer_piece(t, token, bytes))) p->text = mark_of(t, token, bytes);
  if (t) return p->text;
  p->text = sli_calloc(2, 1);
  p->text[0] = (char)token;
  *bytes = 1;
  return p->text;
}

sl_status codec_open(const char *path, int64_t vocabulary, codec *out) {
  *out = (codec){.vocabulary = vocabulary};
  sl_status status = path ? sli_tokenizer_open(path, &out->tokenizer) : SL_OK;
  bool has_texts = path || vocabulary <= BYTES;
  pieces p = {.codec = out};
  if (!status && has_texts) out->tokens = sli_token_trie_create(vocabulary, piece_of, &p);
  free(p.text);
  return status;
}

void codec_close(codec *c) {
  sli_token_trie_destroy(c->tokens);
  sli_tokenizer_close(c->tokenizer);
  *c = (codec){0};
}

/* ---- text to tokens -------------------------------------------------------------------------- */

static sl_status encode_bytes(const codec *c, const char *text, sli_token_row *out) {
  if (c->vocabulary > BYTES)
    return sl_fail(SL_E_USAGE,
                   "the model has no tokenizer: the prompt must be an array of tokens, not a text");
  for (; *text && !out->refused; text++) {
    sli_token_row_add(out, (unsigned char)*text);
  }
  return out->refused ? sl_fail(SL_E_MEMORY, "there is no memory for the tokens of a text") : SL_OK;
}

static sl_status check_tokens(const codec *c, const sli_token_row *row) {
  for (size_t i = 0; i < row->count; i++)
    if (row->items[i] < 0 || row->items[i] >= c->vocabulary)
      return sl_fail(SL_E_USAGE, "token %d is outside the vocabulary of %lld", row->items[i],
                     (long long)c->vocabulary);
  return SL_OK;
}

sl_status codec_encode(const codec *c, const char *text, size_t bytes, bool whole,
                       const atomic_bool *stop, const sli_allowance *allowance,
                       sli_token_row *out) {
  sl_status status = c->tokenizer ? sli_tokenizer_encode_until(c->tokenizer, text, bytes, whole,
                                                               stop, allowance, out)
                                  : encode_bytes(c, text, out);
  return status ? status : check_tokens(c, out);
}

size_t codec_longest(const codec *c) {
  if (c->tokenizer) return sli_tokenizer_longest(c->tokenizer);
  return c->vocabulary > BYTES ? 0 : 1;
}

/* ---- tokens to text -------------------------------------------------------------------------- */

static void print_raw(FILE *out, const int32_t *tokens, size_t count) {
  for (size_t i = 0; i < count; i++) putc(tokens[i], out);
}

static void print_bytes(FILE *out, const int32_t *tokens, size_t count) {
  char *text = sli_calloc(count + 1, 1);
  for (size_t i = 0; i < count; i++) text[i] = (char)tokens[i];
  sli_utf8_print(out, text, count);
  free(text);
}

static void print_numbers(FILE *out, const int32_t *tokens, size_t count) {
  for (size_t i = 0; i < count; i++) fprintf(out, "%d ", tokens[i]);
}

static char *print(const codec *c, void (*bytes_of)(FILE *out, const int32_t *tokens, size_t count),
                   const int32_t *tokens, size_t count, size_t *bytes) {
  char *text;
  FILE *out = sli_memory_stream(&text, bytes);
  if (c->vocabulary > BYTES) print_numbers(out, tokens, count);
  else bytes_of(out, tokens, count);
  fclose(out);
  return text;
}

char *codec_decode(const codec *c, const int32_t *tokens, size_t count, bool special,
                   size_t *bytes) {
  if (c->tokenizer) return sli_tokenizer_decode(c->tokenizer, tokens, count, special, bytes);
  return print(c, print_bytes, tokens, count, bytes);
}

char *codec_decode_raw(const codec *c, const int32_t *tokens, size_t count, size_t *bytes) {
  if (c->tokenizer) return sli_tokenizer_decode_raw(c->tokenizer, tokens, count, bytes);
  return print(c, print_raw, tokens, count, bytes);
}

char *codec_good(const char *text, size_t bytes, size_t *count) {
  char *good;
  FILE *out = sli_memory_stream(&good, count);
  sli_utf8_print(out, text, bytes);
  fclose(out);
  return good;
}
