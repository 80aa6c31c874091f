/* SPDX-License-Identifier: Apache-2.0 */
/* Losses. Partial sums of chunks are added in chunk order. */
#include "ops/leaves.h"
#include "ops/ops.h"
#include "ops/target.h"

static sl_status want_targets(const sl_type *targets, const sl_type *logits) {
  sl_type want = sli_type_without_last(logits, SL_I32);
  return sli_want("targets", targets, &want);
}

static sl_status want_dloss(const sl_type *dloss) {
  return sli_want_array("dloss", dloss, SL_F32, 0);
}

sl_status sli_check_targets(const sl_call *call, const int32_t *ignored) {
  const int32_t *targets = call->in[1];
  int64_t rows = sl_type_rows(&call->in_type[0]), whole = call->attrs->place.whole;
  int64_t classes = whole ? whole : sl_type_last(&call->in_type[0]);
  for (int64_t r = 0; r < rows; r++) {
    bool left = ignored && targets[r] == *ignored;
    if (!left && (targets[r] < 0 || targets[r] >= classes))
      return sl_fail(SL_E_INPUT, "target %lld is %d, but there are classes 0 to %lld", (long long)r,
                     (int)targets[r], (long long)classes - 1);
  }
  return SL_OK;
}

static sl_status cross_entropy_check(const sl_call *call) { return sli_check_targets(call, NULL); }

static sl_status want_groups(const sl_attrs *attrs, const sl_type *logits) {
  if (!attrs->numbers.chunk || sl_type_last(logits) <= attrs->numbers.chunk * SLI_MOST_GROUPS)
    return SL_OK;
  return sli_misfit(logits, "at most %d groups of %lld columns are supported (attrs.numbers.chunk)",
                    SLI_MOST_GROUPS, (long long)attrs->numbers.chunk);
}

static sl_status cross_entropy_infer(const sl_attrs *attrs, int nin, const sl_type *in,
                                     sl_type *out) {
  (void)nin;
  SLI_TRY(sli_want_array("logits", &in[0], SL_F32, -1));
  SLI_TRY(want_targets(&in[1], &in[0]));
  SLI_TRY(want_groups(attrs, &in[0]));
  out[0] = SL_SCALAR(SL_F64);
  out[1] = sli_type_without_last(&in[0], SL_F32);
  return SL_OK;
}

static sl_status cross_entropy_b_infer(const sl_attrs *attrs, int nin, const sl_type *in,
                                       sl_type *out) {
  (void)attrs, (void)nin;
  SLI_TRY(sli_want_array("logits", &in[0], SL_F32, -1));
  SLI_TRY(want_targets(&in[1], &in[0]));
  sl_type lse = sli_type_without_last(&in[0], SL_F32);
  SLI_TRY(sli_want("lse", &in[2], &lse));
  SLI_TRY(want_dloss(&in[3]));
  out[0] = in[0];
  return SL_OK;
}

/* Splits by columns. */
static int by_columns(const sl_type *in, const sl_op *local, const sl_op *joined,
                      sl_signature *out) {
  out[0] =
      (sl_signature){.in = {sli_split_last(&in[0])}, .first = 1, .local = local, .joined = joined};
  return 1;
}

static int cross_entropy_signatures(const sl_attrs *attrs, int nin, const sl_type *in,
                                    sl_signature *out) {
  (void)attrs, (void)nin;
  return by_columns(in, &sl_op_cross_entropy_part, &sl_op_cross_entropy_join, out);
}

static int log_probability_signatures(const sl_attrs *attrs, int nin, const sl_type *in,
                                      sl_signature *out) {
  (void)attrs, (void)nin;
  return by_columns(in, &sl_op_log_probability_part, &sl_op_log_probability_join, out);
}

static sl_status part_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)nin;
  SLI_TRY(sli_want_array("logits", &in[0], SL_F32, -1));
  SLI_TRY(want_targets(&in[1], &in[0]));
  int64_t columns = sl_type_last(&in[0]),
          chunk = attrs->numbers.chunk ? attrs->numbers.chunk : columns;
  if (columns % chunk)
    return sli_misfit(&in[0], "groups must have %lld columns (attrs.numbers.chunk)",
                      (long long)chunk);
  out[0] = sli_type_with_last(&in[0], SLI_PART * (columns / chunk));
  return SL_OK;
}

