/* SPDX-License-Identifier: Apache-2.0 */
/* Byte-pair encoding of one word (Sennrich et al., arXiv 1508.07909). Of all adjacent pairs that
 * have a rule, the pair with the earliest rule is merged first, leftmost first among equals, until
 * no rule applies. A heap of (rule, position) finds it; stale entries, whose pair is gone, are
 * skipped. */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "text/tokenizer/tokenizer_inner.h"

typedef struct rule {
  uint64_t pair;
  int32_t rank, token; /* rank starts at 1; 0 marks a free slot */
} rule;

struct merges {
  rule *slots;
  size_t nslots;
  int32_t count;
};

merges *sli_merges_create(size_t most) {
  merges *m = sli_calloc(1, sizeof *m);
  m->nslots = 64;
  while (m->nslots < 2 * most) m->nslots *= 2;
  m->slots = sli_calloc(m->nslots, sizeof *m->slots);
  return m;
}

void sli_merges_destroy(merges *m) {
  if (m) free(m->slots);
  free(m);
}

static rule *rule_of(const merges *m, int32_t left, int32_t right) {
  uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
  uint64_t at = pair * UINT64_C(0x9E3779B97F4A7C15) >> 20;
  for (;; at++) {
    rule *r = &m->slots[at & (m->nslots - 1)];
    if (!r->rank || r->pair == pair) return r;
  }
}

void sli_merges_add(merges *m, int32_t left, int32_t right, int32_t token) {
  rule *r = rule_of(m, left, right);
  *r = (rule){(uint64_t)(uint32_t)left << 32 | (uint32_t)right, ++m->count, token};
}

/* ---- heap ----------------------------------------------------------------------------------- */

static void push(merging *m, uint64_t key) {
  size_t i = m->queued++;
  for (size_t up; i && m->heap[up = (i - 1) / 2] > key; i = up) m->heap[i] = m->heap[up];
  m->heap[i] = key;
}

static uint64_t pop(merging *m) {
  uint64_t top = m->heap[0], last = m->heap[--m->queued];
  size_t i = 0;
  for (size_t down; (down = 2 * i + 1) < m->queued; i = down) {
    if (down + 1 < m->queued && m->heap[down + 1] < m->heap[down]) down++;
    if (m->heap[down] >= last) break;
    m->heap[i] = m->heap[down];
  }
  m->heap[i] = last;
  return top;
}

/* ---- words ----------------------------------------------------------------------------------- */

/* KEPT: tokens whose buffers are kept; LOOKS: steps between checks of `stop`; TOKEN_BYTES: memory
 * of a token in all buffers */
enum { KEPT = 1 << 16, LOOKS = 1 << 12, TOKEN_BYTES = 3 * sizeof(int32_t) + 3 * sizeof(uint64_t) };

void sli_merging_fini(merging *m) {
  sli_give(m->allowance, TOKEN_BYTES * m->room);
  free(m->tokens);
  free(m->next);
  free(m->before);
  free(m->heap);
  *m = (merging){.allowance = m->allowance};
}

/* The heap is bounded: a word of n tokens has n - 1 pairs, and each of at most n - 1 merges adds
 * two. */
bool sli_merging_begin(merging *m, size_t count) {
  if (count <= m->room) return true;
  size_t room = SLI_MAX(SLI_MIN(2 * m->room, (size_t)KEPT), count);
  if (!sli_take(m->allowance, TOKEN_BYTES * (room - m->room))) return false;
  m->room = room;
  m->tokens = sli_realloc(m->tokens, m->room, sizeof *m->tokens);
  m->next = sli_realloc(m->next, m->room, sizeof *m->next);
  m->before = sli_realloc(m->before, m->room, sizeof *m->before);
  m->heap = sli_realloc(m->heap, 3 * m->room, sizeof *m->heap);
  return true;
}

static void offer(const merges *rules, merging *m, int32_t at) {
  if (at < 0 || m->next[at] < 0) return;
  const rule *r = rule_of(rules, m->tokens[at], m->tokens[m->next[at]]);
  if (r->rank) push(m, (uint64_t)r->rank << 32 | (uint32_t)at);
}

static void join(const merges *rules, merging *m, int32_t at, int32_t token) {
  int32_t gone = m->next[at], after = m->next[gone];
  m->tokens[at] = token;
  m->tokens[gone] = SLI_NO_TOKEN;
  m->next[at] = after;
  if (after >= 0) m->before[after] = at;
  offer(rules, m, m->before[at]);
  offer(rules, m, at);
}

void sli_merge(const merges *rules, merging *m, size_t count, const atomic_bool *stop,
               sli_token_row *out) {
  size_t steps = 0;
  m->queued = 0;
  for (size_t i = 0; i < count; i++) {
    m->before[i] = (int32_t)i - 1;
    m->next[i] = i + 1 < count ? (int32_t)i + 1 : -1;
  }
  for (size_t i = 0; i < count; i++) offer(rules, m, (int32_t)i);
  while (m->queued && (++steps % LOOKS || !sli_is_stopped(stop))) {
    uint64_t key = pop(m);
    int32_t at = (int32_t)(uint32_t)key;
    if (m->tokens[at] == SLI_NO_TOKEN || m->next[at] < 0) continue;
    const rule *r = rule_of(rules, m->tokens[at], m->tokens[m->next[at]]);
    if ((uint64_t)r->rank == key >> 32) join(rules, m, at, r->token);
  }
  for (int32_t i = 0; count && i >= 0; i = m->next[i]) {
    sli_token_row_add(out, m->tokens[i]);
  }
  if (m->room > KEPT) sli_merging_fini(m);
}
