/* SPDX-License-Identifier: Apache-2.0 */
/* Attention ops for one device's share of a piece's queries.
 *
 * Sequences are cut into pieces, and the positions of each piece are sharded over devices. A device
 * computes its own queries and gathers the keys and values of the whole piece into one array. Its
 * record keeps them for later pieces, so each position crosses the link once, and its gradient
 * crosses it back once. Gradients for keys of earlier positions accumulate in a record local to
 * this device. When a piece runs its backward pass, its rows of that record are this device's
 * partial sum of the piece's gradient.
 *
 * Queries are one or two runs of positions, each a view for the whole-sequence kernel
 * (vector/attention.h). Results per query equal those on one device (attention_piece.c). */
#include "ops/attention_shape.h"
#include "ops/attention_share.h"
#include "ops/ops.h"

/* ---- shapes ------------------------------------------------------------------------------ */

static sl_type with_rows(sl_type type, int64_t rows) {
  type.dim[1] = rows;
  return type;
}

static sl_type ids_type(const sl_attrs *attrs, const sl_type *q) {
  return SL_TYPE(SL_I32, q->dim[0], attrs->length);
}

static sl_status want_piece(const sl_attrs *attrs, const sl_type *q, const sl_type *kv) {
  SLI_TRY(sli_want_share(attrs, q, kv));
  if (attrs->full)
    return sl_fail(
        SL_E_SHAPE,
        "queries see later keys (attrs.full), which are in pieces that do not exist yet");
  if (kv->dim[1] <= attrs->length) return SL_OK;
  return sli_misfit(kv, "a piece may have at most the %lld positions of its sequence",
                    (long long)attrs->length);
}

static sl_status share_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  SLI_TRY(want_piece(attrs, &in[0], &in[1]));
  if (nin > 2) SLI_TRY(sli_want_ids(&in[2], &in[1]));
  out[0] = in[0];
  out[1] = SL_TYPE(SL_F32, in[0].dim[0], attrs->heads, in[0].dim[1]);
  out[2] = with_rows(in[1], attrs->length);
  if (nin > 2) out[3] = ids_type(attrs, &in[0]);
  return SL_OK;
}

static int share_outputs(const sl_attrs *attrs, int nin) {
  (void)attrs;
  return nin > 2 ? 4 : 3;
}

static int again_outputs(const sl_attrs *attrs, int nin) {
  return share_outputs(attrs, sli_attention_share_inputs(nin));
}

static sl_status again_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  int record = sli_attention_share_inputs(nin);
  SLI_TRY(share_infer(attrs, record, in, out));
  SLI_TRY(sli_want("record", &in[record], &out[2]));
  return nin > record + 1 ? sli_want("ids", &in[record + 1], &out[3]) : SL_OK;
}

static sl_status share_b_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  sl_type forward[3], ids = ids_type(attrs, &in[0]), parts[] = {in[0], in[SLI_SHARE_BACKWARD_KV]};
  SLI_TRY(share_infer(attrs, 2, parts, forward));
  SLI_TRY(sli_want("record", &in[1], &forward[2]));
  SLI_TRY(sli_want("o", &in[SLI_SHARE_BACKWARD_O], &forward[0]));
  SLI_TRY(sli_want("lse", &in[SLI_SHARE_BACKWARD_LSE], &forward[1]));
  SLI_TRY(sli_want("do", &in[SLI_SHARE_BACKWARD_DO], &forward[0]));
  if (nin > SLI_SHARE_BACKWARD_IDS) SLI_TRY(sli_want("ids", &in[SLI_SHARE_BACKWARD_IDS], &ids));
  out[0] = in[0];
  out[1] = in[SLI_SHARE_BACKWARD_KV];
  out[2] = in[1];
  return SL_OK;
}

/* Splits by sequences or heads, as for whole sequences. Position splits come from the op that
 * shards the positions. */
static int signatures(const sl_attrs *attrs, int nin, const sl_type *in, sl_signature *out) {
  (void)attrs, (void)in;
  out[0] = (sl_signature){.out = {sli_split(0), sli_split(0), sli_split(0)}};
  out[1] = (sl_signature){.out = {sli_split(2), sli_split(1), sli_split(2)}, .heads = true};
  for (int i = 0; i < nin; i++) out[0].in[i] = sli_split(0);
  for (int i = 0; i < 2; i++) out[1].in[i] = sli_split(2);
  if (nin > 2) out[0].out[3] = sli_split(0);
  return 2;
}

/* Cost of a piece of average length and position, with half of the record filled. */
static void cost(const sl_attrs *attrs, const sl_type *o, const sl_type *record, int products,
                 double *flops, double *bytes) {
  *flops = products * (double)sl_type_elements(o) * sli_mask_pairs(attrs, attrs->length);
  *bytes = products * (double)sl_type_bytes(o) + 0.5 * products * (double)sl_type_bytes(record);
}

static void share_cost(const sl_attrs *attrs, int nin, const sl_type *in, const sl_type *out,
                       double *flops, double *bytes) {
  (void)nin, (void)in;
  cost(attrs, &out[0], &out[2], 2, flops, bytes);
}

static void share_b_cost(const sl_attrs *attrs, int nin, const sl_type *in, const sl_type *out,
                         double *flops, double *bytes) {
  (void)nin, (void)out;
  cost(attrs, &in[SLI_SHARE_BACKWARD_O], &in[1], 5, flops, bytes);
}

/* ---- ops -------------------------------------------------------------------------- */

const sl_op sl_op_attention_share = {
    .name = "attention_share",
    .min_in = 2,
    .max_in = 3,
    .nout = -1,
    .outputs = share_outputs,
    .narrow = &(const sl_op_narrow){.in = 3, .out = 5, .rounds = true},
    .cut = &(const sl_op_cut){.pieces = SL_PIECES_STATE},
    .memory = &(const sl_op_memory){.updates = 12},
    .rematerialized = &sl_op_attention_share_again,
    .infer = share_infer,
    .cost = share_cost,
    .shard =
        &(const sl_op_shard){
            .signatures = signatures, .sequence = SL_SEQUENCE_GATHER, .heads = SL_HEADS_JOINED},
    .grad = {{.op = &sl_op_attention_share_b,
              .cls = SL_CLASS_B,
              .in = {SL_IN(0), SL_OUT(2), SL_OUT(0), SL_OUT(1), SL_DOUT(0), SL_IN(1), SL_OUTS(3)},
              .nwrt = 2,
              .wrt = {0, 1}}},
};

const sl_op sl_op_attention_share_b = {
    .name = "attention_share_b",
    .min_in = 6,
    .max_in = 7,
    .nout = 3,
    .narrow = &(const sl_op_narrow){.in = 0x37, .out = 7, .rounds = true},
    .memory = &(const sl_op_memory){.unread = 1u << SLI_SHARE_BACKWARD_KV, .updates = 4},
    .cut = &(const sl_op_cut){.pieces = SL_PIECES_STATE},
    .infer = share_b_infer,
    .cost = share_b_cost,
};

const sl_op sl_op_attention_share_again = {
    .name = "attention_share_again",
    .min_in = 3,
    .max_in = 5,
    .nout = -1,
    .outputs = again_outputs,
    .narrow = &(const sl_op_narrow){.in = 31, .out = 5, .rounds = true},
    .memory = &(const sl_op_memory){.unread = 2},
    .cut = &(const sl_op_cut){.pieces = SL_PIECES_STATE},
    .infer = again_infer,
    .cost = share_cost,
};
