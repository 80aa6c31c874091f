/* SPDX-License-Identifier: Apache-2.0 */
/* Attention with sinks, whose logits are expanded to one per query; and latent attention, which
 * training graphs expand to plain attention, and served graphs keep as one op. */
#include <sluice/attention.h>
#include <math.h>

#include <sluice/ops.h>

#include "graph/build/build.h"
#include "ops/attention_latent.h"
#include "ops/layout.h"

/* ---- sinks --------------------------------------------------------------------------------- */

/* Returns a head's sink for each query, [B, T, heads]. */
static sl_tensor *rows_of_sinks(sl_here at, sl_graph *g, sl_tensor *q, sl_tensor *sinks,
                                int heads) {
  if (!q || !sinks || heads < 1 || sl_dim(q, -1) % heads) return sinks;
  sl_tensor *like =
      sl_reshape_at(at, g, q, SL_TYPE(SL_F32, sl_dim(q, 0), -1, heads, sl_dim(q, 2) / heads));
  like = sl_slice_at(at, g, like, 3, 0, 1);
  like = sl_reshape_at(at, g, like, SL_TYPE(SL_F32, sl_dim(q, 0), -1, heads));
  return sl_expand_like_at(at, g, sinks, like);
}

sl_tensor *sl_attend_sinks_at(sl_here at, sl_graph *g, sl_tensor *q, sl_tensor *k, sl_tensor *v,
                              sl_tensor *sinks, sl_tensor *ids, const sl_attrs *attrs) {
  sl_tensor *rows = rows_of_sinks(at, g, q, sinks, attrs->heads);
  sl_tensor *of[2] = {0};
  sl_apply_at(at, g, &sl_op_attention_sinks, attrs, ids ? 5 : 4,
              (sl_tensor *[]){q, k, v, rows, ids}, sinks ? 0 : 8, of);
  return of[0];
}

/* ---- chunks -------------------------------------------------------------------------------- */

sl_tensor *sl_attend_dual_at(sl_here at, sl_graph *g, sl_tensor *q, sl_tensor *k, sl_tensor *v,
                             float theta, const sl_rope *rope, const sl_attrs *attrs) {
  sl_attrs with = *attrs;
  sl_rope form = *rope;
  sl_tensor *in[5] = {NULL, NULL, v}, *of[2] = {NULL};
  with.chunk = sli_rope_chunk(&(sl_attrs){.user = rope});
  static const struct {
    sl_rope_form form;
    int input;
  } forms[] = {{SL_ROPE_OWN, 0}, {SL_ROPE_KEYS, 1}, {SL_ROPE_NEXT, 3}, {SL_ROPE_FAR, 4}};
  for (size_t i = 0; i < SLI_COUNT(forms); i++) {
    bool keys = forms[i].form == SL_ROPE_KEYS;
    int heads = keys && attrs->kv_heads ? attrs->kv_heads : attrs->heads;
    form.form = forms[i].form;
    in[forms[i].input] = sl_rotary_at(at, g, keys ? k : q, heads, theta, &form);
  }
  sl_apply_at(at, g, &sl_op_attention_dual, &with, 5, in, 0, of);
  return of[0];
}

/* ---- latents --------------------------------------------------------------------------------- */

/* Widths of a head: parts of its queries without (nope) and with (rope) rotary embedding, and
 * values. */
typedef struct widths {
  int64_t heads, nope, rope, values;
} widths;

static sl_tensor *in_heads(sl_here at, sl_graph *g, sl_tensor *x, int64_t heads) {
  return sl_reshape_at(at, g, x, SL_TYPE(SL_F32, sl_dim(x, 0), -1, heads, sl_dim(x, 2) / heads));
}

static sl_tensor *together(sl_here at, sl_graph *g, sl_tensor *x) {
  return sl_reshape_at(at, g, x, SL_TYPE(SL_F32, sl_dim(x, 0), -1, sl_dim(x, 2) * sl_dim(x, 3)));
}

/* Concatenates the parts of the heads' keys: k [B, T, R] is shared by all heads. Returns [B, T, H
 * (n + R)]. */
static sl_tensor *keys_of(sl_here at, sl_graph *g, const widths *w, sl_tensor *own, sl_tensor *k) {
  sl_tensor *shared = sl_reshape_at(at, g, k, SL_TYPE(SL_F32, sl_dim(k, 0), -1, 1, w->rope));
  sl_tensor *parts[] = {own, sl_expand_at(at, g, shared, SL_TYPE(SL_F32, -1, -1, w->heads, -1))};
  return together(at, g, sl_concat_at(at, g, 3, 2, parts));
}

