/* SPDX-License-Identifier: Apache-2.0 */
/* Tests JSON strings: which characters are escaped, and which bytes pass through. */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/json_text.h"
#include "tests/support/test.h"

typedef struct written {
  char text[256];
  size_t bytes;
} written;

static void put(void *to, const char *text, size_t bytes) {
  written *w = to;
  CHECK(w->bytes + bytes < sizeof w->text, "too much is written");
  memcpy(w->text + w->bytes, text, bytes);
  w->bytes += bytes;
}

static void becomes(const char *text, size_t bytes, bool ascii, const char *want) {
  written w = {0};
  sli_json_string(text, bytes, ascii, put, &w);
  CHECK(w.bytes == strlen(want) && !memcmp(w.text, want, w.bytes), "%.*s, not %s", (int)w.bytes,
        w.text, want);
}

static void control_characters_are_escaped(void) {
  becomes("", 0, false, "\"\"");
  becomes("plain", 5, false, "\"plain\"");
  becomes("a\0b\0", 4, false, "\"a\\u0000b\\u0000\"");
  becomes("\"\\\n\r\t\f\b\x01\x1f\x7f", 10, false, "\"\\\"\\\\\\n\\r\\t\\f\\b\\u0001\\u001f\x7f\"");
}

static void others_are_escaped_for_ascii_alone(void) {
  static const char text[] = "\303\274 \342\202\254 \360\237\230\200!";
  becomes(text, sizeof text - 1, false, "\"\303\274 \342\202\254 \360\237\230\200!\"");
  becomes(text, sizeof text - 1, true, "\"\\u00fc \\u20ac \\ud83d\\ude00!\"");
  becomes("\377a\302", 3, true, "\"\\ufffda\\ufffd\""); /* not UTF-8 */
  becomes("\377a\302", 3, false, "\"\\ufffda\\ufffd\"");
}

static void printed_texts_are_mended(void) {
  char *text = sli_json_mend(sli_strdup("{\"a\377\":\"\303\274\"}"));
  CHECK(!strcmp(text, "{\"a\357\277\275\":\"\303\274\"}"), "%s", text);
  free(text);
  CHECK(!sli_json_mend(NULL), "no text");
}

int main(void) {
  RUN(control_characters_are_escaped);
  RUN(others_are_escaped_for_ascii_alone);
  RUN(printed_texts_are_mended);
  return 0;
}
