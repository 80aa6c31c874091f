/* SPDX-License-Identifier: Apache-2.0 */
/* Calls for ops that draw random numbers, and their seed. */
#include "graph/build/build.h"

sl_tensor *sl_dropout_at(sl_here at, sl_graph *g, sl_tensor *x, float p) {
  if (p == 0 || (x && (g->options.infer || g->frozen.builds))) return x;
  return sl_op1_at(at, g, &sl_op_dropout, &(sl_attrs){.distribution.dropped = p}, x);
}

sl_tensor *sl_uniform_at(sl_here at, sl_graph *g, sl_tensor *like, float low, float high) {
  return sl_op1_at(at, g, &sl_op_uniform,
                   &(sl_attrs){.distribution.low = low, .distribution.high = high}, like);
}

sl_tensor *sl_normal_at(sl_here at, sl_graph *g, sl_tensor *like, float mean, float deviation) {
  return sl_op1_at(at, g, &sl_op_normal,
                   &(sl_attrs){.distribution.mean = mean, .distribution.deviation = deviation},
                   like);
}

void sli_graph_seed(sl_graph *g, uint64_t seed) {
  for (int i = 0; i < g->nnodes; i++)
    if (sli_op_is(g->nodes[i]->op, SL_OP_LOCATED)) g->nodes[i]->attrs.random.seed = seed;
}
