/* SPDX-License-Identifier: Apache-2.0 */
#include "base/json_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/utf8.h"

/* Formats a character as \uNNNN, or as two of them; returns the length. */
static size_t format_number(char out[16], uint32_t c) {
  if (c < 0x10000) return (size_t)snprintf(out, 16, "\\u%04x", c);
  return (size_t)snprintf(out, 16, "\\u%04x\\u%04x", 0xd800 + ((c - 0x10000) >> 10),
                          0xdc00 + ((c - 0x10000) & 0x3ff));
}

/* Formats the escape of the character at `at`. Returns the escape's length, or 0 if the character
 * needs none. */
static size_t format_escape(char out[16], const char *at, bool wide) {
  static const char marks[] = "\"\\\n\r\t\f\b", names[] = "\"\\nrtfb";
  unsigned char c = (unsigned char)*at;
  const char *mark = c ? strchr(marks, c) : NULL;
  if (mark) return (size_t)snprintf(out, 16, "\\%c", names[mark - marks]);
  if (c < ' ') return format_number(out, c);
  return wide ? format_number(out, (uint32_t)sli_utf8_character(at)) : 0;
}

void sli_json_string(const char *text, size_t bytes, bool ascii, sli_json_put *put, void *to) {
  size_t from = 0;
  put(to, "\"", 1);
  for (size_t at = 0, n; at < bytes; at += n) {
    bool good;
    char escape[16];
    n = sli_utf8_next(text + at, bytes - at, &good);
    size_t length = good ? format_escape(escape, text + at, ascii && n > 1)
                         : (size_t)snprintf(escape, sizeof escape, "\\ufffd");
    if (!length) continue;
    if (at > from) put(to, text + from, at - from);
    put(to, escape, length);
    from = at + n;
  }
  if (bytes > from) put(to, text + from, bytes - from);
  put(to, "\"", 1);
}

char *sli_json_mend(char *text) {
  size_t bytes = text ? strlen(text) : 0, size;
  if (sli_utf8_good(text, bytes) == bytes) return text;
  char *out = NULL;
  FILE *file = sli_memory_stream(&out, &size);
  sli_utf8_print(file, text, bytes);
  fclose(file);
  free(text);
  return out;
}
