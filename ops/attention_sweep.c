/* Rows of attention over one piece of a sequence whose keys and values come piece by piece, after Yao
 * et al., arXiv 2408.16978.
 *
 * A call has a piece of queries and one piece of keys and values: of queries k, call by call, those of
 * piece 0, 1, ... up to their own. So nobody has to have the keys of a whole sequence at once. What the
 * queries have seen so far is in the outputs: sums that are not yet divided in o, the largest score
 * and the sum in `seen`, and keys of a tile that is not whole yet in `tail`. Tiles are those of the
 * whole sequence, so all bits are those of calls that have all keys at once (attention_piece.c).
 *
 * On the way back the queries come with the last piece first, and again the keys from the first one on.
 * dq grows from call to call. What queries send to the keys before them grows in dkv, which is
 * of all positions; the last call of a piece finds its own rows of it complete.
 *
 * Which piece of keys comes next, a call leaves for the next one in a row more of `tail` and dkv. */
#include "ops/attention_shape.h"
#include "ops/attention_sweep.h"
#include "ops/ops.h"

/* ---- shapes ------------------------------------------------------------------------------ */

/* Of keys and values for queries like q. */
static sl_type kv_type(const sl_attrs *attrs, const sl_type *q) {
  return sli_type_with_last(q, 2 * sli_kv_heads(attrs) * sli_attention_sweep_dim(attrs, q));
}

static sl_type with_rows(sl_type type, int64_t rows) {
  type.dim[1] = rows;
  return type;
}

static sl_status parts_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  sl_type forward[2];
  SLI_TRY(sli_attention_infer(attrs, nin, in, forward));
  out[0] = in[0];
  out[1] = kv_type(attrs, &in[0]);
  return SL_OK;
}

static sl_status packed_parts_infer(const sl_attrs *attrs, int nin, const sl_type *in,
                                    sl_type *out) {
  sl_type forward[2];
  SLI_TRY(sli_attention_packed_infer(attrs, nin, in, forward));
  out[0] = forward[0];
  out[1] = kv_type(attrs, &forward[0]);
  return SL_OK;
}

/* in: of q, of kv, of the same positions. */
static sl_status want_parts(const sl_attrs *attrs, const sl_type *in) {
  SLI_TRY(sli_want_share(attrs, &in[0], &in[1]));
  sl_type kv = with_rows(in[1], in[0].dim[1]);
  return sli_want("kv", &in[1], &kv);
}

static sl_status parts_b_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)nin;
  SLI_TRY(want_parts(attrs, in));
  out[0] = in[0];
  out[1] = out[2] = sli_type_with_last(&in[0], in[1].dim[2] / 2);
  return SL_OK;
}

static sl_status packed_parts_b_infer(const sl_attrs *attrs, int nin, const sl_type *in,
                                      sl_type *out) {
  (void)nin;
  SLI_TRY(want_parts(attrs, in));
  out[0] = sli_type_with_last(&in[0], in[0].dim[2] + in[1].dim[2]);
  return SL_OK;
}

static sl_type ids_type(const sl_attrs *attrs, const sl_type *q) {
  return SL_TYPE(SL_I32, q->dim[0], attrs->length);
}

static int sweep_outputs(const sl_attrs *attrs, int nin) {
  (void)attrs;
  return nin > 2 ? 5 : 4;
}

enum { SEEN = 4 }; /* numbers of a query and head: two here, a sum for each of four lanes on GPUs */

static sl_status sweep_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  SLI_TRY(sli_want_share(attrs, &in[0], &in[1]));
  if (attrs->full)
    return sl_fail(SL_E_SHAPE, "queries see the keys behind them (attrs.full), which are in pieces"
                   " that are yet to come");
  if (in[1].dim[1] > attrs->length)
    return sli_misfit(&in[1], "a piece has at most the %lld positions of its sequence",
                      (long long)attrs->length);
  if (nin > 2) SLI_TRY(sli_want_ids(&in[2], &in[1]));
  out[0] = in[0];
  out[1] = SL_TYPE(SL_F32, in[0].dim[0], attrs->heads, in[0].dim[1]);
  out[2] = with_rows(in[1], SLI_KEY_TILE + 1);
  out[3] = SL_TYPE(SL_F32, in[0].dim[0], attrs->heads, SEEN * in[0].dim[1]);
  if (nin > 2) out[4] = ids_type(attrs, &in[0]);
  return SL_OK;
}

/* in: q, kv, o, lse, do, [ids of all] */
static sl_status sweep_b_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  sl_type forward[4], ids = ids_type(attrs, &in[0]);
  SLI_TRY(sweep_infer(attrs, 2, in, forward));
  SLI_TRY(sli_want("o", &in[2], &forward[0]));
  SLI_TRY(sli_want("lse", &in[3], &forward[1]));
  SLI_TRY(sli_want("do", &in[4], &forward[0]));
  if (nin > 5) SLI_TRY(sli_want("ids", &in[5], &ids));
  out[0] = in[0];
  out[1] = in[1];
  out[2] = with_rows(in[1], attrs->length + 1);
  return SL_OK;
}

