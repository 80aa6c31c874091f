/* SPDX-License-Identifier: Apache-2.0 */
/* Attention of a tick's rows over the pages of their sequences (the KV cache).
 *
 * The tick that computes the keys and values of a position stores them in a page of the sequence;
 * the batch's table names the page. A row first writes its own keys and values, then attends to its
 * sequence page by page, from its own position backwards. Its sums are therefore the same in a
 * prompt's chunk and alone, with any choice of pages, and equal to those of training. */
#include <sluice/attention.h>

#include "ops/attention_shape.h"
#include "ops/batch.h"
#include "ops/ops.h"

/* Type of attrs.count pages. Numbers are rounded when they are stored; computation is in f32. */
static sl_type pages_type(const sl_attrs *attrs, const sl_type *o) {
  int64_t dim = o->dim[2] / attrs->heads, heads = sli_kv_heads(attrs);
  return sli_pages_type(attrs, &SL_TYPE(SL_F32, attrs->count, heads, sli_page_numbers(dim)), heads,
                        2 * SL_PAGE, dim);
}

static sl_status want_causal(const sl_attrs *attrs, const sl_type *batch) {
  if (attrs->full) return sl_fail(SL_E_SHAPE, "queries see later keys (attrs.full)");
  if (attrs->count < 1) return sl_fail(SL_E_SHAPE, "attrs.count must be given");
  return sli_want_array("batch", batch, SL_I32, 1);
}

static sl_status want_no_ids(const sl_type *ids) {
  return ids->ndim < 0
             ? SL_OK
             : sl_fail(
                   SL_E_SHAPE,
                   "masks of documents are not supported, since sequences are separate already");
}

static sl_status served_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  if (nin != 5) return sl_fail(SL_E_SHAPE, "it has no batch to read");
  SLI_TRY(want_no_ids(&in[3]));
  SLI_TRY(sli_attention_infer(attrs, 3, in, out));
  SLI_TRY(want_causal(attrs, &in[4]));
  out[2] = pages_type(attrs, &out[0]);
  return SL_OK;
}

static sl_status packed_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  if (nin != 3) return sl_fail(SL_E_SHAPE, "it has no batch to read");
  SLI_TRY(want_no_ids(&in[1]));
  SLI_TRY(sli_attention_packed_infer(attrs, 1, in, out));
  SLI_TRY(want_causal(attrs, &in[2]));
  out[2] = pages_type(attrs, &out[0]);
  return SL_OK;
}

const sl_op sl_op_attention_served = {
    .name = "attention_served",
    .min_in = 5,
    .max_in = 5,
    .nout = 3,
    .memory = &(const sl_op_memory){.updates = 4},
    .infer = served_infer,
    .rows = &(const sl_op_rows){.looks = 7, .follows = 1},
};

static sl_status sinks_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  if (nin != 6) return sl_fail(SL_E_SHAPE, "it has no batch to read");
  SLI_TRY(want_no_ids(&in[4]));
  SLI_TRY(sli_attention_sinks_infer(attrs, 4, in, out));
  SLI_TRY(want_causal(attrs, &in[5]));
  out[2] = pages_type(attrs, &out[0]);
  return SL_OK;
}

const sl_op sl_op_attention_sinks_served = {
    .name = "attention_sinks_served",
    .min_in = 6,
    .max_in = 6,
    .nout = 3,
    .memory = &(const sl_op_memory){.updates = 4},
    .infer = sinks_infer,
    .rows = &(const sl_op_rows){.looks = 15, .follows = 1},
};

static sl_status dual_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  if (nin != 6) return sl_fail(SL_E_SHAPE, "it has no batch to read");
  SLI_TRY(sli_attention_dual_infer(attrs, 5, in, out));
  SLI_TRY(want_causal(attrs, &in[5]));
  out[2] = pages_type(attrs, &out[0]);
  return SL_OK;
}

const sl_op sl_op_attention_dual_served = {
    .name = "attention_dual_served",
    .min_in = 6,
    .max_in = 6,
    .nout = 3,
    .memory = &(const sl_op_memory){.updates = 4},
    .infer = dual_infer,
    .rows = &(const sl_op_rows){.looks = 31, .follows = 1},
};

const sl_op sl_op_attention_packed_served = {
    .name = "attention_packed_served",
    .min_in = 3,
    .max_in = 3,
    .nout = 3,
    .memory = &(const sl_op_memory){.updates = 4},
    .infer = packed_infer,
    .rows = &(const sl_op_rows){.looks = 1, .follows = 1},
};
