/* SPDX-License-Identifier: Apache-2.0 */
/* Batch norm ops: each channel is normalised over all images and positions of a microbatch, or by
 * given statistics (attrs.norm.given). */
#include "ops/ops.h"

/* ---- shapes ------------------------------------------------------------------------------ */

static sl_type batch_norm_width(const sl_type *x) { return SL_TYPE(SL_F32, x->dim[1]); }

static sl_status want_channels(const sl_type *x) {
  SLI_TRY(sli_want_array("x", x, SL_F32, -1));
  return x->ndim >= 2 ? SL_OK : sli_misfit(x, "x must be f32[n, c, ...]");
}

static sl_status batch_norm_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  static const char *const names[] = {"x", "gain", "bias", "mean", "variance"};
  (void)nin;
  SLI_TRY(want_channels(&in[0]));
  sl_type width = batch_norm_width(&in[0]);
  for (int i = 1; i < 5; i++) SLI_TRY(sli_want(names[i], &in[i], &width));
  if (!attrs->norm.given && sl_type_elements(&in[0]) < 2 * width.dim[0])
    return sli_misfit(&in[0], "x must have at least two numbers per channel");
  out[0] = in[0];
  out[1] = out[2] = out[3] = width;
  return SL_OK;
}

/* Checks x, the statistics and dy, which begin at input `at`. */
static sl_status want_back(int at, const sl_type *in) {
  SLI_TRY(want_channels(&in[0]));
  sl_type width = batch_norm_width(&in[0]);
  SLI_TRY(sli_want("mean", &in[at], &width));
  SLI_TRY(sli_want("rstd", &in[at + 1], &width));
  return sli_want("dy", &in[at + 2], &in[0]);
}

static sl_status batch_norm_b_infer(const sl_attrs *attrs, int nin, const sl_type *in,
                                    sl_type *out) {
  (void)attrs, (void)nin;
  SLI_TRY(want_back(2, in));
  sl_type width = batch_norm_width(&in[0]);
  out[0] = in[0];
  return sli_want("gain", &in[1], &width);
}

static sl_status batch_norm_w_infer(const sl_attrs *attrs, int nin, const sl_type *in,
                                    sl_type *out) {
  (void)attrs, (void)nin;
  SLI_TRY(want_back(1, in));
  out[0] = out[1] = batch_norm_width(&in[0]);
  return SL_OK;
}

SLI_COST(batch_norm_cost, 0, 4, 8)

SLI_COST(batch_norm_b_cost, 0, 1, 11)

SLI_COST(batch_norm_w_cost, 0, 2, 5)

/* Splits by channels, and with given statistics by rows too. */
static int batch_norm_signatures(const sl_attrs *attrs, int nin, const sl_type *in,
                                 sl_signature *out) {
  const sl_sbp channels = sli_split(1), each = sli_split(0), rows = sli_split(0);
  (void)nin, (void)in;
  out[0] =
      (sl_signature){.in = {channels, each, each, each, each}, .out = {channels, each, each, each}};
  out[1] = (sl_signature){.in = {rows}, .out = {rows}};
  return attrs->norm.given ? 2 : 1;
}

/* ---- ops --------------------------------------------------------------------------------- */

const sl_op sl_op_batch_norm = {
    .name = "batch_norm",
    .attrs = {&sl_attrs_norm},
    .min_in = 5,
    .max_in = 5,
    .nout = 4,
    .narrow = &(const sl_op_narrow){.in = 1, .out = 1},
    .traits = SL_OP_AVERAGES | SL_OP_CHEAP,
    .cut = &(const sl_op_cut){.pieces = SL_PIECES_SIGNATURES},
    .shard = &(const sl_op_shard){.signatures = batch_norm_signatures},
    .infer = batch_norm_infer,
    .cost = batch_norm_cost,
    .grad = {{.op = &sl_op_batch_norm_b,
              .cls = SL_CLASS_B,
              .in = {SL_IN(0), SL_IN(1), SL_OUT(1), SL_OUT(2), SL_DOUT(0)},
              .nwrt = 1,
              .wrt = {0}},
             {.op = &sl_op_batch_norm_w,
              .cls = SL_CLASS_W,
              .in = {SL_IN(0), SL_OUT(1), SL_OUT(2), SL_DOUT(0)},
              .nwrt = 2,
              .wrt = {1, 2}}},
};

const sl_op sl_op_batch_norm_b = {
    .name = "batch_norm_b",
    .attrs = {&sl_attrs_norm},
    .min_in = 5,
    .max_in = 5,
    .nout = 1,
    .narrow = &(const sl_op_narrow){.in = 0x11, .out = 1},
    .cut = &(const sl_op_cut){.pieces = SL_PIECES_SIGNATURES},
    .infer = batch_norm_b_infer,
    .cost = batch_norm_b_cost,
};

const sl_op sl_op_batch_norm_w = {
    .name = "batch_norm_w",
    .attrs = {&sl_attrs_norm},
    .min_in = 4,
    .max_in = 4,
    .nout = 2,
    .narrow = &(const sl_op_narrow){.in = 9},
    .cut = &(const sl_op_cut){.pieces = SL_PIECES_SIGNATURES},
    .infer = batch_norm_w_infer,
    .cost = batch_norm_w_cost,
    .accumulates = 3,
};
