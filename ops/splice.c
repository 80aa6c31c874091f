/* SPDX-License-Identifier: Apache-2.0 */
/* Ops that replace embeddings of tokens with encoder rows, and the register that collects the rows
 * of a step. */
#include "ops/splice.h"

#include "ops/batch.h"
#include "ops/ops.h"

/* ---- marks ------------------------------------------------------------------------------ */

static sl_status marks_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)attrs, (void)nin;
  SLI_TRY(sli_want_array("tokens", &in[0], SL_I32, 2));
  out[0] = in[0];
  return SL_OK;
}

/* Splits by sequences; attrs.place.first becomes the device's first sequence. */
static int marks_signatures(const sl_attrs *attrs, int nin, const sl_type *in, sl_signature *out) {
  (void)attrs, (void)nin, (void)in;
  out[0] = (sl_signature){.in = {sli_split(0)}, .out = {sli_split(0)}, .first = 1};
  return 1;
}

static sl_status marks_check(const sl_call *call) {
  const int32_t *tokens = call->in[0];
  int64_t length = call->in_type[0].dim[1];
  for (int64_t b = 0; b < call->in_type[0].dim[0]; b++) {
    int64_t found = 0;
    for (int64_t t = 0; t < length; t++)
      found += tokens[b * length + t] == call->attrs->tokens.marker;
    if (found != call->attrs->tokens.each)
      return sl_fail(
          SL_E_INPUT,
          "sequence %lld of the microbatch has %lld placeholders for encoder rows (token %d), "
          "but the encoder makes %lld",
          (long long)b, (long long)found, call->attrs->tokens.marker,
          (long long)call->attrs->tokens.each);
  }
  return SL_OK;
}

const sl_op sl_op_marks = {
    .name = "marks",
    .attrs = {&sl_attrs_tokens},
    .min_in = 1,
    .max_in = 1,
    .nout = 1,
    .traits = SL_OP_DETACHED,
    .infer = marks_infer,
    .check = marks_check,
    .shard = &(const sl_op_shard){.signatures = marks_signatures},
};

/* ---- splice ----------------------------------------------------------------------------- */

static sl_status splice_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)attrs;
  SLI_TRY(sli_want_array("x", &in[0], SL_F32, 3));
  out[0] = in[0];
  if (nin < 2 || in[1].ndim < 0) return SL_OK;
  SLI_TRY(sli_want_array("rows", &in[1], SL_F32, 2));
  if (in[1].dim[1] != in[0].dim[2])
    return sli_misfit(&in[1], "rows must be f32[n, %lld]", (long long)in[0].dim[2]);
  if (nin > 2 && in[2].ndim >= 0)
    SLI_TRY(sli_want("at", &in[2], &SL_TYPE(SL_I32, in[0].dim[0], in[0].dim[1])));
  return SL_OK;
}

/* Splits by sequences, positions or columns. With attrs.tokens.each, each sequence has rows of its
 * own, and attrs.place.first becomes the first one. */
static int splice_signatures(const sl_attrs *attrs, int nin, const sl_type *in, sl_signature *out) {
  (void)in;
  int n = 0;
  if (nin < 3) return 0; /* in a served graph */
  const sl_sbp rows = attrs->tokens.each ? sli_split(0) : (sl_sbp){SL_BROADCAST, 0};
  out[n++] = (sl_signature){.in = {sli_split(0), rows, sli_split(0)},
                            .out = {sli_split(0)},
                            .first = attrs->tokens.each ? 2 : 0};
  out[n++] =
      (sl_signature){.in = {sli_split(1), {SL_BROADCAST, 0}, sli_split(1)}, .out = {sli_split(1)}};
  out[n++] = (sl_signature){.in = {sli_split(2), sli_split(1)}, .out = {sli_split(2)}};
  return n;
}

static sl_status splice_b_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)attrs, (void)nin;
  SLI_TRY(sli_want_array("dy", &in[0], SL_F32, 3));
  SLI_TRY(sli_want_array("rows", &in[1], SL_F32, 2));
  SLI_TRY(sli_want("at", &in[2], &SL_TYPE(SL_I32, in[0].dim[0], in[0].dim[1])));
  out[0] = in[0];
  out[1] = in[1];
  return SL_OK;
}

SLI_COST(splice_cost, 0, 0, 2)

const sl_op sl_op_splice = {
    .name = "splice",
    .attrs = {&sl_attrs_tokens},
    .serve = &(const sl_op_serve){.op = &sl_op_splice_served},
    .min_in = 1,
    .max_in = 3,
    .nout = 1,
    .traits = SL_OP_CHEAP,
    .infer = splice_infer,
    .cost = splice_cost,
    .shard = &(const sl_op_shard){.signatures = splice_signatures},
    .grad = {{.op = &sl_op_splice_b,
              .cls = SL_CLASS_B,
              .in = {SL_DOUT(0), SL_IN(1), SL_IN(2)},
              .nwrt = 2,
              .wrt = {0, 1}}},
};

const sl_op sl_op_splice_b = {
    .name = "splice_b",
    .attrs = {&sl_attrs_tokens},
    .min_in = 3,
    .max_in = 3,
    .nout = 2,
    .memory = &(const sl_op_memory){.unread = 2},
    .infer = splice_b_infer,
    .cost = splice_cost,
};

/* ---- serving: positions of any sequences ------------------------------------------------ */

static sl_status splice_served_infer(const sl_attrs *attrs, int nin, const sl_type *in,
                                     sl_type *out) {
  SLI_TRY(sli_want_batch(nin, in, 3));
  return splice_infer(attrs, 2, in, out);
}

const sl_op sl_op_splice_served = {
    .name = "splice_served",
    .attrs = {&sl_attrs_tokens},
    .min_in = 4,
    .max_in = 4,
    .nout = 1,
    .infer = splice_served_infer,
    .cost = splice_cost,
    .rows = &(const sl_op_rows){.looks = 1, .follows = 1},
};

/* ---- span ------------------------------------------------------------------------------- */

static sl_status span_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)nin, (void)in;
  out[0] = sl_type_make(SL_F32, attrs->shape.ndims, attrs->shape.dims);
  return SL_OK;
}

const sl_op sl_op_span = {
    .name = "span",
    .attrs = {&sl_attrs_shape, &sl_attrs_tokens},
    .min_in = 0,
    .max_in = -1,
    .nout = 1,
    .memory = &(const sl_op_memory){.updates = 1},
    .infer = span_infer,
};
