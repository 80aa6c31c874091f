/* SPDX-License-Identifier: Apache-2.0 */
/* Mixtures of experts (Shazeer et al., arXiv 1701.06538; Mixtral: Jiang et al., arXiv 2401.04088).
 * The second half of a block sends each token to k of E experts and sums their outputs weighted by
 * probability. An optional shared expert processes all tokens.
 *
 * E experts, k per token, F inner width of an expert. Files store a parameter [E, ...] of all
 * experts as one tensor per expert: the star in its name stands for the expert's number. */
#ifndef SLUICE_MODELS_MOE_H
#define SLUICE_MODELS_MOE_H

#include <stdlib.h>

#include "decoder.h"

/* Names below "model.layers.N". */
typedef struct moe_names {
  const char *router, *gate, *up, *down, *shared;
  const char *both; /* gate and up of all experts, in one parameter [E, 2F, C]; NULL: apart */
  bool plain;       /* the shared expert has no gate */
  bool paired;      /* the numbers of gate and up alternate in `both` */
} moe_names;

static const moe_names moe_qwen = {.router = "mlp.gate",
                                   .gate = "mlp.experts.*.gate_proj.weight",
                                   .up = "mlp.experts.*.up_proj.weight",
                                   .down = "mlp.experts.*.down_proj.weight",
                                   .shared = "mlp.shared_expert"};

/* Sigmoid routing (DeepSeek-V3, arXiv 2412.19437): the router picks groups by the sum of their two
 * best scores, then experts within these groups. Each expert's correction affects the choice but
 * not the weights. */
typedef struct moe_sigmoid {
  int groups, kept; /* groups 0: experts are chosen by a softmax */
  bool uncorrected; /* experts have no corrections */
  bool softmax;     /* scores are a softmax's; corrections are a row [1, E] */
  float least;      /* added to the sum that the weights are divided by */
  float factor;     /* scales the weights of a token's experts */
  float rate;       /* step of a correction towards an even load; 0: corrections are fixed */
} moe_sigmoid;

typedef struct moe {
  moe_names names;
  int experts, k;
  int64_t inner, shared;
  int64_t latent;    /* experts read and write so many numbers between two products; 0: the width */
  bool normed, bias; /* the router and the experts have biases */
  float balance, z, capacity;
  moe_sigmoid sigmoid;
} moe;

static inline moe_sigmoid moe_sigmoid_read(const sl_args *args) {
  return (moe_sigmoid){.groups = (int)sl_arg_int(args, "expert-groups"),
                       .kept = (int)sl_arg_int(args, "top-groups"),
                       .factor = (float)sl_arg_float(args, "routed-scale"),
                       .rate = (float)sl_arg_float(args, "correction-rate")};
}

/* Linear layer of the experts, each with a bias [out] if they have any. A quote at the end of the
 * weight's name, by which files hold it transposed, is not part of the bias's name. */
static inline sl_tensor *moe_linear(sl_graph *g, const decoder *d, const moe *m, sl_tensor *x,
                                    sl_tensor *ids, int64_t in, int64_t out, float std, int layer,
                                    const char *name) {
  char bias[96];
  sl_type type = SL_TYPE(SL_F32, m->experts, out, in);
  sl_tensor *w = decoder_param(g, d, type, SL_NORMAL(std), layer, name);
  sl_tensor *y = sl_grouped_linear(g, x, ids, w);
  if (!m->bias) return y;
  snprintf(bias, sizeof bias, "%.*s_bias", (int)strcspn(name, "'"), name);
  type = SL_TYPE(SL_F32, m->experts, out);
  return sl_add(g, y, sl_embedding(g, ids, decoder_param(g, d, type, SL_CONSTANT(0), layer, bias)));
}

/* Adds the number of tokens per expert of a block to the report. */
static inline void moe_count(sl_graph *g, const moe *m, sl_tensor *ids, int layer) {
  char name[64];
  snprintf(name, sizeof name, "h.%d.load", layer);
  sl_counter(g, name, sl_expert_load(g, ids, m->experts));
}

/* Adds the number of tokens that each expert drops to the report; a dropped token has id -1 in
 * `kept`. */
