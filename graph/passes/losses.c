/* SPDX-License-Identifier: Apache-2.0 */
/* Losses whose microbatches are computed in parts: rows sharded over devices, sequences cut in
 * pieces.
 *
 * Such a loss is the sum of the parts' contributions. A mean over rows is not a sum: each part's
 * mean is over the rows of that part. If the mean is the loss itself, it is weighted by the part's
 * share of the rows. Other readers read the mean times that share, a summand, which passes through
 * linear ops by their signatures.
 *
 * A divisor is different: a part must know the whole's divisor before it has a gradient. Data can
 * be read anywhere, for any part of a microbatch. The inputs of such an op (sl_op.batch) are
 * therefore computed a second time, starting at the sources, for whole microbatches, by each device
 * for each piece. They are a few integers per row, and need no exchange or ordering. */
#include "graph/build/build.h"
#include "graph/passes/passes.h"
#include "ops/ops.h"

#include <stdlib.h>

typedef struct pass {
  sl_graph *g;
  int nnodes, ntensors; /* counts before this pass */
  size_t capacity;
  int count;
  sli_node **order;     /* new order of the nodes */
  bool *data, *trained; /* [tensors before] computed from a source; from a parameter */
  sl_tensor **twin;     /* [tensors before] copy for whole microbatches */
} pass;

bool sli_is_mean(const sl_tensor *t) {
  return t->producer && sli_op_cut(t->producer->op)->pieces == SL_PIECES_MEAN && !t->output;
}

int64_t sli_mean_summands(const sli_node *n) {
  switch (sli_op_exact(n->op)->total) {
  case SL_TOTAL_MEAN_ROWS: return sl_type_rows(&n->in_type[0]);
  case SL_TOTAL_MEAN_ELEMENTS: return sl_type_elements(&n->in_type[0]);
  default: return 0;
  }
}

static void losses_place(pass *p, sli_node *n) {
  SLI_GROW(p->order, (size_t)p->count, p->capacity);
  p->order[p->count++] = n;
}

/* ---- whole microbatches ---------------------------------------------------------------- */

static void note(pass *p, const sli_node *n) {
  bool data = sli_op_is(n->op, SL_OP_SOURCE), trained = false;
  for (int i = 0; i < n->nin; i++) {
    const sl_tensor *t = n->in[i];
    data |= t && !t->param && p->data[t->id];
    trained |= t && (t->param || p->trained[t->id]);
  }
  for (int o = 0; o < n->nout; o++) {
    p->data[n->out[o]->id] = data;
    p->trained[n->out[o]->id] = trained;
  }
}

static sl_tensor *twin_of(pass *p, sl_tensor *t, int block);

static sli_node *twin_node(pass *p, const sli_node *n, int block) {
  sl_graph *g = p->g;
  sl_tensor *in[n->nin + 1];
  for (int i = 0; i < n->nin; i++) in[i] = twin_of(p, n->in[i], block);
  const char *name = sli_arena_format(&g->arena, "%s:whole", n->name);
  sli_node *twin = sli_graph_node(g, n->op, name, &n->attrs, n->cls, block, n->nin, in, n->nout);
  twin->at = n->at;
  twin->whole = true;
  twin->attrs.source.whole |= sli_op_is(n->op, SL_OP_SOURCE);
  for (int o = 0; o < n->nout; o++) twin->out_type[o] = n->out_type[o];
  losses_place(p, twin);
  return twin;
}

/* Returns the copy for whole microbatches; tensors not computed from data are the same anyway. */
static sl_tensor *twin_of(pass *p, sl_tensor *t, int block) {
  if (t && t->id >= p->ntensors) t = t->producer->in[0]; /* a scaled mean: use the mean itself */
  if (!t || t->param || !p->data[t->id]) return t;
  if (p->twin[t->id]) return p->twin[t->id];
  const sli_node *n = t->producer;
  sli_node *twin = NULL;
  for (int o = 0; o < n->nout && !twin; o++)
    if (p->twin[n->out[o]->id]) twin = p->twin[n->out[o]->id]->producer;
  if (!twin) twin = twin_node(p, n, block);
  const char *name = sli_arena_format(&p->g->arena, "%s:whole", t->name);
  return p->twin[t->id] = sli_node_output(p->g, twin, t->output, name);
}

static sl_status make_whole(pass *p, sli_node *n) {
  for (int i = 0; i < n->nin; i++) {
    const sl_tensor *t = n->in[i];
    if (t && t->id < p->ntensors && (t->param || p->trained[t->id]))
      return sli_graph_fail_at(
          p->g, n->at, SL_E_UNSUPPORTED,
          "op %s (%s) works on whole microbatches, but reads %s, which depends on parameters: "
          "not supported with --pieces or --data-parallel; --stages and --tensor leave it whole",
          n->name, n->op->name, t->name);
    n->in[i] = twin_of(p, n->in[i], n->block);
  }
  n->whole = true;
  return SL_OK;
}

/* ---- means ----------------------------------------------------------------------------- */

static bool is_read(const pass *p, const sl_tensor *t) {
  for (int i = t->producer->id + 1; i < p->nnodes; i++)
    for (int a = 0; a < p->g->nodes[i]->nin; a++)
      if (p->g->nodes[i]->in[a] == t) return true;
  return false;
}

/* Makes all readers of a mean read the mean times its share instead. */
static void add_share(pass *p, sl_tensor *mean) {
  sl_graph *g = p->g;
  const sli_node *maker = mean->producer;
  const sl_attrs none = {0};
  const char *name = sli_arena_format(&g->arena, "%s:share", mean->name);
  sli_node *n = sli_graph_node(g, &sl_op_share, name, &none, SL_CLASS_F, maker->block, 1, &mean, 1);
  n->at = maker->at;
  n->out_type[0] = mean->type;
  sl_tensor *share = sli_node_output(g, n, 0, name);
  share->needs_grad = mean->needs_grad;
  for (int i = maker->id + 1; i < p->nnodes; i++)
    for (int a = 0; a < g->nodes[i]->nin; a++)
      if (g->nodes[i]->in[a] == mean) g->nodes[i]->in[a] = share;
  losses_place(p, n);
}

/* ---- the pass ---------------------------------------------------------------------------- */

sl_status sli_pass_losses(sl_graph *g) {
  if (g->status) return sl_graph_status(g);
  size_t n = (size_t)g->ntensors + 1;
  pass p = {.g = g,
            .nnodes = g->nnodes,
            .ntensors = g->ntensors,
            .data = sli_calloc(n, sizeof *p.data),
            .trained = sli_calloc(n, sizeof *p.trained),
            .twin = sli_calloc(n, sizeof(sl_tensor *))};
  sl_status status = SL_OK;
  for (int i = 0; i < p.nnodes; i++) note(&p, g->nodes[i]);
  for (int i = 0; i < p.nnodes && !status; i++) {
    sli_node *node = g->nodes[i];
    if (sli_op_is(node->op, SL_OP_BATCH)) status = make_whole(&p, node);
    losses_place(&p, node);
    if (node->nout && sli_is_mean(node->out[0]) && is_read(&p, node->out[0]))
      add_share(&p, node->out[0]);
  }
  if (!status) sli_graph_reorder(g, p.order);
  free(p.order);
  free(p.data);
  free(p.trained);
  free(p.twin);
  return status;
}