/* ---- sharing out --------------------------------------------------------------------------- */

/* Sequences or heads, as whole sequences' rows say. */
static int shares(int nin, int arrays, int nout, sl_signature *out) {
  out[0] = out[1] = (sl_signature){.in = {{0}}};
  out[1].heads = true;
  for (int i = 0; i < nin; i++) out[0].in[i] = sli_split(0);
  for (int i = 0; i < arrays; i++) out[1].in[i] = sli_split(2);
  for (int o = 0; o < nout; o++) out[0].out[o] = sli_split(0), out[1].out[o] = sli_split(2);
  return 2;
}

/* Or positions. */
static int parts_signatures(const sl_attrs *attrs, int nin, const sl_type *in, sl_signature *out) {
  (void)attrs, (void)in;
  int n = shares(nin, nin, 2, out);
  out[n] = (sl_signature){.out = {sli_split(1), sli_split(1)}};
  for (int i = 0; i < nin; i++) out[n].in[i] = sli_split(1);
  return n + 1;
}

static int sweep_signatures(const sl_attrs *attrs, int nin, const sl_type *in, sl_signature *out) {
  (void)in;
  int n = shares(nin, 2, sweep_outputs(attrs, nin), out);
  out[1].out[1] = out[1].out[3] = sli_split(1);
  if (nin > 2) out[1].out[4] = (sl_sbp){0};
  return n;
}

/* ---- cost ---------------------------------------------------------------------------------- */

/* Of one of as many calls as a microbatch has: all together cost what the whole does. */
static void cost(const sl_call_cut *cut, const sl_attrs *attrs, const sl_type *o, int products,
                 double *flops, double *bytes) {
  double share = cut ? 2.0 / (cut->pieces + 1) : 1;
  *flops = share * products * (double)sl_type_elements(o) * sli_sight_pairs(attrs, attrs->length);
  *bytes = share * products * 2 * (double)sl_type_bytes(o);
}

static void sweep_cost(const sl_attrs *attrs, int nin, const sl_type *in, const sl_type *out,
                       double *flops, double *bytes) {
  (void)nin, (void)in;
  cost(attrs->user, attrs, &out[0], 2, flops, bytes);
}

static void sweep_b_cost(const sl_attrs *attrs, int nin, const sl_type *in, const sl_type *out,
                         double *flops, double *bytes) {
  (void)nin, (void)out;
  cost(attrs->user, attrs, &in[2], 5, flops, bytes);
}

/* ---- from piece to piece ---------------------------------------------------------------------- */

const sl_op sl_op_attention_parts = {
    .name = "attention_parts", .min_in = 3, .max_in = 3, .nout = 2,
    .pieces = SL_PIECES_POSITIONS,
    .infer = parts_infer, .signatures = parts_signatures,
    .grad = {{.op = &sl_op_attention_parts_b, .cls = SL_CLASS_B, .in = {SL_DOUT(0), SL_DOUT(1)},
              .nof = 3, .of = {0, 1, 2}}},
};

const sl_op sl_op_attention_parts_b = {
    .name = "attention_parts_b", .min_in = 2, .max_in = 2, .nout = 3,
    .pieces = SL_PIECES_POSITIONS, .infer = parts_b_infer,
};

const sl_op sl_op_attention_packed_parts = {
    .name = "attention_packed_parts", .min_in = 1, .max_in = 1, .nout = 2,
    .pieces = SL_PIECES_POSITIONS,
    .infer = packed_parts_infer, .signatures = parts_signatures,
    .grad = {{.op = &sl_op_attention_packed_parts_b, .cls = SL_CLASS_B,
              .in = {SL_DOUT(0), SL_DOUT(1)}, .nof = 1, .of = {0}}},
};

const sl_op sl_op_attention_packed_parts_b = {
    .name = "attention_packed_parts_b", .min_in = 2, .max_in = 2, .nout = 1,
    .pieces = SL_PIECES_POSITIONS, .infer = packed_parts_b_infer,
};

const sl_op sl_op_attention_sweep = {
    .name = "attention_sweep", .min_in = 2, .max_in = 3, .nout = -1, .outputs = sweep_outputs,
    .pieces = SL_PIECES_STATE, .updates = 28, .sweeps = 2,
    .rounds = true, .infer = sweep_infer, .cost = sweep_cost, .signatures = sweep_signatures,
    .grad = {{.op = &sl_op_attention_sweep_b, .cls = SL_CLASS_B,
              .in = {SL_IN(0), SL_IN(1), SL_OUT(0), SL_OUT(1), SL_DOUT(0), SL_OUTS(4)},
              .nof = 2, .of = {0, 1}}},
};

const sl_op sl_op_attention_sweep_b = {
    .name = "attention_sweep_b", .min_in = 5, .max_in = 6, .nout = 3,
    .pieces = SL_PIECES_STATE, .updates = 4, .sweeps = 2,
    .rounds = true, .infer = sweep_b_infer, .cost = sweep_b_cost,
};
