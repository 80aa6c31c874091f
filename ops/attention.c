/* SPDX-License-Identifier: Apache-2.0 */
/* Attention ops, on separate q, k, v and on one packed tensor. Both are views for the same strided
 * kernel (vector/attention.h). */
#include <stddef.h>

#include "ops/attention_shape.h"
#include "ops/ops.h"

static sl_status attention_b_infer(const sl_attrs *attrs, int nin, const sl_type *in,
                                   sl_type *out) {
  sl_type forward[2];
  SLI_TRY(sli_attention_infer(attrs, 3, in, forward));
  if (nin > 6) SLI_TRY(sli_want_ids(&in[6], &in[0]));
  SLI_TRY(sli_want("o", &in[3], &forward[0]));
  SLI_TRY(sli_want("lse", &in[4], &forward[1]));
  SLI_TRY(sli_want("do", &in[5], &forward[0]));
  for (int i = 0; i < 3; i++) out[i] = in[i];
  return SL_OK;
}

static sl_status packed_b_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  sl_type forward[2];
  SLI_TRY(sli_attention_packed_infer(attrs, 1, in, forward));
  if (nin > 4) SLI_TRY(sli_want_ids(&in[4], &in[0]));
  SLI_TRY(sli_want("o", &in[1], &forward[0]));
  SLI_TRY(sli_want("lse", &in[2], &forward[1]));
  SLI_TRY(sli_want("do", &in[3], &forward[0]));
  out[0] = in[0];
  return SL_OK;
}

/* Two products in the forward and five in the backward pass, over the scores of keys inside the
 * attention mask. Document boundaries depend on data and are not counted. */
static double attention_flops(const sl_attrs *attrs, const sl_type *o, int products) {
  return products * (double)sl_type_elements(o) * sli_mask_pairs(attrs, o->dim[1]);
}

#define COST(name_, o_, nout_, products_)                                                  \
  static void name_(const sl_attrs *attrs, int nin, const sl_type *in, const sl_type *out, \
                    double *flops, double *bytes) {                                        \
    *flops = attention_flops(attrs, o_, products_);                                        \
    *bytes = sli_argument_bytes(nin, in, nout_, out);                                      \
  }

COST(attention_cost, &out[0], 2, 2)

COST(attention_b_cost, &in[3], 3, 5)

COST(packed_b_cost, &in[1], 1, 5)

const sl_op sl_op_attention = {
    .name = "attention",
    .serve = &(const sl_op_serve){.op = &sl_op_attention_served, .chooses = true},
    .min_in = 3,
    .max_in = 4,
    .nout = 2,
    .narrow = &(const sl_op_narrow){.in = 7, .out = 1, .rounds = true},
    .cut = &(const sl_op_cut){.pieced = &sl_op_attention_piece,
                              .parts = &sl_op_attention_parts,
                              .swept = &sl_op_attention_sweep},
    .infer = sli_attention_infer,
    .cost = attention_cost,
    .shard = &(const sl_op_shard){.signatures = sli_attention_signatures,
                                  .sequence = SL_SEQUENCE_RING,
                                  .heads = SL_HEADS_SEPARATE},
    .grad = {{.op = &sl_op_attention_b,
              .cls = SL_CLASS_B,
              .in = {SL_IN(0), SL_IN(1), SL_IN(2), SL_OUT(0), SL_OUT(1), SL_DOUT(0), SL_INS(3)},
              .nwrt = 3,
              .wrt = {0, 1, 2}}},
};

const sl_op sl_op_attention_b = {
    .name = "attention_b",
    .min_in = 6,
    .max_in = 7,
    .nout = 3,
    .narrow = &(const sl_op_narrow){.in = 0x2f, .out = 7, .rounds = true},
    .infer = attention_b_infer,
    .cost = attention_b_cost,
};

const sl_op sl_op_attention_packed = {
    .name = "attention_packed",
    .serve = &(const sl_op_serve){.op = &sl_op_attention_packed_served, .chooses = true},
    .min_in = 1,
    .max_in = 2,
    .nout = 2,
    .narrow = &(const sl_op_narrow){.in = 1, .out = 1, .rounds = true},
    .cut = &(const sl_op_cut){.pieced = &sl_op_attention_packed_piece,
                              .parts = &sl_op_attention_packed_parts,
                              .swept = &sl_op_attention_sweep},
    .infer = sli_attention_packed_infer,
    .cost = attention_cost,
    .shard = &(const sl_op_shard){.signatures = sli_attention_packed_signatures,
                                  .sequence = SL_SEQUENCE_RING,
                                  .heads = SL_HEADS_PACKED},
    .grad = {{.op = &sl_op_attention_packed_b,
              .cls = SL_CLASS_B,
              .in = {SL_IN(0), SL_OUT(0), SL_OUT(1), SL_DOUT(0), SL_INS(1)},
              .nwrt = 1,
              .wrt = {0}}},
};

const sl_op sl_op_attention_packed_b = {
    .name = "attention_packed_b",
    .min_in = 4,
    .max_in = 5,
    .nout = 1,
    .narrow = &(const sl_op_narrow){.in = 0xb, .out = 1, .rounds = true},
    .infer = packed_b_infer,
    .cost = packed_b_cost,
};
