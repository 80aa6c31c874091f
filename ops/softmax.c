/* SPDX-License-Identifier: Apache-2.0 */
/* Softmax ops along a dim: the bit of attrs.along.axes, or the last dim. */
#include "ops/ops.h"
#include "ops/space.h"

static sl_status want_axis(const sl_attrs *attrs, const sl_type *x) {
  SLI_TRY(sli_want_array("x", x, SL_F32, -1));
  if (!(attrs->along.axes & (attrs->along.axes - 1)) && !(attrs->along.axes >> x->ndim))
    return SL_OK;
  return sli_misfit(x, "attrs.along.axes must have exactly one bit, for a dim of x, not %#x",
                    attrs->along.axes);
}

static sl_status softmax_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)nin;
  SLI_TRY(want_axis(attrs, &in[0]));
  out[0] = in[0];
  return SL_OK;
}

static sl_status softmax_b_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  SLI_TRY(softmax_infer(attrs, nin, in, out));
  return sli_want("dy", &in[1], &in[0]);
}

static int softmax_signatures(const sl_attrs *attrs, int nin, const sl_type *in,
                              sl_signature *out) {
  (void)nin;
  int n = 0, axis = sli_one_axis(attrs, &in[0]);
  for (int d = 0; d < in[0].ndim; d++)
    if (d != axis) out[n++] = (sl_signature){.in = {sli_split(d)}, .out = {sli_split(d)}};
  return n;
}

SLI_COST(softmax_cost, 0, 1, 20)
SLI_COST(softmax_b_cost, 0, 1, 5)

#define ROWS(name_)                                                                      \
  const sl_op sl_op_##name_ = {                                                          \
      .name = #name_,                                                                    \
      .attrs = {&sl_attrs_along},                                                        \
      .min_in = 1,                                                                       \
      .max_in = 1,                                                                       \
      .nout = 1,                                                                         \
      .narrow = &(const sl_op_narrow){.in = 1, .out = 1},                                \
      .cut = &(const sl_op_cut){.pieces = SL_PIECES_SIGNATURES, .along = SL_ALONG_AXIS}, \
      .infer = softmax_infer,                                                            \
      .cost = softmax_cost,                                                              \
      .shard = &(const sl_op_shard){.signatures = softmax_signatures},                   \
      .grad = {{.op = &sl_op_##name_##_b,                                                \
                .cls = SL_CLASS_B,                                                       \
                .in = {SL_OUT(0), SL_DOUT(0)},                                           \
                .nwrt = 1,                                                               \
                .wrt = {0}}},                                                            \
  };                                                                                     \
  const sl_op sl_op_##name_##_b = {                                                      \
      .name = #name_ "_b",                                                               \
      .attrs = {&sl_attrs_along},                                                        \
      .min_in = 2,                                                                       \
      .max_in = 2,                                                                       \
      .nout = 1,                                                                         \
      .narrow = &(const sl_op_narrow){.in = 3, .out = 1},                                \
      .cut = &sl_cut_elements,                                                           \
      .infer = softmax_b_infer,                                                          \
      .cost = softmax_b_cost,                                                            \
  };
ROWS(softmax)
ROWS(log_softmax)
