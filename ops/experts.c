/* SPDX-License-Identifier: Apache-2.0 */
/* Ops around the experts' linear maps: combine merges the outputs of a token's experts; the
 * capacity limit drops the ids that exceed an expert's capacity. */
#include "ops/ops.h"

/* ---- shapes ------------------------------------------------------------------------------ */

static sl_status combine_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)attrs, (void)nin;
  SLI_TRY(sli_want_array("y", &in[0], SL_F32, -1));
  if (in[0].ndim < 2) return sli_misfit(&in[0], "y must be f32[..., k, n]");
  sl_type weights = sli_type_without_last(&in[0], SL_F32);
  SLI_TRY(sli_want("weights", &in[1], &weights));
  out[0] = sli_type_with_last(&weights, sl_type_last(&in[0]));
  return SL_OK;
}

static sl_status combine_b_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  sl_type whole;
  SLI_TRY(combine_infer(attrs, nin, in, &whole));
  SLI_TRY(sli_want("dy", &in[2], &whole));
  out[0] = in[0];
  out[1] = in[1];
  return SL_OK;
}

/* Splits by tokens, columns or a token's terms; a partial sum stays partial. */
static int combine_signatures(const sl_attrs *attrs, int nin, const sl_type *in,
                              sl_signature *out) {
  int last = in[0].ndim - 1, n = 0;
  (void)attrs, (void)nin;
  for (int d = 0; d + 1 < last; d++)
    out[n++] = (sl_signature){.in = {sli_split(d), sli_split(d)}, .out = {sli_split(d)}};
  out[n++] = (sl_signature){.in = {sli_split(last)}, .out = {sli_split(last - 1)}};
  out[n++] =
      (sl_signature){.in = {sli_split(last - 1), sli_split(last - 1)}, .out = {sli_partial()}};
  out[n++] = (sl_signature){.in = {sli_partial()}, .out = {sli_partial()}};
  return n;
}

SLI_COST(combine_cost, 0, 1, 2)

SLI_COST(combine_b_cost, 0, 2, 3)

/* ---- capacity -------------------------------------------------------------------------------- */

static sl_status limit_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)nin;
  SLI_TRY(sli_want_array("ids", &in[0], SL_I32, -1));
  sl_type weights = in[0];
  weights.dtype = SL_F32;
  SLI_TRY(sli_want("weights", &in[1], &weights));
  if (attrs->experts.count < 1 || !(attrs->experts.factor > 0))
    return sl_fail(SL_E_SHAPE, "attrs.experts.count and attrs.experts.factor must be given");
  out[0] = in[0];
  return SL_OK;
}

static int limit_signatures(const sl_attrs *attrs, int nin, const sl_type *in, sl_signature *out) {
  (void)attrs, (void)nin;
  for (int d = 0; d + 1 < in[0].ndim; d++)
    out[d] = (sl_signature){.in = {sli_split(d), sli_split(d)}, .out = {sli_split(d)}};
  return in[0].ndim - 1;
}

/* ---- ops ------------------------------------------------------------------------------------- */

const sl_op sl_op_combine = {
    .name = "combine",
    .min_in = 2,
    .max_in = 2,
    .nout = 1,
    .cut = &(const sl_op_cut){.pieces = SL_PIECES_SIGNATURES, .along = SL_ALONG_AXIS},
    .shard = &(const sl_op_shard){.signatures = combine_signatures},
    .narrow = &(const sl_op_narrow){.in = 1, .out = 1},
    .infer = combine_infer,
    .cost = combine_cost,
    .grad = {{.op = &sl_op_combine_b,
              .cls = SL_CLASS_B,
              .in = {SL_IN(0), SL_IN(1), SL_DOUT(0)},
              .nwrt = 2,
              .wrt = {0, 1}}},
};

const sl_op sl_op_combine_b = {
    .name = "combine_b",
    .min_in = 3,
    .max_in = 3,
    .nout = 2,
    .cut = &(const sl_op_cut){.pieces = SL_PIECES_SIGNATURES},
    .narrow = &(const sl_op_narrow){.in = 5, .out = 1},
    .infer = combine_b_infer,
    .cost = combine_b_cost,
};

const sl_op sl_op_expert_limit = {
    .name = "expert_limit",
    .attrs = {&sl_attrs_experts},
    .min_in = 2,
    .max_in = 2,
    .nout = 1,
    .cut = &(const sl_op_cut){.pieces = SL_PIECES_SIGNATURES},
    .shard = &(const sl_op_shard){.signatures = limit_signatures},
    .infer = limit_infer,
};
