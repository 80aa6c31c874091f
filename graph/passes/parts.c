/* SPDX-License-Identifier: Apache-2.0 */
/* Attention nodes that read other pieces' or devices' keys and values.
 *
 * If keys and values of earlier pieces are offloaded, attention reads them one piece at a time
 * (sl_op_cut.swept). If devices shard the positions of a piece, each gathers the keys and values of
 * the others (attention_share). In both cases keys and values must be one array that contains
 * nothing else. A node before attention makes this array from the model's inputs of attention
 * (sl_op_cut.parts), and has ordinary gradients. */
#include "graph/build/build.h"
#include "graph/passes/passes.h"

#include <string.h>

bool sli_is_sweeping(const sl_graph *g, const sli_node *n) {
  return sli_op_cut(n->op)->swept && g->blocks[n->block].swept;
}

bool sli_has_parts(const sl_graph *g, const sli_node *n) {
  return sli_is_sweeping(g, n) || (sli_op_cut(n->op)->swept && g->blocks[n->block].gathers);
}

static const sl_call_cut *call_cut(sl_graph *g) {
  int pieces = g->options.pieces;
  int64_t *starts = sli_arena_alloc(&g->arena, (size_t)(pieces + 1) * sizeof *starts);
  for (int k = 0; k < pieces; k++) starts[k + 1] = starts[k] + g->cut.lengths[k];
  sl_call_cut *cut = sli_arena_alloc(&g->arena, sizeof *cut);
  *cut = (sl_call_cut){pieces, starts};
  return cut;
}

/* Adds the node that makes the parts of another node's inputs. */
static sl_status add_parts(sl_graph *g, const sli_node *n, sli_node **out) {
  const sl_op *op = sli_op_cut(n->op)->parts;
  sli_node *parts = *out = sli_graph_node(g, op, sli_arena_format(&g->arena, "%s:parts", n->name),
                                          &n->attrs, n->cls, n->block, op->max_in, n->in, op->nout);
  parts->at = n->at;
  parts->rank = n->rank;
  sl_status status = sli_node_infer(parts);
  if (status)
    return sli_graph_fail_at(g, n->at, SL_E_UNSUPPORTED,
                             "op %s (%s) cannot receive earlier positions piece by piece: %s",
                             n->name, n->op->name, sl_detail());
  for (int o = 0; o < op->nout; o++) {
    sl_tensor *t =
        sli_node_output(g, parts, o, sli_arena_format(&g->arena, "%s:%d", parts->name, o));
    for (int i = 0; i < op->max_in; i++) t->needs_grad |= n->in[i]->needs_grad;
  }
  return SL_OK;
}

/* Makes a node read the parts; ids, if any, follow them. */
static void read_parts(sl_graph *g, sli_node *n, const sli_node *parts) {
  int others = n->nin - parts->nin, nin = parts->nout + others;
  int ntypes = SLI_MAX(nin, sli_op_cut(n->op)->swept->max_in);
  sl_tensor **in = sli_arena_alloc(&g->arena, (size_t)nin * sizeof *in);
  sl_type *types = sli_arena_alloc(&g->arena, (size_t)ntypes * sizeof *types);
  memcpy(in, parts->out, (size_t)parts->nout * sizeof *in);
  if (others) memcpy(in + parts->nout, n->in + parts->nin, (size_t)others * sizeof *in);
  for (int i = 0; i < ntypes; i++) types[i] = *sl_tensor_type(i < nin ? in[i] : NULL);
  n->nin = nin;
  n->in = in;
  n->in_type = types;
  if (sli_is_sweeping(g, n)) n->attrs.user = call_cut(g);
}

sl_status sli_pass_parts(sl_graph *g) {
  int before = g->nnodes, count = 0;
  sli_node **order = sli_arena_alloc(&g->arena, 2 * (size_t)before * sizeof *order);
  for (int i = 0; i < before; i++) {
    sli_node *n = g->nodes[i];
    if (sli_has_parts(g, n)) {
      sl_status status = add_parts(g, n, &order[count]);
      if (status) return status;
      read_parts(g, n, order[count++]);
    }
    order[count++] = n;
  }
  sli_graph_reorder(g, order);
  return SL_OK;
}
