/* SPDX-License-Identifier: Apache-2.0 */
/* Attention ops over one piece of a sequence whose keys and values arrive piece by piece, after Yao
 * et al., arXiv 2408.16978.
 *
 * A call takes one piece of queries and one piece of keys and values. Queries of piece k meet, call
 * by call, the keys of their own piece and of pieces k - 1, ..., 0, so no device holds the keys of
 * a whole sequence. The outputs hold the running state: undivided sums in o, the largest score and
 * the sum in `seen`, and keys of an incomplete tile in `tail`. Tiles are those of the whole
 * sequence, visited from the last one backwards, so a call with all keys (attention_piece.c) gives
 * the same bits.
 *
 * In the backward pass the query pieces come last first, each again with the keys from the first
 * piece on. dq accumulates from call to call. Gradients for earlier keys accumulate in dkv, which
 * covers all positions. The last call of a piece finds its own rows of dkv complete.
 *
 * A call stores the number of the next piece of keys in an extra row of `tail` and of dkv. */
#include "ops/attention_shape.h"
#include "ops/attention_rows.h"

/* ---- shapes ------------------------------------------------------------------------------ */

static sl_type with_rows(sl_type type, int64_t rows) {
  type.dim[1] = rows;
  return type;
}

/* in: the variant's inputs for queries, keys and values */
static sl_status parts_infer(const sli_attention_variant *v, const sl_attrs *attrs, int nin,
                             const sl_type *in, sl_type *out) {
  sl_type forward[2];
  (void)nin;
  SLI_TRY(v->infer(attrs, in, forward));
  int64_t q = forward[0].dim[2];
  out[0] = forward[0];
  out[1] = sli_type_with_last(&out[0], 2 * sli_kv_heads(attrs) * (q / attrs->attention.heads));
  return SL_OK;
}

/* in: gradients of q and kv */
static sl_status parts_b_infer(const sli_attention_variant *v, const sl_attrs *attrs, int nin,
                               const sl_type *in, sl_type *out) {
  sl_type forward[2], kv = with_rows(in[1], in[0].dim[1]);
  (void)nin;
  SLI_TRY(sli_attention_joined_infer(attrs, in, forward));
  SLI_TRY(sli_want("kv", &in[1], &kv));
  bool packed = v->layout == SL_HEADS_PACKED;
  out[0] = packed ? sli_type_with_last(&in[0], in[0].dim[2] + in[1].dim[2]) : in[0];
  for (int i = 1; i < v->gradients; i++) out[i] = sli_type_with_last(&in[0], in[1].dim[2] / 2);
  return SL_OK;
}

static sl_type ids_type(const sl_attrs *attrs, const sl_type *q) {
  return SL_TYPE(SL_I32, q->dim[0], attrs->place.length);
}

static int sweep_outputs(const sl_attrs *attrs, int nin) {
  (void)attrs;
  return nin > 2 ? 5 : 4;
}

enum { SEEN = 4 }; /* numbers per query and head: CPUs use two; GPUs use the sums of four lanes */

static sl_status sweep_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  SLI_TRY(sli_attention_joined_infer(attrs, in, out));
  SLI_TRY(sli_want_length(attrs, &in[1]));
  if (nin > 2) SLI_TRY(sli_want_ids(&in[2], &in[1]));
  out[2] = with_rows(in[1], SLI_KEY_TILE + 1);
  out[3] = SL_TYPE(SL_F32, in[0].dim[0], attrs->attention.heads, SEEN * in[0].dim[1]);
  if (nin > 2) out[4] = ids_type(attrs, &in[0]);
  return SL_OK;
}

/* in: q, kv, o, lse, do, [ids of all] */
static sl_status sweep_b_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  sl_type forward[4], ids = ids_type(attrs, &in[0]);
  SLI_TRY(sweep_infer(attrs, 2, in, forward));
  SLI_TRY(sli_want("o", &in[2], &forward[0]));
  SLI_TRY(sli_want("lse", &in[3], &forward[1]));
  SLI_TRY(sli_want("do", &in[4], &forward[0]));
  if (nin > 5) SLI_TRY(sli_want("ids", &in[5], &ids));
  out[0] = in[0];
  out[1] = in[1];
  out[2] = with_rows(in[1], attrs->place.length + 1);
  return SL_OK;
}

/* ---- signatures ---------------------------------------------------------------------------- */

/* Splits by sequences, by heads or by positions. */
static int parts_signatures(const sl_attrs *attrs, int nin, const sl_type *in, sl_signature *out) {
  (void)attrs, (void)in;
  static const int dims[] = {0, 2, 1};
  for (int s = 0; s < (int)SLI_COUNT(dims); s++) {
    out[s] = (sl_signature){.out = {sli_split(dims[s]), sli_split(dims[s])}, .heads = s == 1};
    for (int i = 0; i < nin; i++) out[s].in[i] = sli_split(dims[s]);
  }
  return (int)SLI_COUNT(dims);
}

