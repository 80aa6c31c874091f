/* SPDX-License-Identifier: Apache-2.0 */
/* Attention over one piece of a sequence that is cut along its positions, after Sun et al., arXiv
 * 2406.03488.
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
 * attention_share is the same for one device's share of a piece's queries, if the positions of each
 * piece are sharded over devices. A device computes its own queries and gathers the keys and values
 * of the whole piece into one array. Its record keeps them for later pieces, so each position
 * crosses the link once, and its gradient crosses it back once. When a piece runs its backward
 * pass, its rows of dkv are this device's partial sum of the piece's gradient. Queries are one or
 * two runs of positions.
 *
 * All ops are views for the whole-sequence kernel (vector/attention.h), with query 0 at position
 * q0. Results per query equal those of whole sequences on one device. */
#include "ops/attention_piece.h"

#include "ops/attention_shape.h"
#include "ops/attention_rows.h"

/* ---- shapes ---------------------------------------------------------------------------------- */

/* Returns the number of the record of ids among the outputs. */
static int ids_output(const sli_attention_variant *v) {
  return v->layout == SL_HEADS_PACKED ? 4 : 3;
}

static int outputs(const sli_attention_variant *v, int nin) {
  return ids_output(v) + (nin > v->inputs);
}

static int again_outputs(const sli_attention_variant *v, int nin) {
  return outputs(v, sli_piece_inputs(v->inputs, nin));
}

/* Type of the record of ids. */
static sl_type ids_type(const sl_attrs *attrs, const sl_type *x) {
  return SL_TYPE(SL_I32, x->dim[0], attrs->place.length);
}

/* in: inputs, [ids] */
static sl_status infer(const sli_attention_variant *v, const sl_attrs *attrs, int nin,
                       const sl_type *in, sl_type *out) {
  SLI_TRY(sli_variant_infer(v, attrs, nin, in, out));
  SLI_TRY(sli_want_length(attrs, &in[v->layout == SL_HEADS_JOINED]));
  out[2] = SL_TYPE(SL_F32, out[0].dim[0], attrs->place.length,
                   out[0].dim[2] / attrs->attention.heads * 2 * sli_kv_heads(attrs));
  if (v->layout == SL_HEADS_PACKED) out[3] = out[0];
  if (nin > v->inputs) out[ids_output(v)] = ids_type(attrs, &in[0]);
  return SL_OK;
}

/* in: inputs, [ids], kv, [ids of all] */
static sl_status again_infer(const sli_attention_variant *v, const sl_attrs *attrs, int nin,
                             const sl_type *in, sl_type *out) {
  int record = sli_piece_inputs(v->inputs, nin);
  SLI_TRY(infer(v, attrs, record, in, out));
  SLI_TRY(sli_want("kv", &in[record], &out[2]));
  sl_type ids = ids_type(attrs, &in[0]);
  return nin > record + 1 ? sli_want("ids", &in[record + 1], &ids) : SL_OK;
}

/* Returns how many inputs of the forward call the backward call has after do. */
static int inputs_after(const sli_attention_variant *v) {
  return v->layout == SL_HEADS_JOINED ? 1 : SLI_MAX(v->inputs - 3, 0);
}

/* Fills in the types of the forward call's inputs, given those of the backward call. */
static sl_status find_inputs(const sli_attention_variant *v, const sl_attrs *attrs,
                             const sl_type *in, sl_type *forward) {
  if (attrs->attention.heads < 1 || in[0].ndim != 3)
    return sli_misfit(&in[0], "q must be f32[b, t, n], and heads must be positive");
  int64_t q = in[0].dim[2], kv = q / attrs->attention.heads * sli_kv_heads(attrs);
  forward[0] = v->layout == SL_HEADS_PACKED ? sli_type_with_last(&in[0], q + 2 * kv) : in[0];
  int n = 1;
  for (; v->layout == SL_HEADS_SEPARATE && n < 3; n++) forward[n] = sli_type_with_last(&in[0], kv);
  for (int i = 0; i < inputs_after(v); i++) forward[n + i] = in[SLI_PIECE_MORE + i];
  return SL_OK;
}

