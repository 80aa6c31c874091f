/* SPDX-License-Identifier: Apache-2.0 */
/* Fingerprint of a model: its parameters, and for each op as written a hash of its inputs and
 * attributes. Shapes are excluded because the rows of a batch and a microbatch are options, which
 * are compared by name. */
#include "graph/build/build.h"

#include <string.h>

#include "actors/plan/plan.h"
#include "ops/ops.h"

static void hash_text(uint64_t *h, const char *text) { *h = sli_hash(*h, text, strlen(text) + 1); }

static uint64_t sign_param(const sl_tensor *t) {
  uint64_t h = SLI_HASH_SEED;
  hash_text(&h, t->name);
  return sli_hash_type(h, &t->type);
}

static uint64_t sign_input(const sl_tensor *t) {
  if (!t) return 0;
  if (!t->producer) return sign_param(t);
  return sli_hash_word(sli_hash_word(SLI_HASH_SEED, (uint64_t)t->producer->id + 1),
                       (uint64_t)t->output);
}

static uint64_t sign_node(const sli_node *n) {
  uint64_t h = SLI_HASH_SEED;
  hash_text(&h, n->op->name);
  for (int i = 0; i < n->nin; i++) h = sli_hash_word(h, sign_input(n->in[i]));
  return sli_op_is(n->op, SL_OP_SOURCE) ? h : sli_hash_attrs(h, n->op, &n->attrs, n->nin);
}

static void fingerprints_add(sli_fingerprints *s, const char *name, uint64_t hash) {
  s->items[s->count++] = (struct sli_fingerprint){name, hash};
}

static void add_param(sli_fingerprints *s, const sl_tensor *t, sli_arena *arena) {
  char type[SL_TYPE_TEXT];
  fingerprints_add(s, sli_arena_format(arena, "%s %s", t->name, sl_type_format(type, &t->type)),
                   sign_param(t));
}

sli_fingerprints sli_graph_fingerprints(const sl_graph *g, sli_arena *arena) {
  size_t most = (size_t)(g->nparams + g->nnodes + 1);
  sli_fingerprints s = {.items = sli_arena_alloc(arena, most * sizeof *s.items)};
  for (int i = 0; i < g->nparams; i++) add_param(&s, g->params[i], arena);
  for (int i = 0; i < g->nnodes; i++) {
    const sl_op *op = g->nodes[i]->op;
    fingerprints_add(&s, g->nodes[i]->name, sign_node(g->nodes[i]));
    s.own_ops |= sl_op_find(op->name) != op;
  }
  if (g->loss.tensor) fingerprints_add(&s, "the loss", sign_input(g->loss.tensor));
  return s;
}