/* Splits by sequences or by heads. */
static int sweep_signatures(const sl_attrs *attrs, int nin, const sl_type *in, sl_signature *out) {
  (void)in;
  out[0] = (sl_signature){.in = {sli_split(0), sli_split(0)}};
  out[1] = (sl_signature){.in = {sli_split(2), sli_split(2)},
                          .out = {sli_split(2), sli_split(1), sli_split(2), sli_split(1)},
                          .heads = true};
  if (nin > 2) out[0].in[2] = sli_split(0);
  for (int o = 0; o < sweep_outputs(attrs, nin); o++) out[0].out[o] = sli_split(0);
  return 2;
}

/* ---- cost ---------------------------------------------------------------------------------- */

/* Cost of one call of a microbatch. The costs of all calls add up to the cost of the whole
 * sequence. */
static void cost(const sl_call_cut *cut, const sl_attrs *attrs, const sl_type *o, int products,
                 double *flops, double *bytes) {
  double share = cut ? 2.0 / (cut->pieces + 1) : 1;
  *flops =
      share * products * (double)sl_type_elements(o) * sli_mask_pairs(attrs, attrs->place.length);
  *bytes = share * products * 2 * (double)sl_type_bytes(o);
}

static void sweep_cost(const sl_attrs *attrs, int nin, const sl_type *in, const sl_type *out,
                       double *flops, double *bytes) {
  (void)nin, (void)in;
  cost(attrs->user, attrs, &out[0], 2, flops, bytes);
}

static void sweep_b_cost(const sl_attrs *attrs, int nin, const sl_type *in, const sl_type *out,
                         double *flops, double *bytes) {
  (void)nin, (void)out;
  cost(attrs->user, attrs, &in[2], 5, flops, bytes);
}

/* ---- ops ------------------------------------------------------------------------------------- */

#define PARTS(name_, v, layout, inputs, gradients)                                              \
  INFER(name_##_infer, parts_infer, v)                                                          \
  INFER(name_##_b_infer, parts_b_infer, v)                                                      \
                                                                                                \
  const sl_op sl_op_##name_ = {                                                                 \
      .name = #name_,                                                                           \
      .attrs = {&sl_attrs_attention},                                                           \
      .min_in = inputs,                                                                         \
      .max_in = inputs,                                                                         \
      .nout = 2,                                                                                \
      .cut = &(const sl_op_cut){.pieces = SL_PIECES_POSITIONS},                                 \
      .infer = name_##_infer,                                                                   \
      .shard =                                                                                  \
          &(const sl_op_shard){.signatures = parts_signatures, .heads = layout, .joins = true}, \
      .grad = {{.op = &sl_op_##name_##_b,                                                       \
                .cls = SL_CLASS_B,                                                              \
                .in = {SL_DOUT(0), SL_DOUT(1)},                                                 \
                .nwrt = gradients,                                                              \
                .wrt = {0, 1, 2}}},                                                             \
  };                                                                                            \
                                                                                                \
  const sl_op sl_op_##name_##_b = {                                                             \
      .name = #name_ "_b",                                                                      \
      .attrs = {&sl_attrs_attention},                                                           \
      .min_in = 2,                                                                              \
      .max_in = 2,                                                                              \
      .nout = gradients,                                                                        \
      .cut = &(const sl_op_cut){.pieces = SL_PIECES_POSITIONS},                                 \
      .infer = name_##_b_infer,                                                                 \
  };

#define ATTENTION(op, layout, inputs, ids, gradients, heads, numbers, pairs, check, pieces, parts, \
                  ...)                                                                             \
  parts(PARTS(op##_parts, VARIANT(op), layout, inputs, gradients))
#include "ops/attention.def"
#undef ATTENTION

const sl_op sl_op_attention_sweep = {
    .name = "attention_sweep",
    .attrs = {&sl_attrs_attention},
    .min_in = 2,
    .max_in = 3,
    .nout = -1,
    .outputs = sweep_outputs,
    .cut = &(const sl_op_cut){.pieces = SL_PIECES_STATE, .sweeps = 2},
    .memory = &(const sl_op_memory){.updates = 28},
    .narrow = &(const sl_op_narrow){.rounds = true},
    .infer = sweep_infer,
    .cost = sweep_cost,
    .shard = &(const sl_op_shard){.signatures = sweep_signatures,
                                  .sequence = SL_SEQUENCE_GATHER,
                                  .heads = SL_HEADS_JOINED},
    .grad = {{.op = &sl_op_attention_sweep_b,
              .cls = SL_CLASS_B,
              .in = {SL_IN(0), SL_IN(1), SL_OUT(0), SL_OUT(1), SL_DOUT(0), SL_OUTS(4)},
              .nwrt = 2,
              .wrt = {0, 1}}},
};

const sl_op sl_op_attention_sweep_b = {
    .name = "attention_sweep_b",
    .attrs = {&sl_attrs_attention},
    .min_in = 5,
    .max_in = 6,
    .nout = 3,
    .cut = &(const sl_op_cut){.pieces = SL_PIECES_STATE, .sweeps = 2},
    .memory = &(const sl_op_memory){.updates = 4},
    .narrow = &(const sl_op_narrow){.rounds = true},
    .infer = sweep_b_infer,
    .cost = sweep_b_cost,
};
