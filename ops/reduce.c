/* SPDX-License-Identifier: Apache-2.0 */
/* Sum, mean and maximum along dims: attrs.along.axes has a bit for each. */
#include "ops/ops.h"
#include "ops/reduce.h"
#include "ops/space.h"

static sl_status reduced_infer(const sl_attrs *attrs, const sl_type *x, sl_type *out) {
  SLI_TRY(sli_want_array("x", x, SL_F32, -1));
  if (attrs->along.axes & ~sli_reduce_all_axes(x))
    return sli_misfit(x, "attrs.along.axes must be dims of x, but %#x has others",
                      attrs->along.axes);
  *out = sli_reduced(x, sli_reduce_axes(attrs, x), attrs->along.keep);
  return SL_OK;
}

/* A result without dims is f64, like a loss. */
static sl_status reduce_sum_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)nin;
  SLI_TRY(reduced_infer(attrs, &in[0], &out[0]));
  if (!out[0].ndim) out[0].dtype = SL_F64;
  return SL_OK;
}

static sl_status reduce_sum_b_infer(const sl_attrs *attrs, int nin, const sl_type *in,
                                    sl_type *out) {
  (void)nin;
  sl_type y;
  SLI_TRY(reduced_infer(attrs, &in[0], &y));
  SLI_TRY(sli_want("dy", &in[1], &y));
  out[0] = in[0];
  return SL_OK;
}

static sl_status reduce_max_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)nin;
  SLI_TRY(reduced_infer(attrs, &in[0], &out[0]));
  out[1] = out[0];
  out[1].dtype = SL_I32;
  return SL_OK;
}

static sl_status reduce_max_b_infer(const sl_attrs *attrs, int nin, const sl_type *in,
                                    sl_type *out) {
  (void)nin;
  sl_type y, at;
  SLI_TRY(reduced_infer(attrs, &in[0], &y));
  at = y;
  at.dtype = SL_I32;
  SLI_TRY(sli_want("places", &in[1], &at));
  SLI_TRY(sli_want("dy", &in[2], &y));
  out[0] = in[0];
  return SL_OK;
}

static sl_status mean_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)attrs, (void)nin;
  SLI_TRY(sli_want_array("x", &in[0], SL_F32, -1));
  out[0] = SL_SCALAR(SL_F64);
  return SL_OK;
}

static sl_status mean_b_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)attrs, (void)nin;
  SLI_TRY(sli_want_array("x", &in[0], SL_F32, -1));
  SLI_TRY(sli_want_array("dloss", &in[1], SL_F32, 0));
  out[0] = in[0];
  return SL_OK;
}

SLI_COST(reduce_cost, 0, 1, 1)

/* A split along a remaining dim splits the output too. A split along a summed dim gives a partial
 * sum. */
static int signatures(const sl_attrs *attrs, const sl_type *in, bool sums, sl_signature *out) {
  uint32_t axes = sli_reduce_axes(attrs, in);
  int n = 0, to = 0;
  for (int d = 0; d < in->ndim; d++) {
    bool reduced = axes >> d & 1;
    if (reduced && !sums) to += attrs->along.keep;
    if (reduced && !sums) continue;
    sl_sbp lies = reduced ? sli_partial() : sli_split(to);
    out[n] = (sl_signature){.in = {sli_split(d)}, .out = {lies}};
    if (!sums) out[n].out[1] = lies;
    n++;
    to += !reduced || attrs->along.keep;
  }
  return n;
}

static int reduce_sum_signatures(const sl_attrs *attrs, int nin, const sl_type *in,
                                 sl_signature *out) {
  (void)nin;
  int n = signatures(attrs, &in[0], true, out);
  out[n] = (sl_signature){.in = {sli_partial()}, .out = {sli_partial()}};
  return n + 1;
}

static int reduce_max_signatures(const sl_attrs *attrs, int nin, const sl_type *in,
                                 sl_signature *out) {
  (void)nin;
  return signatures(attrs, &in[0], false, out);
}

/* ---- gradient of broadcasting ----------------------------------------------------------- */

static sl_status expand_b_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)attrs, (void)nin;
  sl_type whole, both[] = {in[0], in[1]};
  sl_dtype dtype = sli_sum_dtype(&in[0]);
  both[0].dtype = SL_F32;
  SLI_TRY(sli_want_array("dy", &in[0], dtype, in[0].ndim ? -1 : 0));
  SLI_TRY(sli_broadcast(2, both, &whole));
  whole.dtype = dtype;
  SLI_TRY(sli_want("dy", &in[0], &whole));
  out[0] = in[1];
  out[0].dtype = dtype;
  return SL_OK;
}

