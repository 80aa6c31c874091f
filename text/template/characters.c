/* SPDX-License-Identifier: Apache-2.0 */
/* UTF-8 characters in the texts of templates. */
#include <string.h>

#include "text/template/template_inner.h"

size_t sli_text_step(sli_value text, size_t at) {
  size_t n = 1;
  while (at + n < text.text.bytes && ((unsigned char)text.text.at[at + n] & 0xc0) == 0x80) n++;
  return n;
}

size_t sli_text_characters(sli_value text) {
  size_t n = 0;
  for (size_t i = 0; i < text.text.bytes; i++) n += ((unsigned char)text.text.at[i] & 0xc0) != 0x80;
  return n;
}

bool sli_text_is_space(const char *at, size_t bytes) {
  static const char *const wide[] = {"\xc2\x85", "\u00a0", "\u1680", "\u2000", "\u2001",
                                     "\u2002",   "\u2003", "\u2004", "\u2005", "\u2006",
                                     "\u2007",   "\u2008", "\u2009", "\u200a", "\u2028",
                                     "\u2029",   "\u202f", "\u205f", "\u3000"};
  unsigned char c = (unsigned char)*at;
  if (bytes == 1) return (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x20);
  for (size_t i = 0; i < SLI_COUNT(wide); i++)
    if (strlen(wide[i]) == bytes && !memcmp(wide[i], at, bytes)) return true;
  return false;
}

static bool is_stripped(const char *at, size_t bytes, const sli_value *set) {
  return set ? memmem(set->text.at, set->text.bytes, at, bytes) != NULL
             : sli_text_is_space(at, bytes);
}

sli_value sli_text_strip(sli_value text, const sli_value *set, bool left, bool right) {
  size_t from = 0, end = text.text.bytes;
  for (size_t n; left && from < end; from += n) {
    n = sli_text_step(text, from);
    if (!is_stripped(text.text.at + from, n, set)) break;
  }
  for (size_t n; right && end > from; end -= n) {
    n = 1;
    while (end - n > from && ((unsigned char)text.text.at[end - n] & 0xc0) == 0x80) n++;
    if (!is_stripped(text.text.at + end - n, n, set)) break;
  }
  return sli_value_span(text.text.at + from, end - from);
}

sli_value sli_text_part(sli_value text, size_t from, size_t to) {
  size_t at = 0, begin;
  for (size_t i = 0; i < from && at < text.text.bytes; i++) at += sli_text_step(text, at);
  begin = at;
  for (size_t i = from; i < to && at < text.text.bytes; i++) at += sli_text_step(text, at);
  return sli_value_span(text.text.at + begin, at - begin);
}

size_t sli_text_put(char *out, uint32_t c) {
  if (c < 0x80) return out[0] = (char)c, 1;
  size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
  for (size_t i = n; i-- > 1; c >>= 6) out[i] = (char)(0x80 | (c & 63));
  out[0] = (char)((n == 2 ? 0xc0 : n == 3 ? 0xe0 : 0xf0) | c);
  return n;
}