static sl_status join_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)attrs, (void)nin;
  SLI_TRY(sli_want_array("parts", &in[0], SL_F32, -1));
  if (sl_type_last(&in[0]) % SLI_PART) return sli_misfit(&in[0], "parts must be f32[..., 3 * n]");
  out[0] = SL_SCALAR(SL_F64);
  out[1] = sli_type_without_last(&in[0], SL_F32);
  return SL_OK;
}

static sl_status log_probability_infer(const sl_attrs *attrs, int nin, const sl_type *in,
                                       sl_type *out) {
  SLI_TRY(cross_entropy_infer(attrs, nin, in, out));
  out[0] = out[1];
  return SL_OK;
}

static sl_status log_probability_join_infer(const sl_attrs *attrs, int nin, const sl_type *in,
                                            sl_type *out) {
  SLI_TRY(join_infer(attrs, nin, in, out));
  out[0] = out[1];
  return SL_OK;
}

static sl_status log_probability_b_infer(const sl_attrs *attrs, int nin, const sl_type *in,
                                         sl_type *out) {
  (void)attrs, (void)nin;
  SLI_TRY(sli_want_array("logits", &in[0], SL_F32, -1));
  SLI_TRY(want_targets(&in[1], &in[0]));
  sl_type row = sli_type_without_last(&in[0], SL_F32);
  SLI_TRY(sli_want("lse", &in[2], &row));
  SLI_TRY(sli_want("dy", &in[3], &row));
  out[0] = in[0];
  return SL_OK;
}

static sl_status softmax_part_infer(const sl_attrs *attrs, int nin, const sl_type *in,
                                    sl_type *out) {
  (void)attrs, (void)nin;
  SLI_TRY(sli_want_array("logits", &in[0], SL_F32, -1));
  out[0] = in[0];
  out[1] = sli_type_without_last(&in[0], SL_F32);
  return SL_OK;
}

static sl_status softmax_rescale_infer(const sl_attrs *attrs, int nin, const sl_type *in,
                                       sl_type *out) {
  (void)attrs, (void)nin;
  SLI_TRY(sli_want_array("ahead", &in[0], SL_F32, -1));
  SLI_TRY(sli_want("taken", &in[1], &in[0]));
  sl_type row = sli_type_without_last(&in[0], SL_F32);
  SLI_TRY(sli_want("own", &in[2], &row));
  SLI_TRY(sli_want("lse", &in[3], &row));
  SLI_TRY(want_dloss(&in[4]));
  out[0] = in[0];
  return SL_OK;
}

/* Splits by columns or rows. */
static int softmax_part_signatures(const sl_attrs *attrs, int nin, const sl_type *in,
                                   sl_signature *out) {
  (void)attrs, (void)nin;
  sl_sbp last = sli_split_last(&in[0]);
  out[0] = (sl_signature){.in = {last}, .out = {last, sli_partial()}};
  return 1;
}

static int softmax_rescale_signatures(const sl_attrs *attrs, int nin, const sl_type *in,
                                      sl_signature *out) {
  (void)attrs, (void)nin;
  const sl_sbp sum = sli_partial();
  int n = 0, rows = in[0].ndim - 1;
  out[n++] = (sl_signature){.in = {sum, sum, sum}, .out = {sum}};
  for (int d = 0; d < rows; d++) {
    sl_sbp row = sli_split(d);
    out[n++] = (sl_signature){.in = {row, row, row, row}, .out = {row}};
  }
  return n;
}

static sl_status share_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)attrs, (void)nin;
  SLI_TRY(sli_want_array("x", &in[0], in[0].dtype == SL_F64 ? SL_F64 : SL_F32, 0));
  out[0] = in[0];
  return SL_OK;
}

/* A partial sum as input gives a partial sum. */
static int share_signatures(const sl_attrs *attrs, int nin, const sl_type *in, sl_signature *out) {
  (void)attrs, (void)nin, (void)in;
  out[0] = (sl_signature){.in = {sli_partial()}, .out = {sli_partial()}};
  return 1;
}