/* ---- ops -------------------------------------------------------------------------------- */

const sl_op sl_op_reduce_sum = {
    .name = "reduce_sum",
    .attrs = {&sl_attrs_along},
    .min_in = 1,
    .max_in = 1,
    .nout = 1,
    .narrow = &(const sl_op_narrow){.in = 1, .out = 1, .mixed = true},
    .cut = &(const sl_op_cut){.pieces = SL_PIECES_SIGNATURES, .along = SL_ALONG_AXES},
    .exact = &sli_exact_sum,
    .infer = reduce_sum_infer,
    .cost = reduce_cost,
    .shard = &(const sl_op_shard){.signatures = reduce_sum_signatures},
    .grad = {{.op = &sl_op_reduce_sum_b,
              .cls = SL_CLASS_B,
              .in = {SL_IN(0), SL_DOUT(0)},
              .nwrt = 1,
              .wrt = {0}}},
};

const sl_op sl_op_reduce_sum_b = {
    .name = "reduce_sum_b",
    .attrs = {&sl_attrs_along},
    .min_in = 2,
    .max_in = 2,
    .nout = 1,
    .narrow = &(const sl_op_narrow){.in = 3, .out = 1, .mixed = true},
    .memory = &(const sl_op_memory){.unread = 1},
    .cut = &sl_cut_elements,
    .infer = reduce_sum_b_infer,
    .cost = reduce_cost,
};

const sl_op sl_op_reduce_max = {
    .name = "reduce_max",
    .attrs = {&sl_attrs_along},
    .min_in = 1,
    .max_in = 1,
    .nout = 2,
    .narrow = &(const sl_op_narrow){.in = 1, .out = 1},
    .cut = &(const sl_op_cut){.pieces = SL_PIECES_SIGNATURES, .along = SL_ALONG_AXES},
    .infer = reduce_max_infer,
    .cost = reduce_cost,
    .shard = &(const sl_op_shard){.signatures = reduce_max_signatures},
    .grad = {{.op = &sl_op_reduce_max_b,
              .cls = SL_CLASS_B,
              .in = {SL_IN(0), SL_OUT(1), SL_DOUT(0)},
              .nwrt = 1,
              .wrt = {0}}},
};

const sl_op sl_op_reduce_max_b = {
    .name = "reduce_max_b",
    .attrs = {&sl_attrs_along},
    .min_in = 3,
    .max_in = 3,
    .nout = 1,
    .narrow = &(const sl_op_narrow){.in = 5, .out = 1},
    .memory = &(const sl_op_memory){.unread = 1},
    .cut = &sl_cut_elements,
    .infer = reduce_max_b_infer,
    .cost = reduce_cost,
};

const sl_op sl_op_mean = {
    .name = "mean",
    .min_in = 1,
    .max_in = 1,
    .nout = 1,
    .narrow = &(const sl_op_narrow){.in = 1},
    .cut = &(const sl_op_cut){.pieces = SL_PIECES_MEAN},
    .exact = &sli_exact_mean,
    .infer = mean_infer,
    .cost = reduce_cost,
    .shard = &(const sl_op_shard){.signatures = sli_mean_signatures},
    .grad = {{.op = &sl_op_mean_b,
              .cls = SL_CLASS_F,
              .in = {SL_IN(0), SL_DOUT(0)},
              .nwrt = 1,
              .wrt = {0}}},
};

const sl_op sl_op_mean_b = {
    .name = "mean_b",
    .min_in = 2,
    .max_in = 2,
    .nout = 1,
    .narrow = &(const sl_op_narrow){.in = 1, .out = 1},
    .memory = &(const sl_op_memory){.unread = 1},
    .cut = &sl_cut_elements,
    .infer = mean_b_infer,
    .cost = reduce_cost,
};

const sl_op sl_op_expand_b = {
    .name = "expand_b",
    .attrs = {&sl_attrs_shape},
    .min_in = 2,
    .max_in = 2,
    .nout = 1,
    .narrow = &(const sl_op_narrow){.in = 3, .out = 1, .mixed = true},
    .memory = &(const sl_op_memory){.unread = 2},
    .cut = &(const sl_op_cut){.pieces = SL_PIECES_SIGNATURES},
    .exact = &sli_exact_moves,
    .infer = expand_b_infer,
    .cost = reduce_cost,
    .accumulates = 1,
};
