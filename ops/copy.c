/* SPDX-License-Identifier: Apache-2.0 */
/* The copy op: copies a tensor, or adds it to the output. */
#include "ops/ops.h"

static sl_status copy_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)attrs, (void)nin;
  sl_dtype dtype = in[0].dtype == SL_I32 ? SL_I32 : SL_F32; /* i32: positions and ids */
  SLI_TRY(sli_want_array("x", &in[0], dtype, in[0].ndim ? -1 : 0));
  out[0] = in[0];
  return SL_OK;
}

static int copy_signatures(const sl_attrs *attrs, int nin, const sl_type *in, sl_signature *out) {
  (void)attrs, (void)nin, (void)in;
  out[0] = (sl_signature){.in = {sli_partial()}, .out = {sli_partial()}};
  return 1;
}

SLI_COST(copy_cost, 0, 1, 1)

const sl_op sl_op_copy = {
    .name = "copy",
    .min_in = 1,
    .max_in = 1,
    .traits = SL_OP_COPY,
    .nout = 1,
    .narrow = &(const sl_op_narrow){.in = 1, .out = 1},
    .cut = &sl_cut_elements,
    .infer = copy_infer,
    .cost = copy_cost,
    .shard = &(const sl_op_shard){.signatures = copy_signatures},
    .accumulates = 1,
    .grad = {{.cls = SL_CLASS_B, .in = {SL_DOUT(0)}, .nwrt = 1, .wrt = {0}}},
};
