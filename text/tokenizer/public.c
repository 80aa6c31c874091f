/* SPDX-License-Identifier: Apache-2.0 */
/* The public interface of tokenizers. */
#include <sluice/tokenizer.h>
#include <stdlib.h>

#include "base/base.h"
#include "text/tokenizer/tokenizer.h"

struct sl_tokenizer {
  sli_tokenizer *tokenizer;
};

sl_status sl_tokenizer_open(const char *path, sl_tokenizer **out) {
  sli_tokenizer *of;
  sl_status status = sli_tokenizer_open(path, &of);
  if (status) return status;
  *out = sli_calloc(1, sizeof **out);
  (*out)->tokenizer = of;
  return SL_OK;
}

void sl_tokenizer_close(sl_tokenizer *t) {
  if (t) sli_tokenizer_close(t->tokenizer);
  free(t);
}

sl_status sl_tokenizer_encode(sl_tokenizer *t, const char *text, size_t bytes, bool whole,
                              int32_t **tokens, size_t *count) {
  sli_token_row row = {0};
  sl_status status = sli_tokenizer_encode(t->tokenizer, text, bytes, whole, &row);
  if (status) {
    free(row.items);
    return status;
  }
  *tokens = row.items;
  *count = row.count;
  return SL_OK;
}

char *sl_tokenizer_decode(const sl_tokenizer *t, const int32_t *tokens, size_t count, bool special,
                          size_t *bytes) {
  return sli_tokenizer_decode(t->tokenizer, tokens, count, special, bytes);
}
