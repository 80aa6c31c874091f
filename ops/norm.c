/* SPDX-License-Identifier: Apache-2.0 */
/* Layer norm and RMS norm ops. */
#include "ops/ops.h"

/* Types for x [..., C]: vectors of width C, and one number per row. */
static sl_type width_of(const sl_type *x) { return SL_TYPE(SL_F32, sl_type_last(x)); }

static sl_status want_width(const char *name, const sl_type *got, const sl_type *x) {
  sl_type want = width_of(x);
  return sli_want(name, got, &want);
}

static sl_status want_per_row(const char *name, const sl_type *got, const sl_type *x) {
  sl_type want = sli_type_without_last(x, SL_F32);
  return sli_want(name, got, &want);
}

static sl_status layernorm_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)attrs, (void)nin;
  SLI_TRY(sli_want_array("x", &in[0], SL_F32, -1));
  SLI_TRY(want_width("gain", &in[1], &in[0]));
  SLI_TRY(want_width("bias", &in[2], &in[0]));
  out[0] = in[0];
  out[1] = out[2] = sli_type_without_last(&in[0], SL_F32);
  return SL_OK;
}

static sl_status layernorm_b_infer(const sl_attrs *attrs, int nin, const sl_type *in,
                                   sl_type *out) {
  (void)attrs, (void)nin;
  SLI_TRY(sli_want_array("x", &in[0], SL_F32, -1));
  SLI_TRY(want_width("gain", &in[1], &in[0]));
  SLI_TRY(want_per_row("mean", &in[2], &in[0]));
  SLI_TRY(want_per_row("rstd", &in[3], &in[0]));
  SLI_TRY(sli_want("dy", &in[4], &in[0]));
  out[0] = in[0];
  return SL_OK;
}

static sl_status layernorm_w_infer(const sl_attrs *attrs, int nin, const sl_type *in,
                                   sl_type *out) {
  (void)attrs, (void)nin;
  SLI_TRY(sli_want_array("x", &in[0], SL_F32, -1));
  SLI_TRY(want_per_row("mean", &in[1], &in[0]));
  SLI_TRY(want_per_row("rstd", &in[2], &in[0]));
  SLI_TRY(sli_want("dy", &in[3], &in[0]));
  out[0] = out[1] = width_of(&in[0]);
  return SL_OK;
}

static sl_status rmsnorm_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)attrs, (void)nin;
  SLI_TRY(sli_want_array("x", &in[0], SL_F32, -1));
  SLI_TRY(want_width("gain", &in[1], &in[0]));
  out[0] = in[0];
  out[1] = sli_type_without_last(&in[0], SL_F32);
  return SL_OK;
}

static sl_status rmsnorm_b_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)attrs, (void)nin;
  SLI_TRY(sli_want_array("x", &in[0], SL_F32, -1));
  SLI_TRY(want_width("gain", &in[1], &in[0]));
  SLI_TRY(want_per_row("rstd", &in[2], &in[0]));
  SLI_TRY(sli_want("dy", &in[3], &in[0]));
  out[0] = in[0];
  return SL_OK;
}

static sl_status rmsnorm_w_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)attrs, (void)nin;
  SLI_TRY(sli_want_array("x", &in[0], SL_F32, -1));
  SLI_TRY(want_per_row("rstd", &in[1], &in[0]));
  SLI_TRY(sli_want("dy", &in[2], &in[0]));
  out[0] = width_of(&in[0]);
  return SL_OK;
}

SLI_COST(layernorm_cost, 0, 3, 8)

SLI_COST(layernorm_b_cost, 0, 1, 11)

SLI_COST(layernorm_w_cost, 0, 2, 5)

SLI_COST(rmsnorm_cost, 0, 2, 4)

SLI_COST(rmsnorm_b_cost, 0, 1, 8)

SLI_COST(rmsnorm_w_cost, 0, 1, 3)

