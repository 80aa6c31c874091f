/* SPDX-License-Identifier: Apache-2.0 */
/* Rollouts: a served graph of the same model becomes part of the training graph.
 *
 * Its nodes are copied behind those of training and read the parameters that training updates, so
 * there is no second copy of them. For lowering they are passes with ticks of their own, which come
 * before the training passes of each step: sources of training wait for the last of them, and the
 * updates wait for them as for all readers of the parameters. */
#include "graph/passes/passes.h"

#include <string.h>

#include <sluice/plan.h>

#include "graph/build/build.h"

typedef struct graft {
  sl_graph *g;
  const sl_graph *from;
  sl_tensor **twin; /* [from->ntensors] */
  int *block;       /* [from->nblocks] */
} graft;

static sl_status graft_blocks(graft *x) {
  for (int b = 0; b < x->from->nblocks; b++) {
    x->block[b] = SL_NONE;
    for (int i = 0; i < x->g->nblocks; i++)
      if (!strcmp(x->g->blocks[i].name, x->from->blocks[b].name)) x->block[b] = i;
    if (x->block[b] == SL_NONE)
      return sl_fail(SL_E_UNSUPPORTED, "rollouts: training has no block %s",
                     x->from->blocks[b].name);
  }
  return SL_OK;
}

/* Returns the parameter of training on the first device of its stage; NULL: none. */
static sl_tensor *trained_param(const graft *x, const char *name) {
  for (int i = 0; i < x->g->nparams; i++)
    if (!x->g->params[i]->rank && !strcmp(x->g->params[i]->name, name)) return x->g->params[i];
  return NULL;
}

static sl_status graft_params(graft *x) {
  for (int i = 0; i < x->from->nparams; i++) {
    const sl_tensor *p = x->from->params[i];
    sl_tensor *t = trained_param(x, p->name);
    if (!t) return sl_fail(SL_E_UNSUPPORTED, "rollouts: training has no parameter %s", p->name);
    if (t->shard)
      return sl_fail(SL_E_UNSUPPORTED,
                     "rollouts: devices share out parameter %s, and an answer needs all of it "
                     "on one",
                     p->name);
    if (!sl_type_equal(&t->type, &p->type))
      return sl_fail(SL_E_UNSUPPORTED,
                     "rollouts: parameter %s is stored otherwise when it is read "
                     "for answers",
                     p->name);
    x->twin[p->id] = t;
  }
  return SL_OK;
}

static void graft_node(graft *x, const sli_node *from) {
  sl_graph *g = x->g;
  sl_tensor *in[from->nin + 1];
  for (int a = 0; a < from->nin; a++) in[a] = from->in[a] ? x->twin[from->in[a]->id] : NULL;
  const char *name = sli_arena_format(&g->arena, "rollout:%s", from->name);
  int block = from->block < 0 ? from->block : x->block[from->block];
  sli_node *n =
      sli_graph_node(g, from->op, name, &from->attrs, from->cls, block, from->nin, in, from->nout);
  n->at = from->at;
  n->phase = SLI_PHASE_ROLLOUT;
  n->pace = SLI_PACE_ROLLOUT;
  memcpy(n->in_type, from->in_type, (size_t)from->nin * sizeof *n->in_type);
  memcpy(n->out_type, from->out_type, (size_t)from->nout * sizeof *n->out_type);
  for (int o = 0; o < from->nout; o++)
    if (from->out[o])
      x->twin[from->out[o]->id] =
          sli_node_output(g, n, o, sli_arena_format(&g->arena, "rollout:%s", from->out[o]->name));
}

sl_status sli_pass_rollouts(sl_graph *g, sl_graph *from, int ticks) {
  if (g->nvariants)
    return sl_fail(SL_E_UNSUPPORTED, "rollouts: not where sequences are cut (--pieces)");
  graft x = {.g = g,
             .from = from,
             .twin = sli_arena_alloc(&g->arena, (size_t)from->ntensors * sizeof *x.twin),
             .block = sli_arena_alloc(&g->arena, (size_t)from->nblocks * sizeof *x.block)};
  sl_status status = graft_blocks(&x);
  if (!status) status = graft_params(&x);
  if (status) return status;
  for (int i = 0; i < from->nnodes; i++) graft_node(&x, from->nodes[i]);
  g->rollouts = (struct sli_rollouts){ticks, x.twin[from->outputs[0].tensor->id]};
  return SL_OK;
}
