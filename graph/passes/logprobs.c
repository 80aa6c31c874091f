/* SPDX-License-Identifier: Apache-2.0 */
/* Log-probabilities of the loss's targets, for the caller. */
#include "graph/build/build.h"
#include "graph/passes/passes.h"
#include "ops/ops.h"

static bool is_cross_entropy(const sli_node *n) {
  return n->op == &sl_op_cross_entropy || n->op == &sl_op_weighted_cross_entropy;
}

/* Returns the only cross entropy of the graph, or NULL if there is none or several. */
static const sli_node *find_cross_entropy(const sl_graph *g) {
  const sli_node *found = NULL;
  for (int i = 0; i < g->nnodes; i++) {
    if (!is_cross_entropy(g->nodes[i])) continue;
    if (found) return NULL;
    found = g->nodes[i];
  }
  return found;
}

sl_status sli_pass_logprobs(sl_graph *g) {
  const sli_node *loss = find_cross_entropy(g);
  if (!loss)
    return sl_fail(
        SL_E_UNSUPPORTED,
        "--logprobs: the model must have exactly one cross entropy, whose targets it reports on");
  if (g->served.sinks && loss->in[1]->type.ndim != 2)
    return sl_fail(
        SL_E_UNSUPPORTED,
        "--logprobs: with sink tokens, the targets of the loss must be [rows, positions]");
  sli_node *n = sli_graph_node(g, &sl_op_log_probability, "logprobs", &(sl_attrs){0}, SL_CLASS_F,
                               loss->block, 2, loss->in, 2);
  n->at = loss->at;
  SLI_TRY(sli_node_infer(n));
  g->logprobs_of_step = n->out_type[0];
  g->logprobs_of_step.dim[0] *= g->options.microbatches;
  g->logprobs = sli_mean_of(g, "logprobs", sli_node_output(g, n, 0, "logprobs"));
  sli_node_output(g, n, 1, "logprobs:1");
  return SL_OK;
}
