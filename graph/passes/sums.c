/* SPDX-License-Identifier: Apache-2.0 */
/* Checks the sums over rows of an exact graph (docs/exact.md). Each has an order that its op
 * declares (sl_op_exact), or the graph is refused with an error that names the op.
 *
 * A tensor of the forward pass has a value for each row of the data, one for a whole microbatch,
 * or, if it depends on parameters alone, one for the step. Ops compute rows from rows
 * (sl_op_cut.pieces). A gradient has the extent of its tensor, so a gradient of the step that is
 * computed from rows is a sum over them. */
#include "graph/build/build.h"
#include "graph/passes/passes.h"
#include "ops/ops.h"

static bool has_rows(const sl_graph *g, const sl_tensor *t) { return t && g->exact.rows[t->id]; }
static bool is_fed(const sl_graph *g, const sl_tensor *t) { return t && g->exact.fed[t->id]; }

/* True if an argument of a node, or the tensor that it is the gradient of, passes the test. */
static bool reads(const sl_graph *g, const sli_node *n,
                  bool (*test)(const sl_graph *, const sl_tensor *)) {
  for (int a = 0; a < n->nin; a++) {
    const sli_node *about = n->rule ? n->about : NULL;
    const sl_tensor *t = n->in[a];
    if (t && about)
      t = sli_argument_tensor(about, sli_rule_argument(n->rule, about->nin, about->nout, a));
    if (t && test(g, t)) return true;
  }
  return false;
}

static sl_status refuse(sl_graph *g, const sli_node *n, const char *why) {
  return sli_graph_fail_at(g, n->at, SL_E_UNSUPPORTED, "numbers.exact: op %s (%s) %s", n->name,
                           n->op->name, why);
}

static sl_status check_forward(sl_graph *g, const sli_node *n) {
  bool total = n->nout && n->out_type[0].dtype == SL_F64 && reads(g, n, has_rows);
  bool mean = sli_op_cut(n->op)->pieces == SL_PIECES_MEAN;
  if (mean ? sli_mean_summands(n) > 0 : !total || sli_op_exact(n->op)->total) return SL_OK;
  return refuse(
      g, n,
      sli_words(n->op, "sums over rows in an order that it does not declare (sl_op.exact)",
                "sums over rows in an order of its own"));
}

/* Returns the first node that reads rows of the data and has an output without, other than totals;
 * or NULL. */
static const sli_node *lost_at(const sl_graph *g) {
  for (int i = 0; i < g->nnodes; i++) {
    const sli_node *n = g->nodes[i];
    if (!sli_is_forward(n) || !reads(g, n, has_rows)) continue;
    for (int o = 0; o < n->nout; o++)
      if (n->out[o] && n->out[o]->needs_grad && n->out_type[o].ndim && !has_rows(g, n->out[o]))
        return n;
  }
  return NULL;
}

/* True for ops that compute values of whole microbatches, which other numbers of microbatches
 * change anyway. */
static bool mixes_rows(const sl_op *op) {
  static const sl_op *const mixing[] = {&sl_op_batch_norm, &sl_op_matmul, &sl_op_reduce_sum,
                                        &sl_op_reduce_max, &sl_op_gather, &sl_op_scatter_add};
  for (size_t i = 0; i < sizeof mixing / sizeof *mixing; i++)
    if (op == mixing[i]) return true;
  return false;
}

/* Checks gradient j of a backward node, a sum over rows unless its tensor has rows. */
static sl_status check_gradient(sl_graph *g, const sli_node *n, int j) {
  const sl_tensor *input = n->about->in[sli_rule_of(n->rule, j)];
  bool one = sli_is_one_tick(g);
  if (!n->out[j] || n->out_type[j].dtype == SL_F64 || has_rows(g, input)) return SL_OK;
  if (n->attrs.numbers.leaves)
    return refuse(g, n, "mixes rows of the data with sums over them in its gradients");
  if (is_fed(g, input) || !reads(g, n, is_fed)) return SL_OK;
  const sli_node *lost = lost_at(g);
  if (!reads(g, n, has_rows) && one && (!lost || mixes_rows(lost->op))) return SL_OK;
  if (one && lost && !mixes_rows(lost->op))
    return refuse(g, lost, "is not known to keep the rows of the data apart");
  return refuse(g, n, "is one sum over all rows of a microbatch");
}

sl_status sli_graph_check_sums(sl_graph *g) {
  sl_status status = SL_OK;
  for (int i = 0; i < g->nnodes && !status; i++) {
    const sli_node *n = g->nodes[i];
    if (sli_is_forward(n)) status = check_forward(g, n);
    for (int j = 0; n->rule && j < sli_rule_gradients(n->rule, n->about->nin) && !status; j++)
      status = check_gradient(g, n, j);
  }
  return status;
}