/* Pads the heads' values with zeros to the width of a key. */
static sl_tensor *padded(sl_here at, sl_graph *g, const widths *w, sl_tensor *values,
                         sl_tensor *key) {
  int64_t more = w->nope + w->rope - w->values;
  if (!more) return together(at, g, values);
  sl_tensor *like = sl_slice_at(at, g, in_heads(at, g, key, w->heads), 3, 0, more);
  sl_tensor *parts[] = {values, like ? sl_filled_at(at, g, like->type, 0, like) : NULL};
  return together(at, g, sl_concat_at(at, g, 3, 2, parts));
}

static sl_tensor *expanded(sl_here at, sl_graph *g, const widths *w, sl_tensor *const in[4],
                           sl_tensor *ids, const sl_attrs *attrs) {
  sl_tensor *of[2]; /* per-head part of keys, and values, [B, T, H, ...] */
  sl_tensor *kv = in_heads(at, g, sl_linear_at(at, g, in[1], in[3], NULL, false), w->heads);
  sl_split_at(at, g, kv, 3, 2, (int64_t[]){w->nope, w->values}, of);
  sl_tensor *k = keys_of(at, g, w, of[0], in[2]);
  sl_tensor *o = sl_attend_within_at(at, g, in[0], k, padded(at, g, w, of[1], k), ids, attrs);
  if (w->values == w->nope + w->rope) return o;
  return together(at, g, sl_slice_at(at, g, in_heads(at, g, o, w->heads), 3, 0, w->values));
}

/* Returns x [B, T, H E] as [B, H, T, E]. */
static sl_tensor *by_heads(sl_here at, sl_graph *g, sl_tensor *x, int64_t heads) {
  return sl_permute_at(at, g, in_heads(at, g, x, heads), SL_TYPE(SL_I32, 0, 2, 1, 3));
}

enum { FAR_BELOW = -1000000000 };

/* Replaces the scores [B, T, T] of later keys. */
static sl_tensor *causal(sl_here at, sl_graph *g, sl_tensor *scores) {
  if (!scores) return NULL;
  sl_tensor *query = sl_arange_at(at, g, scores, 1), *key = sl_arange_at(at, g, scores, 2);
  sl_tensor *seen = sl_op2_at(at, g, &sl_op_le, NULL, key, query);
  sl_tensor *below = sl_filled_at(at, g, scores->type, FAR_BELOW, scores);
  return sl_op3_at(at, g, &sl_op_where, NULL, seen, scores, below);
}

/* Returns what is added to the scores of chosen keys, 0, and of others, [B, T, T]. */
static sl_tensor *term_of(sl_here at, sl_graph *g, sl_tensor *chosen) {
  if (!chosen) return NULL;
  sl_type type = chosen->type;
  type.dtype = SL_F32;
  sl_tensor *ones = sl_filled_at(at, g, type, 1, chosen);
  sl_tensor *seen = sl_scatter_sum_at(at, g, ones, -1, chosen, type.dim[1]);
  seen = sl_add_constant_at(at, g, seen, -1);
  return causal(at, g, sl_scale_at(at, g, seen, -FAR_BELOW));
}

static sl_tensor *expanded_chosen(sl_here at, sl_graph *g, const widths *w, sl_tensor *const in[4],
                                  sl_tensor *chosen, const sl_attrs *attrs) {
  sl_tensor *of[2];
  sl_tensor *kv = in_heads(at, g, sl_linear_at(at, g, in[1], in[3], NULL, false), w->heads);
  sl_split_at(at, g, kv, 3, 2, (int64_t[]){w->nope, w->values}, of);
  float scale = attrs->scale != 0 ? attrs->scale : 1 / sqrtf((float)(w->nope + w->rope));
  sl_tensor *q = by_heads(at, g, sl_scale_at(at, g, in[0], scale), w->heads),
            *k = by_heads(at, g, keys_of(at, g, w, of[0], in[2]), w->heads),
            *v = sl_permute_at(at, g, of[1], SL_TYPE(SL_I32, 0, 2, 1, 3));
  sl_tensor *term = term_of(at, g, chosen);
  if (!term) return NULL;
  term = sl_reshape_at(at, g, term, SL_TYPE(SL_F32, sl_dim(term, 0), 1, sl_dim(term, 1), -1));
  sl_tensor *scores = sl_add_at(at, g, sl_matmul_at(at, g, q, k, false, true), term);
  sl_tensor *o = sl_matmul_at(at, g, sl_softmax_at(at, g, scores, 3, false), v, false, false);
  return together(at, g, sl_permute_at(at, g, o, SL_TYPE(SL_I32, 0, 2, 1, 3)));
}

