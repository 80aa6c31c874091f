/* SPDX-License-Identifier: Apache-2.0 */
/* Group norm ops: each image's channels are divided into groups, and each group is normalised as a
 * whole. A group is contiguous; each thread takes some groups. */
#include "ops/ops.h"

/* ---- shapes ------------------------------------------------------------------------------ */

static sl_type channels_of(const sl_type *x) { return SL_TYPE(SL_F32, x->dim[1]); }

static sl_type groups_of(const sl_attrs *attrs, const sl_type *x) {
  return SL_TYPE(SL_F32, x->dim[0], attrs->norm.groups);
}

static sl_status want_images(const sl_attrs *attrs, const sl_type *x) {
  SLI_TRY(sli_want_array("x", x, SL_F32, -1));
  if (x->ndim >= 2 && attrs->norm.groups >= 1 && x->dim[1] % attrs->norm.groups == 0) return SL_OK;
  return sli_misfit(
      x, "x must be f32[n, c, ...] with c a multiple of the %d groups (attrs.norm.groups)",
      attrs->norm.groups);
}

static sl_status want_statistics(const sl_attrs *attrs, const sl_type *mean, const sl_type *rstd,
                                 const sl_type *x) {
  sl_type want = groups_of(attrs, x);
  SLI_TRY(sli_want("mean", mean, &want));
  return sli_want("rstd", rstd, &want);
}

static sl_status group_norm_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)nin;
  SLI_TRY(want_images(attrs, &in[0]));
  sl_type width = channels_of(&in[0]);
  SLI_TRY(sli_want("gain", &in[1], &width));
  SLI_TRY(sli_want("bias", &in[2], &width));
  out[0] = in[0];
  out[1] = out[2] = groups_of(attrs, &in[0]);
  return SL_OK;
}

static sl_status group_norm_b_infer(const sl_attrs *attrs, int nin, const sl_type *in,
                                    sl_type *out) {
  (void)nin;
  SLI_TRY(want_images(attrs, &in[0]));
  sl_type width = channels_of(&in[0]);
  SLI_TRY(sli_want("gain", &in[1], &width));
  SLI_TRY(want_statistics(attrs, &in[2], &in[3], &in[0]));
  SLI_TRY(sli_want("dy", &in[4], &in[0]));
  out[0] = in[0];
  return SL_OK;
}

static sl_status group_norm_w_infer(const sl_attrs *attrs, int nin, const sl_type *in,
                                    sl_type *out) {
  (void)nin;
  SLI_TRY(want_images(attrs, &in[0]));
  SLI_TRY(want_statistics(attrs, &in[1], &in[2], &in[0]));
  SLI_TRY(sli_want("dy", &in[3], &in[0]));
  out[0] = out[1] = channels_of(&in[0]);
  return SL_OK;
}

SLI_COST(group_norm_cost, 0, 3, 8)

SLI_COST(group_norm_b_cost, 0, 1, 11)

SLI_COST(group_norm_w_cost, 0, 2, 5)

/* Splits by images or groups. */
static int group_norm_signatures(const sl_attrs *attrs, int nin, const sl_type *in,
                                 sl_signature *out) {
  const sl_sbp images = sli_split(0), channels = sli_split(1), weights = sli_split(0);
  (void)attrs, (void)nin, (void)in;
  out[0] = (sl_signature){.in = {images}, .out = {images, images, images}};
  out[1] = (sl_signature){
      .in = {channels, weights, weights}, .out = {channels, channels, channels}, .heads = true};
  return 2;
}

/* ---- ops --------------------------------------------------------------------------------- */

const sl_op sl_op_group_norm = {
    .name = "group_norm",
    .attrs = {&sl_attrs_norm},
    .min_in = 3,
    .max_in = 3,
    .nout = 3,
    .narrow = &(const sl_op_narrow){.in = 1, .out = 1},
    .traits = SL_OP_CHEAP,
    .cut = &(const sl_op_cut){.pieces = SL_PIECES_SIGNATURES},
    .memory = &(const sl_op_memory){.in_place = {1}},
    .shard = &(const sl_op_shard){.signatures = group_norm_signatures},
    .infer = group_norm_infer,
    .cost = group_norm_cost,
    .grad = {{.op = &sl_op_group_norm_b,
              .cls = SL_CLASS_B,
              .in = {SL_IN(0), SL_IN(1), SL_OUT(1), SL_OUT(2), SL_DOUT(0)},
              .nwrt = 1,
              .wrt = {0}},
             {.op = &sl_op_group_norm_w,
              .cls = SL_CLASS_W,
              .in = {SL_IN(0), SL_OUT(1), SL_OUT(2), SL_DOUT(0)},
              .nwrt = 2,
              .wrt = {1, 2}}},
};

const sl_op sl_op_group_norm_b = {
    .name = "group_norm_b",
    .attrs = {&sl_attrs_norm},
    .min_in = 5,
    .max_in = 5,
    .nout = 1,
    .narrow = &(const sl_op_narrow){.in = 0x11, .out = 1},
    .cut = &(const sl_op_cut){.pieces = SL_PIECES_SIGNATURES},
    .memory = &(const sl_op_memory){.in_place = {1 | 1 << 4}},
    .infer = group_norm_b_infer,
    .cost = group_norm_b_cost,
};

const sl_op sl_op_group_norm_w = {
    .name = "group_norm_w",
    .attrs = {&sl_attrs_norm},
    .min_in = 4,
    .max_in = 4,
    .nout = 2,
    .narrow = &(const sl_op_narrow){.in = 9},
    .cut = &(const sl_op_cut){.pieces = SL_PIECES_SIGNATURES},
    .infer = group_norm_w_infer,
    .cost = group_norm_w_cost,
    .accumulates = 3,
};
