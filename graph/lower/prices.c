/* SPDX-License-Identifier: Apache-2.0 */
/* Prices of blocks: the seconds and bytes of each block of a plan of one stage.
 *
 * Blocks of one kind cost the same, so a planner adds up the prices of a few blocks to estimate
 * plans that it does not make. Seconds of a task are divided among its blocks in proportion to
 * their nodes, and bytes of a buffer by its tensors. Buffers that share slots are counted apart:
 * they need the slots of the block that needs most. */
#include "graph/lower/prices.h"

#include <stdlib.h>
#include <string.h>

#include "graph/lower/ir.h"

typedef struct pricing {
  const sli_lowering *l;
  int nblocks; /* blocks in line; the price at this index belongs to no block */
  sli_block_price *prices;
  double *pools; /* [1 + nblocks][nbuffers] bytes of a block in shared slots, by the first buffer */
} pricing;

static bool is_seen(const sli_task *g) { return !g->rank && !g->pace && !g->transfer; }

static sli_block_price *price_at(const pricing *p, int block) {
  return &p->prices[block >= 0 && block < p->nblocks ? block : p->nblocks];
}

/* ---- seconds --------------------------------------------------------------------------------- */

/* True for an exchange of activations: its pass waits for it. Parameters are gathered ahead, and
 * gradients are added up behind. */
static bool is_waited_for(const sli_lowering *l, const sli_node *n) {
  bool any = false;
  for (int o = 0; o < n->nout; o++) {
    int at = n->out[o] ? l->spots[n->out[o]->id].buffer : SL_NONE;
    any |= at < 0 || sli_roles[l->buffers[at].role].memory == SL_MEMORY_ACTIVATIONS;
  }
  return any;
}

/* Returns where the seconds of a task's node count, or NULL if they delay no pass. */
static double *seconds_at(const sli_lowering *l, sli_block_price *to, const sli_task *g,
                          const sli_node *n) {
  bool once = g->rate >= SLI_PER_STEP;
  if (g->host) return NULL;
  if (g->cls == SL_CLASS_C)
    return once                  ? &to->exchange_step
           : is_waited_for(l, n) ? &to->exchange[g->backward]
                                 : &to->ahead;
  if (g->cls == SL_CLASS_U) return &to->update;
  return g->cls <= SL_CLASS_W ? once ? &to->update : &to->pass[g->cls] : NULL;
}

static void add_seconds(const pricing *p, const sli_task *g) {
  const sli_lowering *l = p->l;
  double all = 0, times = sli_lower_firings(l, g);
  if (g->rate < SLI_PER_STEP) times /= l->in->m;
  for (int i = 0; i < g->nnodes; i++) all += sli_lower_node_seconds(l, g->nodes[i]);
  for (int i = 0; i < g->nnodes; i++) {
    const sli_node *n = g->nodes[i];
    double share = all > 0 ? sli_lower_node_seconds(l, n) / all : 1.0 / g->nnodes;
    double *to = seconds_at(l, price_at(p, n->block), g, n);
    if (to) *to += share * g->seconds * times;
  }
}

/* ---- bytes ----------------------------------------------------------------------------------- */

static int leader_of(const sli_lowering *l, int buffer) {
  int leader = l->buffers[buffer].slot_pool.leader;
  return leader == SL_NONE ? buffer : leader;
}

static bool is_shared(const sli_lowering *l, int buffer) {
  const sli_buffer *b = &l->buffers[buffer];
  return b->slot_pool.leader != SL_NONE || b->slot_pool.least;
}

/* Returns the slots to count. Slots that follow a stage's credits are counted singly. */
static double slots_of(const sli_buffer *b) {
  static const bool credits[SLI_SLOTS_COUNT] = {[SLI_SLOTS_ACT_B] = true,
                                                [SLI_SLOTS_ACT_W] = true,
                                                [SLI_SLOTS_CROSSING] = true,
                                                [SLI_SLOTS_BEGUN] = true};
  bool once = b->held || b->rate >= SLI_PER_STEP;
  return !once && credits[sli_roles[b->role].slots] ? 1 : b->quota;
}

