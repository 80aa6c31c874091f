/* SPDX-License-Identifier: Apache-2.0 */
/* Gated linear attention on devices that share the positions of a sequence, by an exchange of
 * states (LASP-2: Sun et al., arXiv 2502.07563; here with gates).
 *
 * Device c walks its own positions from a zero state, which gives M_c, and multiplies their gates,
 * which gives G_c. Both depend on no other device, and the other devices need nothing more:
 *
 *   S_in(c) = sum over j < c of (product over j < i < c of G_i) M_j
 *
 * Device c then walks its positions from S_in(c), which gives o. The gradient D of the state goes
 * the other way. N_c is the gradient of S_in(c) from device c's own use of the state:
 *
 *   D_out(c) = sum over j > c of (product over c < i < j of G_i) N_j
 *
 * The gradient of a gate sums over all later positions (linear_attention.c). The positions of other
 * devices add the sum of S_out D_out, over the numbers of the state that the gate multiplies.
 *
 * If sequences are also cut into pieces, each device receives all records and keeps the state at
 * the end of a piece. */
#include "ops/linear_attention.h"
#include "ops/ops.h"

/* ---- shapes -------------------------------------------------------------------------------- */

static sl_type record_type(const sl_attrs *attrs, const sl_type *in) {
  sli_linear_shape s = sli_linear_shape_of(attrs, in);
  return SL_TYPE(SL_F32, s.batch, s.v_heads, s.dk * s.dv + sli_linear_gap(&s));
}

static sl_status share_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)nin;
  SLI_TRY(sli_linear_want(attrs, in));
  out[0] = record_type(attrs, in);
  return SL_OK;
}

static sl_status share_b_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  SLI_TRY(share_infer(attrs, nin, in, out));
  sl_type o = sli_linear_output(attrs, in);
  return sli_want("do", &in[4], &o);
}

static int join_outputs(const sl_attrs *attrs, int nin) {
  (void)nin;
  return attrs->place.length ? 2 : 1;
}

static sl_status join_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  SLI_TRY(sli_want_array("record", &in[0], SL_F32, 3));
  for (int i = 1; i < nin; i++) SLI_TRY(sli_want("record", &in[i], &in[0]));
  if (attrs->states.gates < 1 || attrs->states.gates >= in[0].dim[2] ||
      (in[0].dim[2] - attrs->states.gates) % attrs->states.gates)
    return sl_fail(SL_E_SHAPE,
                   "a state of %lld numbers cannot have %lld gates (attrs.states.gates)",
                   (long long)in[0].dim[2], (long long)attrs->states.gates);
  if (attrs->states.before < 0 || attrs->states.before > nin)
    return sl_fail(SL_E_SHAPE, "record %lld of %d (attrs.states.before) does not exist",
                   (long long)attrs->states.before, nin);
  for (int o = 0; o < join_outputs(attrs, nin); o++)
    out[o] = sli_type_with_last(&in[0], in[0].dim[2] - attrs->states.gates);
  return SL_OK;
}

static sl_status step_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)nin;
  SLI_TRY(sli_linear_want(attrs, in));
  sl_type state = sli_linear_state(attrs, in);
  SLI_TRY(sli_want("state before", &in[4], &state));
  out[0] = sli_linear_output(attrs, in);
  return SL_OK;
}

static sl_status step_b_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)nin;
  SLI_TRY(sli_linear_want(attrs, in));
  sl_type o = sli_linear_output(attrs, in), state = sli_linear_state(attrs, in);
  SLI_TRY(sli_want("o", &in[4], &o));
  SLI_TRY(sli_want("state before", &in[5], &state));
  SLI_TRY(sli_want("do", &in[6], &o));
  SLI_TRY(sli_want("gradient of the state behind", &in[7], &state));
  for (int i = 0; i < 4; i++) out[i] = in[i];
  return SL_OK;
}

/* ---- cost ---------------------------------------------------------------------------------- */

/* Cost of a walk without a result at each position: half of the products. */
static void share_cost(const sl_attrs *attrs, int nin, const sl_type *in, const sl_type *out,
                       double *flops, double *bytes) {
  sli_linear_shape s = sli_linear_shape_of(attrs, in);
  double rows = (double)s.batch * (double)s.positions;
  *flops = rows * (double)s.v_heads * (double)(s.dk * s.dv) * 3;
  *bytes = sli_argument_bytes(nin, in, 1, out);
}

static void share_b_cost(const sl_attrs *attrs, int nin, const sl_type *in, const sl_type *out,
                         double *flops, double *bytes) {
  sli_linear_shape s = sli_linear_shape_of(attrs, in);
  share_cost(attrs, nin, in, out, flops, bytes);
  *flops *= (double)s.heads / (double)s.v_heads;
}

SLI_COST(join_cost, 0, 1, 2.0 * nin)

static void step_cost(const sl_attrs *attrs, int nin, const sl_type *in, const sl_type *out,
                      double *flops, double *bytes) {
  (void)nin, (void)out;
  sli_linear_cost(attrs, in, 1, flops, bytes);
}

static void step_b_cost(const sl_attrs *attrs, int nin, const sl_type *in, const sl_type *out,
                        double *flops, double *bytes) {
  (void)nin, (void)out;
  sli_linear_cost(attrs, in, 3, flops, bytes);
}

/* ---- ops ----------------------------------------------------------------------------------- */

const sl_op sl_op_linear_attention_share = {
    .name = "linear_attention_share",
    .attrs = {&sl_attrs_attention},
    .min_in = 4,
    .max_in = 4,
    .nout = 1,
    .memory = &(const sl_op_memory){.unread = 1},
    .infer = share_infer,
    .cost = share_cost,
};

const sl_op sl_op_linear_attention_share_b = {
    .name = "linear_attention_share_b",
    .attrs = {&sl_attrs_attention},
    .min_in = 5,
    .max_in = 5,
    .nout = 1,
    .memory = &(const sl_op_memory){.unread = 6},
    .infer = share_b_infer,
    .cost = share_b_cost,
};

const sl_op sl_op_linear_attention_join = {
    .name = "linear_attention_join",
    .attrs = {&sl_attrs_states},
    .min_in = 1,
    .max_in = -1,
    .nout = -1,
    .outputs = join_outputs,
    .memory = &(const sl_op_memory){.updates = 2},
    .infer = join_infer,
    .cost = join_cost,
};

const sl_op sl_op_linear_attention_step = {
    .name = "linear_attention_step",
    .attrs = {&sl_attrs_attention},
    .min_in = 5,
    .max_in = 5,
    .nout = 1,
    .infer = step_infer,
    .cost = step_cost,
};

const sl_op sl_op_linear_attention_step_b = {
    .name = "linear_attention_step_b",
    .attrs = {&sl_attrs_attention},
    .min_in = 8,
    .max_in = 8,
    .nout = 4,
    .infer = step_b_infer,
    .cost = step_b_cost,
};
