/* SPDX-License-Identifier: Apache-2.0 */
/* The error of a build without PCRE2, which cannot match expressions. */
#include "base/left_out.h"
#include "text/regex.h"

sl_status sli_regex_is(const char *where, const char *expression, const char *text, bool *out) {
  (void)expression, (void)text, (void)out;
  return SLI_LEFT_OUT(where, "PCRE2", "PCRE2", "libpcre2-dev");
}
