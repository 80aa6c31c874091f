/* SPDX-License-Identifier: Apache-2.0 */
/* Validation of UTF-8. */
#include "io/tokenizer/inner.h"

/* Checks a character's second byte against the range that its first byte allows; a byte that
 * begins no character allows none. */
static bool second_may_be(unsigned first, unsigned second) {
  unsigned least = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
  unsigned most = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
  return second >= least && second <= most;
}

size_t sli_utf8_next(span text, bool *good) {
  const unsigned char *at = (const unsigned char *)text.at;
  size_t wanted = at[0] < 0x80   ? 1
                  : at[0] < 0xc2 ? 0
                  : at[0] < 0xe0 ? 2
                  : at[0] < 0xf0 ? 3
                  : at[0] < 0xf5 ? 4
                                 : 0;
  size_t n = 1;
  *good = false;
  if (!wanted) return 1;
  for (; n < wanted; n++) {
    bool goes_on = n < text.bytes && (n > 1 ? (at[n] & 0xc0) == 0x80 : second_may_be(at[0], at[1]));
    if (!goes_on) return n;
  }
  *good = true;
  return n;
}

size_t sli_utf8_good(span text) {
  size_t at = 0;
  for (bool good = true; at < text.bytes;) {
    size_t n = sli_utf8_next((span){text.at + at, text.bytes - at}, &good);
    if (!good) break;
    at += n;
  }
  return at;
}

void sli_utf8_add(text_row *out, span text) {
  while (text.bytes) {
    bool good;
    size_t n = sli_utf8_next(text, &good);
    if (good) sli_text_add(out, text.at, n);
    else sli_text_add(out, "\ufffd", 3);
    text.at += n;
    text.bytes -= n;
  }
}
