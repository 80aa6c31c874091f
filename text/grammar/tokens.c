/* SPDX-License-Identifier: Apache-2.0 */
/* The tokens of a vocabulary as a tree of their bytes. */
#include <stdlib.h>
#include <string.h>

#include "text/grammar/grammar_inner.h"

typedef struct entry {
  const sli_token_trie *trie;
  int32_t token;
} entry;

static const uint8_t *bytes_at(const sli_token_trie *t, int32_t token, size_t *bytes) {
  *bytes = t->offsets[token + 1] - t->offsets[token];
  return (const uint8_t *)t->text + t->offsets[token];
}

static int by_bytes(const void *a, const void *b) {
  const entry *x = a, *y = b;
  size_t n, m;
  const uint8_t *p = bytes_at(x->trie, x->token, &n), *q = bytes_at(y->trie, y->token, &m);
  int order = memcmp(p, q, SLI_MIN(n, m));
  if (order) return order;
  return n != m ? (n < m ? -1 : 1) : x->token < y->token ? -1 : x->token > y->token;
}

/* Copies the bytes of all tokens. */
static void read_bytes(sli_token_trie *t,
                       const char *(*bytes_of)(void *ctx, int32_t token, size_t *bytes),
                       void *ctx) {
  size_t room = 0, count = 0;
  t->offsets = sli_calloc((size_t)t->count + 1, sizeof *t->offsets);
  for (int32_t v = 0; v < t->count; v++) {
    size_t bytes = 0;
    const char *text = bytes_of(ctx, v, &bytes);
    if (count + bytes > room) {
      room = SLI_MAX(2 * room, count + bytes);
      t->text = sli_realloc(t->text, room, 1);
    }
    if (bytes) memcpy(t->text + count, text, bytes);
    count += bytes;
    t->offsets[v + 1] = (uint32_t)count;
  }
}

static void add_node(sli_token_trie *t, size_t *room, uint8_t byte, int32_t level, int32_t first) {
  if ((size_t)t->nnodes + 1 >= *room) {
    *room = SLI_MAX(2 * *room, (size_t)1024);
    t->byte = sli_realloc(t->byte, *room, sizeof *t->byte);
    t->level = sli_realloc(t->level, *room, sizeof *t->level);
    t->first = sli_realloc(t->first, *room, sizeof *t->first);
  }
  t->byte[t->nnodes] = byte;
  t->level[t->nnodes] = level;
  t->first[t->nnodes++] = first;
  t->depth = SLI_MAX(t->depth, level + 1);
}

/* Adds the nodes of a token, after those that it shares with the previous token. A node's tokens
 * are those from its first to that of the next node. */
static void add_token(sli_token_trie *t, size_t *room, int32_t at, const entry *all) {
  size_t n, m = 0, same = 0;
  const uint8_t *text = bytes_at(t, all[at].token, &n), *before = NULL;
  if (at) before = bytes_at(t, all[at - 1].token, &m);
  while (same < n && same < m && text[same] == before[same]) same++;
  for (size_t i = same; i < n; i++) add_node(t, room, text[i], (int32_t)i, at);
  t->tokens[at] = all[at].token;
  if (n == 1) t->single[text[0]] = 1;
}

/* Finds for each node the first later one that is not below it. */
static void find_ends(sli_token_trie *t) {
  t->behind = sli_calloc((size_t)t->nnodes + 1, sizeof *t->behind);
  int32_t *open = sli_calloc((size_t)t->depth + 1, sizeof *open), n = 0;
  for (int32_t i = 0; i <= t->nnodes; i++) {
    while (n && (i == t->nnodes || t->level[i] <= t->level[open[n - 1]])) t->behind[open[--n]] = i;
    if (i < t->nnodes) open[n++] = i;
  }
  free(open);
}

sli_token_trie *sli_token_trie_create(
    int64_t count, const char *(*bytes_of)(void *ctx, int32_t token, size_t *bytes), void *ctx) {
  sli_token_trie *t = sli_calloc(1, sizeof *t);
  *t = (sli_token_trie){.count = count, .words = (count + 31) / 32};
  read_bytes(t, bytes_of, ctx);
  entry *all = sli_calloc((size_t)count + 1, sizeof *all);
  int32_t n = 0;
  for (int32_t v = 0; v < count; v++)
    if (t->offsets[v + 1] > t->offsets[v]) all[n++] = (entry){t, v};
  qsort(all, (size_t)n, sizeof *all, by_bytes);
  t->tokens = sli_calloc((size_t)n + 1, sizeof *t->tokens);
  size_t room = 0;
  add_node(t, &room, 0, 0, 0); /* allocates the arrays */
  t->nnodes = t->depth = 0;
  for (int32_t i = 0; i < n; i++) add_token(t, &room, i, all);
  t->first[t->nnodes] = n;
  find_ends(t);
  free(all);
  return t;
}

void sli_token_trie_destroy(sli_token_trie *t) {
  if (!t) return;
  free(t->byte);
  free(t->level);
  free(t->behind);
  free(t->first);
  free(t->tokens);
  free(t->offsets);
  free(t->text);
  free(t);
}

bool sli_token_trie_has_mark(const sli_token_trie *t, const char *name, size_t bytes) {
  int32_t low = 0, high = t->first[t->nnodes];
  while (low < high) {
    int32_t middle = low + (high - low) / 2;
    size_t n;
    const uint8_t *text = bytes_at(t, t->tokens[middle], &n);
    int order = text[0] < SLI_TOKEN_MARK ? -1 : memcmp(text + 1, name, SLI_MIN(n - 1, bytes));
    if (!order && n - 1 == bytes) return true;
    if (order < 0 || (!order && n - 1 < bytes)) low = middle + 1;
    else high = middle;
  }
  return false;
}
