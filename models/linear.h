/* SPDX-License-Identifier: Apache-2.0 */
/* Gated linear attention as a block's mixer, alone or beside softmax attention, as in SpikingBrain
 * (arXiv 2509.05276). It keeps a state of fixed size per head, and has no rotary positions. Each
 * head's output is normalized before the output product.
 *
 * Side by side, both kinds share q, k and v; both outputs are normalized, weighted by learned
 * numbers and added. With gates of their own, q and k go through ReLU, and a bottleneck produces
 * one gate per key channel. With gates of the keys, q and k go through the sigmoid, and the gates
 * are 1 - k.
 *
 * B, T, C, H, K and D as in decoder.h. */
#ifndef SLUICE_MODELS_LINEAR_H
#define SLUICE_MODELS_LINEAR_H

#include "decoder.h"

typedef struct linear {
  bool by_keys; /* gates are 1 - k */
  int64_t rank; /* of the product that makes gates */
} linear;

/* Computes the logarithms of the gates, at most 0: log(sigmoid(W2 (W1 x) + b)) / 16. [B, T, K*D] */
static inline sl_tensor *linear_gates(sl_graph *g, decoder *d, sl_tensor *x, int64_t width,
                                      int layer) {
  const float slow = 16; /* initial gates near 1: a state forgets over tens of positions */
  int64_t rank = d->linear->rank;
  x = decoder_linear(g, d, x, d->width, rank, 0.02f, layer, "self_attn.gk_proj.0");
  x = decoder_biased(g, d, true, x, rank, width, 0.02f, layer, "self_attn.gk_proj.1");
  return sl_scale(g, sl_softplus(g, sl_neg(g, x)), -1 / slow);
}

/* Gated linear attention with each head's output normalized. Returns [B, T, H*D]. */
static inline sl_tensor *linear_follow(sl_graph *g, decoder *d, sl_tensor *x, sl_tensor *const *qkv,
                                       int layer) {
  const sl_attention_attrs attrs = {.heads = d->heads, .kv_heads = d->kv_heads};
  bool by_keys = d->linear->by_keys;
  sl_tensor *q = by_keys ? sl_sigmoid(g, qkv[0]) : sl_relu(g, qkv[0]);
  sl_tensor *k = by_keys ? sl_sigmoid(g, qkv[1]) : sl_relu(g, qkv[1]);
  /* log(1 - sigmoid(x)) */
  sl_tensor *gates = by_keys ? sl_neg(g, sl_softplus(g, qkv[1]))
                             : linear_gates(g, d, x, d->kv_heads * d->head_dim, layer);
  sl_tensor *o = sl_linear_attention(g, q, k, qkv[2], states_gates(g, gates, d->shut), &attrs);
  return decoder_head_norm(g, d, o, d->heads, layer, "self_attn.g_norm");
}

static inline sl_tensor *linear_project(sl_graph *g, decoder *d, sl_tensor *x, float residual,
                                        int layer) {
  return decoder_biased(g, d, d->o_bias, x, d->heads * d->head_dim, d->width, residual, layer,
                        "self_attn.o_proj");
}

static inline sl_tensor *linear_attention(sl_graph *g, decoder *d, sl_tensor *x, float residual,
                                          int layer) {
  sl_tensor *qkv[3];
  decoder_qkv(g, d, x, layer, qkv);
  return linear_project(g, d, linear_follow(g, d, x, qkv, layer), residual, layer);
}

/* Multiplies an output x [B, T, H*D] by learned weights [H*D]. */
static inline sl_tensor *linear_weighted(sl_graph *g, const decoder *d, sl_tensor *x, int layer,
                                         const char *name) {
  sl_type type = SL_TYPE(SL_F32, d->heads * d->head_dim);
  return sl_mul(g, x, decoder_param(g, d, type, SL_CONSTANT(0.5f), layer, name));
}

/* Both kinds of attention side by side. */
static inline sl_tensor *linear_beside(sl_graph *g, decoder *d, sl_tensor *x, float residual,
                                       int layer) {
  sl_tensor *qkv[3];
  decoder_qkv(g, d, x, layer, qkv);
  sl_tensor *states = linear_follow(g, d, x, qkv, layer);
  sl_tensor *softmax = decoder_softmax(g, d, qkv[0], qkv[1], qkv[2], layer);
  softmax = decoder_head_norm(g, d, softmax, d->heads, layer, "self_attn.s_norm");
  states = linear_weighted(g, d, states, layer, "self_attn.linear_scale.weight");
  softmax = linear_weighted(g, d, softmax, layer, "self_attn.softmax_scale.weight");
  return linear_project(g, d, sl_add(g, softmax, states), residual, layer);
}

#endif