static sl_status mse_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)attrs, (void)nin;
  SLI_TRY(sli_want_array("y", &in[0], SL_F32, -1));
  SLI_TRY(sli_want("t", &in[1], &in[0]));
  out[0] = SL_SCALAR(SL_F64);
  return SL_OK;
}

static sl_status mse_b_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  sl_type loss;
  SLI_TRY(mse_infer(attrs, nin, in, &loss));
  SLI_TRY(want_dloss(&in[2]));
  out[0] = in[0];
  return SL_OK;
}

SLI_COST(cross_entropy_cost, 0, 2, 15)

SLI_COST(cross_entropy_b_cost, 0, 1, 15)

SLI_COST(cross_entropy_part_cost, 0, 1, 15)

SLI_COST(cross_entropy_join_cost, 0, 2, 10)

SLI_COST(log_probability_cost, 0, 1, 15)

SLI_COST(log_probability_b_cost, 0, 1, 15)

SLI_COST(log_probability_join_cost, 0, 2, 10)

SLI_COST(softmax_part_cost, 0, 1, 20)

SLI_COST(softmax_rescale_cost, 0, 1, 3)

SLI_COST(mse_cost, 0, 1, 3)

SLI_COST(mse_b_cost, 0, 1, 2)

static uint64_t share_hash(uint64_t hash, const sl_attrs *attrs, int nin) {
  (void)nin;
  return sli_hash_real(hash, *(const double *)attrs->user);
}

static const sl_op_exact cross_entropy_exact = {.groups = true, .total = SL_TOTAL_MEAN_ROWS},
                         join_exact = {.total = SL_TOTAL_MEAN_ROWS};

/* The gradient of a loss by rows, and its sums over a part of the vocabulary. */
#define BY_ROWS(name_, check_)                            \
  const sl_op sl_op_##name_##_b = {                       \
      .name = #name_ "_b",                                \
      .min_in = 4,                                        \
      .max_in = 4,                                        \
      .nout = 1,                                          \
      .narrow = &(const sl_op_narrow){.in = 1, .out = 1}, \
      .traits = SL_OP_PADDED,                             \
      .cut = &sl_cut_rows,                                \
      .memory = &(const sl_op_memory){.in_place = {1}},   \
      .infer = name_##_b_infer,                           \
      .cost = name_##_b_cost,                             \
  };                                                      \
  const sl_op sl_op_##name_##_part = {                    \
      .name = #name_ "_part",                             \
      .min_in = 2,                                        \
      .max_in = 2,                                        \
      .nout = 1,                                          \
      .narrow = &(const sl_op_narrow){.in = 1},           \
      .traits = SL_OP_PADDED,                             \
      .cut = &sl_cut_rows,                                \
      .infer = part_infer,                                \
      .cost = cross_entropy_part_cost,                    \
      .check = check_,                                    \
  };
BY_ROWS(cross_entropy, cross_entropy_check)
BY_ROWS(log_probability, NULL)

/* The lse belongs to the rows counted by the mean's gradient, which softmax_rescale also reads. */
const sl_op sl_op_cross_entropy = {
    .name = "cross_entropy",
    .min_in = 2,
    .max_in = 2,
    .nout = 2,
    .narrow = &(const sl_op_narrow){.in = 1},
    .traits = SL_OP_PADDED,
    .cut = &(const sl_op_cut){.pieces = SL_PIECES_MEAN, .own = 2},
    .infer = cross_entropy_infer,
    .cost = cross_entropy_cost,
    .check = cross_entropy_check,
    .exact = &cross_entropy_exact,
    .shard = &(const sl_op_shard){.signatures = cross_entropy_signatures},
    .grad = {{.op = &sl_op_cross_entropy_b,
              .cls = SL_CLASS_F,
              .in = {SL_IN(0), SL_IN(1), SL_OUT(1), SL_DOUT(0)},
              .nwrt = 1,
              .wrt = {0}}},
};