static inline void moe_count_dropped(sl_graph *g, const moe *m, sl_tensor *ids, sl_tensor *kept,
                                     int layer) {
  char name[64];
  sl_tensor *more = sl_sub(g, sl_cast(g, ids, SL_F32), sl_cast(g, kept, SL_F32)); /* 1 + id, or 0 */
  more = sl_clamp(g, more, 0, 1);
  sl_tensor *dropped = sl_combine(g, sl_one_hot(g, ids, m->experts), more); /* [B, T, E] */
  snprintf(name, sizeof name, "h.%d.dropped", layer);
  sl_counter(g, name, sl_sum(g, dropped, SL_DIM(0) | SL_DIM(1), false));
}

/* Adds the router's auxiliary losses, computed before tokens are dropped. */
static inline void moe_losses(sl_graph *g, decoder *d, const moe *m, sl_tensor *logits,
                              const sl_routing *r) {
  if (m->balance > 0) decoder_add_loss(g, d, sl_balance_loss(g, r), m->balance);
  if (m->z > 0) decoder_add_loss(g, d, sl_z_loss(g, logits), m->z);
}

/* Computes what the experts' last products read. [B, T, k, F] */
static inline sl_tensor *moe_inner(sl_graph *g, const decoder *d, const moe *m, sl_tensor *x,
                                   sl_tensor *ids, int64_t in, int layer) {
  int64_t F = m->inner;
  sl_tensor *y[2];
  if (m->names.both) {
    y[0] = moe_linear(g, d, m, x, ids, in, 2 * F, 0.02f, layer, m->names.both);
    if (m->names.paired) {
      sl_split(g, sl_reshape(g, y[0], d->rows, -1, m->k, F, 2), 4, 2, NULL, y);
      for (int i = 0; i < 2; i++) y[i] = sl_reshape(g, y[i], d->rows, -1, m->k, F);
    } else sl_split(g, y[0], 3, 2, NULL, y);
    return decoder_gate(g, d, y[0], y[1]);
  }
  if (!d->ungated) y[0] = moe_linear(g, d, m, x, ids, in, F, 0.02f, layer, m->names.gate);
  y[1] = moe_linear(g, d, m, x, ids, in, F, 0.02f, layer, m->names.up);
  return d->ungated ? decoder_apply(g, d, y[1]) : decoder_gate(g, d, y[0], y[1]);
}

static inline sl_tensor *moe_experts(sl_graph *g, decoder *d, const moe *m, sl_tensor *x,
                                     const sl_routing *r, float residual, int layer) {
  int64_t C = m->latent ? m->latent : d->width, F = m->inner;
  sl_tensor *ids = m->capacity > 0 ? sl_expert_limit(g, r, m->capacity) : r->ids; /* [B, T, k] */
  moe_count(g, m, r->ids, layer);
  if (ids != r->ids) moe_count_dropped(g, m, r->ids, ids, layer);
  sl_tensor *y = moe_inner(g, d, m, x, ids, C, layer); /* [B, T, k, F] */
  y = moe_linear(g, d, m, y, ids, F, C, residual, layer, m->names.down);
  return sl_combine(g, y, r->weights); /* [B, T, C] */
}

/* Experts between a product into their latent numbers and one out of them. */
static inline sl_tensor *moe_latent(sl_graph *g, decoder *d, const moe *m, sl_tensor *x,
                                    const sl_routing *r, float residual, int layer) {
  if (!m->latent) return moe_experts(g, d, m, x, r, residual, layer);
  x = decoder_biased(g, d, d->mlp_bias, x, d->width, m->latent, 0.02f, layer,
                     "mlp.fc1_latent_proj");
  x = moe_experts(g, d, m, x, r, 0.02f, layer);
  return decoder_biased(g, d, d->mlp_bias, x, m->latent, d->width, residual, layer,
                        "mlp.fc2_latent_proj");
}

/* Pushes the scores [B, T, E] of all but the best groups far down. */
static inline sl_tensor *moe_of_groups(sl_graph *g, const decoder *d, const moe *m,
                                       sl_tensor *scores) {
  int groups = m->sigmoid.groups, kept = m->sigmoid.kept, each = m->experts / groups;
  sl_tensor *ids, *in_groups = sl_reshape(g, scores, d->rows, -1, groups, each);
  sl_tensor *best = sl_sum(g, sl_top_k(g, in_groups, -1, 2, &ids), SL_DIM(3), false);
  sl_top_k(g, best, -1, kept, &ids);                                        /* [B, T, kept] */
  sl_tensor *mask = sl_sum(g, sl_one_hot(g, ids, groups), SL_DIM(2), true); /* [B, T, 1, groups] */
  mask = sl_scale(g, sl_add_constant(g, mask, -1), 1e9f);                   /* 0, or far below */
  mask = sl_reshape(g, mask, d->rows, -1, groups, 1);
  return sl_reshape(g, sl_add(g, in_groups, mask), d->rows, -1, m->experts);
}

