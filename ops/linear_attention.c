/* SPDX-License-Identifier: Apache-2.0 */
/* Gated linear attention (Katharopoulos et al., arXiv 2006.16236; gates: Yang et al., arXiv
 * 2312.06635).
 *
 * A head has a state S [dk, dv] instead of keys and values of all positions:
 *
 *   S_t = diag(e^g_t) S_(t-1) + k_t^T v_t        o_t = scale q_t S_t
 *
 * Kernels follow this recurrence position by position, in training, in pieces and in serving, so a
 * row has the same bits in all of them. A piece reads the state that the previous piece left, and
 * keeps it for its backward pass. There the gradient of the state passes back from piece to piece:
 *
 *   D_t = scale q_t^T do_t + diag(e^g_(t+1)) D_(t+1)
 *   dq_t = scale S_t do_t     dk_t = D_t v_t     dv_t = D_t^T k_t
 *   dg_t = sum over s >= t of (q_s dq_s - k_s dk_s), per channel; for a head with one gate,
 *          of (o_s do_s - v_s dv_s), which is the same summed over channels */
#include "ops/linear_attention.h"
#include "ops/ops.h"
#include "ops/attention_shape.h"

/* ---- shapes -------------------------------------------------------------------------------- */

sl_status sli_linear_want_rows(const char *name, const sl_type *type, const sl_type *q,
                               int64_t width) {
  sl_type want = SL_TYPE(SL_F32, q->dim[0], q->dim[1], width);
  return sli_want(name, type, &want);
}

static sl_status want_heads(const sl_attrs *attrs, const sl_type *in) {
  static const char *const names[] = {"q", "k", "v"};
  for (int i = 0; i < 3; i++) SLI_TRY(sli_want_array(names[i], &in[i], SL_F32, 3));
  int64_t heads = attrs->attention.heads,
          few = attrs->attention.kv_heads ? attrs->attention.kv_heads : heads;
  bool shared = few != heads && in[0].dim[2] == in[1].dim[2];
  if (heads < 1 || heads % few || in[0].dim[2] % (shared ? few : heads) ||
      in[2].dim[2] % (shared ? heads : few))
    return sl_fail(
        SL_E_SHAPE,
        "%lld heads and %lld key heads (attrs.attention.heads, attrs.attention.kv_heads) must divide %lld numbers of "
        "queries and %lld of values",
        (long long)heads, (long long)few, (long long)in[0].dim[2], (long long)in[2].dim[2]);
  return SL_OK;
}

sl_status sli_linear_want(const sl_attrs *attrs, const sl_type *in) {
  SLI_TRY(want_heads(attrs, in));
  SLI_TRY(sli_want_array("gates", &in[3], SL_F32, 3));
  sli_linear_shape s = sli_linear_shape_of(attrs, in);
  if (s.dk > SLI_MAX_STATE_DIM || s.dv > SLI_MAX_HEAD_DIM)
    return sl_fail(SL_E_SHAPE, "heads of %lld keys and %lld values: at most %d are supported",
                   (long long)s.dk, (long long)s.dv, SLI_MAX_STATE_DIM);
  SLI_TRY(sli_linear_want_rows("k", &in[1], &in[0], s.k_heads * s.dk));
  SLI_TRY(sli_linear_want_rows("v", &in[2], &in[0], s.v_heads * s.dv));
  bool per_head = s.q_heads < s.heads || in[3].dim[2] == s.v_heads;
  return sli_linear_want_rows("gates", &in[3], &in[0], s.v_heads * (per_head ? 1 : s.dk));
}

sl_type sli_linear_output(const sl_attrs *attrs, const sl_type *in) {
  sli_linear_shape s = sli_linear_shape_of(attrs, in);
  return sli_type_with_last(&in[0], s.heads * s.dv);
}

sl_type sli_linear_state(const sl_attrs *attrs, const sl_type *in) {
  sli_linear_shape s = sli_linear_shape_of(attrs, in);
  return SL_TYPE(SL_F32, s.batch, s.v_heads, s.dk * s.dv);
}

/* Words, not numbers, since f32 and f64 sums share the record: checks of numbers leave it out. */
sl_type sli_linear_carry_type(const sl_attrs *attrs, const sl_type *in) {
  sli_linear_shape s = sli_linear_shape_of(attrs, in);
  return SL_TYPE(SL_I32, s.batch, sli_linear_carry(&s));
}

static sl_status infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)nin;
  SLI_TRY(sli_linear_want(attrs, in));
  out[0] = sli_linear_output(attrs, in);
  return SL_OK;
}

static sl_status b_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  SLI_TRY(sli_linear_want(attrs, in));
  sl_type o = sli_linear_output(attrs, in);
  SLI_TRY(sli_want("o", &in[4], &o));
  SLI_TRY(sli_want("do", &in[nin - 1], &o));
  for (int i = 0; i < 4; i++) out[i] = in[i];
  return SL_OK;
}

static sl_status piece_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  SLI_TRY(infer(attrs, nin, in, out));
  out[1] = out[2] = sli_linear_state(attrs, in);
  return SL_OK;
}

static sl_status piece_b_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  SLI_TRY(b_infer(attrs, nin, in, out));
  sl_type before = sli_linear_state(attrs, in);
  SLI_TRY(sli_want("state before", &in[5], &before));
  out[4] = sli_linear_carry_type(attrs, in);
  return SL_OK;
}

