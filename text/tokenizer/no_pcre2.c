/* SPDX-License-Identifier: Apache-2.0 */
/* Errors of a build without PCRE2, which cannot match patterns. */
#include "base/left_out.h"
#include "text/tokenizer/tokenizer_inner.h"

sl_status sli_matcher_create(const char *pattern, bool literal, matcher **out) {
  (void)pattern, (void)literal, (void)out;
  return SLI_LEFT_OUT("a tokenizer that cuts texts by patterns", "PCRE2", "PCRE2", "libpcre2-dev");
}

/* This build never creates a matcher. */
void sli_matcher_destroy(matcher *m) { (void)m; }

bool sli_matcher_next(const matcher *m, span text, size_t from, const atomic_bool *stop,
                      const sli_allowance *allowance, size_t *begin, size_t *end,
                      sl_status *status) {
  (void)m, (void)text, (void)from, (void)stop, (void)allowance, (void)begin, (void)end,
      (void)status;
  return false;
}
