/* SPDX-License-Identifier: Apache-2.0 */
/* Attention ops over one piece of a sequence that is cut along its positions, after Sun et al.,
 * arXiv 2406.03488.
 *
 * A causal query needs the keys and values of every earlier position, so a record keeps them: kv
 * [B, T, 2 Hkv*D] for the whole sequence. In the forward pass each piece writes its rows into the
 * record and attends to all rows up to its own. In the backward pass the pieces come in reverse. A
 * piece's queries send gradients to the keys and values of all earlier positions, whose pieces have
 * not run yet; dkv accumulates these gradients. When a piece runs, all later pieces have run. Its
 * rows of dkv, with its own gradient added, are then complete and leave as dk and dv.
 *
 * With document ids, a second record keeps the ids of all positions so far. The forward pieces
 * write it; the backward pieces only read it.
 *
 * A call recomputed in the backward pass reads the record as the forward pass left it, with the
 * piece's own keys and values, and writes nothing to it.
 *
 * All ops are views for the whole-sequence kernel (vector/attention.h), with query 0 at position
 * q0. */
#include "ops/attention_piece.h"
#include "ops/attention_shape.h"
#include "ops/ops.h"

/* Type of kv and dkv, for o [B, n, Hq*D]. */
static sl_type record_type(const sl_attrs *attrs, const sl_type *o) {
  return SL_TYPE(SL_F32, o->dim[0], attrs->length,
                 o->dim[2] / attrs->heads * 2 * sli_kv_heads(attrs));
}

/* Type of the record of ids. */
static sl_type ids_type(const sl_attrs *attrs, const sl_type *x) {
  return SL_TYPE(SL_I32, x->dim[0], attrs->length);
}

static sl_status want_length(const sl_attrs *attrs, const sl_type *x) {
  if (attrs->full)
    return sl_fail(
        SL_E_SHAPE,
        "queries see later keys (attrs.full), which are in pieces that do not exist yet");
  if (x->dim[1] <= attrs->length) return SL_OK;
  return sli_misfit(x, "a piece may have at most the %lld positions of its sequence",
                    (long long)attrs->length);
}

static sl_status piece_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  SLI_TRY(sli_attention_infer(attrs, nin, in, out));
  SLI_TRY(want_length(attrs, &in[0]));
  out[2] = record_type(attrs, &out[0]);
  if (nin > 3) out[3] = ids_type(attrs, &in[0]);
  return SL_OK;
}

static sl_status packed_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  SLI_TRY(sli_attention_packed_infer(attrs, nin, in, out));
  SLI_TRY(want_length(attrs, &in[0]));
  out[2] = record_type(attrs, &out[0]);
  out[3] = out[0];
  if (nin > 1) out[4] = ids_type(attrs, &in[0]);
  return SL_OK;
}

/* Returns the number of outputs: ids add one record at the end. */
static int piece_outputs(const sl_attrs *attrs, int nin) {
  (void)attrs;
  return nin > 3 ? 4 : 3;
}

static int packed_outputs(const sl_attrs *attrs, int nin) {
  (void)attrs;
  return nin > 1 ? 5 : 4;
}

static int again_outputs(const sl_attrs *attrs, int nin) {
  return piece_outputs(attrs, sli_attention_piece_inputs(nin));
}

static int packed_again_outputs(const sl_attrs *attrs, int nin) {
  return packed_outputs(attrs, sli_attention_packed_inputs(nin));
}

/* Checks that input i is kv and that the ids of the whole sequence, if any, follow it. */
static sl_status want_records(const sl_attrs *attrs, int nin, const sl_type *in, int i,
                              const sl_type *kv) {
  SLI_TRY(sli_want("kv", &in[i], kv));
  sl_type ids = ids_type(attrs, kv);
  return nin > i + 1 ? sli_want("ids", &in[i + 1], &ids) : SL_OK;
}