static sl_status served_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  if (nin != 5) return sl_fail(SL_E_SHAPE, "it has no batch to read");
  SLI_TRY(infer(attrs, 4, in, out));
  SLI_TRY(sli_want_array("batch", &in[4], SL_I32, 1));
  if (attrs->pages.count < 1) return sl_fail(SL_E_SHAPE, "attrs.pages.count must be given");
  out[1] = sli_linear_state(attrs, in);
  out[1].dim[0] = attrs->pages.count;
  return SL_OK;
}

/* ---- signatures, cost ---------------------------------------------------------------------- */

int sli_linear_signatures(int nin, int nout, int nstates, sl_signature *out) {
  out[0] = out[1] = (sl_signature){.in = {{0}}};
  out[1].heads = true;
  for (int i = 0; i < nin; i++) out[0].in[i] = sli_split(0), out[1].in[i] = sli_split(2);
  for (int o = 0; o < nout + nstates; o++)
    out[0].out[o] = sli_split(0), out[1].out[o] = sli_split(o < nout ? 2 : 1);
  return 2;
}

static int signatures(const sl_attrs *attrs, int nin, const sl_type *in, sl_signature *out) {
  (void)attrs, (void)in;
  return sli_linear_signatures(nin, 1, 0, out);
}

static int piece_signatures(const sl_attrs *attrs, int nin, const sl_type *in, sl_signature *out) {
  (void)attrs, (void)in;
  return sli_linear_signatures(nin, 1, 2, out);
}

void sli_linear_cost(const sl_attrs *attrs, const sl_type *in, int sweeps, double *flops,
                     double *bytes) {
  sli_linear_shape s = sli_linear_shape_of(attrs, in);
  double rows = (double)s.batch * (double)s.positions;
  *flops = sweeps * rows * (double)s.heads * (double)(s.dk * s.dv) * 5;
  *bytes = sweeps * rows * (double)(3 * s.heads * (s.dk + s.dv)) * (double)sizeof(float);
}

static void cost(const sl_attrs *attrs, int nin, const sl_type *in, const sl_type *out,
                 double *flops, double *bytes) {
  (void)nin, (void)out;
  sli_linear_cost(attrs, in, 1, flops, bytes);
}

static void b_cost(const sl_attrs *attrs, int nin, const sl_type *in, const sl_type *out,
                   double *flops, double *bytes) {
  (void)nin, (void)out;
  sli_linear_cost(attrs, in, 3, flops, bytes);
}

/* ---- ops ----------------------------------------------------------------------------------- */

static const sl_op_serve serving = {.op = &sl_op_linear_attention_served, .slots = true};

const sl_op sl_op_linear_attention = {
    .name = "linear_attention",
    .attrs = {&sl_attrs_attention},
    .serve = &serving,
    .min_in = 4,
    .max_in = 4,
    .nout = 1,
    .cut = &(const sl_op_cut){.pieced = &sl_op_linear_attention_piece},
    .infer = infer,
    .cost = cost,
    .shard = &(const sl_op_shard){.signatures = signatures, .sequence = SL_SEQUENCE_STATES},
    .grad = {{.op = &sl_op_linear_attention_b,
              .cls = SL_CLASS_B,
              .in = {SL_IN(0), SL_IN(1), SL_IN(2), SL_IN(3), SL_OUT(0), SL_DOUT(0)},
              .nwrt = 4,
              .wrt = {0, 1, 2, 3}}},
};

const sl_op sl_op_linear_attention_b = {
    .name = "linear_attention_b",
    .attrs = {&sl_attrs_attention},
    .min_in = 6,
    .max_in = 6,
    .nout = 4,
    .infer = b_infer,
    .cost = b_cost,
};

const sl_op sl_op_linear_attention_piece = {
    .name = "linear_attention_piece",
    .attrs = {&sl_attrs_attention},
    .min_in = 4,
    .max_in = 4,
    .nout = 3,
    .cut = &(const sl_op_cut){.pieces = SL_PIECES_STATE},
    .memory = &(const sl_op_memory){.updates = 4},
    .infer = piece_infer,
    .cost = cost,
    .shard = &(const sl_op_shard){.signatures = piece_signatures, .sequence = SL_SEQUENCE_STATES},
    .grad = {{.op = &sl_op_linear_attention_piece_b,
              .cls = SL_CLASS_B,
              .in = {SL_IN(0), SL_IN(1), SL_IN(2), SL_IN(3), SL_OUT(0), SL_OUT(1), SL_DOUT(0)},
              .nwrt = 4,
              .wrt = {0, 1, 2, 3}}},
};

const sl_op sl_op_linear_attention_piece_b = {
    .name = "linear_attention_piece_b",
    .attrs = {&sl_attrs_attention},
    .min_in = 7,
    .max_in = 7,
    .nout = 5,
    .cut = &(const sl_op_cut){.pieces = SL_PIECES_STATE},
    .memory = &(const sl_op_memory){.updates = 16},
    .infer = piece_b_infer,
    .cost = b_cost,
};

const sl_op sl_op_linear_attention_served = {
    .name = "linear_attention_served",
    .attrs = {&sl_attrs_attention},
    .min_in = 5,
    .max_in = 5,
    .nout = 2,
    .memory = &(const sl_op_memory){.updates = 2},
    .serve = &serving,
    .infer = served_infer,
    .cost = cost,
    .rows = &(const sl_op_rows){.looks = 15, .follows = 1},
};
