/* SPDX-License-Identifier: Apache-2.0 */
/* Ops that scan along a dim: top-k and cumulative sums. */
#include "ops/indexing.h"
#include "ops/ops.h"
#include "ops/space.h"

static sl_status want_axis(const sl_attrs *attrs, const sl_type *x) {
  int axis = sli_one_axis(attrs, x);
  if (!(attrs->along.axes & (attrs->along.axes - 1)) && axis < x->ndim) return SL_OK;
  return sli_misfit(x, "attrs.along.axes must have exactly one bit, for a dim of x, not %#x",
                    attrs->along.axes);
}

/* Splits along any dim but the scanned one. */
static int other_dims(const sl_attrs *attrs, const sl_type *x, int nout, sl_signature *out) {
  int n = 0;
  for (int d = 0; d < x->ndim; d++) {
    if (d == sli_one_axis(attrs, x)) continue;
    out[n] = (sl_signature){.in = {sli_split(d)}};
    for (int o = 0; o < nout; o++) out[n].out[o] = sli_split(d);
    n++;
  }
  return n;
}

SLI_COST(top_k_cost, 0, 2, 1)

SLI_COST(cumsum_cost, 0, 1, 1)

/* ---- top-k ------------------------------------------------------------------------------ */

static sl_status top_k_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)nin;
  SLI_TRY(sli_want_array("x", &in[0], SL_F32, -1));
  SLI_TRY(want_axis(attrs, &in[0]));
  int axis = sli_one_axis(attrs, &in[0]);
  if (attrs->along.k < 1 || attrs->along.k > in[0].dim[axis])
    return sli_misfit(
        &in[0],
        "attrs.along.k, the number wanted of the %lld along dim %d, must be from 1 to that number, "
        "not %lld",
        (long long)in[0].dim[axis], axis, (long long)attrs->along.k);
  out[0] = in[0];
  out[0].dim[axis] = attrs->along.k;
  out[1] = out[0];
  out[1].dtype = SL_I32;
  return SL_OK;
}

static int top_k_signatures(const sl_attrs *attrs, int nin, const sl_type *in, sl_signature *out) {
  (void)nin;
  return other_dims(attrs, &in[0], 2, out);
}

/* ---- cumulative sums ---------------------------------------------------------------------- */

static sl_status cumsum_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)nin;
  SLI_TRY(sli_want_array("x", &in[0], in[0].dtype == SL_I32 ? SL_I32 : SL_F32, -1));
  SLI_TRY(want_axis(attrs, &in[0]));
  out[0] = in[0];
  return SL_OK;
}

/* Rejects sums of integers that do not fit. */
static sl_status cumsum_check(const sl_call *call) {
  const sl_type *x = &call->in_type[0];
  sli_lines l = sli_lines_of(call->attrs, x);
  for (int64_t line = 0; x->dtype == SL_I32 && line < l.outer * l.inner; line++) {
    const int32_t *from =
        (const int32_t *)call->in[0] + line / l.inner * l.n * l.inner + line % l.inner;
    int64_t sum = 0;
    for (int64_t k = 0; k < l.n; k++) {
      int64_t at = call->attrs->along.reverse ? l.n - 1 - k : k;
      sum += from[at * l.inner];
      if (sum != (int32_t)sum)
        return sl_fail(SL_E_INPUT, "a sum of its integers is %lld, which does not fit 32 bits",
                       (long long)sum);
    }
  }
  return SL_OK;
}

static int cumsum_signatures(const sl_attrs *attrs, int nin, const sl_type *in, sl_signature *out) {
  (void)nin;
  int n = other_dims(attrs, &in[0], 1, out);
  if (in[0].dtype == SL_F32)
    out[n++] = (sl_signature){.in = {sli_partial()}, .out = {sli_partial()}};
  return n;
}

/* ---- ops -------------------------------------------------------------------------------- */

const sl_op sl_op_top_k = {
    .name = "top_k",
    .attrs = {&sl_attrs_along},
    .min_in = 1,
    .max_in = 1,
    .nout = 2,
    .narrow = &(const sl_op_narrow){.in = 1, .out = 1},
    .cut = &(const sl_op_cut){.pieces = SL_PIECES_SIGNATURES, .along = SL_ALONG_AXIS},
    .shard = &(const sl_op_shard){.signatures = top_k_signatures},
    .infer = top_k_infer,
    .cost = top_k_cost,
    .grad = {{.op = &sl_op_gather_b,
              .cls = SL_CLASS_B,
              .in = {SL_OUT(1), SL_DOUT(0), SL_IN(0)},
              .nwrt = 1,
              .wrt = {0}}},
};

const sl_op sl_op_cumsum = {
    .name = "cumsum",
    .attrs = {&sl_attrs_along},
    .min_in = 1,
    .max_in = 1,
    .nout = 1,
    .narrow = &(const sl_op_narrow){.in = 1, .out = 1},
    .memory = &(const sl_op_memory){.in_place = {1}},
    .cut = &(const sl_op_cut){.pieces = SL_PIECES_SIGNATURES, .along = SL_ALONG_AXIS},
    .shard = &(const sl_op_shard){.signatures = cumsum_signatures},
    .infer = cumsum_infer,
    .check = cumsum_check,
    .cost = cumsum_cost,
    .grad = {{.op = &sl_op_cumsum_b, .cls = SL_CLASS_B, .in = {SL_DOUT(0)}, .nwrt = 1, .wrt = {0}}},
};

const sl_op sl_op_cumsum_b = {
    .name = "cumsum_b",
    .attrs = {&sl_attrs_along},
    .min_in = 1,
    .max_in = 1,
    .nout = 1,
    .narrow = &(const sl_op_narrow){.in = 1, .out = 1},
    .memory = &(const sl_op_memory){.in_place = {1}},
    .cut = &(const sl_op_cut){.pieces = SL_PIECES_SIGNATURES},
    .infer = cumsum_infer,
    .cost = cumsum_cost,
};