static sl_status again_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  SLI_TRY(piece_infer(attrs, sli_attention_piece_inputs(nin), in, out));
  return want_records(attrs, nin, in, sli_attention_piece_inputs(nin), &out[2]);
}

static sl_status packed_again_infer(const sl_attrs *attrs, int nin, const sl_type *in,
                                    sl_type *out) {
  SLI_TRY(packed_infer(attrs, sli_attention_packed_inputs(nin), in, out));
  return want_records(attrs, nin, in, sli_attention_packed_inputs(nin), &out[2]);
}

/* in: q, kv, o, lse, do, [ids]. Sets *own to the type of the piece's k and v. */
static sl_status backward_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *own) {
  if (attrs->heads < 1 || in[0].ndim != 3)
    return sli_misfit(&in[0], "q must be f32[b, t, n], and heads must be positive");
  *own = sli_type_with_last(&in[0], in[0].dim[2] / attrs->heads * sli_kv_heads(attrs));
  const sl_type forward[] = {in[0], *own, *own};
  sl_type out[3];
  SLI_TRY(piece_infer(attrs, 3, forward, out));
  SLI_TRY(sli_want("kv", &in[1], &out[2]));
  SLI_TRY(sli_want("o", &in[2], &out[0]));
  SLI_TRY(sli_want("lse", &in[3], &out[1]));
  sl_type ids = ids_type(attrs, &in[0]);
  if (nin > 5) SLI_TRY(sli_want("ids", &in[5], &ids));
  return sli_want("do", &in[4], &out[0]);
}

static sl_status piece_b_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  SLI_TRY(backward_infer(attrs, nin, in, &out[1]));
  out[0] = in[0];
  out[2] = out[1];
  out[3] = in[1];
  return SL_OK;
}

static sl_status packed_b_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  sl_type own;
  SLI_TRY(backward_infer(attrs, nin, in, &own));
  out[0] = sli_type_with_last(&in[0], in[0].dim[2] + 2 * own.dim[2]);
  out[1] = in[1];
  return SL_OK;
}

/* Extends the signatures of whole sequences to the records. The record and q are both split by
 * heads in their last dim; in the record, k precedes v. Every head needs all ids. */
static int with_records(int n, sl_signature *out, int outputs, bool ids) {
  for (int i = 0; i < n; i++)
    for (int o = 2; o < outputs; o++) out[i].out[o] = out[i].out[0];
  for (int i = 0; i < n && ids; i++)
    if (!out[i].heads) out[i].out[outputs] = out[i].out[0];
  return n;
}

static int piece_signatures(const sl_attrs *attrs, int nin, const sl_type *in, sl_signature *out) {
  return with_records(sli_attention_signatures(attrs, nin, in, out), out, 3, nin > 3);
}

static int packed_signatures(const sl_attrs *attrs, int nin, const sl_type *in, sl_signature *out) {
  return with_records(sli_attention_packed_signatures(attrs, nin, in, out), out, 4, nin > 1);
}

/* Cost of a piece of average length and position, so that the costs of all pieces add up to the
 * cost of the whole. On average half of the record is filled. */
static void cost(const sl_attrs *attrs, const sl_type *o, int products, double *flops,
                 double *bytes) {
  sl_type record = record_type(attrs, o);
  *flops = products * (double)sl_type_elements(o) * sli_mask_pairs(attrs, attrs->length);
  *bytes = products * (double)sl_type_bytes(o) + 0.5 * products * (double)sl_type_bytes(&record);
}

static void piece_cost(const sl_attrs *attrs, int nin, const sl_type *in, const sl_type *out,
                       double *flops, double *bytes) {
  (void)nin, (void)in;
  cost(attrs, &out[0], 2, flops, bytes);
}

static void backward_cost(const sl_attrs *attrs, int nin, const sl_type *in, const sl_type *out,
                          double *flops, double *bytes) {
  (void)nin, (void)out;
  cost(attrs, &in[2], 5, flops, bytes);
}

/* ---- ops -------------------------------------------------------------------------- */

