/* SPDX-License-Identifier: Apache-2.0 */
/* Gated delta rule states (Yang et al., arXiv 2412.06464) as a block's mixer.
 *
 * A product, a short convolution and SiLU produce a state's queries, keys and values; queries and
 * keys have length 1. A second product produces the gates and the betas, the fractions by which
 * values are corrected. Outputs are normalized and scaled by the SiLU of a gate.
 *
 * B, T, C as in decoder.h; K key heads and V value heads. */
#ifndef SLUICE_MODELS_DELTA_H
#define SLUICE_MODELS_DELTA_H

#include "decoder.h"

typedef struct delta {
  int key_heads, value_heads;
  int64_t key_dim, value_dim, conv;
  bool packed; /* two products compute all that states read, by key heads */
} delta;

static inline const delta *delta_of(const decoder *d) { return d->delta; }

/* ---- initial values -------------------------------------------------------------------------- */

/* Returns the logarithms of decays A between 0.01 and 16, spread evenly for any number of heads. */
static inline void delta_read_decays(void *ctx, int64_t first, int64_t count, float *out) {
  (void)ctx;
  for (int64_t i = 0; i < count; i++) {
    const double golden = 0.6180339887498949, most = 16, least = 0.01;
    out[i] = (float)log(least + (most - least) * fmod((double)(first + i + 1) * golden, 1));
  }
}

static const sl_given delta_decays = {.read = delta_read_decays, .hash = 3};

/* ---- states ---------------------------------------------------------------------------------- */

/* Applies the convolution and SiLU to queries, keys and values together. */
static inline void delta_convolve(sl_graph *g, const decoder *d, const int64_t *lengths,
                                  sl_tensor **qkv, int layer) {
  int64_t conv = delta_of(d)->conv, channels = lengths[0] + lengths[1] + lengths[2];
  sl_tensor *w =
      decoder_param(g, d, SL_TYPE(SL_F32, channels, 1, conv), SL_UNIFORM(1 / sqrtf((float)conv)),
                    layer, "linear_attn.conv1d.weight");
  sl_tensor *x = sl_concat(g, 2, 3, qkv);
  x = sl_silu(g, sl_causal_conv_within(g, x, w, NULL, d->positions));
  sl_split(g, x, 2, 3, lengths, qkv);
}

/* Normalizes each head of x [B, T, K*dk] to length 1. */
static inline sl_tensor *delta_unit(sl_graph *g, const decoder *d, sl_tensor *x) {
  const delta *n = delta_of(d);
  int64_t dk = n->key_dim;
  sl_tensor *gain = sl_filled(g, SL_TYPE(SL_F32, dk), 1 / sqrtf((float)dk), NULL);
  x = sl_reshape(g, x, d->rows, -1, n->key_heads, dk);
  return sl_reshape(g, sl_rmsnorm(g, x, gain, 1e-6f / (float)dk), d->rows, -1, n->key_heads * dk);
}

/* Computes the logarithms of the gates from a [B, T, V]. */
static inline sl_tensor *delta_gates(sl_graph *g, const decoder *d, sl_tensor *a, int64_t heads,
                                     int layer) {
  sl_type type = SL_TYPE(SL_F32, heads);
  sl_tensor *bias = decoder_param(g, d, type, SL_CONSTANT(1), layer, "linear_attn.dt_bias");
  sl_tensor *log_a = decoder_param(g, d, type, SL_GIVEN(&delta_decays), layer, "linear_attn.A_log");
  a = sl_softplus(g, sl_add(g, a, bias));
  return sl_mul(g, a, sl_neg(g, sl_exp(g, sl_expand_like(g, log_a, a))));
}

/* Applies rmsnorm to each head's output o and multiplies by the SiLU of the gate z. o and z [B, T,
 * V*dv] */
static inline sl_tensor *delta_norm(sl_graph *g, const decoder *d, sl_tensor *o, sl_tensor *z,
                                    int layer) {
  int64_t dv = delta_of(d)->value_dim, heads = delta_of(d)->value_heads;
  sl_tensor *gain =
      decoder_param(g, d, SL_TYPE(SL_F32, dv), SL_CONSTANT(1), layer, "linear_attn.norm.weight");
  o = sl_rmsnorm(g, sl_reshape(g, o, d->rows, -1, heads, dv), gain, d->eps);
  return sl_swiglu(g, z, sl_reshape(g, o, d->rows, -1, heads * dv));
}

