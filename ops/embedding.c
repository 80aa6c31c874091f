/* SPDX-License-Identifier: Apache-2.0 */
/* Ops that read tables: token and position embeddings. */
#include "ops/batch.h"
#include "ops/ops.h"

static sl_status embedding_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)attrs, (void)nin;
  SLI_TRY(sli_want_array("ids", &in[0], SL_I32, -1));
  SLI_TRY(sli_want_array("table", &in[1], SL_F32, 2));
  if (in[0].ndim == SL_MAX_DIMS)
    return sli_misfit(&in[0], "ids may have at most %d dims", SL_MAX_DIMS - 1);
  out[0] = in[0];
  out[0].dtype = SL_F32;
  out[0].dim[out[0].ndim++] = in[1].dim[1];
  return SL_OK;
}

static sl_status embedding_w_infer(const sl_attrs *attrs, int nin, const sl_type *in,
                                   sl_type *out) {
  sl_type y;
  sl_type forward[] = {in[0], in[2]};
  SLI_TRY(embedding_infer(attrs, nin, forward, &y));
  y.dtype = sli_sum_dtype(&in[1]);
  SLI_TRY(sli_want("dy", &in[1], &y));
  out[0] = in[2];
  out[0].dtype = y.dtype;
  return SL_OK;
}

static sl_status position_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  int64_t end = attrs->place.first + attrs->place.skip + in[0].dim[1];
  (void)nin;
  SLI_TRY(sli_want_array("x", &in[0], SL_F32, 3));
  SLI_TRY(sli_want_array("table", &in[1], SL_F32, 2));
  if (in[1].dim[0] < end || in[1].dim[1] != in[0].dim[2])
    return sli_misfit(&in[1], "table must be f32[n, %lld] with n >= %lld", (long long)in[0].dim[2],
                      (long long)end);
  out[0] = in[0];
  return SL_OK;
}

static sl_status position_w_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  sl_type dy;
  SLI_TRY(position_infer(attrs, nin, in, &dy));
  out[0] = in[1];
  return SL_OK;
}

/* Splits by vocabulary or by columns. */
static int embedding_signatures(const sl_attrs *attrs, int nin, const sl_type *in,
                                sl_signature *out) {
  (void)attrs, (void)nin;
  int n = 0;
  out[n++] = (sl_signature){.in = {[1] = sli_split(0)}, .out = {sli_partial()}, .first = 2};
  out[n++] = (sl_signature){.in = {[1] = sli_split(1)}, .out = {sli_split(in[0].ndim)}};
  return n;
}

/* Splits by sequences, positions or columns. A sum of partial sums on both sides is partial. */
static int position_signatures(const sl_attrs *attrs, int nin, const sl_type *in,
                               sl_signature *out) {
  (void)attrs, (void)nin, (void)in;
  int n = 0;
  out[n++] = (sl_signature){.in = {sli_split(0)}, .out = {sli_split(0)}};
  out[n++] = (sl_signature){.in = {sli_split(1)}, .out = {sli_split(1)}, .first = 1};
  out[n++] = (sl_signature){.in = {sli_split(2), sli_split(1)}, .out = {sli_split(2)}};
  out[n++] = (sl_signature){.in = {sli_partial(), sli_partial()}, .out = {sli_partial()}};
  return n;
}

/* Counts only the indexed rows, which are read and written. */
static void embedding_cost(const sl_attrs *attrs, int nin, const sl_type *in, const sl_type *out,
                           double *flops, double *bytes) {
  (void)attrs, (void)nin, (void)in;
  *flops = 0;
  *bytes = 2.0 * (double)sl_type_bytes(&out[0]);
}

SLI_COST(embedding_w_cost, 1, 1, 1)

SLI_COST(position_cost, 0, 1, 1)

const sl_op sl_op_embedding = {
    .name = "embedding",
    .serve = &(const sl_op_serve){.op = &sl_op_embedding_served, .stored = 2},
    .min_in = 2,
    .max_in = 2,
    .nout = 1,
    .narrow = &(const sl_op_narrow){.out = 1},
    .traits = SL_OP_CHEAP,
    .cut = &(const sl_op_cut){.pieces = SL_PIECES_ROWS, .whole = 2},
    .infer = embedding_infer,
    .cost = embedding_cost,
    .shard = &(const sl_op_shard){.signatures = embedding_signatures, .weight = SL_WEIGHT_TABLE},
    .grad = {{.op = &sl_op_embedding_w,
              .cls = SL_CLASS_W,
              .in = {SL_IN(0), SL_DOUT(0), SL_IN(1)},
              .nwrt = 1,
              .wrt = {1}}},
};

const sl_op sl_op_embedding_w = {
    .name = "embedding_w",
    .min_in = 3,
    .max_in = 3,
    .nout = 1,
    .narrow = &(const sl_op_narrow){.in = 2},
    .cut = &sl_cut_rows,
    .memory = &(const sl_op_memory){.unread = 4},
    .infer = embedding_w_infer,
    .cost = embedding_w_cost,
    .accumulates = 1,
    .exact = &sli_exact_scatters,
};

const sl_op sl_op_position = {
    .name = "position",
    .serve = &(const sl_op_serve){.op = &sl_op_position_served},
    .min_in = 2,
    .max_in = 2,
    .nout = 1,
    .narrow = &(const sl_op_narrow){.in = 1, .out = 1},
    .traits = SL_OP_CHEAP,
    .cut = &(const sl_op_cut){.pieces = SL_PIECES_POSITIONS, .whole = 2},
    .memory = &(const sl_op_memory){.in_place = {1}},
    .infer = position_infer,
    .cost = position_cost,
    .shard = &(const sl_op_shard){.signatures = position_signatures},
    .grad = {{.cls = SL_CLASS_B, .in = {SL_DOUT(0)}, .nwrt = 1, .wrt = {0}},
             {.op = &sl_op_position_w,
              .cls = SL_CLASS_W,
              .in = {SL_DOUT(0), SL_IN(1)},
              .nwrt = 1,
              .wrt = {1}}},
};

const sl_op sl_op_position_w = {
    .name = "position_w",
    .min_in = 2,
    .max_in = 2,
    .nout = 1,
    .memory = &(const sl_op_memory){.unread = 2},
    .narrow = &(const sl_op_narrow){.in = 1},
    .cut = &sl_cut_rows,
    .infer = position_w_infer,
    .cost = position_cost,
    .accumulates = 1,
    .exact = &sli_exact_scatters,
};

/* ---- serving: positions of any sequences ------------------------------------------------ */

static sl_status position_served_infer(const sl_attrs *attrs, int nin, const sl_type *in,
                                       sl_type *out) {
  SLI_TRY(sli_want_batch(nin, in, 2));
  if (in[1].ndim > 0 && in[1].dim[0] < attrs->place.length)
    return sli_misfit(&in[1], "the table must have %lld positions", (long long)attrs->place.length);
  return position_infer(attrs, 2, in, out);
}

const sl_op sl_op_position_served = {
    .name = "position_served",
    .min_in = 3,
    .max_in = 3,
    .nout = 1,
    .infer = position_served_infer,
    .cost = position_cost,
    .rows = &(const sl_op_rows){.looks = 1, .follows = 1},
};
