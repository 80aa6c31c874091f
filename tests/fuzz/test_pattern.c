/* SPDX-License-Identifier: Apache-2.0 */
/* A pattern of a tokenizer.json is refused, or translated so that PCRE2 compiles or refuses it.
 * Then it splits a text into pieces that together are the whole text.
 * labels: random unthreaded
 * needs: pcre2 */
#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "text/tokenizer/tokenizer_inner.h"
#include "tests/fuzz/fuzz.h"

const char *const fuzz_words[] = {
    "\\p{L}", "\\P{Han}", "\\p{^N}", "[^",  "[",   "]",       "&&",      "[:alpha:]", "[:^digit:]",
    "\\s",    "\\S",      "\\w",     "\\h", "\\R", "\\x{41}", "\\u0041", "(?:",       "(?i:",
    "(?i)",   "(?m:",     "(?x)",    "(?>", "(?=", "(?!",     "(?<=",    "(?<!",      "(?<n>",
    "(?#",    ")",        "|",       "*",   "+",   "?",       "*+",      "+?",        "{1,3}",
    "{2}?",   "{,4}",     "{3,}+",   "\\b", "\\B", "^",       "$",       "\\A",       "\\z",
    "\\Z",    ".",        "\\",      "-",   "a-z", "'s",      "\u6f22",  NULL};

static void take(void *ctx, span piece) { *(size_t *)ctx += piece.bytes; }

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count) {
  static const char text[] =
      "Hello 'world's 12 \u6f22\u5b57\n\n a-b_c \u00e9e\u0301  ss \U0001f600";
  char *pattern = sli_calloc(1, count + 1);
  memcpy(pattern, bytes, count);
  cJSON *step = cJSON_CreateObject(), *of = cJSON_AddObjectToObject(step, "pattern");
  cJSON_AddStringToObject(step, "type", "Split");
  cJSON_AddStringToObject(of, "Regex", pattern);
  cJSON_AddStringToObject(step, "behavior", "Isolated");
  splitter *s = sli_splitter_create();
  bool byte_level = false;
  size_t sum = 0;
  if (!sli_splitter_read(s, step, &byte_level) &&
      !sli_splitter_run(s, (span){text, sizeof text - 1}, true, take, &sum) &&
      sum != sizeof text - 1)
    abort();
  sli_splitter_destroy(s);
  cJSON_Delete(step);
  free(pattern);
  return 0;
}