const sl_op sl_op_attention_piece = {
    .name = "attention_piece",
    .min_in = 3,
    .max_in = 4,
    .nout = -1,
    .outputs = piece_outputs,
    .narrow = &(const sl_op_narrow){.in = 7, .out = 5, .rounds = true},
    .cut = &(const sl_op_cut){.pieces = SL_PIECES_STATE},
    .memory = &(const sl_op_memory){.updates = 12},
    .rematerialized = &sl_op_attention_piece_again,
    .infer = piece_infer,
    .cost = piece_cost,
    .shard = &(const sl_op_shard){.signatures = piece_signatures, .heads = SL_HEADS_SEPARATE},
    .grad = {{.op = &sl_op_attention_piece_b,
              .cls = SL_CLASS_B,
              .in = {SL_IN(0), SL_OUT(2), SL_OUT(0), SL_OUT(1), SL_DOUT(0), SL_OUTS(3)},
              .nwrt = 3,
              .wrt = {0, 1, 2}}},
};

const sl_op sl_op_attention_piece_b = {
    .name = "attention_piece_b",
    .min_in = 5,
    .max_in = 6,
    .nout = 4,
    .narrow = &(const sl_op_narrow){.in = 0x17, .out = 15, .rounds = true},
    .cut = &(const sl_op_cut){.pieces = SL_PIECES_STATE},
    .memory = &(const sl_op_memory){.updates = 8},
    .infer = piece_b_infer,
    .cost = backward_cost,
};

const sl_op sl_op_attention_packed_piece = {
    .name = "attention_packed_piece",
    .min_in = 1,
    .max_in = 2,
    .nout = -1,
    .outputs = packed_outputs,
    .narrow = &(const sl_op_narrow){.in = 1, .out = 13, .rounds = true},
    .cut = &(const sl_op_cut){.pieces = SL_PIECES_STATE},
    .memory = &(const sl_op_memory){.updates = 20},
    .rematerialized = &sl_op_attention_packed_piece_again,
    .infer = packed_infer,
    .cost = piece_cost,
    .shard = &(const sl_op_shard){.signatures = packed_signatures, .heads = SL_HEADS_PACKED},
    .grad = {{.op = &sl_op_attention_packed_piece_b,
              .cls = SL_CLASS_B,
              .in = {SL_OUT(3), SL_OUT(2), SL_OUT(0), SL_OUT(1), SL_DOUT(0), SL_OUTS(4)},
              .nwrt = 1,
              .wrt = {0}}},
};

const sl_op sl_op_attention_packed_piece_b = {
    .name = "attention_packed_piece_b",
    .min_in = 5,
    .max_in = 6,
    .nout = 2,
    .narrow = &(const sl_op_narrow){.in = 0x17, .out = 3, .rounds = true},
    .cut = &(const sl_op_cut){.pieces = SL_PIECES_STATE},
    .memory = &(const sl_op_memory){.updates = 2},
    .infer = packed_b_infer,
    .cost = backward_cost,
};

const sl_op sl_op_attention_piece_again = {
    .name = "attention_piece_again",
    .min_in = 4,
    .max_in = 6,
    .nout = -1,
    .outputs = again_outputs,
    .narrow = &(const sl_op_narrow){.in = 31, .out = 5, .rounds = true},
    .memory = &(const sl_op_memory){.unread = 6},
    .cut = &(const sl_op_cut){.pieces = SL_PIECES_STATE},
    .infer = again_infer,
    .cost = piece_cost,
};

const sl_op sl_op_attention_packed_piece_again = {
    .name = "attention_packed_piece_again",
    .min_in = 2,
    .max_in = 4,
    .nout = -1,
    .outputs = packed_again_outputs,
    .narrow = &(const sl_op_narrow){.in = 7, .out = 13, .rounds = true},
    .cut = &(const sl_op_cut){.pieces = SL_PIECES_STATE},
    .infer = packed_again_infer,
    .cost = piece_cost,
};