static int block_of(const sl_tensor *t) { return t->producer ? t->producer->block : t->home; }

static void add_bytes(const pricing *p, const sl_tensor *t, double bytes, int buffer) {
  const sli_buffer *b = &p->l->buffers[buffer];
  sli_block_price *to = price_at(p, block_of(t));
  double all = bytes * slots_of(b);
  if (!is_shared(p->l, buffer)) to->bytes[b->role] += all;
  else p->pools[(to - p->prices) * p->l->nbuffers + leader_of(p->l, buffer)] += all;
}

static double tensor_bytes(const sl_tensor *t) {
  return (double)sli_lower_aligned(sl_type_bytes(&t->type));
}

/* Returns the bytes of the tensors in each buffer; tensors in one place count several times. */
static double *sum_tensors(const sli_lowering *l) {
  double *sum = sli_calloc((size_t)l->nbuffers + 1, sizeof *sum);
  for (int t = 0; t < l->in->g->ntensors; t++)
    if (l->spots[t].buffer >= 0) sum[l->spots[t].buffer] += tensor_bytes(l->in->g->tensors[t]);
  return sum;
}

/* Adds the tensors of a device's buffers. Buffers that use the memory of others take none. */
static void add_tensors(const pricing *p) {
  const sli_lowering *l = p->l;
  double *sum = sum_tensors(l);
  for (int t = 0; t < l->in->g->ntensors; t++) {
    int at = l->spots[t].buffer;
    const sli_buffer *b = at < 0 ? NULL : &l->buffers[at];
    if (!b || b->device || b->home != SL_SPACE_DEVICE || b->aliases != SL_NONE) continue;
    const sl_tensor *tensor = l->in->g->tensors[t];
    add_bytes(p, tensor, tensor_bytes(tensor) * (double)b->bytes / sum[at], at);
  }
  free(sum);
  for (int b = 0; b <= p->nblocks; b++)
    for (int i = 0; i < l->nbuffers; i++)
      p->prices[b].shared += p->pools[(size_t)b * (size_t)l->nbuffers + (size_t)i];
}

/* Adds what a later block of the same pass reads: a pipeline sends it if it is cut there. */
static void add_crossing(const pricing *p) {
  const sl_graph *g = p->l->in->g;
  int *last = sli_calloc((size_t)g->ntensors + 1, sizeof *last);
  for (int i = 0; i < g->nnodes; i++) {
    const sli_node *n = g->nodes[i];
    for (int k = 0; k < n->nin && n->cls == SL_CLASS_F && !n->pace && n->block < p->nblocks; k++)
      if (n->in[k]) last[n->in[k]->id] = SLI_MAX(last[n->in[k]->id], n->block);
  }
  for (int t = 0; t < g->ntensors; t++) {
    const sl_tensor *x = g->tensors[t];
    const sli_node *from = x->producer;
    if (!from || from->cls == SL_CLASS_L || from->rank || from->per_step) continue;
    for (int b = SLI_MAX(from->block, 0); b < last[t]; b++)
      p->prices[b].crossing += (double)sl_type_bytes(&x->type);
  }
  free(last);
}

static double device_bytes(const sli_lowering *l) {
  return (double)sl_device_bytes(&l->plan->devices[0]);
}

sli_prices sli_lowering_prices(const sli_lowering *l, sli_arena *arena) {
  int n = sli_blocks_in_line(l->in->g);
  size_t bytes = (size_t)(n + 1) * sizeof(sli_block_price);
  pricing p = {l, n, memset(sli_arena_alloc(arena, bytes), 0, bytes),
               sli_calloc((size_t)(n + 1) * (size_t)l->nbuffers + 1, sizeof *p.pools)};
  for (int i = 0; i < l->ncomputing; i++)
    if (is_seen(&l->tasks[i])) add_seconds(&p, &l->tasks[i]);
  add_tensors(&p);
  add_crossing(&p);
  free(p.pools);
  return (sli_prices){n, p.prices, device_bytes(l)};
}
