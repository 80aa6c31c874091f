/* SPDX-License-Identifier: Apache-2.0 */
/* Untrusted JSON text is read or refused; a value that was read stays the same when printed and
 * read again.
 * labels: random unthreaded */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "tests/fuzz/fuzz.h"

const char *const fuzz_words[] = {"{",
                                  "}",
                                  "[",
                                  "]",
                                  ":",
                                  ",",
                                  "\"",
                                  "\\",
                                  "\\u0000",
                                  "\\ud800",
                                  "\\udc00",
                                  "\\ud83d\\ude00",
                                  "null",
                                  "true",
                                  "false",
                                  "-0",
                                  "1e5",
                                  "1E-5",
                                  "0.5",
                                  "1e400",
                                  "\"a\":",
                                  "\xc3\xa4",
                                  "\xed\xa0\x80",
                                  "\xff",
                                  "\xef\xbb\xbf",
                                  "[[[[[[[[[[[[[[[[",
                                  "]]]]]]]]]]]]]]]]",
                                  NULL};

static void take_all(const sli_json *doc, const cJSON *item) {
  double number;
  int64_t whole;
  (void)!sli_json_number(doc, item, -1e9, 1e9, &number);
  (void)!sli_json_whole(doc, item, INT64_MIN, INT64_MAX, &whole);
  const sli_json_field field = {"a", SLI_JSON_WHOLE, &whole, -1e300, 1e300, true};
  (void)!sli_json_take(doc, item, &field, 1);
  for (const cJSON *at = item->child; at; at = at->next) take_all(doc, at);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count) {
  sli_json doc, again;
  if (sli_json_scan("fuzz", (const char *)bytes, count, 0)) return 0;
  if (sli_json_read("fuzz", (const char *)bytes, count, 0, &doc)) {
    if (strstr(sl_detail(), "not JSON")) abort(); /* the scan and the parser must agree */
    return 0;
  }
  take_all(&doc, doc.root);
  char *text = cJSON_PrintUnformatted(doc.root);
  if (!text || sli_json_read("again", text, strlen(text), 0, &again) ||
      !cJSON_Compare(doc.root, again.root, true))
    abort();
  free(text);
  sli_json_fini(&again);
  sli_json_fini(&doc);
  return 0;
}
