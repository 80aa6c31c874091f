/* SPDX-License-Identifier: Apache-2.0 */
/* The gated delta rule (Yang et al., arXiv 2412.06464; without gates: Schlag et al., arXiv
 * 2102.11174).
 *
 * A head's state S [dk, dv] maps keys to values. A position decays it, compares the value stored
 * for its key with the value it should have, and corrects it by the fraction b:
 *
 *   S'_t = diag(e^g_t) S_(t-1)     e_t = v_t - k_t S'_t     S_t = S'_t + k_t^T (b_t e_t)
 *   o_t = scale q_t S_t
 *
 * g has a number for the head, or for each channel of the key (Kimi Delta Attention: Kimi Team,
 * arXiv 2510.26692).
 *
 * Kernels follow this recurrence position by position and keep e. With u_t = b_t e_t, S is the
 * state of gated linear attention with values u. In the backward pass, with D_t the gradient of
 * S_t:
 *
 *   D_t = scale q_t^T do_t + diag(e^g_(t+1)) (D_(t+1) - k_(t+1)^T dv_(t+1))
 *   du_t = k_t D_t     dv_t = b_t du_t     db_t = du_t e_t
 *   dq_t = scale S_t do_t     dk_t = D_t u_t - S'_t dv_t
 *   dg_t = sum over s >= t of (q_s dq_s - k_s (D_s u_s + S'_s dv_s)), per channel; for a head with
 *          one gate, of (o_s do_s - v_s dv_s), which is the same summed over channels */
#include "ops/linear_attention.h"
#include "ops/ops.h"

static sl_status want_inputs(const sl_attrs *attrs, const sl_type *in) {
  SLI_TRY(sli_want_array("q", &in[0], SL_F32, 3));
  SLI_TRY(sli_want("k", &in[1], &in[0]));
  SLI_TRY(sli_linear_want(attrs, in));
  return sli_linear_want_rows("b", &in[4], &in[0], attrs->attention.heads);
}

static sl_status infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)nin;
  SLI_TRY(want_inputs(attrs, in));
  out[0] = out[1] = sli_linear_output(attrs, in);
  return SL_OK;
}

static sl_status b_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  SLI_TRY(want_inputs(attrs, in));
  sl_type o = sli_linear_output(attrs, in);
  SLI_TRY(sli_want("o", &in[5], &o));
  SLI_TRY(sli_want("e", &in[6], &o));
  SLI_TRY(sli_want("do", &in[nin - 1], &o));
  for (int i = 0; i < 5; i++) out[i] = in[i];
  return SL_OK;
}

static sl_status piece_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  SLI_TRY(infer(attrs, nin, in, out));
  out[2] = out[3] = sli_linear_state(attrs, in);
  return SL_OK;
}

static sl_status piece_b_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  SLI_TRY(b_infer(attrs, nin, in, out));
  sl_type before = sli_linear_state(attrs, in);
  SLI_TRY(sli_want("state before", &in[7], &before));
  out[5] = sli_linear_carry_type(attrs, in);
  return SL_OK;
}

static sl_status served_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  if (nin != 6) return sl_fail(SL_E_SHAPE, "it has no batch to read");
  SLI_TRY(infer(attrs, 5, in, out));
  SLI_TRY(sli_want_array("batch", &in[5], SL_I32, 1));
  if (attrs->pages.count < 1) return sl_fail(SL_E_SHAPE, "attrs.pages.count must be given");
  out[2] = sli_linear_state(attrs, in);
  out[2].dim[0] = attrs->pages.count;
  return SL_OK;
}

static int signatures(const sl_attrs *attrs, int nin, const sl_type *in, sl_signature *out) {
  (void)attrs, (void)in;
  return sli_linear_signatures(nin, 2, 0, out);
}

static int piece_signatures(const sl_attrs *attrs, int nin, const sl_type *in, sl_signature *out) {
  (void)attrs, (void)in;
  return sli_linear_signatures(nin, 2, 2, out);
}

static void cost(const sl_attrs *attrs, int nin, const sl_type *in, const sl_type *out,
                 double *flops, double *bytes) {
  (void)nin, (void)out;
  sli_linear_cost(attrs, in, 2, flops, bytes);
}

static void b_cost(const sl_attrs *attrs, int nin, const sl_type *in, const sl_type *out,
                   double *flops, double *bytes) {
  (void)nin, (void)out;
  sli_linear_cost(attrs, in, 5, flops, bytes);
}

static const sl_op_serve serving = {.op = &sl_op_delta_rule_served, .slots = true};

const sl_op sl_op_delta_rule = {
    .name = "delta_rule",
    .attrs = {&sl_attrs_attention},
    .serve = &serving,
    .min_in = 5,
    .max_in = 5,
    .nout = 2,
    .cut = &(const sl_op_cut){.pieced = &sl_op_delta_rule_piece},
    .infer = infer,
    .cost = cost,
    .shard = &(const sl_op_shard){.signatures = signatures},
    .grad = {{.op = &sl_op_delta_rule_b,
              .cls = SL_CLASS_B,
              .in = {SL_IN(0), SL_IN(1), SL_IN(2), SL_IN(3), SL_IN(4), SL_OUT(0), SL_OUT(1),
                     SL_DOUT(0)},
              .nwrt = 5,
              .wrt = {0, 1, 2, 3, 4}}},
};

const sl_op sl_op_delta_rule_b = {
    .name = "delta_rule_b",
    .attrs = {&sl_attrs_attention},
    .min_in = 8,
    .max_in = 8,
    .nout = 5,
    .infer = b_infer,
    .cost = b_cost,
};

const sl_op sl_op_delta_rule_piece = {
    .name = "delta_rule_piece",
    .attrs = {&sl_attrs_attention},
    .min_in = 5,
    .max_in = 5,
    .nout = 4,
    .cut = &(const sl_op_cut){.pieces = SL_PIECES_STATE},
    .memory = &(const sl_op_memory){.updates = 8},
    .infer = piece_infer,
    .cost = cost,
    .shard = &(const sl_op_shard){.signatures = piece_signatures},
    .grad = {{.op = &sl_op_delta_rule_piece_b,
              .cls = SL_CLASS_B,
              .in = {SL_IN(0), SL_IN(1), SL_IN(2), SL_IN(3), SL_IN(4), SL_OUT(0), SL_OUT(1),
                     SL_OUT(2), SL_DOUT(0)},
              .nwrt = 5,
              .wrt = {0, 1, 2, 3, 4}}},
};

const sl_op sl_op_delta_rule_piece_b = {
    .name = "delta_rule_piece_b",
    .attrs = {&sl_attrs_attention},
    .min_in = 9,
    .max_in = 9,
    .nout = 6,
    .cut = &(const sl_op_cut){.pieces = SL_PIECES_STATE},
    .memory = &(const sl_op_memory){.updates = 32},
    .infer = piece_b_infer,
    .cost = b_cost,
};

const sl_op sl_op_delta_rule_served = {
    .name = "delta_rule_served",
    .attrs = {&sl_attrs_attention},
    .min_in = 6,
    .max_in = 6,
    .nout = 3,
    .memory = &(const sl_op_memory){.updates = 4},
    .serve = &serving,
    .infer = served_infer,
    .rows = &(const sl_op_rows){.looks = 31, .follows = 3},
};
