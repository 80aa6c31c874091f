/* SPDX-License-Identifier: Apache-2.0 */
/* An untrusted pattern, or schema if it is JSON, is refused, or becomes a grammar with bounded
 * memory that never gets stuck: any allowed text can be continued or ended.
 * labels: random unthreaded */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/grammars.h"

const char *const fuzz_words[] = {"{\"type\":\"object\"",
                                  "\"type\":\"string\"",
                                  "\"type\":\"integer\"",
                                  "\"type\":[\"number\",\"null\"]",
                                  "\"type\":\"array\"",
                                  "\"properties\":{\"a\":",
                                  "\"required\":[\"a\"]",
                                  "\"additionalProperties\":false",
                                  "\"patternProperties\":{\"^a\":",
                                  "\"items\":",
                                  "\"prefixItems\":[",
                                  "\"enum\":[1,\"a\"]",
                                  "\"const\":null",
                                  "\"anyOf\":[",
                                  "\"oneOf\":[",
                                  "\"allOf\":[",
                                  "\"$ref\":\"#\"",
                                  "\"$defs\":{\"x\":",
                                  "\"$ref\":\"#/$defs/x\"",
                                  "\"minLength\":2",
                                  "\"maxLength\":9",
                                  "\"pattern\":\"^a+$\"",
                                  "\"format\":\"date\"",
                                  "\"minimum\":-3.5",
                                  "\"maximum\":1e3",
                                  "\"multipleOf\":7",
                                  "\"minItems\":2",
                                  "\"maxItems\":3",
                                  "\"minProperties\":1",
                                  "\"maxProperties\":2",
                                  "\"propertyNames\":{",
                                  "true",
                                  "false",
                                  "{}",
                                  "}",
                                  "]",
                                  ",",
                                  ":",
                                  "(?:",
                                  "[^a-z]",
                                  "\\d",
                                  "\\w+",
                                  "{2,5}",
                                  "*",
                                  "+?",
                                  "|",
                                  ")",
                                  "(a|b)*",
                                  "[ab]{9}",
                                  "\\u00e4",
                                  "\xf0\x9f\x98\x80",
                                  "^",
                                  "$",
                                  NULL};

enum { BYTES = 1 << 24, STEPS = 60 };
static size_t taken;

static bool take(void *ctx, size_t bytes) {
  (void)ctx;
  if (taken + bytes > BYTES) return false;
  taken += bytes;
  return true;
}

static void give(void *ctx, size_t bytes) {
  (void)ctx;
  if (bytes > taken) abort();
  taken -= bytes;
}

/* Continues with any allowed byte. Returns false if the bounds of a state prevent that. */
static bool step(sli_guide *guide, uint64_t *random) {
  uint32_t allowed[GRAMMAR_WORDS] = {0};
  int tokens[257], n = 0;
  if (!sli_guide_allow(guide, allowed)) return false;
  for (int v = 0; v <= GRAMMAR_END; v++)
    if (allowed[v / 32] >> v % 32 & 1) tokens[n++] = v;
  if (!n) abort();
  *random = sli_hash_word(*random, 7);
  int token = tokens[*random % (uint64_t)n];
  return token < GRAMMAR_END && !sli_guide_take(guide, token);
}

static void walk(sli_grammar *g, uint64_t random) {
  static const int32_t end = GRAMMAR_END;
  sli_guide *guide = sli_guide_create(g, &end, 1);
  for (int i = 0; i < STEPS && step(guide, &random); i++) {}
  sli_guide_destroy(guide);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count) {
  static const sli_allowance allowance = {take, give, NULL};
  char *text = sli_calloc(1, count + 1);
  memcpy(text, bytes, count);
  cJSON *schema = cJSON_Parse(text);
  sli_grammar *g = sli_grammar_create(&allowance);
  sli_term root = schema ? sli_grammar_schema(g, schema, "schema") : sli_grammar_regex(g, text);
  if (!sli_grammar_seal(g, root, byte_tokens()))
    for (uint64_t i = 0; i < 3; i++) walk(g, sli_hash_word(i, count));
  sli_grammar_destroy(g);
  if (taken) abort();
  cJSON_Delete(schema);
  free(text);
  grammars_end();
  return 0;
}
