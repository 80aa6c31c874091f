/* SPDX-License-Identifier: Apache-2.0 */
/* Latent attention (DeepSeek-V2, arXiv 2405.04434) as a block's mixer.
 *
 * Keys and values of a position come from its latent of L numbers, plus R rotary numbers that all
 * heads share. Per head, queries and keys have n more numbers without positions, and values have
 * v. */
#ifndef SLUICE_MODELS_LATENT_H
#define SLUICE_MODELS_LATENT_H

#include <sluice/attention.h>

#include "decoder.h"

typedef struct latent {
  int64_t query_rank, width, nope, rope, values;
  bool halves;
  int index_heads;
  int64_t index_dim, index_tokens;
  float index_loss;
  bool index_halves;
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

/* Normalizes the query's latent [B, T, rank], or returns x. */
static inline sl_tensor *latent_query(sl_graph *g, decoder *d, sl_tensor *x, int layer) {
  int64_t rank = d->latent->query_rank;
  if (!rank) return x;
  x = decoder_biased(g, d, d->o_bias, x, d->width, rank, 0.02f, layer, "self_attn.q_a_proj");
  return latent_norm(g, d, x, rank, layer, "self_attn.q_a_layernorm");
}

/* Builds queries [B, T, H (n + R)] from the query's latent; the last R numbers of a head carry
 * positions. */
static inline sl_tensor *latent_queries(sl_graph *g, decoder *d, sl_tensor *x, int layer) {
  const latent *s = d->latent;
  const int64_t each = s->nope + s->rope, widths[] = {s->nope, s->rope};
  sl_tensor *part[2];
  x = decoder_linear(g, d, x, s->query_rank ? s->query_rank : d->width, d->heads * each, 0.02f,
                     layer, s->query_rank ? "self_attn.q_b_proj" : "self_attn.q_proj");
  if (d->each[layer].unplaced) return x;
  sl_split(g, sl_reshape(g, x, d->rows, -1, d->heads, each), 3, 2, widths, part);
  part[1] = sl_reshape(g, part[1], d->rows, -1, d->heads * s->rope);
  part[1] = latent_turned(g, d, part[1], d->heads, layer);
  part[1] = sl_reshape(g, part[1], d->rows, -1, d->heads, s->rope);
  return sl_reshape(g, sl_concat(g, 3, 2, part), d->rows, -1, d->heads * each);
}

/* ---- the indexer ----------------------------------------------------------------------------- */

/* Applies rotary positions to the first R numbers of the indexer's heads. */
static inline sl_tensor *latent_index_turned(sl_graph *g, const decoder *d, sl_tensor *x, int heads,
                                             int layer) {
  const latent *s = d->latent;
  const int64_t D = s->index_dim, widths[] = {s->rope, D - s->rope};
  latent own = *s;
  decoder as = *d;
  sl_tensor *part[2];
  own.halves = s->index_halves;
  as.latent = &own;
  if (s->rope == D) return latent_turned(g, &as, x, heads, layer);
  sl_split(g, sl_reshape(g, x, d->rows, -1, heads, D), 3, 2, widths, part);
  part[0] = sl_reshape(g, part[0], d->rows, -1, heads * s->rope);
  part[0] = latent_turned(g, &as, part[0], heads, layer);
  part[0] = sl_reshape(g, part[0], d->rows, -1, heads, s->rope);
  return sl_reshape(g, sl_concat(g, 3, 2, part), d->rows, -1, heads * D);
}

/* Makes a parameter of the indexer, which is fixed if no loss trains it. */
static inline sl_tensor *latent_index_param(sl_graph *g, const decoder *d, sl_type type,
                                            sl_init init, int layer, const char *name) {
  sl_tensor *w = decoder_param(g, d, type, init, layer, name);
  if (d->latent->index_loss == 0) sl_freeze(g, sl_tensor_name(w));
  return w;
}

static inline sl_tensor *latent_index_linear(sl_graph *g, const decoder *d, sl_tensor *x,
                                             int64_t in, int64_t out, int layer, const char *name) {
  sl_type type = SL_TYPE(SL_F32, out, in);
  return sl_linear(g, x, latent_index_param(g, d, type, SL_NORMAL(0.02f), layer, name), NULL);
}

/* Computes the indexer's queries, keys and weights from x [B, T, C] and the query's latent. */
static inline void latent_index(sl_graph *g, const decoder *d, sl_tensor *x, sl_tensor *query,
                                int layer, sl_tensor *out[3]) {
  const latent *s = d->latent;
  const int64_t D = s->index_dim, H = s->index_heads;
  static const char *const norms[2] = {"self_attn.indexer.k_norm.weight",
                                       "self_attn.indexer.k_norm.bias"};
  sl_tensor *norm[2];
  x = sl_detach(g, x);
  query = sl_detach(g, query);
  for (int i = 0; i < 2; i++)
    norm[i] = latent_index_param(g, d, SL_TYPE(SL_F32, D), SL_CONSTANT(i ? 0 : 1), layer, norms[i]);
  sl_tensor *q = latent_index_linear(g, d, query, s->query_rank ? s->query_rank : d->width, H * D,
                                     layer, "self_attn.indexer.wq_b.weight");
  sl_tensor *k = latent_index_linear(g, d, x, d->width, D, layer, "self_attn.indexer.wk.weight");
  sl_tensor *w =
      latent_index_linear(g, d, x, d->width, H, layer, "self_attn.indexer.weights_proj.weight");
  k = sl_layernorm(g, k, norm[0], norm[1], 1e-6f);
  out[0] = latent_index_turned(g, d, q, s->index_heads, layer);
  out[1] = latent_index_turned(g, d, k, 1, layer);
  out[2] = w;
}

/* Adds the loss of a block's indexer, the mean over positions. in: q, the latent, the shared key,
 * and the weight of keys and values. */
static inline void latent_index_loss(sl_graph *g, decoder *d, sl_tensor *const index[3],
                                     sl_tensor *const in[4], const sl_attention_attrs *attrs) {
  const latent *s = d->latent;
  float scale = 1 / sqrtf((float)(s->index_heads * s->index_dim));
  sl_tensor *of[3] = {index[0], index[1], sl_scale(g, index[2], scale)};
  sl_tensor *loss = sl_index_loss(g, of, in[0], in[1], in[2], in[3], d->seen, attrs);
  decoder_add_loss(g, d, sl_mean(g, loss, SL_DIM(0) | SL_DIM(1), false), s->index_loss);
}

/* ---- attention ------------------------------------------------------------------------------- */

typedef enum latent_kind { LATENT_ALL, LATENT_INDEXED, LATENT_REUSED } latent_kind;

static inline sl_tensor *latent_kept(sl_graph *g, decoder *d, sl_tensor *x, float residual,
                                     int layer, latent_kind kind) {
  const latent *s = d->latent;
  const int64_t L = s->width, rows = d->heads * (s->nope + s->values), widths[] = {L, s->rope};
  sl_tensor *of[2]; /* latent and shared key */
  sl_tensor *query = latent_query(g, d, x, layer);
  if (kind == LATENT_REUSED && layer >= d->layers)
    sl_graph_fail(g, SL_E_UNSUPPORTED, "%s: --ahead: not supported after a block that is reused",
                  d->model);
  if (kind == LATENT_REUSED && !d->indexed)
    sl_graph_fail(g, SL_E_USAGE, "%s: --mixers reused needs an indexed block before block %d",
                  d->model, layer);
  bool trains = s->index_loss > 0 && !sl_graph_infer(g),
       all = kind == LATENT_ALL || (trains && s->index_tokens >= d->context);
  sl_tensor *index[3] = {NULL};
  if (kind == LATENT_INDEXED) {
    latent_index(g, d, x, query, layer, index);
    d->indexed = true;
    d->seen =
        all ? NULL
            : sl_choose_tokens(g, index[0], index[1], index[2], s->index_heads, s->index_tokens);
  }
  sl_tensor *q = latent_queries(g, d, query, layer);
  x = decoder_biased(g, d, d->o_bias, x, d->width, L + s->rope, 0.02f, layer,
                     "self_attn.kv_a_proj_with_mqa");
  sl_split(g, x, 2, 2, widths, of);
  of[0] = latent_norm(g, d, of[0], L, layer, "self_attn.kv_a_layernorm");
  of[1] = latent_turned(g, d, of[1], 1, layer);
  sl_tensor *w = decoder_param(g, d, SL_TYPE(SL_F32, rows, L), SL_NORMAL(0.02f), layer,
                               "self_attn.kv_b_proj.weight");
  sl_attention_attrs attrs = d->attention;
  attrs.kv_heads = 0;
  if (kind == LATENT_INDEXED && trains)
    latent_index_loss(g, d, index, (sl_tensor *[]){q, of[0], of[1], w}, &attrs);
  sl_tensor *o = all ? sl_attend_latent(g, q, of[0], of[1], w, d->documents, &attrs)
                     : sl_attend_chosen(g, q, of[0], of[1], w, d->seen, &attrs);
  return decoder_biased(g, d, d->o_bias, o, d->heads * s->values, d->width, residual, layer,
                        "self_attn.o_proj"); /* o [B, T, H v] */
}

static inline sl_tensor *latent_attention(sl_graph *g, decoder *d, sl_tensor *x, float residual,
                                          int layer) {
  return latent_kept(g, d, x, residual, layer, LATENT_ALL);
}

/* Attends to the tokens that an indexer chooses. */
static inline sl_tensor *latent_indexed(sl_graph *g, decoder *d, sl_tensor *x, float residual,
                                        int layer) {
  return latent_kept(g, d, x, residual, layer, LATENT_INDEXED);
}

/* Attends to the tokens that the last indexer chose. */
static inline sl_tensor *latent_reused(sl_graph *g, decoder *d, sl_tensor *x, float residual,
                                       int layer) {
  return latent_kept(g, d, x, residual, layer, LATENT_REUSED);
}

static inline latent latent_read(sl_graph *g, const sl_args *args, const decoder *d) {
  latent s = {.query_rank = sl_arg_int(args, "query-rank"),
              .width = sl_arg_int(args, "latent"),
              .nope = sl_arg_int(args, "nope-dim"),
              .rope = sl_arg_int(args, "rope-dim"),
              .values = sl_arg_int(args, "latent-value-dim"),
              .halves = sl_arg_flag(args, "rope-halves")};
  if (s.rope % 2)
    sl_graph_fail(g, SL_E_USAGE, "%s: --rope-dim %lld: must be even", d->model, (long long)s.rope);
  if (s.values > s.nope + s.rope)
    sl_graph_fail(g, SL_E_USAGE, "%s: --%s %lld: must not exceed the size of a key, %lld", d->model,
                  decoder_called(d, "latent-value-dim"), (long long)s.values,
                  (long long)(s.nope + s.rope));
  if (d->score_cap > 0 || d->sinks)
    sl_graph_fail(g, SL_E_USAGE, "%s: latent attention: not supported with %s", d->model,
                  d->sinks ? "--sinks" : "--score-cap");
  if (d->qkv_bias && !d->o_bias)
    sl_graph_fail(g, SL_E_USAGE, "%s: --bias qkv: latent attention has none or attention",
                  d->model);
  if (sl_arg_float(args, "attend-blocks") > 0)
    sl_graph_fail(
        g, SL_E_USAGE,
        "%s: --attend-blocks: not supported; latent attention attends to all earlier tokens",
        d->model);
  return s;
}

/* Reads the options of the indexer, which chooses the tokens that latent attention sees
 * (DeepSeek-V3.2, arXiv 2512.02556): it scores earlier tokens by few heads with one key. */
static inline void latent_index_read(sl_graph *g, const sl_args *args, const decoder *d,
                                     latent *s) {
  s->index_heads = (int)sl_arg_int(args, "index-heads");
  s->index_dim = sl_arg_int(args, "index-dim");
  s->index_tokens = sl_arg_int(args, "index-tokens");
  s->index_loss = (float)sl_arg_float(args, "index-loss");
  s->index_halves = sl_arg_flag(args, "index-halves");
  if (s->index_dim < s->rope)
    sl_graph_fail(g, SL_E_USAGE, "%s: --index-dim %lld: must be at least --rope-dim %lld", d->model,
                  (long long)s->index_dim, (long long)s->rope);
  if (d->attention.window || d->documents || sl_arg_int(args, "document-end") >= 0)
    sl_graph_fail(g, SL_E_USAGE,
                  "%s: an indexer chooses among all earlier tokens: cannot be combined with %s",
                  d->model, d->attention.window ? "--window" : "--document-end");
}

#endif