const sl_op sl_op_layernorm = {
    .name = "layernorm",
    .attrs = {&sl_attrs_norm},
    .min_in = 3,
    .max_in = 3,
    .nout = 3,
    .narrow = &(const sl_op_narrow){.in = 1, .out = 1},
    .traits = SL_OP_CHEAP,
    .cut = &(const sl_op_cut){.pieces = SL_PIECES_ROWS, .whole = 6},
    .memory = &(const sl_op_memory){.in_place = {1}},
    .infer = layernorm_infer,
    .cost = layernorm_cost,
    .grad = {{.op = &sl_op_layernorm_b,
              .cls = SL_CLASS_B,
              .in = {SL_IN(0), SL_IN(1), SL_OUT(1), SL_OUT(2), SL_DOUT(0)},
              .nwrt = 1,
              .wrt = {0}},
             {.op = &sl_op_layernorm_w,
              .cls = SL_CLASS_W,
              .in = {SL_IN(0), SL_OUT(1), SL_OUT(2), SL_DOUT(0)},
              .nwrt = 2,
              .wrt = {1, 2}}},
};

const sl_op sl_op_layernorm_b = {
    .name = "layernorm_b",
    .attrs = {&sl_attrs_norm},
    .min_in = 5,
    .max_in = 5,
    .nout = 1,
    .narrow = &(const sl_op_narrow){.in = 0x11, .out = 1},
    .cut = &sl_cut_rows,
    .memory = &(const sl_op_memory){.in_place = {1 | 1 << 4}},
    .infer = layernorm_b_infer,
    .cost = layernorm_b_cost,
};

const sl_op sl_op_layernorm_w = {
    .name = "layernorm_w",
    .attrs = {&sl_attrs_norm},
    .min_in = 4,
    .max_in = 4,
    .nout = 2,
    .narrow = &(const sl_op_narrow){.in = 9},
    .cut = &sl_cut_rows,
    .infer = layernorm_w_infer,
    .cost = layernorm_w_cost,
    .accumulates = 3,
};

const sl_op sl_op_rmsnorm = {
    .name = "rmsnorm",
    .attrs = {&sl_attrs_norm},
    .min_in = 2,
    .max_in = 2,
    .nout = 2,
    .narrow = &(const sl_op_narrow){.in = 1, .out = 1},
    .traits = SL_OP_CHEAP,
    .cut = &(const sl_op_cut){.pieces = SL_PIECES_ROWS, .whole = 2},
    .memory = &(const sl_op_memory){.in_place = {1}},
    .infer = rmsnorm_infer,
    .cost = rmsnorm_cost,
    .grad = {{.op = &sl_op_rmsnorm_b,
              .cls = SL_CLASS_B,
              .in = {SL_IN(0), SL_IN(1), SL_OUT(1), SL_DOUT(0)},
              .nwrt = 1,
              .wrt = {0}},
             {.op = &sl_op_rmsnorm_w,
              .cls = SL_CLASS_W,
              .in = {SL_IN(0), SL_OUT(1), SL_DOUT(0)},
              .nwrt = 1,
              .wrt = {1}}},
};

const sl_op sl_op_rmsnorm_b = {
    .name = "rmsnorm_b",
    .attrs = {&sl_attrs_norm},
    .min_in = 4,
    .max_in = 4,
    .nout = 1,
    .narrow = &(const sl_op_narrow){.in = 9, .out = 1},
    .cut = &sl_cut_rows,
    .memory = &(const sl_op_memory){.in_place = {1 | 1 << 3}},
    .infer = rmsnorm_b_infer,
    .cost = rmsnorm_b_cost,
};

const sl_op sl_op_rmsnorm_w = {
    .name = "rmsnorm_w",
    .attrs = {&sl_attrs_norm},
    .min_in = 3,
    .max_in = 3,
    .nout = 1,
    .narrow = &(const sl_op_narrow){.in = 5},
    .cut = &sl_cut_rows,
    .infer = rmsnorm_w_infer,
    .cost = rmsnorm_w_cost,
    .accumulates = 1,
};
