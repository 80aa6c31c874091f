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
                              sl_tensor *sinks, sl_tensor *ids, const sl_attention_attrs *attrs) {
  const sl_attrs with = sli_attention_with(attrs);
  sl_tensor *rows = rows_of_sinks(at, g, q, sinks, attrs->heads);
  sl_tensor *of[2] = {0};
  sl_apply_at(at, g, &sl_op_attention_sinks, &with, ids ? 5 : 4,
              (sl_tensor *[]){q, k, v, rows, ids}, sinks ? 0 : 8, of);
  return of[0];
}

/* ---- chunks -------------------------------------------------------------------------------- */

sl_tensor *sl_attend_dual_at(sl_here at, sl_graph *g, sl_tensor *q, sl_tensor *k, sl_tensor *v,
                             float theta, const sl_rope *rope, const sl_attention_attrs *attrs) {
  sl_attrs with = sli_attention_with(attrs);
  sl_rope form = *rope;
  sl_tensor *in[5] = {NULL, NULL, v}, *of[2] = {NULL};
  with.attention.chunk = sli_rope_chunk(&(sl_attrs){.user = rope});
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

/* Expands the keys of all heads, and their values unless v is NULL, to [B, T, H ...]. */
static void heads_of(sl_here at, sl_graph *g, const widths *w, sl_tensor *const in[4],
                     sl_tensor **k, sl_tensor **v) {
  sl_tensor *of[2];
  sl_tensor *kv = in_heads(at, g, sl_linear_at(at, g, in[1], in[3], NULL, false), w->heads);
  sl_split_at(at, g, kv, 3, 2, (int64_t[]){w->nope, w->values}, of);
  *k = keys_of(at, g, w, of[0], in[2]);
  if (v) *v = together(at, g, of[1]);
}

static sl_tensor *expanded(sl_here at, sl_graph *g, const widths *w, sl_tensor *const in[4],
                           sl_tensor *ids, const sl_attention_attrs *attrs) {
  sl_tensor *k, *v;
  heads_of(at, g, w, in, &k, &v);
  v = padded(at, g, w, in_heads(at, g, v, w->heads), k);
  sl_tensor *o = sl_attend_within_at(at, g, in[0], k, v, ids, attrs);
  if (w->values == w->nope + w->rope) return o;
  return together(at, g, sl_slice_at(at, g, in_heads(at, g, o, w->heads), 3, 0, w->values));
}

/* Returns false, with an error, if widths are inconsistent. */
static bool widths_read(sl_here at, sl_graph *g, sl_tensor *const in[4],
                        const sl_attention_attrs *attrs, widths *w) {
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
                               sl_tensor *w, sl_tensor *ids, const sl_attention_attrs *attrs) {
  const sl_attrs with = sli_attention_with(attrs);
  sl_tensor *const in[] = {q, c, k, w};
  widths of;
  if (!widths_read(at, g, in, attrs, &of)) return NULL;
  sl_tensor *o = NULL;
  const sl_serving *serve = g->options.serve;
  bool keeps = serve && !serve->exact && !attrs->window && !ids;
  if (!keeps) return expanded(at, g, &of, in, ids, attrs);
  sl_apply_at(at, g, &sl_op_attention_latent, &with, 4, in, 0, &o);
  return o;
}

sl_tensor *sl_attend_chosen_at(sl_here at, sl_graph *g, sl_tensor *q, sl_tensor *c, sl_tensor *k,
                               sl_tensor *w, sl_tensor *chosen, const sl_attention_attrs *attrs) {
  const sl_attrs with = sli_attention_with(attrs);
  sl_tensor *const in[] = {q, c, k, w, chosen};
  sl_tensor *of[2] = {NULL}, *v;
  widths of_heads;
  if (!chosen || !widths_read(at, g, in, attrs, &of_heads)) return NULL;
  if (g->options.serve) {
    sl_apply_at(at, g, &sl_op_attention_latent, &with, 5, in, 0, of);
    return of[0];
  }
  heads_of(at, g, &of_heads, in, &k, &v);
  const sl_attrs own = {.attention.heads = attrs->heads, .attention.scale = attrs->scale};
  sl_apply_at(at, g, &sl_op_attention_chosen, &own, 4, (sl_tensor *[]){q, k, v, chosen}, 0, of);
  return of[0];
}

sl_tensor *sl_choose_tokens_at(sl_here at, sl_graph *g, sl_tensor *q, sl_tensor *k, sl_tensor *w,
                               int heads, int64_t count) {
  if (!q || !k || !w) return NULL;
  sl_tensor *in[3] = {q, k, w}, *o = NULL;
  bool serve = g->options.serve;
  for (int i = 0; i < 3 && !serve; i++) in[i] = sl_op1_at(at, g, &sl_op_detach, NULL, in[i]);
  const sl_attrs attrs = {.attention.heads = heads,
                          .attention.tokens = serve ? count : SLI_MIN(count, sl_dim(q, 1))};
  sl_apply_at(at, g, &sl_op_choose_tokens, &attrs, 3, in, 0, &o);
  return o;
}

sl_tensor *sl_index_loss_at(sl_here at, sl_graph *g, sl_tensor *const index[3], sl_tensor *q,
                            sl_tensor *c, sl_tensor *k, sl_tensor *w, sl_tensor *chosen,
                            const sl_attention_attrs *attrs) {
  sl_tensor *in[4] = {q, c, k, w}, *keys, *o = NULL;
  widths of;
  if (!index[0] || !index[1] || !index[2] || !widths_read(at, g, in, attrs, &of)) return NULL;
  for (int i = 0; i < 4; i++) in[i] = sl_op1_at(at, g, &sl_op_detach, NULL, in[i]);
  heads_of(at, g, &of, in, &keys, NULL);
  const sl_attrs own = {.attention.heads = attrs->heads, .attention.scale = attrs->scale};
  sl_tensor *all[] = {index[0], index[1], index[2], in[0], keys, chosen};
  sl_apply_at(at, g, &sl_op_index_loss, &own, chosen ? 6 : 5, all, 0, &o);
  return o;
}
