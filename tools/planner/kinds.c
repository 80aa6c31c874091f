/* SPDX-License-Identifier: Apache-2.0 */
/* Kinds of blocks. A model repeats a few blocks many times. Blocks of one kind have the same calls
 * on the same types, so their prices can be taken from a sample of the model with few layers. */
#include <stdlib.h>
#include <string.h>

#include "actors/plan/plan.h"
#include "graph/graph.h"
#include "ops/ops.h"
#include "tools/planner/search_inner.h"

enum { MOST_LAYERS = 16 }; /* of a sample; with more kinds the whole model is the sample */

/* ---- kinds ----------------------------------------------------------------------------------- */

typedef struct kinds {
  int count;
  uint64_t *hashes; /* [count] by block */
} kinds;

static uint64_t hash_types(uint64_t h, int n, const sl_type *types) {
  for (int i = 0; i < n; i++) h = sli_hash_type(sli_hash_word(h, (uint64_t)i), &types[i]);
  return h;
}

/* Hashes a call without the random numbers that differ from layer to layer. */
static uint64_t hash_node(uint64_t h, const sli_node *n) {
  sl_attrs attrs = n->attrs;
  attrs.random.key = 0, attrs.random.seed = 0;
  h = sli_hash(h, n->op->name, strlen(n->op->name) + 1);
  h = hash_types(hash_types(h, n->nin, n->in_type), n->nout, n->out_type);
  for (int i = 0; i < n->nin; i++) h = sli_hash_word(h, n->in[i] && n->in[i]->param);
  return n->op == &sl_op_source ? h : sli_hash_attrs(h, n->op, &attrs, n->nin);
}

static kinds kinds_find(const sl_graph *g) {
  kinds k = {sli_blocks_in_line(g), NULL};
  k.hashes = sli_calloc((size_t)k.count + 1, sizeof *k.hashes);
  for (int b = 0; b < k.count; b++) k.hashes[b] = SLI_HASH_SEED;
  for (int i = 0; i < g->nnodes; i++) {
    const sli_node *n = g->nodes[i];
    if (n->block >= 0 && n->block < k.count) k.hashes[n->block] = hash_node(k.hashes[n->block], n);
  }
  return k;
}

static int count_before(const kinds *k, uint64_t kind, int end) {
  int n = 0;
  for (int b = 0; b < end; b++) n += k->hashes[b] == kind;
  return n;
}

/* Returns the block with the nth occurrence of a kind. */
static int find_nth(const kinds *k, uint64_t kind, int nth) {
  int b = 0;
  while (k->hashes[b] != kind || nth--) b++;
  return b;
}

/* Returns whether the sample has all kinds of the whole; repeated ones with a first, a last and one
 * between, since exchanges at the ends of a pass may differ. */
static bool covers(const kinds *sample, const kinds *whole) {
  for (int b = 0; b < whole->count; b++) {
    int has = count_before(sample, whole->hashes[b], sample->count),
        needs = count_before(whole, whole->hashes[b], whole->count);
    if (has < SLI_MIN(needs, 3)) return false;
  }
  return true;
}

/* Returns the block of the sample that stands for block b: the first for the first of its kind, the
 * last for the last, and one between for all others. */
static int stand_in(const kinds *sample, const kinds *whole, int b) {
  uint64_t kind = whole->hashes[b];
  int has = count_before(sample, kind, sample->count), nth = count_before(whole, kind, b),
      all = count_before(whole, kind, whole->count);
  return find_nth(sample, kind, !nth ? 0 : nth == all - 1 ? has - 1 : SLI_MIN(1, has - 1));
}

/* ---- the model ------------------------------------------------------------------------------- */

static sl_status build(const planner *p, int layers, sl_graph **out) {
  settings s = *p->settings;
  sl_args *args = NULL;
  s.microbatches = s.pieces = s.lower.parallel.stages = 1;
  sl_status status = layers ? planner_args_with(p->settings, 0, layers, &args) : SL_OK;
  if (args) s.model_args = args;
  if (!status) status = plan_graph(&s, out);
  sl_args_destroy(args);
  return status;
}

static void map_blocks(planner_blocks *to, const kinds *sample, const kinds *whole, int layers) {
  to->layers = layers;
  for (int b = 0; b < whole->count; b++) to->like[b] = stand_in(sample, whole, b);
}

/* Tries a sample; returns whether it has all kinds. */
static bool try_layers(const planner *p, const kinds *whole, int layers, planner_blocks *to) {
  sl_graph *g = NULL;
  if (build(p, layers, &g)) return false;
  kinds sample = kinds_find(g);
  bool good = covers(&sample, whole);
  if (good) map_blocks(to, &sample, whole, layers);
  free(sample.hashes);
  sl_graph_destroy(g);
  return good;
}

sl_status planner_blocks_find(planner *p) {
  planner_blocks *to = p->blocks = sli_calloc(1, sizeof *to);
  SLI_TRY(build(p, 0, &to->graph));
  kinds whole = kinds_find(to->graph);
  to->count = whole.count;
  to->like = sli_calloc((size_t)whole.count + 1, sizeof *to->like);
  map_blocks(to, &whole, &whole, 0);
  for (int n = 1; n < SLI_MIN(p->layers, MOST_LAYERS) && !to->layers; n++)
    try_layers(p, &whole, n, to);
  free(whole.hashes);
  return SL_OK;
}

int planner_sample_layers(const planner *p) {
  return p->blocks && p->blocks->layers ? p->blocks->layers : p->layers;
}

void planner_blocks_forget(planner *p) {
  if (!p->blocks) return;
  sl_graph_destroy(p->blocks->graph);
  free(p->blocks->like);
  free(p->blocks);
  p->blocks = NULL;
}
