/* SPDX-License-Identifier: Apache-2.0 */
/* Attention on whole sequences, in all variants (ops/attention.def). All are views for the same
 * strided kernel (vector/attention.h), apart from attention to chosen tokens.
 *
 * Variants:
 *
 *   packed   queries, keys and values are columns of one tensor.
 *   sinks    In a row's sum, a sink s counts as a key with score s and value 0. With the lse of all
 *            scores and the sink, the gradients of queries, keys and values are those of plain
 *            attention, and the gradient of the sink is -e^(s - lse) dO . O.
 *   dual     Keys are rotated by their position within their chunk (An et al., arXiv 2402.17463).
 *            Queries come in three forms, rotated for the keys of their own chunk, of the previous
 *            chunk, and of all chunks before that (ops/rope.c). A tile of keys is inside one chunk,
 *            so it meets one form of each query; the softmax covers all tiles.
 *   blocks   ops/attention_blocks.c
 *   chosen   ops/attention_chosen.c */
#include <stddef.h>

#include "ops/attention_shape.h"
#include "ops/attention_rows.h"

/* ---- rules of all variants ------------------------------------------------------------------- */

sl_status sli_variant_infer(const sli_attention_variant *v, const sl_attrs *attrs, int nin,
                            const sl_type *in, sl_type *out) {
  SLI_TRY(v->infer(attrs, in, out));
  const sl_type *rows = &in[v->layout == SL_HEADS_JOINED]; /* keys, of which there may be more */
  return nin > v->inputs ? sli_want_ids(&in[v->inputs], rows) : SL_OK;
}

/* in: inputs, o, lse, do, [ids] */
static sl_status backward_infer(const sli_attention_variant *v, const sl_attrs *attrs, int nin,
                                const sl_type *in, sl_type *out) {
  const sl_type *after = in + v->inputs;
  sl_type forward[2];
  SLI_TRY(v->infer(attrs, in, forward));
  if (nin > v->inputs + 3) SLI_TRY(sli_want_ids(&after[3], &in[0]));
  SLI_TRY(sli_want("o", &after[0], &forward[0]));
  SLI_TRY(sli_want("lse", &after[1], &forward[1]));
  SLI_TRY(sli_want("do", &after[2], &forward[0]));
  for (int i = 0; i < v->gradients; i++) out[i] = in[i];
  return SL_OK;
}

/* Counts two products in the forward and five in the backward pass, over the scores of keys inside
 * the attention mask. Document boundaries depend on data and are not counted. */
static void forward_cost(const sli_attention_variant *v, const sl_attrs *attrs, int nin,
                         const sl_type *in, const sl_type *out, double *flops, double *bytes) {
  const sl_type *q = v->layout == SL_HEADS_PACKED ? &out[0] : &in[0];
  *flops = (double)(sl_type_elements(q) + sl_type_elements(&out[0])) * v->pairs(attrs, in);
  *bytes = sli_argument_bytes(nin, in, 2, out);
}

static void backward_cost(const sli_attention_variant *v, const sl_attrs *attrs, int nin,
                          const sl_type *in, const sl_type *out, double *flops, double *bytes) {
  const sl_type *o = &in[v->inputs], *q = v->layout == SL_HEADS_PACKED ? o : &in[0];
  *flops = (double)(3 * sl_type_elements(q) + 2 * sl_type_elements(o)) * v->pairs(attrs, in);
  *bytes = sli_argument_bytes(nin, in, v->gradients, out);
}

int sli_variant_signatures(const sli_attention_variant *v, int nin, sl_signature *out) {
  out[0] = (sl_signature){.out = {sli_split(0), sli_split(0)}};
  out[1] =
      (sl_signature){.out = {sli_split(2), sli_split(v->heads[v->inputs] - '0')}, .heads = true};
  for (int i = 0; i < nin; i++) out[0].in[i] = sli_split(0);
  for (int i = 0; i < v->inputs; i++)
    if (v->heads[i] != '-') out[1].in[i] = sli_split(v->heads[i] - '0');
  return 2;
}

double sli_masked_pairs(const sl_attrs *attrs, const sl_type *in) {
  return sli_mask_pairs(attrs, in[0].dim[1]);
}

/* ---- ops ------------------------------------------------------------------------------------- */

#undef NONE
#define NONE(...) 0

