/* SPDX-License-Identifier: Apache-2.0 */
/* Shapes of attention, for whole sequences and for pieces. */
#include "ops/attention_shape.h"

#include <math.h>

#include "ops/attention_table.h"

int sli_kv_heads(const sl_attrs *attrs) {
  return attrs->attention.kv_heads > 0 ? attrs->attention.kv_heads : attrs->attention.heads;
}

float sli_attention_scale(const sl_attrs *attrs, int64_t dim) {
  return attrs->attention.scale != 0 ? attrs->attention.scale : 1.0f / sqrtf((float)dim);
}

static sl_status want_heads(const sl_attrs *attrs) {
  if (attrs->attention.heads > 0 && attrs->attention.heads % sli_kv_heads(attrs) == 0) return SL_OK;
  return sl_fail(SL_E_SHAPE, "heads must be a positive multiple of kv_heads, got %d and %d",
                 attrs->attention.heads, sli_kv_heads(attrs));
}

/* Checks that x is [B, T, parts * D] with D in range. */
static sl_status want_split(const char *name, const sl_type *x, int parts) {
  SLI_TRY(sli_want_array(name, x, SL_F32, 3));
  if (x->dim[2] % parts || x->dim[2] / parts > SLI_MAX_HEAD_DIM)
    return sli_misfit(x, "%s must be f32[b, t, %d * n] with n up to %d", name, parts,
                      SLI_MAX_HEAD_DIM);
  return SL_OK;
}

sl_status sli_want_ids(const sl_type *ids, const sl_type *x) {
  return ids->ndim < 0 ? SL_OK : sli_want("ids", ids, &SL_TYPE(SL_I32, x->dim[0], x->dim[1]));
}

static sl_status want_window(const sl_attrs *attrs) {
  if (!(attrs->attention.cap >= 0 && isfinite(attrs->attention.cap)))
    return sl_fail(SL_E_SHAPE, "a cap on scores must be above 0, or 0 for none, got %g",
                   (double)attrs->attention.cap);
  if (attrs->attention.shown < 0)
    return sl_fail(SL_E_SHAPE, "%lld first keys cannot be shown to all",
                   (long long)attrs->attention.shown);
  if (attrs->attention.window >= 0) return SL_OK;
  return sl_fail(SL_E_SHAPE, "a window must be at least 1 position, or 0 for none, got %lld",
                 (long long)attrs->attention.window);
}

static sl_type lse_type(const sl_attrs *attrs, const sl_type *q) {
  return SL_TYPE(SL_F32, q->dim[0], attrs->attention.heads, q->dim[1]);
}

sl_status sli_attention_joined_infer(const sl_attrs *attrs, const sl_type *in, sl_type *out) {
  const sl_type *q = &in[0], *kv = &in[1];
  if (attrs->attention.shown)
    return sl_fail(SL_E_SHAPE,
                   "keys given in parts cannot be shown to all (attrs.attention.shown)");
  SLI_TRY(sli_want_array("q", q, SL_F32, 3));
  SLI_TRY(sli_want_array("kv", kv, SL_F32, 3));
  if (attrs->attention.heads < 1 || q->dim[2] % attrs->attention.heads)
    return sli_misfit(q, "q must be f32[b, t, heads * n]");
  sl_type want =
      sli_type_with_last(q, 2 * sli_kv_heads(attrs) * (q->dim[2] / attrs->attention.heads));
  want.dim[1] = kv->dim[1];
  SLI_TRY(sli_want("kv", kv, &want));
  if (q->dim[1] > kv->dim[1])
    return sli_misfit(q, "k must have %lld positions", (long long)kv->dim[1]);
  out[0] = *q;
  out[1] = lse_type(attrs, q);
  return SL_OK;
}

sl_status sli_want_length(const sl_attrs *attrs, const sl_type *x) {
  if (attrs->attention.full)
    return sl_fail(
        SL_E_SHAPE,
        "queries see later keys (attrs.attention.full), which are in pieces that do not exist yet");
  if (x->dim[1] <= attrs->place.length) return SL_OK;
  return sli_misfit(x, "a piece may have at most the %lld positions of its sequence",
                    (long long)attrs->place.length);
}

sl_status sli_attention_infer(const sl_attrs *attrs, const sl_type *in, sl_type *out) {
  SLI_TRY(want_heads(attrs));
  SLI_TRY(want_window(attrs));
  SLI_TRY(want_split("q", &in[0], attrs->attention.heads));
  sl_type kv =
      sli_type_with_last(&in[0], in[0].dim[2] / attrs->attention.heads * sli_kv_heads(attrs));
  SLI_TRY(sli_want("k", &in[1], &kv));
  SLI_TRY(sli_want("v", &in[2], &kv));
  out[0] = in[0];
  out[1] = lse_type(attrs, &in[0]);
  return SL_OK;
}

sl_status sli_attention_packed_infer(const sl_attrs *attrs, const sl_type *in, sl_type *out) {
  SLI_TRY(want_heads(attrs));
  SLI_TRY(want_window(attrs));
  int parts = attrs->attention.heads + 2 * sli_kv_heads(attrs);
  SLI_TRY(want_split("qkv", &in[0], parts));
  out[0] = sli_type_with_last(&in[0], in[0].dim[2] / parts * attrs->attention.heads);
  out[1] = lse_type(attrs, &in[0]);
  return SL_OK;
}

sl_status sli_attention_sinks_infer(const sl_attrs *attrs, const sl_type *in, sl_type *out) {
  SLI_TRY(sli_attention_infer(attrs, in, out));
  if (attrs->attention.shown)
    return sl_fail(SL_E_SHAPE, "logits as sinks are not supported with attrs.attention.shown");
  sl_type want = sli_type_with_last(&in[0], attrs->attention.heads);
  return sli_want("sinks", &in[3], &want);
}

/* A chunk must be whole tiles of keys, so that a tile meets one form of the queries. */
static sl_status want_chunk(const sl_attrs *attrs) {
  if (attrs->attention.chunk < SLI_KEY_TILE || attrs->attention.chunk % SLI_KEY_TILE)
    return sl_fail(SL_E_SHAPE, "a chunk must be a multiple of %d positions, got %lld", SLI_KEY_TILE,
                   (long long)attrs->attention.chunk);
  if (!attrs->attention.full && !attrs->attention.shown) return SL_OK;
  return sl_fail(SL_E_SHAPE, "chunks need causal attention, without attrs.%s",
                 attrs->attention.full ? "full" : "shown");
}

sl_status sli_attention_dual_infer(const sl_attrs *attrs, const sl_type *in, sl_type *out) {
  SLI_TRY(sli_attention_infer(attrs, in, out));
  SLI_TRY(want_chunk(attrs));
  SLI_TRY(sli_want("next", &in[3], &in[0]));
  return sli_want("far", &in[4], &in[0]);
}