/* Moves each correction by the rate, up for experts below the mean load and down for those above.
 * Loads are compared as whole numbers, whose sums are exact on any grid: an expert at the mean load
 * is left alone. */
static inline void moe_correct(sl_graph *g, const moe *m, sl_tensor *bias, sl_tensor *ids) {
  sl_tensor *load = sl_expert_load(g, ids, m->experts);
  sl_tensor *all = sl_sum(g, load, SL_DIM(0), true);
  sl_tensor *less = sl_sub(g, all, sl_scale(g, load, (float)m->experts));
  less = sl_scale(g, sl_clamp(g, less, -1, 1), m->sigmoid.rate);
  if (m->sigmoid.softmax) less = sl_reshape(g, less, 1, m->experts);
  sl_running(g, bias, less, 0);
}

/* Routes tokens by sigmoid scores. */
static inline sl_routing moe_route(sl_graph *g, const decoder *d, const moe *m, sl_tensor *logits,
                                   int layer) {
  char name[96];
  snprintf(name, sizeof name, "%s.e_score_correction_bias", m->names.router);
  bool softmax = m->sigmoid.softmax;
  sl_type type = softmax ? SL_TYPE(SL_F32, 1, m->experts) : SL_TYPE(SL_F32, m->experts);
  sl_tensor *bias =
      m->sigmoid.uncorrected ? NULL : decoder_param(g, d, type, SL_CONSTANT(0), layer, name);
  sl_tensor *scores = softmax ? sl_softmax(g, logits, 2) : sl_sigmoid(g, logits);
  sl_routing r = {.probabilities =
                      softmax ? scores : sl_div(g, scores, sl_sum(g, scores, SL_DIM(2), true))};
  sl_tensor *flat = bias && softmax ? sl_reshape(g, bias, m->experts) : bias;
  sl_tensor *choice = sl_detach(g, bias ? sl_add(g, scores, flat) : scores);
  if (m->sigmoid.groups > 1) choice = moe_of_groups(g, d, m, choice);
  sl_top_k(g, choice, -1, m->k, &r.ids);
  r.weights = sl_gather(g, scores, -1, r.ids); /* [B, T, k] */
  if (m->normed) {
    float least = m->sigmoid.least > 0 ? m->sigmoid.least : 1e-20f;
    sl_tensor *sum = sl_add_constant(g, sl_sum(g, r.weights, SL_DIM(2), true), least);
    r.weights = sl_div(g, r.weights, sum);
  }
  r.weights = sl_scale(g, r.weights, m->sigmoid.factor);
  if (m->sigmoid.rate > 0 && bias) moe_correct(g, m, bias, r.ids);
  else if (bias) sl_freeze(g, sl_tensor_name(bias));
  return r;
}

/* Checks the groups from which sigmoids choose experts. */
static inline void moe_check_groups(sl_graph *g, const decoder *d, const moe *m) {
  int groups = m->sigmoid.groups, kept = m->sigmoid.kept;
  if (!groups) return;
  if (m->experts % groups || kept > groups || (groups > 1 && m->experts / groups < 2))
    sl_graph_fail(
        g, SL_E_USAGE,
        "%s: --experts %d, --expert-groups %d, --top-groups %d: groups must be of equal size, of at "
        "least 2 experts, and --top-groups must not exceed --expert-groups",
        d->model, m->experts, groups, kept);
  else if (m->k > m->experts / groups * kept)
    sl_graph_fail(g, SL_E_USAGE, "%s: --top-k %d: more than the experts of --top-groups %d groups",
                  d->model, m->k, kept);
}

/* Shared expert, scaled by the sigmoid of its gate if it has one. */
static inline sl_tensor *moe_shared(sl_graph *g, decoder *d, const moe *m, sl_tensor *x,
                                    float residual, int layer) {
  char gate[64];
  snprintf(gate, sizeof gate, "%s_gate", m->names.shared);
  sl_tensor *y = decoder_swiglu(g, d, x, m->shared, residual, layer, m->names.shared);
  if (m->names.plain) return y;
  /* [B, T, 1] */
  sl_tensor *by = sl_sigmoid(g, decoder_linear(g, d, x, d->width, 1, 0.02f, layer, gate));
  return sl_mul(g, y, by);
}

