/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of experts on modelled devices: the weights of a mixture get further experts. Which expert
 * a copy belongs to matters for the rows that are expected alone (sharding/loads.c). */
#include "graph/build/build.h"
#include "graph/passes/passes.h"
#include "ops/ops.h"

/* Returns the weights of a mixture's product, or NULL. */
static sl_tensor *experts_of(const sli_node *n) {
  return n->op == &sl_op_grouped_linear && n->in[2]->param ? n->in[2] : NULL;
}

static sl_status widen(sl_graph *g, sl_tensor *weights, int replicas) {
  weights->type.dim[0] += replicas;
  for (int i = 0; i < g->nnodes; i++) {
    sli_node *n = g->nodes[i];
    for (int a = 0; a < n->nin; a++) {
      if (n->in[a] != weights) continue;
      if (a != 2 || !experts_of(n))
        return sl_fail(
            SL_E_UNSUPPORTED,
            "experts.replicas %d: %s is read by %s (%s), not only by products of experts", replicas,
            weights->name, n->name, n->op->name);
      sli_node_own_types(g, n);
      n->in_type[a] = weights->type;
      n->attrs.place.whole = weights->type.dim[0];
    }
  }
  return SL_OK;
}

sl_status sli_pass_replicas(sl_graph *g, int replicas) {
  int found = 0;
  for (int p = 0; p < g->nparams; p++) {
    bool mixed = false;
    for (int i = 0; i < g->nnodes; i++) mixed |= experts_of(g->nodes[i]) == g->params[p];
    if (!mixed) continue;
    found++;
    SLI_TRY(widen(g, g->params[p], replicas));
  }
  return found
             ? SL_OK
             : sl_fail(SL_E_UNSUPPORTED, "experts.replicas %d: the model has no experts", replicas);
}
