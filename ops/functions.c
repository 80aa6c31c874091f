/* SPDX-License-Identifier: Apache-2.0 */
/* Ops that apply a function by number, and ops on integers (listed in functions.def). */
#include "ops/functions.h"

#include <sluice/functions.h>

#include "ops/broadcast.h"
#include "ops/ops.h"
#include "ops/reduce.h"
#include "ops/space.h"
#include "ops/whole.h"

static sl_status want_number(const sl_attrs *attrs, int most) {
  if (attrs->function.number >= 0 && attrs->function.number < most) return SL_OK;
  return sl_fail(SL_E_SHAPE,
                 "attrs.function.number must be the number of a function, below %d, not %lld", most,
                 (long long)attrs->function.number);
}

/* ---- numbers ---------------------------------------------------------------------------- */

static sl_status function_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)nin;
  SLI_TRY(want_number(attrs, SLI_FUNCTIONS));
  SLI_TRY(sli_want_array("x", &in[0], SL_F32, in[0].ndim ? -1 : 0));
  out[0] = in[0];
  return SL_OK;
}

static sl_status function_b_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  SLI_TRY(function_infer(attrs, nin, in, out));
  return sli_want("dy", &in[1], &out[0]);
}

static sl_status function2_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)nin;
  SLI_TRY(want_number(attrs, SLI_FUNCTIONS2));
  SLI_TRY(sli_want_array("input 0", &in[0], SL_F32, in[0].ndim ? -1 : 0));
  SLI_TRY(sli_want_array("input 1", &in[1], SL_F32, in[1].ndim ? -1 : 0));
  return sli_broadcast(2, in, out);
}

static sl_status function2_b_infer(const sl_attrs *attrs, int nin, const sl_type *in,
                                   sl_type *out) {
  sl_type y;
  SLI_TRY(function2_infer(attrs, nin, in, &y));
  SLI_TRY(sli_want("dy", &in[2], &y));
  out[0] = in[0];
  out[1] = in[1];
  return SL_OK;
}

static int split_signatures(const sl_attrs *attrs, int nin, const sl_type *in, sl_signature *out) {
  (void)attrs;
  return sli_broadcast_signatures(nin, in, out);
}

static void function_cost(const sl_attrs *attrs, int nin, const sl_type *in, const sl_type *out,
                          double *flops, double *bytes) {
  (void)attrs;
  *flops = 40 * (double)sl_type_elements(&in[nin - 1]);
  *bytes = sli_argument_bytes(nin, in, 1, out);
}

/* ---- integers --------------------------------------------------------------------------- */

static sl_status want_range(const sl_attrs *attrs) {
  if (attrs->function.range >= 0 && attrs->function.range < SLI_WHOLE_RANGES) return SL_OK;
  return sl_fail(SL_E_SHAPE, "attrs.function.range must be a range of integers, below %d, not %lld",
                 SLI_WHOLE_RANGES, (long long)attrs->function.range);
}

static sl_status whole_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)nin;
  SLI_TRY(want_number(attrs, SLI_WHOLES));
  SLI_TRY(want_range(attrs));
  SLI_TRY(sli_want_array("input 0", &in[0], SL_I32, in[0].ndim ? -1 : 0));
  SLI_TRY(sli_want_array("input 1", &in[1], SL_I32, in[1].ndim ? -1 : 0));
  return sli_broadcast(2, in, out);
}

static sl_status whole_reduce_infer(const sl_attrs *attrs, int nin, const sl_type *in,
                                    sl_type *out) {
  (void)nin;
  SLI_TRY(want_number(attrs, SLI_WHOLES));
  SLI_TRY(want_range(attrs));
  SLI_TRY(sli_want_array("x", &in[0], SL_I32, -1));
  if (attrs->along.axes & ~sli_reduce_all_axes(&in[0]))
    return sli_misfit(&in[0], "attrs.along.axes must be dims of x, but %#x has others",
                      attrs->along.axes);
  *out = sli_reduced(&in[0], sli_reduce_axes(attrs, &in[0]), attrs->along.keep);
  return SL_OK;
}

static int whole_reduce_signatures(const sl_attrs *attrs, int nin, const sl_type *in,
                                   sl_signature *out) {
  (void)nin;
  uint32_t axes = sli_reduce_axes(attrs, &in[0]);
  int n = 0, to = 0;
  for (int d = 0; d < in[0].ndim; d++) {
    bool reduced = axes >> d & 1;
    if (!reduced) out[n++] = (sl_signature){.in = {sli_split(d)}, .out = {sli_split(to)}};
    to += !reduced || attrs->along.keep;
  }
  return n;
}

