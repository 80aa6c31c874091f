/* SPDX-License-Identifier: Apache-2.0 */
/* Kimi Delta Attention (Kimi Team, arXiv 2510.26692) as a block's mixer: delta rule states
 * (delta.h) with a gate for each channel of a key.
 *
 * Queries, keys and values have a product, a short convolution and SiLU each. Gates of states and
 * of outputs come from two products, through as many numbers as a head has. Outputs are normalized
 * and scaled by the sigmoid of their gate.
 *
 * B, T, C as in decoder.h; H heads. */
#ifndef SLUICE_MODELS_KDA_H
#define SLUICE_MODELS_KDA_H

#include "delta.h"

/* Applies a product, a convolution and SiLU to x, for what `letter` stands for: q, k or v. */
static inline sl_tensor *kda_convolved(sl_graph *g, decoder *d, sl_tensor *x, int64_t width,
                                       int layer, const char *letter) {
  int64_t conv = delta_of(d)->conv;
  char name[48];
  snprintf(name, sizeof name, "self_attn.%s_proj", letter);
  x = decoder_linear(g, d, x, d->width, width, 0.02f, layer, name);
  snprintf(name, sizeof name, "self_attn.%s_conv1d.weight", letter);
  sl_tensor *w = decoder_param(g, d, SL_TYPE(SL_F32, width, 1, conv),
                               SL_UNIFORM(1 / sqrtf((float)conv)), layer, name);
  return sl_silu(g, sl_causal_conv_within(g, x, w, NULL, d->positions));
}

/* Computes `width` numbers from x [B, T, C] through `rank` numbers. */
static inline sl_tensor *kda_low_rank(sl_graph *g, decoder *d, sl_tensor *x, int64_t rank,
                                      int64_t width, int layer, const char *letter) {
  char name[48];
  snprintf(name, sizeof name, "self_attn.%s_a_proj", letter);
  x = decoder_linear(g, d, x, d->width, rank, 0.02f, layer, name);
  snprintf(name, sizeof name, "self_attn.%s_b_proj", letter);
  return decoder_linear(g, d, x, rank, width, 0.02f, layer, name);
}

/* Computes the logarithms of the gates [B, T, H dk]. */
static inline sl_tensor *kda_gates(sl_graph *g, decoder *d, sl_tensor *x, int layer) {
  const delta *n = delta_of(d);
  int64_t dk = n->key_dim, H = n->value_heads;
  x = kda_low_rank(g, d, x, dk, H * dk, layer, "f");
  sl_tensor *bias =
      decoder_param(g, d, SL_TYPE(SL_F32, H * dk), SL_CONSTANT(1), layer, "self_attn.dt_bias");
  sl_tensor *log_a = decoder_param(g, d, SL_TYPE(SL_F32, 1, 1, H, 1), SL_GIVEN(&delta_decays),
                                   layer, "self_attn.A_log");
  x = sl_reshape(g, sl_softplus(g, sl_add(g, x, bias)), d->rows, -1, H, dk);
  x = sl_mul(g, x, sl_neg(g, sl_exp(g, sl_expand_like(g, log_a, x))));
  return sl_reshape(g, x, d->rows, -1, H * dk);
}

/* Applies rmsnorm to each head's output o [B, T, H dv] and multiplies by the sigmoid of a gate. */
static inline sl_tensor *kda_norm(sl_graph *g, decoder *d, sl_tensor *o, sl_tensor *x, int layer) {
  int64_t dv = delta_of(d)->value_dim, H = delta_of(d)->value_heads;
  sl_tensor *gate = kda_low_rank(g, d, x, dv, H * dv, layer, "g");
  sl_tensor *gain =
      decoder_param(g, d, SL_TYPE(SL_F32, dv), SL_CONSTANT(1), layer, "self_attn.o_norm.weight");
  o = sl_rmsnorm(g, sl_reshape(g, o, d->rows, -1, H, dv), gain, d->eps);
  return sl_mul(g, sl_reshape(g, o, d->rows, -1, H * dv), sl_sigmoid(g, gate));
}

static inline sl_tensor *kda(sl_graph *g, decoder *d, sl_tensor *x, float residual, int layer) {
  const delta *n = delta_of(d);
  int64_t H = n->value_heads, keys = H * n->key_dim, all = H * n->value_dim;
  sl_tensor *q = delta_unit(g, d, kda_convolved(g, d, x, keys, layer, "q"));
  sl_tensor *k = delta_unit(g, d, kda_convolved(g, d, x, keys, layer, "k"));
  sl_tensor *v = kda_convolved(g, d, x, all, layer, "v");
  sl_tensor *gates = states_gates(g, kda_gates(g, d, x, layer), d->shut);
  sl_tensor *betas =
      sl_sigmoid(g, decoder_linear(g, d, x, d->width, H, 0.02f, layer, "self_attn.b_proj"));
  sl_tensor *o =
      sl_delta_rule(g, q, k, v, gates, betas, &(sl_attention_attrs){.heads = n->value_heads});
  return decoder_linear(g, d, kda_norm(g, d, o, x, layer), all, d->width, residual, layer,
                        "self_attn.o_proj");
}

/* Reads the options of delta rule states; keys have as many heads as values. */
static inline delta kda_read(sl_graph *g, const sl_args *args, const decoder *d) {
  delta n = delta_read(g, args, d);
  if (!sl_arg_int(args, "key-heads")) n.key_heads = n.value_heads;
  if (n.key_heads != n.value_heads)
    sl_graph_fail(g, SL_E_USAGE, "%s: --mixers kda: --key-heads %d must be --value-heads %d",
                  d->model, n.key_heads, n.value_heads);
  return n;
}

#endif