/* in: q, kv, o, lse, do, inputs after keys and values, [ids of all] */
static sl_status backward_infer(const sli_attention_variant *v, const sl_attrs *attrs, int nin,
                                const sl_type *in, sl_type *out) {
  sl_type inputs[SL_GRAD_ARGS], forward[5], ids = ids_type(attrs, &in[0]);
  int ids_input = SLI_PIECE_MORE + inputs_after(v);
  SLI_TRY(find_inputs(v, attrs, in, inputs));
  SLI_TRY(infer(v, attrs, v->inputs, inputs, forward));
  SLI_TRY(sli_want("kv", &in[SLI_PIECE_KV], &forward[2]));
  SLI_TRY(sli_want("o", &in[SLI_PIECE_O], &forward[0]));
  SLI_TRY(sli_want("lse", &in[SLI_PIECE_LSE], &forward[1]));
  SLI_TRY(sli_want("do", &in[SLI_PIECE_DO], &forward[0]));
  if (nin > ids_input) SLI_TRY(sli_want("ids", &in[ids_input], &ids));
  for (int i = 0; i < v->gradients; i++) out[i] = inputs[i];
  out[v->gradients] = in[SLI_PIECE_KV];
  return SL_OK;
}

/* Extends the signatures of whole sequences to the records. The record and q are both split by
 * heads in their last dim; in the record, k precedes v. Every head needs all ids. */
static int signatures(const sli_attention_variant *v, int nin, sl_signature *out) {
  int n = sli_variant_signatures(v, nin, out);
  for (int i = 0; i < n; i++)
    for (int o = 2; o < outputs(v, nin); o++)
      if (o < ids_output(v) || !out[i].heads) out[i].out[o] = out[i].out[0];
  return n;
}

/* Cost of a piece of average length and position, so that the costs of all pieces add up to the
 * cost of the whole. On average half of the record is filled. */
static void cost(const sl_attrs *attrs, const sl_type *o, const sl_type *record, int products,
                 double *flops, double *bytes) {
  *flops = products * (double)sl_type_elements(o) * sli_mask_pairs(attrs, attrs->place.length);
  *bytes = products * (double)sl_type_bytes(o) + 0.5 * products * (double)sl_type_bytes(record);
}

static void forward_cost(const sl_attrs *attrs, int nin, const sl_type *in, const sl_type *out,
                         double *flops, double *bytes) {
  (void)nin, (void)in;
  cost(attrs, &out[0], &out[2], 2, flops, bytes);
}

static void backward_cost(const sl_attrs *attrs, int nin, const sl_type *in, const sl_type *out,
                          double *flops, double *bytes) {
  (void)nin, (void)out;
  cost(attrs, &in[SLI_PIECE_O], &in[SLI_PIECE_KV], 5, flops, bytes);
}

/* ---- ops ------------------------------------------------------------------------------------- */

/* By layout: the record of ids, outputs that may be bf16, and inputs whose contents a recomputed
 * call and the backward call do not read. */
#define IDS(layout) ((layout) == SL_HEADS_PACKED ? 4 : 3)
#define NARROW_OUT(layout) ((layout) == SL_HEADS_PACKED ? 13 : 5)
#define UNREAD(layout) ((layout) == SL_HEADS_SEPARATE ? 6 : (layout) == SL_HEADS_JOINED ? 2 : 0)
#define UNREAD_B(layout) ((layout) == SL_HEADS_JOINED ? 1 << SLI_PIECE_MORE : 0)

/* Inputs of the forward call that the backward call has after do, at most one. */
#define MORE(layout, inputs) ((layout) == SL_HEADS_JOINED || (inputs) > 3)

/* Arguments of the backward call: its queries, and those after do. */
#define QUERIES(layout) \
  { (layout) == SL_HEADS_PACKED ? SL_ARG_OUT : SL_ARG_IN, (layout) == SL_HEADS_PACKED ? 3 : 0 }
#define AFTER(layout, inputs)                                                   \
  {MORE(layout, inputs) ? SL_ARG_IN : SL_ARG_OUTS,                              \
   MORE(layout, inputs) ? ((layout) == SL_HEADS_JOINED ? 1 : 3) : IDS(layout)}, \
  {                                                                             \
    MORE(layout, inputs) ? SL_ARG_OUTS : SL_ARG_NONE, IDS(layout)               \
  }