/* Returns false, with an error, if widths are inconsistent. */
static bool widths_read(sl_here at, sl_graph *g, sl_tensor *const in[4], const sl_attrs *attrs,
                        widths *w) {
  if (!in[0] || !in[1] || !in[2] || !in[3]) return false;
  w->heads = attrs->heads;
  w->rope = sl_dim(in[2], 2);
  int64_t rows = sl_dim(in[3], 0), query = w->heads > 0 ? sl_dim(in[0], 2) / w->heads : 0;
  w->nope = query - w->rope;
  w->values = w->heads > 0 ? rows / w->heads - w->nope : 0;
  if (w->heads > 0 && sl_dim(in[0], 2) % w->heads == 0 && rows % w->heads == 0 && w->nope > 0 &&
      w->values > 0 && w->values <= query)
    return true;
  sli_graph_fail_at(
      g, at, SL_E_SHAPE,
      "sl_attend_latent: %d heads with queries of %lld numbers, %lld of them rotated, do not fit "
      "%lld rows of keys and values",
      attrs->heads, (long long)query, (long long)w->rope, (long long)rows);
  return false;
}

sl_tensor *sl_attend_latent_at(sl_here at, sl_graph *g, sl_tensor *q, sl_tensor *c, sl_tensor *k,
                               sl_tensor *w, sl_tensor *ids, const sl_attrs *attrs) {
  sl_tensor *const in[] = {q, c, k, w};
  widths of;
  if (!widths_read(at, g, in, attrs, &of)) return NULL;
  sl_tensor *o = NULL;
  const sl_serving *serve = g->options.serve;
  bool keeps = serve && !serve->exact && !attrs->window && !ids;
  if (!keeps) return expanded(at, g, &of, in, ids, attrs);
  sl_apply_at(at, g, &sl_op_attention_latent, attrs, 4, in, 0, &o);
  return o;
}

sl_tensor *sl_attend_chosen_at(sl_here at, sl_graph *g, sl_tensor *q, sl_tensor *c, sl_tensor *k,
                               sl_tensor *w, sl_tensor *chosen, const sl_attrs *attrs) {
  sl_tensor *const in[] = {q, c, k, w, chosen};
  widths of;
  sl_tensor *o = NULL;
  if (!chosen || !widths_read(at, g, in, attrs, &of)) return NULL;
  if (!g->options.serve) return expanded_chosen(at, g, &of, in, chosen, attrs);
  sl_apply_at(at, g, &sl_op_attention_latent, attrs, 5, in, 0, &o);
  return o;
}

sl_tensor *sl_choose_tokens_at(sl_here at, sl_graph *g, sl_tensor *q, sl_tensor *k, sl_tensor *w,
                               int heads, int64_t count) {
  if (!q || !k || !w) return NULL;
  int64_t B = sl_dim(q, 0), T = sl_dim(q, 1), D = sl_dim(k, 2);
  sl_tensor *o = NULL;
  if (g->options.serve) {
    const sl_attrs attrs = {.heads = heads, .columns = count};
    sl_apply_at(at, g, &sl_op_choose_tokens, &attrs, 3, (sl_tensor *[]){q, k, w}, 0, &o);
    return o;
  }
  q = sl_reshape_at(at, g, sl_op1_at(at, g, &sl_op_detach, NULL, q),
                    SL_TYPE(SL_F32, B, T * heads, D));
  sl_tensor *scores = sl_matmul_at(at, g, q, sl_op1_at(at, g, &sl_op_detach, NULL, k), false, true);
  scores = sl_op1_at(at, g, &sl_op_relu, NULL, scores);
  scores = sl_reshape_at(at, g, scores, SL_TYPE(SL_F32, B, T, heads, T));
  w = sl_reshape_at(at, g, sl_op1_at(at, g, &sl_op_detach, NULL, w),
                    SL_TYPE(SL_F32, B, T, heads, 1));
  scores = sl_sum_at(at, g, sl_mul_at(at, g, scores, w), SL_DIM(2), false);
  sl_top_k_at(at, g, causal(at, g, scores), -1, SLI_MIN(count, T), &o);
  return o;
}
