/* SPDX-License-Identifier: Apache-2.0 */
/* Mamba-2 states (Dao and Gu, arXiv 2405.21060) as a block's mixer: a short convolution, followed
 * by a state of fixed size per head.
 *
 * B rows of a microbatch, T context, C width, H heads, P head size, G groups, N state size. */
#ifndef SLUICE_MODELS_MAMBA_H
#define SLUICE_MODELS_MAMBA_H

#include "decoder.h"

typedef struct mamba {
  int heads, groups;
  int64_t head_dim, state, conv;
  bool conv_bias, bias; /* biases of the convolution, and of the products */
} mamba;

/* ---- initial values -------------------------------------------------------------------------- */

/* Returns the logarithms of the decays A = 1, 2, 3, ... */
static inline void mamba_read_decays(void *ctx, int64_t first, int64_t count, float *out) {
  (void)ctx;
  for (int64_t i = 0; i < count; i++) out[i] = logf((float)(first + i + 1));
}

/* Returns biases for steps between 0.001 and 0.1, spread evenly in log space for any number of
 * heads. */
static inline void mamba_read_steps(void *ctx, int64_t first, int64_t count, float *out) {
  (void)ctx;
  for (int64_t i = 0; i < count; i++) {
    const double golden = 0.6180339887498949, most = 0.1, least = 0.001;
    double at = fmod((double)(first + i + 1) * golden, 1);
    double step = exp(log(least) + at * log(most / least));
    out[i] = (float)(step + log(-expm1(-step))); /* the inverse of softplus */
  }
}

static const sl_given mamba_decays = {.read = mamba_read_decays, .hash = 1},
                      mamba_steps = {.read = mamba_read_steps, .hash = 2};

/* Applies rmsnorm to each group. Returns [B, T, H*P]. */
static inline sl_tensor *mamba_norm(sl_graph *g, const decoder *d, sl_tensor *x, int64_t inner,
                                    int layer) {
  const mamba *m = d->mamba;
  if (m->groups == 1) return decoder_norm(g, d, x, inner, layer, "mamba.norm");
  int64_t n = inner / m->groups;
  sl_tensor *one = sl_filled(g, SL_TYPE(SL_F32, n), 1, NULL);
  sl_tensor *gain =
      decoder_param(g, d, SL_TYPE(SL_F32, inner), SL_CONSTANT(1), layer, "mamba.norm.weight");
  x = sl_rmsnorm(g, sl_reshape(g, x, d->rows, -1, m->groups, n), one, d->eps);
  return sl_mul(g, sl_reshape(g, x, d->rows, -1, inner), gain);
}

/* Applies the convolution and silu to x, B and C together. Returns [B, T, channels]. */
static inline sl_tensor *mamba_convolve(sl_graph *g, const decoder *d, sl_tensor *x,
                                        int64_t channels, int layer) {
  const mamba *m = d->mamba;
  sl_tensor *w = decoder_param(g, d, SL_TYPE(SL_F32, channels, 1, m->conv), SL_UNIFORM(0.5f), layer,
                               "mamba.conv1d.weight");
  sl_tensor *bias = !m->conv_bias ? NULL
                                  : decoder_param(g, d, SL_TYPE(SL_F32, channels), SL_CONSTANT(0),
                                                  layer, "mamba.conv1d.bias");
  return sl_silu(g, sl_causal_conv_within(g, x, w, bias, d->positions));
}

/* Multiplies each head of x [B, T, H*P] by its number in `by` [B, T, H]. */
static inline sl_tensor *mamba_by_head(sl_graph *g, const decoder *d, sl_tensor *x, sl_tensor *by) {
  const mamba *m = d->mamba;
  x = sl_mul(g, sl_reshape(g, x, d->rows, -1, m->heads, m->head_dim),
             sl_reshape(g, by, d->rows, -1, m->heads, 1));
  return sl_reshape(g, x, d->rows, -1, m->heads * m->head_dim);
}

/* State update: the step size dt sets both how much of x a state takes in and how fast it decays.
 * Returns [B, T, H*P]. */
static inline sl_tensor *mamba_follow(sl_graph *g, const decoder *d, sl_tensor *x, sl_tensor *b,
                                      sl_tensor *c, sl_tensor *dt, int layer) {
  const mamba *m = d->mamba;
  sl_type per_head = SL_TYPE(SL_F32, m->heads);
  sl_tensor *bias = decoder_param(g, d, per_head, SL_GIVEN(&mamba_steps), layer, "mamba.dt_bias");
  sl_tensor *log_a = decoder_param(g, d, per_head, SL_GIVEN(&mamba_decays), layer, "mamba.A_log");
  sl_tensor *skip = decoder_param(g, d, per_head, SL_CONSTANT(1), layer, "mamba.D");
  dt = sl_softplus(g, sl_add(g, dt, bias)); /* [B, T, H] */
  sl_tensor *gates = sl_mul(g, dt, sl_neg(g, sl_exp(g, sl_expand_like(g, log_a, dt))));
  sl_tensor *v = mamba_by_head(g, d, x, dt);
  const sl_attention_attrs attrs = {.heads = m->heads, .kv_heads = m->groups, .scale = 1};
  gates = states_gates(g, gates, d->shut);
  sl_tensor *y = sl_linear_attention(g, c, b, v, gates, &attrs);
  return sl_add(g, y, mamba_by_head(g, d, x, sl_expand_like(g, skip, dt)));
}

static inline sl_tensor *mamba_mixer(sl_graph *g, decoder *d, sl_tensor *x, float residual,
                                     int layer) {
  const mamba *m = d->mamba;
  int64_t inner = m->heads * m->head_dim, shared = m->groups * m->state;
  int64_t channels = inner + 2 * shared;
  sl_tensor *part[3], *of[3]; /* z, the channels, dt; x, B, C */
  x = decoder_biased(g, d, m->bias, x, d->width, inner + channels + m->heads, 0.02f, layer,
                     "mamba.in_proj");
  sl_split(g, x, 2, 3, ((int64_t[]){inner, channels, m->heads}), part);
  sl_tensor *conv = mamba_convolve(g, d, part[1], channels, layer);
  sl_split(g, conv, 2, 3, ((int64_t[]){inner, shared, shared}), of);
  sl_tensor *y = mamba_follow(g, d, of[0], of[1], of[2], part[2], layer);
  y = mamba_norm(g, d, sl_swiglu(g, part[0], y), inner, layer);
  return decoder_biased(g, d, m->bias, y, inner, d->width, residual, layer, "mamba.out_proj");
}

#endif
