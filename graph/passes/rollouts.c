/* SPDX-License-Identifier: Apache-2.0 */
/* Rollouts: served graphs of the same model become part of the training graph, one for each device
 * of a stage that samples.
 *
 * Their nodes are copied after the training nodes and read the parameters that training updates, so
 * there is no second copy of the parameters. If a parameter is sharded, every device that samples
 * gathers it once a step (sli_expand_rollouts). For lowering, the nodes are passes with separate
 * ticks, which come before the training passes of each step: training sources wait for the last
 * tick, and the updates wait for the ticks as for all readers of the parameters.
 *
 * The host of the first stage's first device, which knows the answers, starts all ticks: batches go
 * to the other devices, and sampled tokens come back, as data of the plan. */
#include "graph/passes/passes.h"

#include <string.h>

#include <sluice/plan.h>

#include "graph/build/build.h"
#include "ops/splice.h"

typedef struct graft {
  sl_graph *g;
  const sl_graph *from;
  sl_tensor **twin; /* [from->ntensors] */
  int *block;       /* [from->nblocks] */
  int rank;         /* rank of the device in each stage */
} graft;

static sl_status graft_blocks(graft *x) {
  for (int b = 0; b < x->from->nblocks; b++) {
    x->block[b] = SL_NONE;
    for (int i = 0; i < x->g->nblocks; i++)
      if (!strcmp(x->g->blocks[i].name, x->from->blocks[b].name)) x->block[b] = i;
    if (x->block[b] == SL_NONE)
      return sl_fail(SL_E_UNSUPPORTED, "rollouts: the training graph has no block %s",
                     x->from->blocks[b].name);
  }
  return SL_OK;
}

/* Returns the node that reads a whole parameter on this device, or NULL if none is needed. */
static const sli_node *find_read(const graft *x, const char *name) {
  for (int i = 0; i < x->g->rollouts.nreads; i++) {
    const sli_node *n = x->g->rollouts.reads[i];
    if (n->rank == x->rank && !strcmp(n->out[0]->name, name)) return n;
  }
  return NULL;
}

/* Returns the whole of a training parameter on this device, or NULL if there is none of that
 * name. */
static sl_tensor *trained_param(const graft *x, const char *name) {
  const sli_node *read = find_read(x, name);
  if (read) return read->in[0];
  for (int i = 0; i < x->g->nparams; i++)
    if (x->g->params[i]->rank == x->rank && !strcmp(x->g->params[i]->name, name))
      return x->g->params[i];
  return NULL;
}

static sl_status graft_params(graft *x) {
  for (int i = 0; i < x->from->nparams; i++) {
    const sl_tensor *p = x->from->params[i];
    sl_tensor *t = trained_param(x, p->name);
    if (!t)
      return sl_fail(SL_E_UNSUPPORTED, "rollouts: the training graph has no parameter %s", p->name);
    if (!sl_type_equal(&t->type, &p->type))
      return sl_fail(SL_E_UNSUPPORTED,
                     "rollouts: parameter %s is stored differently for answering than for training",
                     p->name);
    x->twin[p->id] = t;
  }
  return SL_OK;
}

static const char *graft_name(const graft *x, const char *name) {
  return x->rank ? sli_arena_format(&x->g->arena, "rollout:%s#%d", name, x->rank)
                 : sli_arena_format(&x->g->arena, "rollout:%s", name);
}

static void graft_output(graft *x, const sl_tensor *from, sli_node *n, int o) {
  sl_tensor *t = sli_node_output(x->g, n, o, graft_name(x, from->name));
  t->rank = n->rank;
  x->twin[from->id] = t;
}

/* Checks that training computes the rows that rollouts splice. */
static sl_status check_rows(const graft *x) {
  return !x->from->spans.width || x->g->spans.served
             ? SL_OK
             : sl_fail(SL_E_UNSUPPORTED, "rollouts: the training graph splices no encoder rows");
}

/* Makes rollouts read the rows of the plan's encoder. */
static void read_rows(const graft *x, sli_node *n) {
  n->in[1] = x->g->spans.served;
  n->in_type[1] = n->in[1]->type;
}

static void graft_node(graft *x, const sli_node *from) {
  sl_graph *g = x->g;
  sl_tensor *in[from->nin + 1];
  for (int a = 0; a < from->nin; a++) in[a] = from->in[a] ? x->twin[from->in[a]->id] : NULL;
  bool asks = sli_op_is(from->op, SL_OP_SOURCE);
  const char *name = graft_name(x, from->name);
  int block = from->block < 0 ? from->block : x->block[from->block];
  sli_node *n =
      sli_graph_node(g, from->op, name, &from->attrs, from->cls, block, from->nin, in, from->nout);
  n->at = from->at;
  n->rank = asks ? 0 : x->rank;
  n->phase = SLI_PHASE_ROLLOUT;
  n->pace = SLI_PACE_ROLLOUT;
  memcpy(n->in_type, from->in_type, (size_t)from->nin * sizeof *n->in_type);
  if (n->op == &sl_op_splice_served) read_rows(x, n);
  memcpy(n->out_type, from->out_type, (size_t)from->nout * sizeof *n->out_type);
  for (int o = 0; o < from->nout; o++)
    if (from->out[o]) graft_output(x, from->out[o], n, o);
  if (asks) g->rollouts.items[x->rank].source = n;
}

sl_status sli_pass_rollouts(sl_graph *g, sl_graph *from, int rank) {
  if (g->cut.nvariants)
    return sl_fail(SL_E_UNSUPPORTED,
                   "rollouts: not supported with sequences cut into pieces (--pieces)");
  graft x = {.g = g,
             .from = from,
             .twin = sli_arena_alloc(&g->arena, (size_t)from->ntensors * sizeof *x.twin),
             .block = sli_arena_alloc(&g->arena, (size_t)from->nblocks * sizeof *x.block),
             .rank = rank};
  sl_status status = graft_blocks(&x);
  if (!status) status = graft_params(&x);
  if (!status) status = check_rows(&x);
  if (status) return status;
  for (int i = 0; i < from->nnodes; i++) graft_node(&x, from->nodes[i]);
  g->rollouts.items[rank].sampled = x.twin[from->outputs[0].tensor->id];
  return SL_OK;
}
