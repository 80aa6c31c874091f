/* SPDX-License-Identifier: Apache-2.0 */
/* Pass 3: values that stand in for parameters, such as rounded weights, with straight-through
 * gradients.
 *
 * They change once a step, like parameters. Such a value is therefore computed once, before
 * everything else in the step, and all ticks read it. Weights that devices gather for each tick are
 * rounded in each tick. */
#include "graph/build/build.h"
#include "graph/passes/passes.h"

bool sli_passes_straight(const sli_node *n) {
  const sl_grad_rule *rule = &n->op->grad[0];
  return rule->nwrt == 1 && !rule->op && !rule->wrt[0] && !rule->rest && !n->op->grad[1].nwrt &&
         n->nin == 1 && n->in[0] && sl_type_equal(&n->in_type[0], &n->out_type[0]);
}

bool sli_stays(const sl_tensor *weight) {
  return weight->param || (weight->producer->per_step && weight->producer->phase == SLI_PHASE_PACK);
}

/* True for a forward call whose only result stands in for a parameter. */
static bool makes_stand_in(const sli_node *n) {
  bool forward = n->cls == SL_CLASS_F && n->phase == SLI_PHASE_MAIN && !n->rule;
  return forward && !sli_op_is(n->op, SL_OP_LOCATED) && sli_passes_straight(n) && n->nout == 1 &&
         n->out[0] && !n->out[0]->output && sli_stays(n->in[0]);
}

void sli_pass_weights(sl_graph *g) {
  for (int i = 0; i < g->nnodes; i++) {
    sli_node *n = g->nodes[i];
    if (!makes_stand_in(n) || (n->block >= 0 && g->blocks[n->block].sharded)) continue;
    n->cls = SL_CLASS_U;
    n->phase = SLI_PHASE_PACK;
    n->per_step = true;
    n->shapes = NULL;
  }
}
