/* SPDX-License-Identifier: Apache-2.0 */
/* Measures the time that grammars add to each token: bench_grammar TOKENIZER. A random model writes
 * texts under a few JSON schemas. `first` is the time per token mask in the first text, whose
 * grammar states are new; `again` is that in later texts, where most masks are cached. */
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "text/grammar/grammar.h"
#include "text/tokenizer/tokenizer.h"
#include "tests/support/rng.h"
#include "tests/support/test.h"

enum { MOST = 1 << 18, STEPS = 300, TEXTS = 40 };

static const struct {
  const char *name, *schema;
} cases[] = {
    {"any object", "{\"type\":\"object\"}"},
    {"a person",
     "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\"},\"age\":{\"type\":"
     "\"integer\",\"minimum\":0,\"maximum\":150},\"email\":{\"type\":\"string\",\"format\":"
     "\"email\"},\"tags\":{\"type\":\"array\",\"items\":{\"enum\":[\"red\",\"green\",\"blue\"]}}},"
     "\"required\":[\"name\",\"age\",\"email\",\"tags\"],\"additionalProperties\":false}"},
    {"a text of 200", "{\"type\":\"string\",\"maxLength\":200}"},
    {"steps",
     "{\"type\":\"object\",\"properties\":{\"steps\":{\"type\":\"array\",\"items\":{\"type\":"
     "\"object\",\"properties\":{\"explanation\":{\"type\":\"string\"},\"output\":{\"type\":"
     "\"string\"}},\"required\":[\"explanation\",\"output\"],\"additionalProperties\":false}},"
     "\"answer\":{\"type\":\"string\"}},\"required\":[\"steps\",\"answer\"],"
     "\"additionalProperties\":false}"}};

static sli_tokenizer *tokenizer;
static char *piece;

static const char *piece_of(void *ctx, int32_t token, size_t *bytes) {
  (void)ctx;
  free(piece);
  return piece = sli_tokenizer_piece(tokenizer, token, bytes);
}

static double seconds_since(uint64_t begin) { return (double)(sli_now_ns() - begin) * 1e-9; }

/* Draws a random allowed token. After a quarter of the steps it prefers one that closes a string,
 * object or array, so that the text ends. */
static int32_t draw(const uint32_t *allowed, int64_t count, int step, rng *d) {
  int32_t chosen = -1;
  uint32_t seen = 0;
  size_t bytes;
  for (int32_t v = 0; v < count; v++) {
    if (!(allowed[v / 32] >> v % 32 & 1)) continue;
    if (step > STEPS / 4) {
      const char *text = piece_of(NULL, v, &bytes);
      if (text && bytes == 1 && strchr("\"}]", *text)) return v;
    }
    if (!rng_below(d, ++seen)) chosen = v;
  }
  return chosen;
}

typedef struct times {
  double allow, most, take;
  int tokens;
} times;

static void write_text(sli_grammar *g, int64_t count, rng *d, times *t) {
  sli_guide *guide = sli_guide_create(g, NULL, 0);
  uint32_t *allowed = sli_calloc((size_t)count / 32 + 1, sizeof *allowed);
  bool ended = false;
  for (int step = 0; step < STEPS && !ended; step++) {
    memset(allowed, 0, ((size_t)count / 32 + 1) * sizeof *allowed);
    uint64_t begin = sli_now_ns();
    if (!sli_guide_allow(guide, allowed)) break;
    double took = seconds_since(begin);
    int32_t token = draw(allowed, count, step, d);
    begin = sli_now_ns();
    ended = sli_guide_take(guide, token);
    t->take += seconds_since(begin);
    t->allow += took;
    t->most = fmax(t->most, took);
    t->tokens++;
  }
  free(allowed);
  sli_guide_destroy(guide);
}

static void measure(const char *name, const char *schema, const sli_token_trie *trie,
                    int64_t count) {
  cJSON *root = cJSON_Parse(schema);
  sli_grammar *g = sli_grammar_create(NULL);
  uint64_t begin = sli_now_ns();
  CHECK(!sli_grammar_seal(g, sli_grammar_schema(g, root, name), trie), "%s", sl_detail());
  double made = seconds_since(begin);
  rng d = {.key = 3};
  times first = {0}, again = {0};
  write_text(g, count, &d, &first);
  for (int i = 0; i < TEXTS; i++) write_text(g, count, &d, &again);
  printf(
      "%-14s made in %6.2f ms; first %7.1f us a token, at most %7.1f; again %6.2f, at most "
      "%7.1f; taken in %5.2f\n",
      name, made * 1e3, first.allow / first.tokens * 1e6, first.most * 1e6,
      again.allow / again.tokens * 1e6, again.most * 1e6, again.take / again.tokens * 1e6);
  sli_grammar_destroy(g);
  cJSON_Delete(root);
}

int main(int argc, char **argv) {
  CHECK(argc == 2, "bench_grammar TOKENIZER");
  CHECK(!sli_tokenizer_open(argv[1], &tokenizer), "%s", sl_detail());
  int64_t count = 0;
  size_t bytes;
  for (int32_t v = 0; v < MOST; v++)
    if (piece_of(NULL, v, &bytes)) count = v + 1;
  uint64_t begin = sli_now_ns();
  sli_token_trie *trie = sli_token_trie_create(count, piece_of, NULL);
  printf("%lld tokens, sorted in %.0f ms\n", (long long)count, seconds_since(begin) * 1e3);
  for (size_t i = 0; i < SLI_COUNT(cases); i++)
    measure(cases[i].name, cases[i].schema, trie, count);
  sli_token_trie_destroy(trie);
  free(piece);
  sli_tokenizer_close(tokenizer);
  return 0;
}
