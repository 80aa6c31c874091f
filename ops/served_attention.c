/* SPDX-License-Identifier: Apache-2.0 */
/* Attention of a tick's rows over the pages of their sequences (the KV cache).
 *
 * The tick that computes the keys and values of a position stores them in a page of the sequence;
 * the batch's table names the page. A row first writes its own keys and values, then attends to its
 * sequence page by page, from its own position backwards. Its sums are therefore the same in a
 * prompt's chunk and alone, with any choice of pages, and equal to those of training. */
#include "ops/attention_shape.h"
#include "ops/attention_rows.h"
#include "ops/batch.h"

/* Type of attrs.pages.count pages. Numbers are rounded when they are stored; computation is in f32.
 */
static sl_type pages_type(const sl_attrs *attrs, const sl_type *o) {
  int64_t dim = o->dim[2] / attrs->attention.heads, heads = sli_kv_heads(attrs);
  return sli_pages_type(attrs, &SL_TYPE(SL_F32, attrs->pages.count, heads, sli_page_numbers(dim)),
                        heads, 2 * SL_PAGE, dim);
}

static sl_status want_causal(const sl_attrs *attrs, const sl_type *batch) {
  if (attrs->attention.full)
    return sl_fail(SL_E_SHAPE, "queries see later keys (attrs.attention.full)");
  if (attrs->pages.count < 1) return sl_fail(SL_E_SHAPE, "attrs.pages.count must be given");
  return sli_want_array("batch", batch, SL_I32, 1);
}

static sl_status want_no_ids(const sl_type *ids) {
  return ids->ndim < 0
             ? SL_OK
             : sl_fail(
                   SL_E_SHAPE,
                   "masks of documents are not supported, since sequences are separate already");
}

/* in: inputs, [no ids], batch */
static sl_status infer(const sli_attention_variant *v, const sl_attrs *attrs, int nin,
                       const sl_type *in, sl_type *out) {
  int batch = v->inputs + v->ids;
  if (nin != batch + 1) return sl_fail(SL_E_SHAPE, "it has no batch to read");
  if (v->ids) SLI_TRY(want_no_ids(&in[v->inputs]));
  SLI_TRY(v->infer(attrs, in, out));
  SLI_TRY(want_causal(attrs, &in[batch]));
  out[2] = pages_type(attrs, &out[0]);
  return SL_OK;
}

#define SERVED(name_, v, inputs, ids)                                         \
  INFER(name_##_infer, infer, v)                                              \
                                                                              \
  const sl_op sl_op_##name_ = {                                               \
      .name = #name_,                                                         \
      .attrs = {&sl_attrs_attention},                                         \
      .min_in = inputs + ids + 1,                                             \
      .max_in = inputs + ids + 1,                                             \
      .nout = 3,                                                              \
      .memory = &(const sl_op_memory){.updates = 4},                          \
      .infer = name_##_infer,                                                 \
      .rows = &(const sl_op_rows){.looks = FIRST_BITS(inputs), .follows = 1}, \
  };

#define ATTENTION(op, layout, inputs, ids, gradients, heads, numbers, pairs, check, pieces, parts, \
                  ring, served)                                                                    \
  served(SERVED(op##_served, VARIANT(op), inputs, ids))
#include "ops/attention.def"
#undef ATTENTION
