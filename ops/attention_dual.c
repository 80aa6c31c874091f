/* SPDX-License-Identifier: Apache-2.0 */
/* Dual-chunk attention (An et al., arXiv 2402.17463), by the kernels of plain attention.
 *
 * Keys are rotated by their position within their chunk. Queries come in three forms, rotated for
 * the keys of their own chunk, of the previous chunk, and of all chunks before that (ops/rope.c). A
 * tile of keys is inside one chunk, so it meets one form of each query; the softmax covers all
 * tiles. */
#include <sluice/attention.h>

#include "ops/attention_shape.h"
#include "ops/ops.h"

/* in: q, k, v, next, far, o, lse, do */
static sl_status b_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  sl_type forward[2];
  SLI_TRY(sli_attention_dual_infer(attrs, nin, in, forward));
  SLI_TRY(sli_want("o", &in[5], &forward[0]));
  SLI_TRY(sli_want("lse", &in[6], &forward[1]));
  SLI_TRY(sli_want("do", &in[7], &forward[0]));
  for (int i = 0; i < 5; i++) out[i] = in[i];
  return SL_OK;
}

static double flops_of(const sl_attrs *attrs, const sl_type *o, int products) {
  return products * (double)sl_type_elements(o) * sli_mask_pairs(attrs, o->dim[1]);
}

static void cost(const sl_attrs *attrs, int nin, const sl_type *in, const sl_type *out,
                 double *flops, double *bytes) {
  *flops = flops_of(attrs, &out[0], 2);
  *bytes = sli_argument_bytes(nin, in, 2, out);
}

static void b_cost(const sl_attrs *attrs, int nin, const sl_type *in, const sl_type *out,
                   double *flops, double *bytes) {
  *flops = flops_of(attrs, &in[5], 5);
  *bytes = sli_argument_bytes(nin, in, 5, out);
}

/* Splits by sequences or by heads. */
static int signatures(const sl_attrs *attrs, int nin, const sl_type *in, sl_signature *out) {
  (void)attrs, (void)in;
  out[0] = (sl_signature){.out = {sli_split(0), sli_split(0)}};
  out[1] = (sl_signature){.out = {sli_split(2), sli_split(1)}, .heads = true};
  for (int i = 0; i < nin; i++) out[0].in[i] = sli_split(0), out[1].in[i] = sli_split(2);
  return 2;
}

const sl_op sl_op_attention_dual = {
    .name = "attention_dual",
    .serve = &(const sl_op_serve){.op = &sl_op_attention_dual_served, .chooses = true},
    .min_in = 5,
    .max_in = 5,
    .nout = 2,
    .narrow = &(const sl_op_narrow){.rounds = true},
    .infer = sli_attention_dual_infer,
    .cost = cost,
    .shard = &(const sl_op_shard){.signatures = signatures},
    .grad = {{.op = &sl_op_attention_dual_b,
              .cls = SL_CLASS_B,
              .in = {SL_IN(0), SL_IN(1), SL_IN(2), SL_IN(3), SL_IN(4), SL_OUT(0), SL_OUT(1),
                     SL_DOUT(0)},
              .nwrt = 5,
              .wrt = {0, 1, 2, 3, 4}}},
};

const sl_op sl_op_attention_dual_b = {
    .name = "attention_dual_b",
    .min_in = 8,
    .max_in = 8,
    .nout = 5,
    .narrow = &(const sl_op_narrow){.rounds = true},
    .infer = b_infer,
    .cost = b_cost,
};
