/* SPDX-License-Identifier: Apache-2.0 */
/* Cross entropy with weighted rows. Partial sums of chunks are added in chunk order. */
#include "ops/ops.h"
#include "ops/target.h"

/* ---- shapes -------------------------------------------------------------------------- */

static sl_status want_scalar(const char *name, const sl_type *type, sl_dtype dtype) {
  return sli_want_array(name, type, dtype, 0);
}

/* Checks the class weights; `classes` 0 accepts any number of them. */
static sl_status want_weights(const sl_type *weights, int64_t classes) {
  if (weights->ndim < 0) return SL_OK;
  sl_type want = SL_TYPE(SL_F32, classes);
  return classes ? sli_want("weights", weights, &want)
                 : sli_want_array("weights", weights, SL_F32, 1);
}

static sl_status target_weight_infer(const sl_attrs *attrs, int nin, const sl_type *in,
                                     sl_type *out) {
  (void)attrs, (void)nin;
  SLI_TRY(sli_want_array("targets", &in[0], SL_I32, -1));
  SLI_TRY(want_weights(&in[1], 0));
  out[0] = SL_SCALAR(SL_F64);
  return SL_OK;
}

/* A shard of the columns has fewer columns than the class weights have entries. */
static sl_status want_rows(const sl_attrs *attrs, const sl_type *logits, const sl_type *targets,
                           const sl_type *weights) {
  SLI_TRY(sli_want_array("logits", logits, SL_F32, -1));
  sl_type want = sli_type_without_last(logits, SL_I32);
  SLI_TRY(sli_want("targets", targets, &want));
  return want_weights(weights, attrs->place.partial ? 0 : sl_type_last(logits));
}

static sl_status cross_entropy_infer(const sl_attrs *attrs, int nin, const sl_type *in,
                                     sl_type *out) {
  (void)nin;
  SLI_TRY(want_rows(attrs, &in[0], &in[1], &in[3]));
  SLI_TRY(want_scalar("total", &in[2], SL_F64));
  out[0] = SL_SCALAR(SL_F64);
  out[1] = sli_type_without_last(&in[0], SL_F32);
  return SL_OK;
}

static sl_status cross_entropy_b_infer(const sl_attrs *attrs, int nin, const sl_type *in,
                                       sl_type *out) {
  (void)nin;
  SLI_TRY(want_rows(attrs, &in[0], &in[1], &in[5]));
  sl_type lse = sli_type_without_last(&in[0], SL_F32);
  SLI_TRY(sli_want("lse", &in[2], &lse));
  SLI_TRY(want_scalar("total", &in[3], SL_F64));
  SLI_TRY(want_scalar("dloss", &in[4], SL_F32));
  out[0] = in[0];
  return SL_OK;
}

static sl_status part_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)nin;
  SLI_TRY(want_rows(attrs, &in[0], &in[1], &in[3]));
  SLI_TRY(want_scalar("total", &in[2], SL_F64));
  out[0] = sli_type_with_last(&in[0], SLI_WEIGHTED_PART);
  return SL_OK;
}

static sl_status join_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)attrs, (void)nin;
  SLI_TRY(sli_want_array("parts", &in[0], SL_F32, -1));
  if (sl_type_last(&in[0]) % SLI_WEIGHTED_PART)
    return sli_misfit(&in[0], "parts must be f32[..., 4 * n]");
  out[0] = SL_SCALAR(SL_F64);
  out[1] = sli_type_without_last(&in[0], SL_F32);
  return SL_OK;
}

/* Splits by columns. */
static int cross_entropy_signatures(const sl_attrs *attrs, int nin, const sl_type *in,
                                    sl_signature *out) {
  (void)attrs, (void)nin;
  out[0] = (sl_signature){.in = {sli_split_last(&in[0])},
                          .first = 1,
                          .local = &sl_op_weighted_cross_entropy_part,
                          .joined = &sl_op_weighted_cross_entropy_join};
  return 1;
}

SLI_COST(target_weight_cost, 0, 1, 2)

SLI_COST(cross_entropy_cost, 0, 2, 17)

SLI_COST(cross_entropy_b_cost, 0, 1, 17)

SLI_COST(part_cost, 0, 1, 17)

SLI_COST(join_cost, 0, 2, 10)

static sl_status cross_entropy_check(const sl_call *call) {
  sli_weighing w = sli_weighing_of(call, 3);
  return sli_check_targets(call, &w.ignored);
}

/* ---- ops --------------------------------------------------------------------------------- */

const sl_op sl_op_target_weight = {
    .name = "target_weight",
    .attrs = {&sl_attrs_loss},
    .min_in = 1,
    .max_in = 2,
    .nout = 1,
    .cut = &(const sl_op_cut){.pieces = SL_PIECES_SUM, .whole = 2},
    .traits = SL_OP_BATCH,
    .exact = &sli_exact_sum,
    .infer = target_weight_infer,
    .cost = target_weight_cost,
};

const sl_op sl_op_weighted_cross_entropy = {
    .name = "weighted_cross_entropy",
    .attrs = {&sl_attrs_loss},
    .min_in = 3,
    .max_in = 4,
    .nout = 2,
    .narrow = &(const sl_op_narrow){.in = 1},
    .traits = SL_OP_PADDED,
    .cut = &(const sl_op_cut){.pieces = SL_PIECES_SUM, .whole = 12},
    .exact = &sli_exact_sum,
    .infer = cross_entropy_infer,
    .cost = cross_entropy_cost,
    .check = cross_entropy_check,
    .shard = &(const sl_op_shard){.signatures = cross_entropy_signatures},
    .grad = {{.op = &sl_op_weighted_cross_entropy_b,
              .cls = SL_CLASS_F,
              .in = {SL_IN(0), SL_IN(1), SL_OUT(1), SL_IN(2), SL_DOUT(0), SL_IN(3)},
              .nwrt = 1,
              .wrt = {0}}},
};

const sl_op sl_op_weighted_cross_entropy_b = {
    .name = "weighted_cross_entropy_b",
    .attrs = {&sl_attrs_loss},
    .min_in = 5,
    .max_in = 6,
    .nout = 1,
    .narrow = &(const sl_op_narrow){.in = 1, .out = 1},
    .traits = SL_OP_PADDED,
    .cut = &sl_cut_rows,
    .memory = &(const sl_op_memory){.in_place = {1}},
    .infer = cross_entropy_b_infer,
    .cost = cross_entropy_b_cost,
};

const sl_op sl_op_weighted_cross_entropy_part = {
    .name = "weighted_cross_entropy_part",
    .attrs = {&sl_attrs_loss},
    .min_in = 3,
    .max_in = 4,
    .nout = 1,
    .narrow = &(const sl_op_narrow){.in = 1},
    .traits = SL_OP_PADDED,
    .cut = &(const sl_op_cut){.pieces = SL_PIECES_ROWS, .whole = 12},
    .infer = part_infer,
    .cost = part_cost,
    .check = cross_entropy_check,
};

const sl_op sl_op_weighted_cross_entropy_join = {
    .name = "weighted_cross_entropy_join",
    .attrs = {&sl_attrs_loss},
    .min_in = 1,
    .max_in = 1,
    .nout = 2,
    .cut = &(const sl_op_cut){.pieces = SL_PIECES_SUM},
    .exact = &sli_exact_sum,
    .infer = join_infer,
    .cost = join_cost,
};