#define ATTENTION(op_, layout_, inputs, ids, gradients, heads_, numbers, pairs, check_, pieces, \
                  parts_, ring, served)                                                         \
  INFER(op_##_infer, sli_variant_infer, VARIANT(op_))                                           \
  INFER(op_##_b_infer, backward_infer, VARIANT(op_))                                            \
  COST(op_##_cost, forward_cost, VARIANT(op_))                                                  \
  COST(op_##_b_cost, backward_cost, VARIANT(op_))                                               \
  SHARES(op_##_signatures, sli_variant_signatures, VARIANT(op_))                                \
                                                                                                \
  const sl_op sl_op_##op_ = {                                                                   \
      .name = #op_,                                                                             \
      .serve = served(&(const sl_op_serve){.op = &sl_op_##op_##_served, .chooses = true}),      \
      .min_in = inputs,                                                                         \
      .max_in = inputs + ids,                                                                   \
      .nout = 2,                                                                                \
      .narrow = NARROWED(numbers, FIRST_BITS(inputs), 1),                                       \
      .cut = &(const sl_op_cut){.pieced = pieces(&sl_op_##op_##_piece),                         \
                                .parts = parts_(&sl_op_##op_##_parts),                          \
                                .swept = parts_(&sl_op_attention_sweep),                        \
                                .shared = parts_(&sl_op_attention_share)},                      \
      .infer = op_##_infer,                                                                     \
      .check = check_,                                                                          \
      .cost = op_##_cost,                                                                       \
      .shard = &(const sl_op_shard){.signatures = op_##_signatures,                             \
                                    .sequence = ring(SL_SEQUENCE_RING),                         \
                                    .heads = layout_},                                          \
      .grad = {{.op = &sl_op_##op_##_b,                                                         \
                .cls = SL_CLASS_B,                                                              \
                .in = {FIRST_##inputs, SL_OUT(0), SL_OUT(1), SL_DOUT(0), SL_INS(inputs)},       \
                .nwrt = gradients,                                                              \
                .wrt = {0, 1, 2, 3, 4}}},                                                       \
  };                                                                                            \
                                                                                                \
  const sl_op sl_op_##op_##_b = {                                                               \
      .name = #op_ "_b",                                                                        \
      .min_in = inputs + 3,                                                                     \
      .max_in = inputs + 3 + ids,                                                               \
      .nout = gradients,                                                                        \
      .narrow = NARROWED(numbers, FIRST_BITS(inputs) | 5u << inputs, FIRST_BITS(gradients)),    \
      .infer = op_##_b_infer,                                                                   \
      .cost = op_##_b_cost,                                                                     \
  };
#include "ops/attention.def"
#undef ATTENTION

/* ---- the table ------------------------------------------------------------------------------- */

const sli_attention_variant sli_attention_variants[SLI_VARIANTS] = {
#define ATTENTION(op, layout_, inputs_, ids_, gradients_, heads_, numbers, pairs_, ...) \
  {.layout = layout_,                                                                   \
   .inputs = inputs_,                                                                   \
   .ids = ids_,                                                                         \
   .gradients = gradients_,                                                             \
   .heads = heads_,                                                                     \
   .infer = sli_##op##_infer,                                                           \
   .pairs = pairs_},
#include "ops/attention.def"
#undef ATTENTION
};

#undef YES
#undef NO
#undef NONE
#define YES(op_) \
  { .op = &op_ }
#define NO(reason) {.refusal = reason} NONE
#define NONE(...)

const sli_attention_cell sli_attention_cells[SLI_VARIANTS][SLI_ATTENTION_FORMS] = {
#define ATTENTION(op, layout, inputs, ids, gradients, heads, numbers, pairs, check, pieces, parts, \
                  ring, served)                                                                    \
  {[SLI_ATTENTION_WHOLE] = YES(sl_op_##op),                                                        \
   [SLI_ATTENTION_PIECE] = pieces(sl_op_##op##_piece),                                             \
   [SLI_ATTENTION_PIECE_AGAIN] = pieces(sl_op_##op##_piece_again),                                 \
   [SLI_ATTENTION_PARTS] = parts(sl_op_##op##_parts),                                              \
   [SLI_ATTENTION_SWEEP] = parts(sl_op_attention_sweep),                                           \
   [SLI_ATTENTION_SHARE] = parts(sl_op_attention_share),                                           \
   [SLI_ATTENTION_SHARE_AGAIN] = parts(sl_op_attention_share_again),                               \
   [SLI_ATTENTION_STEP] = ring(sl_op_attention_step),                                              \
   [SLI_ATTENTION_SERVED] = served(sl_op_##op##_served)},
#include "ops/attention.def"
#undef ATTENTION
};

const char *sli_attention_refusal(const sl_op *op, sli_attention_form form) {
  for (int v = 0; v < SLI_VARIANTS; v++)
    if (sli_attention_cells[v][SLI_ATTENTION_WHOLE].op == op)
      return sli_attention_cells[v][form].refusal;
  return NULL;
}
