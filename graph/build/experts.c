/* SPDX-License-Identifier: Apache-2.0 */
/* Calls for mixtures of experts: the logits of a token choose its experts. Load-balancing losses
 * are composed of other ops, and are sharded like these. */
#include "graph/build/build.h"

sl_routing sl_route_at(sl_here at, sl_graph *g, sl_tensor *logits, int k, bool normed) {
  sl_routing r = {.probabilities = sl_softmax_at(at, g, logits, -1, false)};
  r.weights = sl_top_k_at(at, g, r.probabilities, -1, k, &r.ids);
  if (!normed || !r.weights) return r;
  sl_tensor *sum = sl_sum_at(at, g, r.weights, 1u << (r.weights->type.ndim - 1), true);
  r.weights = sl_op2_at(at, g, &sl_op_div, NULL, r.weights, sum);
  return r;
}

sl_tensor *sl_grouped_linear_at(sl_here at, sl_graph *g, sl_tensor *x, sl_tensor *ids,
                                sl_tensor *w) {
  sl_tensor *mixed = sli_bits_mixture(at, g, x, ids, w);
  if (mixed) return mixed;
  const sl_attrs attrs = {.place.whole = sl_dim(w, 0)};
  return sl_op3_at(at, g, &sl_op_grouped_linear, &attrs, x, ids, w);
}

sl_tensor *sl_expert_limit_at(sl_here at, sl_graph *g, const sl_routing *routing, float factor) {
  const sl_attrs attrs = {.experts.factor = factor,
                          .experts.count = sl_dim(routing->probabilities, -1)};
  return sl_op2_at(at, g, &sl_op_expert_limit, &attrs, routing->ids, routing->weights);
}

/* Returns the bits of all dims but the last. */
static uint32_t leading(const sl_tensor *t) { return t ? (1u << (t->type.ndim - 1)) - 1 : 0; }

sl_tensor *sl_expert_load_at(sl_here at, sl_graph *g, sl_tensor *ids, int64_t experts) {
  sl_tensor *ones = sl_op1_at(at, g, &sl_op_one_hot, &(sl_attrs){.one_hot.classes = experts}, ids);
  return sl_sum_at(at, g, ones, leading(ones), false);
}

/* Computes the mean over tokens and experts of E E f p; f, which has no gradient, is taken over the
 * whole microbatch. */
sl_tensor *sl_balance_loss_at(sl_here at, sl_graph *g, const sl_routing *routing) {
  int64_t experts = sl_dim(routing->probabilities, -1);
  sl_tensor *load = sl_expert_load_at(at, g, routing->ids, experts);
  sl_tensor *share = sl_op2_at(at, g, &sl_op_div, NULL, load, sl_sum_at(at, g, load, 1, true));
  sl_tensor *scaled = sl_scale_at(at, g, share, (float)(experts * experts));
  sl_tensor *product = sl_op2_at(at, g, &sl_op_mul_broadcast, NULL, routing->probabilities, scaled);
  return sl_mean_at(at, g, product, 0, false);
}

/* Computes z as a logit minus its log softmax, which is the same for every logit. */
sl_tensor *sl_z_loss_at(sl_here at, sl_graph *g, sl_tensor *logits) {
  sl_tensor *z = sl_op2_at(at, g, &sl_op_sub, NULL, logits, sl_softmax_at(at, g, logits, -1, true));
  return sl_mean_at(at, g, sl_mul_at(at, g, z, z), 0, false);
}
