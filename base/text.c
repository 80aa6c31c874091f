/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "base/base.h"

/* Returns the length of the UTF-8 character at `at`, or 0 if it is malformed or a control
 * character. */
static size_t harmless(const unsigned char *at) {
  static const struct {
    unsigned char mask, lead;
    uint32_t least;
  } rows[] = {{0x80, 0, 0x20}, {0xe0, 0xc0, 0xa0}, {0xf0, 0xe0, 0x800}, {0xf8, 0xf0, 0x10000}};
  for (size_t n = 0; n < SLI_COUNT(rows); n++) {
    if ((*at & rows[n].mask) != rows[n].lead) continue;
    uint32_t code = *at & (unsigned char)~rows[n].mask;
    for (size_t i = 1; i <= n; i++) {
      if ((at[i] & 0xc0) != 0x80) return 0;
      code = code << 6 | (at[i] & 0x3f);
    }
    bool kept = *at == '\n' || *at == '\t' || (code >= rows[n].least && code != 0x7f);
    return kept && code <= 0x10ffff ? n + 1 : 0;
  }
  return 0;
}

char *sli_escape(char *out, size_t size, const char *text) {
  const unsigned char *at = (const unsigned char *)text;
  size_t used = 0;
  while (*at) {
    size_t n = harmless(at), need = n ? n : strlen("\\xNN");
    if (used + need >= size) break;
    if (n) memcpy(out + used, at, n);
    else snprintf(out + used, size - used, "\\x%02x", *at);
    used += need;
    at += n ? n : 1;
  }
  out[used] = 0;
  return out;
}