static sl_status too_large(int64_t element, int64_t v) {
  return sl_fail(SL_E_INPUT, "element %lld is %lld, which does not fit 32 bits", (long long)element,
                 (long long)v);
}

static sl_status whole_check(const sl_call *call) {
  if (call->attrs->function.range != SLI_WHOLE_CHECKED) return SL_OK;
  sli_whole_pairs p = sli_whole_pairs_make(call);
  for (int64_t e = 0; e < p.space.total; e++) {
    int64_t v = sli_whole_pair(&p, e);
    if (v != (int32_t)v) return too_large(e, v);
  }
  return SL_OK;
}

static sl_status whole_reduce_check(const sl_call *call) {
  if (call->attrs->function.range != SLI_WHOLE_CHECKED) return SL_OK;
  sli_whole_lines l = sli_whole_lines_make(call);
  for (int64_t e = 0; e < l.space.total; e++) {
    int64_t v = sli_whole_line(&l, e);
    if (v != (int32_t)v) return too_large(e, v);
  }
  return SL_OK;
}

/* ---- ops -------------------------------------------------------------------------------- */

const sl_op sl_op_function = {
    .name = "function",
    .attrs = {&sl_attrs_function},
    .min_in = 1,
    .max_in = 1,
    .nout = 1,
    .narrow = &(const sl_op_narrow){.in = 1, .out = 1},
    .cut = &sl_cut_elements,
    .infer = function_infer,
    .cost = function_cost,
    .grad = {{.op = &sl_op_function_b,
              .cls = SL_CLASS_B,
              .in = {SL_IN(0), SL_DOUT(0)},
              .nwrt = 1,
              .wrt = {0}}},
};

const sl_op sl_op_function_b = {
    .name = "function_b",
    .attrs = {&sl_attrs_function},
    .min_in = 2,
    .max_in = 2,
    .nout = 1,
    .narrow = &(const sl_op_narrow){.in = 3, .out = 1},
    .cut = &sl_cut_elements,
    .infer = function_b_infer,
    .cost = function_cost,
};

const sl_op sl_op_function2 = {
    .name = "function2",
    .attrs = {&sl_attrs_function},
    .min_in = 2,
    .max_in = 2,
    .nout = 1,
    .narrow = &(const sl_op_narrow){.in = 3, .out = 1, .mixed = true},
    .cut = &(const sl_op_cut){.pieces = SL_PIECES_SIGNATURES, .along = SL_ALONG_NOTHING},
    .infer = function2_infer,
    .cost = function_cost,
    .shard = &(const sl_op_shard){.signatures = split_signatures},
    .grad = {{.op = &sl_op_function2_b,
              .cls = SL_CLASS_B,
              .in = {SL_IN(0), SL_IN(1), SL_DOUT(0)},
              .nwrt = 2,
              .wrt = {0, 1}}},
};

const sl_op sl_op_function2_b = {
    .name = "function2_b",
    .attrs = {&sl_attrs_function},
    .min_in = 3,
    .max_in = 3,
    .nout = 2,
    .narrow = &(const sl_op_narrow){.in = 7, .out = 3, .mixed = true},
    .cut = &sl_cut_elements,
    .infer = function2_b_infer,
    .cost = function_cost,
    .accumulates = 3,
};

const sl_op sl_op_whole = {
    .name = "whole",
    .attrs = {&sl_attrs_function},
    .min_in = 2,
    .max_in = 2,
    .nout = 1,
    .cut = &(const sl_op_cut){.pieces = SL_PIECES_SIGNATURES, .along = SL_ALONG_NOTHING},
    .infer = whole_infer,
    .cost = function_cost,
    .shard = &(const sl_op_shard){.signatures = split_signatures},
    .check = whole_check,
};

const sl_op sl_op_whole_reduce = {
    .name = "whole_reduce",
    .attrs = {&sl_attrs_function, &sl_attrs_along},
    .min_in = 1,
    .max_in = 1,
    .nout = 1,
    .cut = &(const sl_op_cut){.pieces = SL_PIECES_SIGNATURES, .along = SL_ALONG_AXES},
    .infer = whole_reduce_infer,
    .cost = function_cost,
    .shard = &(const sl_op_shard){.signatures = whole_reduce_signatures},
    .check = whole_reduce_check,
};