/* Per key head, a row of the first product holds the query, the key, and the values and gates of
 * its value heads. A row of the second product holds the betas and decays of those heads. */
static inline void delta_project_heads(sl_graph *g, decoder *d, sl_tensor *x, int layer,
                                       sl_tensor **of, sl_tensor **ba) {
  const delta *n = delta_of(d);
  int64_t C = d->width, each = n->value_heads / n->key_heads, values = each * n->value_dim;
  int64_t rows = 2 * (n->key_heads * n->key_dim + n->value_heads * n->value_dim);
  sl_tensor *qkvz = decoder_linear(g, d, x, C, rows, 0.02f, layer, "linear_attn.in_proj_qkvz");
  decoder_split_heads(g, d, qkvz, n->key_heads, 4,
                      (int64_t[]){n->key_dim, n->key_dim, values, values}, of);
  x = decoder_linear(g, d, x, C, 2 * n->value_heads, 0.02f, layer, "linear_attn.in_proj_ba");
  decoder_split_heads(g, d, x, n->key_heads, 2, (int64_t[]){each, each}, ba);
}

/* Queries, keys and values of all heads come from one product; gates, betas and decays from one
 * each. */
static inline void delta_project(sl_graph *g, decoder *d, sl_tensor *x, int layer, sl_tensor **of,
                                 sl_tensor **ba) {
  const delta *n = delta_of(d);
  int64_t C = d->width, keys = n->key_heads * n->key_dim, all = n->value_heads * n->value_dim;
  sl_tensor *qkv =
      decoder_linear(g, d, x, C, 2 * keys + all, 0.02f, layer, "linear_attn.in_proj_qkv");
  sl_split(g, qkv, 2, 3, ((int64_t[]){keys, keys, all}), of);
  of[3] = decoder_linear(g, d, x, C, all, 0.02f, layer, "linear_attn.in_proj_z");
  ba[0] = decoder_linear(g, d, x, C, n->value_heads, 0.02f, layer, "linear_attn.in_proj_b");
  ba[1] = decoder_linear(g, d, x, C, n->value_heads, 0.02f, layer, "linear_attn.in_proj_a");
}

static inline sl_tensor *delta_rule(sl_graph *g, decoder *d, sl_tensor *x, float residual,
                                    int layer) {
  const delta *n = delta_of(d);
  int64_t keys = n->key_heads * n->key_dim, all = n->value_heads * n->value_dim;
  sl_tensor *of[4], *ba[2]; /* q, k, v, gates; betas, decays */
  (n->packed ? delta_project_heads : delta_project)(g, d, x, layer, of, ba);
  delta_convolve(g, d, (int64_t[]){keys, keys, all}, of, layer);
  const sl_attention_attrs attrs = {.heads = n->value_heads, .kv_heads = n->key_heads};
  sl_tensor *betas = sl_sigmoid(g, ba[0]);
  sl_tensor *gates = states_gates(g, delta_gates(g, d, ba[1], n->value_heads, layer), d->shut);
  sl_tensor *k = delta_unit(g, d, of[1]), *q = delta_unit(g, d, of[0]);
  sl_tensor *o = sl_delta_rule(g, q, k, of[2], gates, betas, &attrs); /* [B, T, V*dv] */
  return decoder_linear(g, d, delta_norm(g, d, o, of[3], layer), all, d->width, residual, layer,
                        "linear_attn.out_proj");
}

/* ---- options --------------------------------------------------------------------------------- */

static inline delta delta_read(sl_graph *g, const sl_args *args, const decoder *d) {
  delta n = {.key_heads = (int)sl_arg_int(args, "key-heads"),
             .value_heads = (int)sl_arg_int(args, "value-heads"),
             .key_dim = sl_arg_int(args, "key-dim"),
             .value_dim = sl_arg_int(args, "value-dim"),
             .conv = sl_arg_int(args, "conv")};
  if (!n.value_heads) n.value_heads = (int)(2 * d->width / n.value_dim);
  if (!n.key_heads) n.key_heads = n.value_heads % 2 ? n.value_heads : n.value_heads / 2;
  if (n.value_heads < 1 || n.key_heads < 1 || n.value_heads % n.key_heads)
    sl_graph_fail(g, SL_E_USAGE, "%s: --value-heads %d is not a multiple of --key-heads %d",
                  d->model, n.value_heads, n.key_heads);
  return n;
}

#endif