const sl_op sl_op_cross_entropy_join = {
    .name = "cross_entropy_join",
    .min_in = 1,
    .max_in = 1,
    .nout = 2,
    .cut = &(const sl_op_cut){.pieces = SL_PIECES_MEAN},
    .exact = &join_exact,
    .infer = join_infer,
    .cost = cross_entropy_join_cost,
};

/* Located, so that reports know which tokens the numbers belong to. */
const sl_op sl_op_log_probability = {
    .name = "log_probability",
    .min_in = 2,
    .max_in = 2,
    .nout = 2,
    .narrow = &(const sl_op_narrow){.in = 1},
    .traits = SL_OP_PADDED | SL_OP_LOCATED,
    .exact = &sli_exact_groups,
    .cut = &(const sl_op_cut){.pieces = SL_PIECES_ROWS, .own = 2},
    .infer = log_probability_infer,
    .cost = log_probability_cost,
    .shard = &(const sl_op_shard){.signatures = log_probability_signatures},
    .grad = {{.op = &sl_op_log_probability_b,
              .cls = SL_CLASS_B,
              .in = {SL_IN(0), SL_IN(1), SL_OUT(1), SL_DOUT(0)},
              .nwrt = 1,
              .wrt = {0}}},
};

const sl_op sl_op_log_probability_join = {
    .name = "log_probability_join",
    .min_in = 1,
    .max_in = 1,
    .nout = 2,
    .traits = SL_OP_LOCATED,
    .cut = &sl_cut_rows,
    .infer = log_probability_join_infer,
    .cost = log_probability_join_cost,
};

/* Both outputs belong to its columns: any other sharding would mix the softmaxes of several
 * devices. */
const sl_op sl_op_softmax_part = {
    .name = "softmax_part",
    .min_in = 1,
    .max_in = 1,
    .nout = 2,
    .narrow = &(const sl_op_narrow){.in = 1, .out = 1},
    .cut = &(const sl_op_cut){.pieces = SL_PIECES_ROWS, .own = 3},
    .infer = softmax_part_infer,
    .cost = softmax_part_cost,
    .shard = &(const sl_op_shard){.signatures = softmax_part_signatures},
};

const sl_op sl_op_softmax_rescale = {
    .name = "softmax_rescale",
    .min_in = 5,
    .max_in = 5,
    .nout = 1,
    .cut = &(const sl_op_cut){.pieces = SL_PIECES_SIGNATURES},
    .infer = softmax_rescale_infer,
    .cost = softmax_rescale_cost,
    .shard = &(const sl_op_shard){.signatures = softmax_rescale_signatures},
};

const sl_op sl_op_share = {
    .name = "share",
    .min_in = 1,
    .max_in = 1,
    .nout = 1,
    .traits = SL_OP_COUNTED,
    .cut = &sl_cut_elements,
    .infer = share_infer,
    .shard = &(const sl_op_shard){.signatures = share_signatures},
    .hash = share_hash,
    .grad = {{.op = &sl_op_share, .cls = SL_CLASS_B, .in = {SL_DOUT(0)}, .nwrt = 1, .wrt = {0}}},
};

const sl_op sl_op_mse = {
    .name = "mse",
    .min_in = 2,
    .max_in = 2,
    .nout = 1,
    .narrow = &(const sl_op_narrow){.in = 3},
    .cut = &(const sl_op_cut){.pieces = SL_PIECES_MEAN},
    .exact = &sli_exact_mean,
    .infer = mse_infer,
    .cost = mse_cost,
    .shard = &(const sl_op_shard){.signatures = sli_mean_signatures},
    .grad = {{.op = &sl_op_mse_b,
              .cls = SL_CLASS_F,
              .in = {SL_IN(0), SL_IN(1), SL_DOUT(0)},
              .nwrt = 1,
              .wrt = {0}}},
};

const sl_op sl_op_mse_b = {
    .name = "mse_b",
    .min_in = 3,
    .max_in = 3,
    .nout = 1,
    .narrow = &(const sl_op_narrow){.in = 3, .out = 1},
    .cut = &sl_cut_rows,
    .memory = &(const sl_op_memory){.in_place = {3}},
    .infer = mse_b_infer,
    .cost = mse_b_cost,
};
