/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the tensors that depend on data, and those whose dim 0 is the data rows, along which
 * devices that shard the data split them. */
#include "graph/sharding/search.h"
#include "ops/ops.h"

static bool is_first(sl_sbp sbp) { return sbp.kind == SL_SPLIT && !sbp.dim; }

/* True for nodes that read data; constants have no data rows. */
static bool is_data(const sli_node *n) { return n->cls == SL_CLASS_L; }

static bool draws(const sli_node *n) { return sli_op_is(n->op, SL_OP_RANDOM); }

/* True for a tensor that is the same in every step, as a constant with a dim of the batch's size.
 */
static bool is_constant(const sl_graph *g, const sl_tensor *t) {
  return !t->param && !t->needs_grad && !g->exact.fed[t->id];
}

/* True if a signature splits exactly those inputs that have rows, along dim 0, and constants of
 * that size. */
static bool splits_rows(const sl_graph *g, const sli_node *n, const sl_signature *s,
                        const bool *rows) {
  bool any = false;
  for (int i = 0; i < n->nin; i++) {
    if (!n->in[i]) continue;
    bool has = rows[n->in[i]->id];
    sl_sbp sbp = sli_signature_in(s, i);
    bool fits = has ? is_first(sbp)
                    : sbp.kind == SL_BROADCAST || (is_first(sbp) && is_constant(g, n->in[i]));
    if (!fits) return false;
    any |= has;
  }
  return any;
}

static void note_outputs(const sli_node *n, const sl_signature *s, bool *rows) {
  for (int o = 0; o < n->nout; o++)
    if (n->out[o]) rows[n->out[o]->id] |= is_first(sli_signature_out(s, o));
}

/* True if a microbatch is a single row. */
static bool is_one_row(const sl_graph *g) {
  bool any = false;
  for (int i = 0; i < g->nnodes; i++) {
    const sli_node *n = g->nodes[i];
    if (!is_data(n) || !n->nout || !n->out_type[0].ndim) continue;
    if (n->out_type[0].dim[0] != 1) return false;
    any = true;
  }
  return any;
}

/* True for ops that compute each element from those at its place, possibly broadcast. */
static bool is_by_element(const sl_op *op) {
  return op == &sl_op_expand || sli_op_cut(op)->along == SL_ALONG_NOTHING ||
         sli_op_cut(op)->pieces == SL_PIECES_ELEMENTS;
}

/* Notes the outputs of a node that views or broadcasts rows, or combines them with a table of one
 * row, if a microbatch is a single row. Signatures do not tell its dim of length 1 from others, and
 * a reshape may merge it with the next dim. */
static void note_row(const sli_node *n, bool *rows) {
  bool views = sli_op_is(n->op, SL_OP_RESHAPE);
  if (!views && !is_by_element(n->op)) return;
  bool any = false;
  for (int i = 0; i < n->nin; i++) any |= n->in[i] && rows[n->in[i]->id];
  for (int o = 0; o < n->nout && any; o++) {
    const sl_tensor *t = n->out[o];
    if (t && t->type.ndim) rows[t->id] |= views || t->type.dim[0] == 1;
  }
}

const bool *sli_rows_find(sl_graph *g) {
  bool *rows = sli_arena_alloc(&g->arena, (size_t)g->ntensors + 1), one = is_one_row(g);
  sl_signature all[SLI_SIGNATURES_RAW];
  for (int i = 0; i < g->nnodes; i++) {
    const sli_node *n = g->nodes[i];
    int count = sli_signatures_raw(n, all);
    for (int s = 0; s < count; s++)
      if (n->nin ? splits_rows(g, n, &all[s], rows) : is_data(n) && is_first(all[s].out[0]))
        note_outputs(n, &all[s], rows);
    if (one) note_row(n, rows);
  }
  return rows;
}

const bool *sli_fed_find(sl_graph *g) {
  bool *fed = sli_arena_alloc(&g->arena, (size_t)g->ntensors + 1);
  for (int i = 0; i < g->nnodes; i++) {
    const sli_node *n = g->nodes[i];
    bool any = is_data(n) || draws(n);
    for (int a = 0; a < n->nin; a++) any |= n->in[a] && fed[n->in[a]->id];
    for (int o = 0; o < n->nout; o++)
      if (n->out[o]) fed[n->out[o]->id] = any;
  }
  return fed;
}
