/* SPDX-License-Identifier: Apache-2.0 */
/* Guides: positions of texts in a grammar, and the tokens that may come next. */
#include <stdlib.h>
#include <string.h>

#include "text/grammar/grammar_inner.h"

struct sli_guide {
  sli_grammar *grammar;
  sli_root at; /* state of the position; NULL if a limit was exceeded */
  int32_t *ends;
  int nends;
  bool stuck; /* no token was allowed */
};

sli_guide *sli_guide_create(sli_grammar *g, const int32_t *ends, int nends) {
  sli_guide *x = sli_calloc(1, sizeof *x);
  *x = (sli_guide){.grammar = g, .nends = nends};
  x->ends = sli_calloc((size_t)nends + 1, sizeof *ends);
  if (nends) memcpy(x->ends, ends, (size_t)nends * sizeof *ends);
  pthread_mutex_lock(&g->lock);
  sli_root_add(g, &x->at, sli_states_first(g));
  pthread_mutex_unlock(&g->lock);
  return x;
}

void sli_guide_destroy(sli_guide *x) {
  if (!x) return;
  pthread_mutex_lock(&x->grammar->lock);
  sli_root_remove(&x->at);
  pthread_mutex_unlock(&x->grammar->lock);
  free(x->ends);
  free(x);
}

/* ---- tokens that may come next --------------------------------------------------------------- */

static void allow_node(const sli_token_trie *t, int32_t i, uint32_t *mask) {
  for (int32_t k = t->first[i]; k < t->first[i + 1]; k++)
    mask[t->tokens[k] / 32] |= UINT32_C(1) << t->tokens[k] % 32;
}

/* Walks over the tokens from the state path[0]; path[n] is the state after n bytes. */
static void walk(sli_grammar *g, sli_root *path, uint32_t *mask) {
  const sli_token_trie *t = g->tokens;
  for (int32_t i = 0; i < t->nnodes && !g->states.over;) {
    int32_t level = t->level[i];
    sli_state *next = sli_states_next(g, &path[level], t->byte[i]);
    if (!next) return;
    path[level + 1].state = next;
    if (next == g->states.dead) {
      i = t->behind[i];
      continue;
    }
    allow_node(t, i++, mask);
  }
}

/* Finds the tokens that may come next, and stores them with the state. */
static bool find_mask(sli_grammar *g, const sli_root *at, uint32_t *mask) {
  size_t depth = (size_t)g->tokens->depth + 1, bytes = (size_t)g->tokens->words * sizeof *mask;
  sli_root *path = sli_calloc(depth, sizeof *path);
  for (size_t i = 0; i < depth; i++) sli_root_add(g, &path[i], i ? NULL : at->state);
  sli_states_allow_work(g);
  walk(g, path, mask);
  for (size_t i = 0; i < depth; i++) sli_root_remove(&path[i]);
  free(path);
  uint32_t *kept = g->states.over ? NULL : sli_states_alloc(g, bytes);
  if (kept) at->state->mask = memcpy(kept, mask, bytes);
  return !g->states.over;
}

static bool allow(const sli_guide *x, const sli_root *at, uint32_t *allowed) {
  const sli_token_trie *t = x->grammar->tokens;
  sli_state *s = at->state;
  if (!s) return false;
  if (s->mask) memcpy(allowed, s->mask, (size_t)t->words * sizeof *allowed);
  else if (!find_mask(x->grammar, at, allowed)) return false;
  for (int i = 0; i < x->nends && at->state->accepts; i++)
    allowed[x->ends[i] / 32] |= UINT32_C(1) << x->ends[i] % 32;
  bool any = x->nends && at->state->accepts;
  for (int64_t i = 0; i < t->words && !any; i++) any = allowed[i];
  return any;
}

/* ---- taking tokens --------------------------------------------------------------------------- */

/* Moves a position past a token. Returns true if nothing can follow. */
static bool take(sli_grammar *g, sli_root *at, int32_t token) {
  const sli_token_trie *t = g->tokens;
  if (token < 0 || token >= t->count) return false;
  sli_states_allow_work(g);
  for (uint32_t i = t->offsets[token]; i < t->offsets[token + 1] && at->state; i++)
    at->state = sli_states_next(g, at, (uint8_t)t->text[i]);
  return at->state && at->state->accepts && !at->state->count;
}

bool sli_guide_take(sli_guide *x, int32_t token) {
  pthread_mutex_lock(&x->grammar->lock);
  bool complete = take(x->grammar, &x->at, token);
  pthread_mutex_unlock(&x->grammar->lock);
  return complete;
}

bool sli_guide_allow_behind(sli_guide *x, int n, const int32_t *further, uint32_t *allowed) {
  sli_grammar *g = x->grammar;
  sli_root at;
  pthread_mutex_lock(&g->lock);
  sli_root_add(g, &at, x->at.state);
  for (int i = 0; i < n && at.state != g->states.dead; i++) take(g, &at, further[i]);
  bool good = at.state != g->states.dead && allow(x, &at, allowed);
  x->stuck |= !good && (!n || g->states.over);
  sli_root_remove(&at);
  pthread_mutex_unlock(&g->lock);
  return good;
}

bool sli_guide_is_stuck(const sli_guide *x) {
  pthread_mutex_lock(&x->grammar->lock);
  bool stuck = x->stuck;
  pthread_mutex_unlock(&x->grammar->lock);
  return stuck;
}
