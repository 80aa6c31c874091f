/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of logits padded beyond the vocabulary.
 *
 * GPUs multiply matrices at full speed only if rows are aligned; vocabulary sizes often are not.
 * Few ops touch logits and their gradient: a product computes the logits, a loss reads them and
 * computes the gradient, and two products read the gradient. The loss ignores the padding of a row
 * in the logits, and writes zeros there in the gradient. Rows are padded if no other op reads
 * them. */
#include "graph/build/build.h"
#include "graph/passes/passes.h"

#include <sluice/ops.h>

enum { ROW_BYTES = 128 };

static int64_t padded(const sl_type *type) {
  int64_t unit = ROW_BYTES / (int64_t)sl_dtype_bytes(type->dtype);
  return (sl_type_last(type) + unit - 1) / unit * unit;
}

/* True if the node can ignore the padding of each row of its input. */
static bool spares(const sli_node *n, int input) {
  return (sli_op_is(n->op, SL_OP_PADDED) && input == 0) ||
         (n->op == &sl_op_linear_b && input == 0) || (n->op == &sl_op_linear_w && input == 1);
}

static bool all_spare(const sl_graph *g, const sl_tensor *t) {
  for (int i = t->producer->id + 1; i < g->nnodes; i++)
    for (int a = 0; a < g->nodes[i]->nin; a++)
      if (g->nodes[i]->in[a] == t && !spares(g->nodes[i], a)) return false;
  return true;
}

static bool makes_gradient(const sli_node *n, const sl_tensor *logits) {
  return sli_op_is(n->op, SL_OP_PADDED) && n->rule && n->in[0] == logits && n->out[0];
}

static bool can_pad(const sl_graph *g, const sl_tensor *t) {
  if (!t->narrow || !t->producer || sli_op_weight(t->producer->op) != SL_WEIGHT_PRODUCT ||
      padded(&t->type) == sl_type_last(&t->type) || !all_spare(g, t))
    return false;
  for (int i = t->producer->id + 1; i < g->nnodes; i++)
    if (makes_gradient(g->nodes[i], t) && !all_spare(g, g->nodes[i]->out[0])) return false;
  return true;
}

static void pad_type(sl_type *type) { type->dim[type->ndim - 1] = padded(type); }

/* Pads a tensor's type wherever it is stored. */
static void pad_tensor(sl_graph *g, sl_tensor *t) {
  pad_type(&t->type);
  for (int i = t->producer->id; i < g->nnodes; i++) {
    sli_node *n = g->nodes[i];
    for (int a = 0; a < n->nin; a++) {
      if (n->in[a] != t) continue;
      sli_node_own_types(g, n);
      n->in_type[a] = t->type;
      for (int v = 0; n->shapes && v < g->cut.nvariants; v++) pad_type(&n->shapes[v].in[a]);
    }
  }
  sli_node *maker = t->producer;
  maker->out_type[t->output] = t->type;
  for (int v = 0; maker->shapes && v < g->cut.nvariants; v++)
    pad_type(&maker->shapes[v].out[t->output]);
}

static void tell_columns(const sl_graph *g, sli_node *n, int64_t columns) {
  n->attrs.place.columns = columns;
  for (int v = 0; n->shapes && v < g->cut.nvariants; v++)
    n->shapes[v].attrs.place.columns = columns;
}

static void pad_logits(sl_graph *g, sl_tensor *logits) {
  int64_t columns = sl_type_last(&logits->type);
  for (int i = logits->producer->id + 1; i < g->nnodes; i++) {
    sli_node *n = g->nodes[i];
    if (!sli_op_is(n->op, SL_OP_PADDED) || n->in[0] != logits) continue;
    tell_columns(g, n, columns);
    if (makes_gradient(n, logits)) pad_tensor(g, n->out[0]);
  }
  pad_tensor(g, logits);
}

void sli_pass_pad(sl_graph *g) {
  for (int t = 0; t < g->ntensors; t++)
    if (can_pad(g, g->tensors[t])) pad_logits(g, g->tensors[t]);
}
