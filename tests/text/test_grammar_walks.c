/* SPDX-License-Identifier: Apache-2.0 */
/* A random model, under the grammar of each schema of make_grammar.py, writes JSON that another
 * validator accepts, and never gets stuck. Its tokens have many bytes and break words and
 * characters anywhere. The allowed tokens depend neither on earlier queries nor on garbage
 * collection in between.
 * labels: random unthreaded */
#include <locale.h>

#include "tests/support/grammars.h"
#include "tests/support/json_schema.h"
#include "tests/support/reference_file.h"
#include "tests/support/rng.h"

enum { TOKENS = 3000, END = TOKENS, WORDS = (TOKENS + 32) / 32, CALM = 60, STEPS = 3000 };

static struct {
  char text[12];
  size_t bytes;
} tokens[TOKENS];
static sli_token_trie *trie;
static int walks, cut;

static const char *token_of(void *ctx, int32_t token, size_t *bytes) {
  (void)ctx;
  *bytes = tokens[token].bytes;
  return tokens[token].text;
}

/* Makes the vocabulary: all single bytes, and fragments of JSON. */
static void make_tokens(rng *d) {
  static const char sample[] =
      "{\"a\": 1, \"b\":\"text\",\"name\": [true,false, null], \"x1\":{\"city\":-12.5e+3}}\n  \"\xc3\x9f\xc3\xa4\xe6\x97\xa5\xe6\x9c"
      "\xac\xf0\x9f\x98\x80\\n\\\"\\u00e4\",\"celsius\": \"2024-05-06T07:08:09Z\", \"me@example.org\"]]}}}, {\"kind\": \"circle\"\t\n\n    ";
  for (int v = 0; v < TOKENS; v++) {
    size_t n = v < 256 ? 1 : 1 + rng_below(d, 11), at = rng_below(d, (uint32_t)(sizeof sample - n));
    tokens[v].bytes = n;
    memcpy(tokens[v].text, sample + at, n);
    if (v < 256) tokens[v].text[0] = (char)v;
  }
  tokens[300].bytes = 0; /* a special token */
  trie = sli_token_trie_create(TOKENS, token_of, NULL);
}

static bool has(const uint32_t *allowed, int v) { return allowed[v / 32] >> v % 32 & 1; }

/* Draws an allowed token; once the text is long, a closing one if possible. */
static int draw(const uint32_t *allowed, int step, rng *d) {
  static const int closing[] = {END, '"', ']', '}'};
  for (size_t i = 0; step > CALM && i < SLI_COUNT(closing); i++)
    if (has(allowed, closing[i])) return closing[i];
  int chosen = -1, seen = 0;
  for (int v = 0; v <= END; v++)
    if (has(allowed, v) && !rng_below(d, (uint32_t)++seen)) chosen = v;
  CHECK(chosen >= 0 && chosen != 300, "a token is allowed, and none without text");
  return chosen;
}

/* Writes a text; returns false if it was cut off. */
static bool write_text(sli_grammar *g, rng *d, char **text) {
  static const int32_t end = END;
  size_t bytes;
  FILE *out = open_memstream(text, &bytes);
  sli_guide *guide = sli_guide_create(g, &end, 1);
  bool ended = false;
  for (int step = 0; step < STEPS && !ended; step++) {
    uint32_t allowed[WORDS] = {0};
    CHECK(sli_guide_allow(guide, allowed), "it is not stuck");
    int token = draw(allowed, step, d);
    ended = token == END || sli_guide_take(guide, token);
    if (token != END) fwrite(tokens[token].text, 1, tokens[token].bytes, out);
  }
  sli_guide_destroy(guide);
  fclose(out);
  return ended;
}

static void check_text(const cJSON *schema, const char *text) {
  const char *end;
  cJSON *value = strstr(text, "\\u0000") ? NULL : cJSON_ParseWithOpts(text, &end, 1);
  if (strstr(text, "\\u0000")) return; /* cJSON strings end there */
  char *print = cJSON_PrintUnformatted(schema);
  CHECK(value, "%s: %s is JSON", print, text);
  CHECK(schema_accepts(schema, schema, value), "%s: %s is accepted", print, text);
  free(print);
  cJSON_Delete(value);
}

static rng now = {.key = 5};

static void walk_line(char *line) {
  cJSON *root = cJSON_Parse(line);
  const cJSON *schema = keyword(root, "schema");
  sli_grammar *g = sli_grammar_create(NULL);
  bool good = !sli_grammar_seal(g, sli_grammar_schema(g, schema, "schema"), trie);
  for (int i = 0; good && i < test_many(6, 2, 60); i++) {
    char *text = NULL;
    walks++;
    if (write_text(g, &now, &text)) check_text(schema, text);
    else cut++;
    free(text);
  }
  sli_grammar_destroy(g);
  cJSON_Delete(root);
}

static void texts_at_random_are_accepted(void) {
  const char *source = getenv("SLUICE_SOURCE");
  char path[4096];
  snprintf(path, sizeof path, "%s/tests/reference/grammar_schemas.txt", source ? source : ".");
  CHECK(reference_lines(path, walk_line) >= 200, "there are 200 schemas");
  CHECK(walks > 300 && cut * 20 < walks, "%d of %d texts had to be cut", cut, walks);
}

/* Nests arrays until memory must be collected, then compares with a fresh grammar. */
static void memory_is_bounded(void) {
  enum { DEPTH = 30000 };
  static const int32_t end = END;
  cJSON *schema = cJSON_Parse("{\"type\":\"array\"}");
  sli_grammar *g = sli_grammar_create(NULL);
  CHECK(!sli_grammar_seal(g, sli_grammar_schema(g, schema, "schema"), trie), "%s", sl_detail());
  sli_guide *other = sli_guide_create(g, &end, 1), *deep = sli_guide_create(g, &end, 1);
  uint32_t before[WORDS] = {0}, after[WORDS] = {0};
  CHECK(sli_guide_allow(other, before), "it is not stuck");
  bool stuck = false;
  for (int i = 0; i < DEPTH && !stuck; i++) {
    uint32_t allowed[WORDS] = {0};
    if (i % 100 == 0) stuck = !sli_guide_allow(deep, allowed);
    sli_guide_take(deep, '[');
  }
  CHECK(sli_guide_allow(other, after) && !memcmp(before, after, sizeof before),
        "another text goes on as before");
  sli_guide_take(other, '[');
  sli_guide_take(other, ']');
  sli_guide_destroy(deep);
  sli_guide_destroy(other);
  sli_grammar_destroy(g);
  cJSON_Delete(schema);
}

int main(void) {
  CHECK(setlocale(LC_CTYPE, "C.UTF-8"), "there is a locale");
  make_tokens(&now);
  RUN(texts_at_random_are_accepted);
  RUN(memory_is_bounded);
  sli_token_trie_destroy(trie);
  grammars_end();
  return 0;
}
