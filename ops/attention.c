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

/* ---- shapes and costs ------------------------------------------------------------------------ */

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

/* ---- ops ------------------------------------------------------------------------------------- */

/* Ids in a gradient rule, if calls may have them. */
#define IDS(inputs, ids) \
  { (ids) ? SL_ARG_INS : SL_ARG_NONE, (ids) ? (inputs) : 0 }

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
      .attrs = {&sl_attrs_attention},                                                           \
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
                .in = {FIRST_##inputs, SL_OUT(0), SL_OUT(1), SL_DOUT(0), IDS(inputs, ids)},     \
                .nwrt = gradients,                                                              \
                .wrt = {0, 1, 2, 3, 4}}},                                                       \
  };                                                                                            \
                                                                                                \
  const sl_op sl_op_##op_##_b = {                                                               \
      .name = #op_ "_b",                                                                        \
      .attrs = {&sl_attrs_attention},                                                           \
      .min_in = inputs + 3,                                                                     \
      .max_in = inputs + 3 + ids,                                                               \
      .nout = gradients,                                                                        \
      .narrow = NARROWED(numbers, FIRST_BITS(inputs) | 5u << inputs, FIRST_BITS(gradients)),    \
      .infer = op_##_b_infer,                                                                   \
      .cost = op_##_b_cost,                                                                     \
  };
#include "ops/attention.def"
#undef ATTENTION
