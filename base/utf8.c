/* SPDX-License-Identifier: Apache-2.0 */
#include "base/utf8.h"

/* Checks a character's second byte against the range that its first byte allows. */
static bool second_may_be(unsigned first, unsigned second) {
  unsigned least = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
  unsigned most = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
  return second >= least && second <= most;
}

/* Returns the length of the character that a byte begins, or 0 if it begins none. */
static size_t length_of(unsigned first) {
  return first < 0x80   ? 1
         : first < 0xc2 ? 0
         : first < 0xe0 ? 2
         : first < 0xf0 ? 3
         : first < 0xf5 ? 4
                        : 0;
}

size_t sli_utf8_next(const char *text, size_t bytes, bool *good) {
  const unsigned char *at = (const unsigned char *)text;
  size_t wanted = length_of(at[0]), n = 1;
  *good = false;
  if (!wanted) return 1;
  for (; n < wanted; n++) {
    bool goes_on = n < bytes && (n > 1 ? (at[n] & 0xc0) == 0x80 : second_may_be(at[0], at[1]));
    if (!goes_on) return n;
  }
  *good = true;
  return n;
}

size_t sli_utf8_good(const char *text, size_t bytes) {
  size_t at = 0;
  for (bool good = true; at < bytes;) {
    if (!(text[at] & 0x80)) { /* most bytes are ASCII */
      at++;
      continue;
    }
    size_t n = sli_utf8_next(text + at, bytes - at, &good);
    if (!good) break;
    at += n;
  }
  return at;
}

int32_t sli_utf8_character(const char *text) {
  const unsigned char *at = (const unsigned char *)text;
  size_t n = length_of(at[0]);
  if (n < 2) return at[0];
  int32_t character = at[0] & (0x7f >> n);
  for (size_t i = 1; i < n; i++) character = character << 6 | (at[i] & 0x3f);
  return character;
}

void sli_utf8_print(FILE *out, const char *text, size_t bytes) {
  while (bytes) {
    size_t good = sli_utf8_good(text, bytes);
    fwrite(text, 1, good, out);
    if (good < bytes) fputs("\ufffd", out), good++;
    text += good;
    bytes -= good;
  }
}
