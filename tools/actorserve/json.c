/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/actorserve/json.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/base.h"

enum { MOST_VALUES = 1 << 18, VALUE_BYTES = 96 };

size_t utf8_good(const char *text, size_t bytes) {
  size_t at = 0;
  for (utf8proc_int32_t c; at < bytes;) {
    if (!(text[at] & 0x80)) { /* most bytes are ASCII */
      at++;
      continue;
    }
    utf8proc_ssize_t n = utf8proc_iterate((const utf8proc_uint8_t *)text + at, (utf8proc_ssize_t)(bytes - at), &c);
    if (n <= 0) break;
    at += (size_t)n;
  }
  return at;
}

/* Checks what cJSON does not: zeros inside texts, and whether there is memory for all values. */
static sl_status look_over(const char *text, size_t bytes) {
  size_t values = 1;
  bool quoted = false;
  for (size_t i = 0; i < bytes; i++) {
    char c = text[i];
    if (quoted && c == '\\' && !strncmp(text + i, "\\u0000", 6))
      return sl_fail(SL_E_INPUT, "the body has a text with a zero in it, at byte %zu", i);
    if (!quoted) values += c == ',' || c == '[' || c == '{';
    quoted ^= c == '"';
    i += quoted && c == '\\';
  }
  if (values > MOST_VALUES) return sl_fail(SL_E_INPUT, "the body has more than %d values", MOST_VALUES);
  /* memory to parse it, tested because cJSON does not say why it fails */
  void *room = malloc(values * VALUE_BYTES + 2 * bytes);
  free(room);
  return room ? SL_OK : sl_fail(SL_E_MEMORY, "there is no memory to read the body: try again later");
}

sl_status json_read(const char *text, size_t bytes, cJSON **out) {
  size_t good = utf8_good(text, bytes);
  if (good < bytes) return sl_fail(SL_E_INPUT, "the body is not UTF-8 at byte %zu", good);
  if (strlen(text) < bytes) return sl_fail(SL_E_INPUT, "the body has a zero at byte %zu", strlen(text));
  sl_status status = look_over(text, bytes);
  if (status) return status;
  const char *end = text;
  *out = cJSON_ParseWithLengthOpts(text, bytes + 1, &end, 1);
  if (*out) return SL_OK;
  size_t at = SLI_MIN((size_t)(end - text), bytes);
  if (at == bytes) return sl_fail(SL_E_INPUT, "the body is not JSON at its end");
  size_t shown = SLI_MIN(bytes - at, 20);
  while (shown && utf8_good(text + at, shown) < shown) shown--;
  return sl_fail(SL_E_INPUT, "the body is not JSON near byte %zu: %.*s", at, (int)shown, text + at);
}
