/* SPDX-License-Identifier: Apache-2.0 */
/* Pass 2, inference: drops nodes that no output needs. */
#include "graph/build/build.h"
#include "graph/passes/passes.h"

sl_status sli_pass_outputs(sl_graph *g) {
  if (g->status) return sl_graph_status(g);
  if (!g->noutputs)
    return sl_graph_fail(g, SL_E_USAGE, "the model never calls sl_output: it has no results");
  if (sli_lora_settle(g)) return sl_graph_status(g);
  sl_tensor *roots[g->noutputs];
  for (int i = 0; i < g->noutputs; i++) {
    roots[i] = g->outputs[i].tensor;
    if (!roots[i]->producer || roots[i]->producer->cls != SL_CLASS_F)
      return sl_graph_fail(g, SL_E_USAGE, "output %s is %s itself: no op computes it",
                           g->outputs[i].name, roots[i]->name);
  }
  sli_graph_prune(g, g->noutputs, roots);
  return SL_OK;
}
