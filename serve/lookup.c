/* SPDX-License-Identifier: Apache-2.0 */
/* Prompt lookup by chains of equal token pairs, as in LZ77. For each pair of adjacent tokens the
 * index has its newest place, and for each place the previous one with the same pair. */
#include "serve/lookup.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"

struct sli_lookup {
  int64_t count; /* indexed pairs of the text; pair i is tokens i and i + 1 */
  size_t capacity;
  int32_t *before; /* [count] previous place in the chain; -1: none */
  size_t slots;    /* a power of two; 0: not allocated */
  int32_t *newest; /* [slots] newest place of each chain; -1: none */
};

sli_lookup *sli_lookup_create(void) { return sli_calloc(1, sizeof(sli_lookup)); }

void sli_lookup_destroy(sli_lookup *l) {
  if (!l) return;
  free(l->before);
  free(l->newest);
  free(l);
}

/* Returns the chain of the pair at a place. Different pairs may share a chain. */
static int32_t *chain_of(const sli_lookup *l, const int32_t *tokens, int64_t at) {
  uint64_t pair = (uint64_t)(uint32_t)tokens[at] << 32 | (uint32_t)tokens[at + 1];
  uint64_t hash = sli_hash_word(0, pair);
  return &l->newest[hash & (l->slots - 1)];
}

static void add_pair(sli_lookup *l, const int32_t *tokens, int64_t at) {
  int32_t *newest = chain_of(l, tokens, at);
  l->before[at] = *newest;
  *newest = (int32_t)at;
}

/* Rebuilds the chains with at least twice as many slots as pairs. */
static void grow_chains(sli_lookup *l, const int32_t *tokens, int64_t count) {
  l->slots = SLI_MAX(l->slots, (size_t)64);
  while ((int64_t)l->slots < 2 * count) l->slots *= 2;
  free(l->newest);
  l->newest = sli_calloc(l->slots, sizeof *l->newest);
  memset(l->newest, 0xff, l->slots * sizeof *l->newest);
  for (int64_t i = 0; i < l->count; i++) add_pair(l, tokens, i);
}

/* Indexes the pairs up to `count`. */
static void index_pairs(sli_lookup *l, const int32_t *tokens, int64_t count) {
  for (int64_t i = l->count; i < count; i++) SLI_GROW(l->before, (size_t)i, l->capacity);
  if ((int64_t)l->slots < count) grow_chains(l, tokens, count);
  for (; l->count < count; l->count++) add_pair(l, tokens, l->count);
}

/* Counts the tokens before `end` that equal the newest tokens of the text. */
static int match_of(const int32_t *tokens, int64_t count, int64_t end) {
  int n = 0;
  while (n < SLI_LOOKUP_LONGEST && n < end && tokens[end - 1 - n] == tokens[count - 1 - n]) n++;
  return n;
}

/* Returns the end of the longest match, or 0 if there is none. The newest pair itself is not
 * indexed. */
static int64_t find_match(const sli_lookup *l, const int32_t *tokens, int64_t count, int *length) {
  enum { TRIED = 64 };
  int32_t at = *chain_of(l, tokens, count - 2);
  int64_t best = 0;
  for (int i = 0; i < TRIED && at >= 0 && *length < SLI_LOOKUP_LONGEST; i++, at = l->before[at]) {
    int n = match_of(tokens, count, (int64_t)at + 2);
    if (n > *length) *length = n, best = (int64_t)at + 2;
  }
  return best;
}

/* Copies the tokens that follow a match. Past the end of the text, continues with the tokens
 * already drafted. */
static void copy(const int32_t *tokens, int64_t count, int64_t from, int n, int32_t *out) {
  for (int i = 0; i < n; i++) out[i] = from + i < count ? tokens[from + i] : out[from + i - count];
}

int sli_lookup_find(sli_lookup *l, const int32_t *tokens, int64_t count, int least, int most,
                    int32_t *out, int *length) {
  *length = 0;
  if (count < SLI_LOOKUP_SHORTEST + 1) return 0;
  index_pairs(l, tokens, count - SLI_LOOKUP_SHORTEST);
  int64_t from = find_match(l, tokens, count, length);
  if (!from || *length < least) return 0;
  copy(tokens, count, from, most, out);
  return most;
}