#define PIECE(name_, v, layout, inputs_, ids, gradients, numbers, sequence_)                   \
  OUTPUTS(name_##_outputs, outputs, v)                                                         \
  OUTPUTS(name_##_again_outputs, again_outputs, v)                                             \
  INFER(name_##_infer, infer, v)                                                               \
  INFER(name_##_b_infer, backward_infer, v)                                                    \
  INFER(name_##_again_infer, again_infer, v)                                                   \
  SHARES(name_##_signatures, signatures, v)                                                    \
                                                                                               \
  const sl_op sl_op_##name_ = {                                                                \
      .name = #name_,                                                                          \
      .attrs = {&sl_attrs_attention},                                                          \
      .min_in = inputs_,                                                                       \
      .max_in = inputs_ + ids,                                                                 \
      .nout = -1,                                                                              \
      .outputs = name_##_outputs,                                                              \
      .narrow = NARROWED(numbers, FIRST_BITS(inputs_), NARROW_OUT(layout)),                    \
      .cut = &(const sl_op_cut){.pieces = SL_PIECES_STATE},                                    \
      .memory = &(const sl_op_memory){.updates = 1 << 2 | 1 << IDS(layout)},                   \
      .rematerialized = &sl_op_##name_##_again,                                                \
      .infer = name_##_infer,                                                                  \
      .cost = forward_cost,                                                                    \
      .shard =                                                                                 \
          &(const sl_op_shard){                                                                \
              .signatures = name_##_signatures, .sequence = sequence_, .heads = layout},       \
      .grad = {{.op = &sl_op_##name_##_b,                                                      \
                .cls = SL_CLASS_B,                                                             \
                .in = {QUERIES(layout), SL_OUT(2), SL_OUT(0), SL_OUT(1), SL_DOUT(0),           \
                       AFTER(layout, inputs_)},                                                \
                .nwrt = gradients,                                                             \
                .wrt = {0, 1, 2, 3, 4}}},                                                      \
  };                                                                                           \
                                                                                               \
  const sl_op sl_op_##name_##_b = {                                                            \
      .name = #name_ "_b",                                                                     \
      .attrs = {&sl_attrs_attention},                                                          \
      .min_in = SLI_PIECE_MORE + MORE(layout, inputs_),                                        \
      .max_in = SLI_PIECE_MORE + MORE(layout, inputs_) + ids,                                  \
      .nout = gradients + 1,                                                                   \
      .narrow = NARROWED(numbers, 0x17 | UNREAD_B(layout), FIRST_BITS(gradients + 1)),         \
      .cut = &(const sl_op_cut){.pieces = SL_PIECES_STATE},                                    \
      .memory = &(const sl_op_memory){.unread = UNREAD_B(layout), .updates = 1u << gradients}, \
      .infer = name_##_b_infer,                                                                \
      .cost = backward_cost,                                                                   \
  };                                                                                           \
                                                                                               \
  const sl_op sl_op_##name_##_again = {                                                        \
      .name = #name_ "_again",                                                                 \
      .attrs = {&sl_attrs_attention},                                                          \
      .min_in = inputs_ + 1,                                                                   \
      .max_in = inputs_ + 2 * ids + 1,                                                         \
      .nout = -1,                                                                              \
      .outputs = name_##_again_outputs,                                                        \
      .narrow = NARROWED(numbers, FIRST_BITS(inputs_ + 2), NARROW_OUT(layout)),                \
      .memory = &(const sl_op_memory){.unread = UNREAD(layout)},                               \
      .cut = &(const sl_op_cut){.pieces = SL_PIECES_STATE},                                    \
      .infer = name_##_again_infer,                                                            \
      .cost = forward_cost,                                                                    \
  };

#define ATTENTION(op, layout, inputs, ids, gradients, heads, numbers, pairs, check, pieces, ...) \
  pieces(PIECE(op##_piece, VARIANT(op), layout, inputs, ids, gradients, numbers, SL_SEQUENCE_NONE))
#include "ops/attention.def"
#undef ATTENTION

/* Queries, and keys and values of the whole piece in one array. */
static const sli_attention_variant joined = {.layout = SL_HEADS_JOINED,
                                             .inputs = 2,
                                             .ids = 1,
                                             .gradients = 2,
                                             .heads = "221",
                                             .infer = sli_attention_joined_infer};
PIECE(attention_share, &joined, SL_HEADS_JOINED, 2, 1, 2, NARROW, SL_SEQUENCE_GATHER)
