/* SPDX-License-Identifier: Apache-2.0 */
/* Attention with sinks, by the kernels of plain attention.
 *
 * In a row's sum, a sink s counts as a key with score s and value 0. With the lse of all scores and
 * the sink, the gradients of queries, keys and values are those of plain attention, and the
 * gradient of the sink is -e^(s - lse) dO . O. */
#include <sluice/attention.h>

#include "ops/attention_shape.h"
#include "ops/ops.h"

/* in: q, k, v, sinks, o, lse, do, [ids] */
static sl_status b_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  sl_type forward[2];
  SLI_TRY(sli_attention_sinks_infer(attrs, 4, in, forward));
  if (nin > 7) SLI_TRY(sli_want_ids(&in[7], &in[0]));
  SLI_TRY(sli_want("o", &in[4], &forward[0]));
  SLI_TRY(sli_want("lse", &in[5], &forward[1]));
  SLI_TRY(sli_want("do", &in[6], &forward[0]));
  for (int i = 0; i < 3; i++) out[i] = in[i];
  out[3] = sli_type_with_last(&in[0], attrs->heads);
  return SL_OK;
}

static void cost_of(const sl_attrs *attrs, const sl_type *o, int products, double *flops) {
  *flops = products * (double)sl_type_elements(o) * sli_mask_pairs(attrs, o->dim[1]);
}

static void cost(const sl_attrs *attrs, int nin, const sl_type *in, const sl_type *out,
                 double *flops, double *bytes) {
  cost_of(attrs, &out[0], 2, flops);
  *bytes = sli_argument_bytes(nin, in, 2, out);
}

static void b_cost(const sl_attrs *attrs, int nin, const sl_type *in, const sl_type *out,
                   double *flops, double *bytes) {
  cost_of(attrs, &in[4], 5, flops);
  *bytes = sli_argument_bytes(nin, in, 4, out);
}

/* Splits by sequences or by heads. */
static int signatures(const sl_attrs *attrs, int nin, const sl_type *in, sl_signature *out) {
  (void)attrs, (void)in;
  out[0] = (sl_signature){.out = {sli_split(0), sli_split(0)}};
  out[1] = (sl_signature){.out = {sli_split(2), sli_split(1)}, .heads = true};
  for (int i = 0; i < nin; i++) out[0].in[i] = sli_split(0);
  for (int i = 0; i < 4; i++) out[1].in[i] = sli_split(2);
  return 2;
}

const sl_op sl_op_attention_sinks = {
    .name = "attention_sinks",
    .serve = &(const sl_op_serve){.op = &sl_op_attention_sinks_served, .chooses = true},
    .min_in = 4,
    .max_in = 5,
    .nout = 2,
    .narrow = &(const sl_op_narrow){.rounds = true},
    .infer = sli_attention_sinks_infer,
    .cost = cost,
    .shard = &(const sl_op_shard){.signatures = signatures},
    .grad = {{.op = &sl_op_attention_sinks_b,
              .cls = SL_CLASS_B,
              .in = {SL_IN(0), SL_IN(1), SL_IN(2), SL_IN(3), SL_OUT(0), SL_OUT(1), SL_DOUT(0),
                     SL_INS(4)},
              .nwrt = 4,
              .wrt = {0, 1, 2, 3}}},
};

const sl_op sl_op_attention_sinks_b = {
    .name = "attention_sinks_b",
    .min_in = 7,
    .max_in = 8,
    .nout = 4,
    .narrow = &(const sl_op_narrow){.rounds = true},
    .infer = b_infer,
    .cost = b_cost,
};
