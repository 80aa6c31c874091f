/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens of every character and of 100,000 random strings match those of Hugging Face's library, by
 * the hashes in tests/reference/tokenizers/NAME.hashes (tests/reference/make_tokenizer_hashes.py).
 * A megabyte takes less than a second on one core.
 * labels: numbers unthreaded long
 * needs: pcre2 utf8proc */
#include <string.h>

#include "base/base.h"
#include "io/file.h"
#include "text/tokenizer/tokenizer.h"
#include "tests/support/processor_time.h"
#include "tests/support/test.h"

static const char *const names[] = {"smollm", "llama2"};
enum { POINTS = 4096, STRINGS = 1000, MOST_STRING = 40, MOST_BYTES = 4 * (MOST_STRING + 2) };

typedef struct text {
  size_t count;
  char bytes[MOST_BYTES];
} text;

static void add(text *t, uint32_t c) {
  char *to = t->bytes + t->count;
  int more = c < 0x80 ? 0 : c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
  static const uint32_t heads[] = {0, 0xc0, 0xe0, 0xf0};
  for (int i = more; i > 0; i--, c >>= 6) to[i] = (char)(0x80 | (c & 0x3f));
  to[0] = (char)(heads[more] | c);
  t->count += (size_t)more + 1;
}

/* ---- the strings of the script --------------------------------------------------------------- */

static uint32_t rng_below(uint64_t *state, uint32_t sides) {
  *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (uint32_t)((*state >> 33) % sides);
}

static uint32_t character(uint64_t *state) {
  static const char white[] = " \n\t\r";
  switch (rng_below(state, 6)) {
  case 0: return 32 + rng_below(state, 95);
  case 1: return 97 + rng_below(state, 26);
  case 2: return (uint32_t)white[rng_below(state, 4)];
  case 3: return 0xa0 + rng_below(state, 0x2000);
  case 4: return 0x4e00 + rng_below(state, 0x5000);
  default: return 0x1f300 + rng_below(state, 0x600);
  }
}

static text string(uint64_t seed) {
  text t = {0};
  for (uint32_t n = 1 + rng_below(&seed, MOST_STRING); n; n--) add(&t, character(&seed));
  return t;
}

static text point(uint32_t c) {
  text t = {0};
  add(&t, 'a'), add(&t, c), add(&t, 'b');
  return t;
}

/* ---- hashes ---------------------------------------------------------------------------------- */

static uint64_t hash_tokens(uint64_t hash, sli_tokenizer *t, const text *of) {
  const uint64_t prime = UINT64_C(1099511628211);
  sli_token_row row = {0};
  CHECK(!sli_tokenizer_encode(t, of->bytes, of->count, false, &row), "%s", sl_detail());
  for (size_t i = 0; i < row.count; i++) hash = (hash ^ (uint32_t)row.items[i]) * prime;
  free(row.items);
  return (hash ^ UINT32_MAX) * prime;
}

static uint64_t hash_of(sli_tokenizer *t, bool points, uint32_t first) {
  uint64_t hash = UINT64_C(14695981039346656037);
  for (uint32_t i = first, end = first + (points ? POINTS : STRINGS); i < end; i++) {
    if (points && i >= 0xd800 && i < 0xe000) continue; /* surrogates */
    text one = points ? point(i) : string(i);
    hash = hash_tokens(hash, t, &one);
  }
  return hash;
}

/* ---- speed ----------------------------------------------------------------------------------- */

static const char *source(void) { return getenv("SLUICE_SOURCE") ? getenv("SLUICE_SOURCE") : "."; }

static void check_speed(sli_tokenizer *t, const char *name) {
  enum { MEGABYTE = 1000000 };
  char *path = sli_format("%s/tests/reference/text.txt", source()), *line,
       *all = sli_calloc(1, MEGABYTE);
  CHECK(!sli_file_read(path, &line), "%s", sl_detail());
  for (size_t i = 0, n = strlen(line); i < MEGABYTE; i++) all[i] = line[i % n];
  sli_token_row row = {0};
  double begin = thread_seconds();
  CHECK(!sli_tokenizer_encode(t, all, MEGABYTE, false, &row), "%s", sl_detail());
  double took = thread_seconds() - begin;
  printf("%s: %zu tokens of a megabyte in %.3f s\n", name, row.count, took);
#if !defined(__SANITIZE_THREAD__) /* it instruments every memory access */
  CHECK(took < 1, "%s: a megabyte takes %g s", name, took);
#endif
  free(row.items);
  free(all), free(line), free(path);
}

/* ---- all of it ------------------------------------------------------------------------------- */

static void check(const char *name) {
  char *folder = sli_format("%s/tests/reference/tokenizers/%s", source(), name);
  char *path = sli_format("%s.json", folder), *hashes = sli_format("%s.hashes", folder), *all,
       *line;
  sli_tokenizer *t;
  CHECK(!sli_tokenizer_open(path, &t) && !sli_file_read(hashes, &all), "%s", sl_detail());
  int lines = 0;
  for (char *rest = all; (line = strsep(&rest, "\n")) && *line; lines++) {
    char kind[16];
    unsigned first;
    unsigned long long want;
    CHECK(sscanf(line, "%15s %u %llx", kind, &first, &want) == 3, "%s: %s", hashes, line);
    CHECK(hash_of(t, !strcmp(kind, "point"), first) == want,
          "%s: other tokens among those of %s %u on", name, kind, first);
  }
  check_speed(t, name);
  CHECK(lines == 0x110000 / POINTS + 100, "%s has %d lines", hashes, lines);
  free(all);
  free(folder), free(path), free(hashes);
  sli_tokenizer_close(t);
}

int main(void) {
  for (size_t i = 0; i < SLI_COUNT(names); i++) RUN(check, names[i]);
  return 0;
}