static inline sl_tensor *moe_half(sl_graph *g, decoder *d, sl_tensor *x, float residual,
                                  int layer) {
  const moe *m = d->own;
  sl_tensor *logits =
      decoder_biased(g, d, m->bias, x, d->width, m->experts, 0.02f, layer, m->names.router);
  sl_routing r = m->sigmoid.groups ? moe_route(g, d, m, logits, layer)
                                   : sl_route(g, logits, m->k, m->normed); /* [B, T, k] */
  moe_losses(g, d, m, logits, &r);
  sl_tensor *y = moe_latent(g, d, m, x, &r, residual, layer);
  return m->shared ? sl_add(g, y, moe_shared(g, d, m, x, residual, layer)) : y;
}

/* Routes the tokens of a half with experts beside it, and scales each expert's weight. */
static inline sl_routing moe_route_beside(sl_graph *g, decoder *d, const moe *m, int layer) {
  char name[2][96];
  snprintf(name[0], sizeof name[0], "%s.scale", m->names.router);
  snprintf(name[1], sizeof name[1], "%s.per_expert_scale", m->names.router);
  sl_tensor *by[2]; /* [C], [E] */
  for (int i = 0; i < 2; i++)
    by[i] = decoder_param(g, d, SL_TYPE(SL_F32, i ? m->experts : d->width), SL_CONSTANT(1), layer,
                          name[i]);
  sl_tensor *x = decoder_norm(g, d, d->stream, d->width, layer, NULL);
  x = sl_scale(g, sl_mul(g, x, by[0]), 1 / sqrtf((float)d->width));
  x = decoder_linear(g, d, x, d->width, m->experts, 0.02f, layer, m->names.router);
  sl_routing r = sl_route(g, x, m->k, m->normed);
  moe_losses(g, d, m, x, &r);
  x = sl_embedding(g, r.ids, sl_reshape(g, by[1], m->experts, 1)); /* [B, T, k, 1] */
  r.weights = sl_mul(g, r.weights, sl_reshape(g, x, d->rows, -1, m->k));
  return r;
}

/* A feed-forward half beside experts that read the same sums, each with norms of its own. */
static inline sl_tensor *moe_beside(sl_graph *g, decoder *d, sl_tensor *x, float residual,
                                    int layer) {
  const moe *m = d->own;
  int64_t C = d->width;
  x = decoder_norm(g, d, decoder_mlp(g, d, x, residual, layer), C, layer,
                   "post_feedforward_layernorm_1");
  sl_routing r = moe_route_beside(g, d, m, layer);
  sl_tensor *y = decoder_norm(g, d, d->stream, C, layer, "pre_feedforward_layernorm_2");
  y = moe_latent(g, d, m, y, &r, residual, layer);
  return sl_add(g, x, decoder_norm(g, d, y, C, layer, "post_feedforward_layernorm_2"));
}

/* ---- options -----------------------------------------------------------------------------------
 */

static inline moe moe_of(sl_graph *g, const sl_args *args, const decoder *d, moe_names names) {
  moe m = {.names = names,
           .experts = (int)sl_arg_int(args, "experts"),
           .k = (int)sl_arg_int(args, "top-k"),
           .inner = sl_arg_int(args, "expert-ffn"),
           .shared = sl_arg_int(args, "shared-ffn"),
           .normed = sl_arg_int(args, "norm-topk"),
           .balance = (float)sl_arg_float(args, "aux-loss"),
           .z = (float)sl_arg_float(args, "z-loss"),
           .capacity = (float)sl_arg_float(args, "expert-capacity")};
  if (!m.inner) m.inner = (d->width * 8 / 3 + 63) / 64 * 64;
  if (m.experts && m.k > m.experts)
    sl_graph_fail(g, SL_E_USAGE, "%s: --top-k %d is more than --experts %d", d->model, m.k,
                  m.experts);
  if (m.k < 1) sl_graph_fail(g, SL_E_USAGE, "%s: --top-k 0: must be at least 1", d->model);
  return m;
}

#endif
