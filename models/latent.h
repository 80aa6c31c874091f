/* SPDX-License-Identifier: Apache-2.0 */
/* Latent attention (DeepSeek-V2, arXiv 2405.04434) as a block's mixer.
 *
 * Keys and values of a position come from its latent of L numbers, plus R rotary numbers that all
 * heads share. Per head, queries and keys have n more numbers without positions, and values have
 * v. */
#ifndef SLUICE_MODELS_LATENT_H
#define SLUICE_MODELS_LATENT_H

#include "decoder.h"

/* Options; `values` is the name of the width of values. */
/* clang-format off */
#define LATENT_OPTIONS(values) \
    {"query-rank", SL_OPTION_INT, "0", "rank of the queries' projection in latent attention; 0: " \
     "queries come from the whole input", 0, 1 << 20}, \
    {"latent", SL_OPTION_INT, "64", "rank of the latent from which a position's keys and values " \
     "come", 1, 1 << 20}, \
    {"nope-dim", SL_OPTION_INT, "32", "numbers of a head's key without rotary positions in latent " \
     "attention", 1, 256}, \
    {"rope-dim", SL_OPTION_INT, "16", "numbers of a key with rotary positions in latent attention, " \
     "shared by all heads", 2, 256}, \
    {values, SL_OPTION_INT, "32", "numbers of a head's value in latent attention", 1, 256}, \
    {"rope-halves", SL_OPTION_FLAG, "0", "rotate a key's halves together instead of adjacent " \
     "numbers in latent attention", 0, 0}
/* clang-format on */

typedef struct latent {
  int64_t query_rank, width, nope, rope, values;
  bool halves;
} latent;

/* Applies rmsnorm to a latent; its eps is fixed at 1e-6. */
static inline sl_tensor *latent_norm(sl_graph *g, const decoder *d, sl_tensor *x, int64_t width,
                                     int layer, const char *name) {
  decoder own = *d;
  own.eps = 1e-6f;
  return decoder_norm(g, &own, x, width, layer, name);
}

/* Applies rotary positions to x [B, T, heads R]. Interleaved pairs are first rearranged into
 * halves. */
static inline sl_tensor *latent_turned(sl_graph *g, const decoder *d, sl_tensor *x, int heads,
                                       int layer) {
  if (d->each[layer].unplaced) return x;
  if (!d->latent->halves) x = decoder_halved(g, d, x, heads, d->latent->rope);
  if (decoder_is_dual(d))
    sl_graph_fail(g, SL_E_UNSUPPORTED,
                  "%s: --rope dual-chunk: not supported with this model's attention", d->model);
  return sl_rotary_stretched(g, x, heads, d->theta, &d->rope);
}

/* Builds queries [B, T, H (n + R)]; the last R numbers of a head carry positions. */
static inline sl_tensor *latent_queries(sl_graph *g, decoder *d, sl_tensor *x, int layer) {
  const latent *s = d->latent;
  const int64_t C = d->width, each = s->nope + s->rope, widths[] = {s->nope, s->rope};
  sl_tensor *part[2];
  if (s->query_rank) {
    x = decoder_biased(g, d, d->o_bias, x, C, s->query_rank, 0.02f, layer, "self_attn.q_a_proj");
    x = latent_norm(g, d, x, s->query_rank, layer, "self_attn.q_a_layernorm");
  }
  x = decoder_linear(g, d, x, s->query_rank ? s->query_rank : C, d->heads * each, 0.02f, layer,
                     s->query_rank ? "self_attn.q_b_proj" : "self_attn.q_proj");
  if (d->each[layer].unplaced) return x;
  sl_split(g, sl_reshape(g, x, d->rows, -1, d->heads, each), 3, 2, widths, part);
  part[1] = sl_reshape(g, part[1], d->rows, -1, d->heads * s->rope);
  part[1] = latent_turned(g, d, part[1], d->heads, layer);
  part[1] = sl_reshape(g, part[1], d->rows, -1, d->heads, s->rope);
  return sl_reshape(g, sl_concat(g, 3, 2, part), d->rows, -1, d->heads * each);
}

static inline sl_tensor *latent_attention(sl_graph *g, decoder *d, sl_tensor *x, float residual,
                                          int layer) {
  const latent *s = d->latent;
  const int64_t L = s->width, rows = d->heads * (s->nope + s->values), widths[] = {L, s->rope};
  sl_tensor *of[2]; /* latent and shared key */
  sl_tensor *q = latent_queries(g, d, x, layer);
  x = decoder_biased(g, d, d->o_bias, x, d->width, L + s->rope, 0.02f, layer,
                     "self_attn.kv_a_proj_with_mqa");
  sl_split(g, x, 2, 2, widths, of);
  of[0] = latent_norm(g, d, of[0], L, layer, "self_attn.kv_a_layernorm");
  sl_tensor *w = decoder_param(g, d, SL_TYPE(SL_F32, rows, L), SL_NORMAL(0.02f), layer,
                               "self_attn.kv_b_proj.weight");
  sl_tensor *o = sl_attend_latent(g, q, of[0], latent_turned(g, d, of[1], 1, layer), w,
                                  d->documents, &d->attention); /* [B, T, H v] */
  return decoder_biased(g, d, d->o_bias, o, d->heads * s->values, d->width, residual, layer,
                        "self_attn.o_proj");
}

/* Reads LATENT_OPTIONS. */
static inline latent latent_read(sl_graph *g, const sl_args *args, const decoder *d,
                                 const char *values) {
  latent s = {.query_rank = sl_arg_int(args, "query-rank"),
              .width = sl_arg_int(args, "latent"),
              .nope = sl_arg_int(args, "nope-dim"),
              .rope = sl_arg_int(args, "rope-dim"),
              .values = sl_arg_int(args, values),
              .halves = sl_arg_flag(args, "rope-halves")};
  if (s.rope % 2)
    sl_graph_fail(g, SL_E_USAGE, "%s: --rope-dim %lld: must be even", d->model, (long long)s.rope);
  if (s.values > s.nope + s.rope)
    sl_graph_fail(g, SL_E_USAGE, "%s: --%s %lld: must not exceed the size of a key, %lld", d->model,
                  values, (long long)s.values, (long long)(s.nope + s.rope));
  if (sl_arg_float(args, "attend-blocks") > 0)
    sl_graph_fail(
        g, SL_E_USAGE,
        "%s: --attend-blocks: not supported; latent attention attends to all earlier tokens",
        d->model);
  return s;
}

#endif
