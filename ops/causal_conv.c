/* SPDX-License-Identifier: Apache-2.0 */
/* Short causal convolution along positions, one per channel, as Mamba-2 and gated delta nets apply
 * it to their inputs.
 *
 *   y_t = bias + sum over j < W of w_(W-1-j) x_(t-j)
 *
 * A piece reads the W - 1 rows before it from a record that the previous piece left. In the
 * backward pass, a record carries the W - 1 rows of dy after a piece to the previous piece.
 *
 * Devices that share the positions of a sequence read their neighbours' rows, `near`. If the
 * sequence is also cut into pieces, the first device has the record: it computes with the last
 * device's rows of the previous piece, and then stores those of this piece. In the backward pass
 * the last device does so, with the first device's rows.
 *
 * Given the positions of tokens within their documents, a row reads only rows of its own
 * document. */
#include "ops/causal_conv.h"
#include "ops/ops.h"

static sl_status want_taps(const sl_type *w, const sl_type *x) {
  SLI_TRY(sli_want_array("w", w, SL_F32, -1));
  bool middle = w->ndim == 3 && w->dim[1] == 1;
  if (!(middle || w->ndim == 2) || w->dim[0] != x->dim[2])
    return sli_misfit(w, "w must be f32[%lld, n] or f32[%lld, 1, n], the taps of each channel",
                      (long long)x->dim[2], (long long)x->dim[2]);
  int64_t taps = sl_type_last(w);
  return taps >= 1 && taps <= SLI_MOST_TAPS
             ? SL_OK
             : sli_misfit(w, "w must have 1 to %d taps", SLI_MOST_TAPS);
}

static sl_type rows_type(const sl_type *x, const sl_type *w) {
  return SL_TYPE(SL_F32, x->dim[0], sl_type_last(w) - 1, x->dim[2]);
}

/* Checks input i, if given: rows from outside the device's own. */
static sl_status want_rows(const char *name, int nin, const sl_type *in, int i, const sl_type *x,
                           const sl_type *w) {
  sl_type rows = rows_type(x, w);
  return nin > i && in[i].ndim >= 0 ? sli_want(name, &in[i], &rows) : SL_OK;
}

/* Checks input i, if given: a position for each row of x. */
static sl_status want_positions(int nin, const sl_type *in, int i, const sl_type *x) {
  sl_type positions = SL_TYPE(SL_I32, x->dim[0], x->dim[1]);
  return nin > i && in[i].ndim >= 0 ? sli_want("positions", &in[i], &positions) : SL_OK;
}

static sl_status infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)attrs;
  SLI_TRY(sli_want_array("x", &in[0], SL_F32, 3));
  SLI_TRY(want_taps(&in[1], &in[0]));
  sl_type bias = SL_TYPE(SL_F32, in[0].dim[2]);
  if (nin > 2 && in[2].ndim >= 0) SLI_TRY(sli_want("bias", &in[2], &bias));
  SLI_TRY(want_rows("near", nin, in, 3, &in[0], &in[1]));
  SLI_TRY(want_positions(nin, in, 4, &in[0]));
  out[0] = in[0];
  return SL_OK;
}

static sl_status b_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)attrs;
  SLI_TRY(sli_want_array("dy", &in[1], SL_F32, 3));
  SLI_TRY(want_taps(&in[0], &in[1]));
  SLI_TRY(want_rows("near", nin, in, 2, &in[1], &in[0]));
  SLI_TRY(want_positions(nin, in, 3, &in[1]));
  out[0] = in[1];
  return SL_OK;
}

static sl_status w_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)attrs;
  SLI_TRY(sli_want_array("x", &in[0], SL_F32, 3));
  SLI_TRY(sli_want("dy", &in[1], &in[0]));
  SLI_TRY(want_taps(&in[2], &in[0]));
  SLI_TRY(want_rows("rows before", nin, in, 3, &in[0], &in[2]));
  SLI_TRY(want_positions(nin, in, 4, &in[0]));
  out[0] = in[2];
  return SL_OK;
}

static sl_status piece_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  SLI_TRY(infer(attrs, nin, in, out));
  out[1] = out[2] = rows_type(&in[0], &in[1]);
  return SL_OK;
}

static sl_status piece_b_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  SLI_TRY(b_infer(attrs, nin, in, out));
  out[1] = rows_type(&in[1], &in[0]);
  return SL_OK;
}

static sl_status served_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  if (nin != 6) return sl_fail(SL_E_SHAPE, "it has no batch to read");
  SLI_TRY(infer(attrs, 3, in, out));
  SLI_TRY(sli_want_array("batch", &in[5], SL_I32, 1));
  if (attrs->pages.count < 1) return sl_fail(SL_E_SHAPE, "attrs.pages.count must be given");
  out[1] = rows_type(&in[0], &in[1]);
  out[1].dim[0] = attrs->pages.count;
  return SL_OK;
}

/* Splits by sequences, or by channels. */
static int split(int nin, const sl_type *in, int nout, sl_signature *out) {
  out[0] = out[1] = (sl_signature){.in = {{0}}};
  out[0].in[0] = sli_split(0), out[1].in[0] = sli_split(2);
  for (int i = 1; i < nin && i < 4; i++)
    if (in[i].ndim >= 0) out[1].in[i] = sli_split(0);
  if (nin > 4) out[0].in[4] = sli_split(0);
  for (int o = 0; o < nout; o++) out[0].out[o] = sli_split(0), out[1].out[o] = sli_split(2);
  return 2;
}

static int signatures(const sl_attrs *attrs, int nin, const sl_type *in, sl_signature *out) {
  (void)attrs;
  return split(nin, in, 1, out);
}

static int piece_signatures(const sl_attrs *attrs, int nin, const sl_type *in, sl_signature *out) {
  (void)attrs;
  return split(nin, in, 3, out);
}

static void cost(const sl_attrs *attrs, int nin, const sl_type *in, const sl_type *out,
                 double *flops, double *bytes) {
  (void)attrs, (void)out;
  int64_t elements = 0;
  for (int i = 0; i < nin; i++)
    elements = SLI_MAX(elements, in[i].ndim < 0 ? 0 : sl_type_elements(&in[i]));
  *flops = 8 * (double)elements;
  *bytes = 2 * (double)elements * (double)sizeof(float);
}

static const sl_op_serve serving = {.op = &sl_op_causal_conv_served, .slots = true};

const sl_op sl_op_causal_conv = {
    .name = "causal_conv",
    .serve = &serving,
    .min_in = 2,
    .max_in = 5,
    .nout = 1,
    .cut = &(const sl_op_cut){.pieced = &sl_op_causal_conv_piece, .whole = 6},
    .infer = infer,
    .cost = cost,
    .shard = &(const sl_op_shard){.signatures = signatures, .sequence = SL_SEQUENCE_NEAR},
    .grad = {{.op = &sl_op_causal_conv_b,
              .cls = SL_CLASS_B,
              .in = {SL_IN(1), SL_DOUT(0), SL_INS(3)},
              .nwrt = 1,
              .wrt = {0}},
             {.op = &sl_op_causal_conv_w,
              .cls = SL_CLASS_W,
              .in = {SL_IN(0), SL_DOUT(0), SL_IN(1), SL_INS(3)},
              .nwrt = 1,
              .wrt = {1}},
             {.op = &sl_op_bias_w, .cls = SL_CLASS_W, .in = {SL_DOUT(0)}, .nwrt = 1, .wrt = {2}}},
};

const sl_op sl_op_causal_conv_b = {
    .name = "causal_conv_b",
    .min_in = 2,
    .max_in = 5,
    .shard = &(const sl_op_shard){.behind = true},
    .nout = 1,
    .infer = b_infer,
    .cost = cost,
};

const sl_op sl_op_causal_conv_w = {
    .name = "causal_conv_w",
    .min_in = 3,
    .max_in = 5,
    .shard = &(const sl_op_shard){.before = true},
    .nout = 1,
    .memory = &(const sl_op_memory){.unread = 4},
    .exact = &sli_exact_scatters,
    .infer = w_infer,
    .cost = cost,
    .accumulates = 1,
};

const sl_op sl_op_causal_conv_piece = {
    .name = "causal_conv_piece",
    .min_in = 2,
    .max_in = 5,
    .nout = 3,
    .cut = &(const sl_op_cut){.pieces = SL_PIECES_STATE, .whole = 6},
    .memory = &(const sl_op_memory){.updates = 4},
    .infer = piece_infer,
    .cost = cost,
    .shard = &(const sl_op_shard){.signatures = piece_signatures, .sequence = SL_SEQUENCE_NEAR},
    .grad = {{.op = &sl_op_causal_conv_piece_b,
              .cls = SL_CLASS_B,
              .in = {SL_IN(1), SL_DOUT(0), SL_INS(3)},
              .nwrt = 1,
              .wrt = {0}},
             {.op = &sl_op_causal_conv_piece_w,
              .cls = SL_CLASS_W,
              .in = {SL_IN(0), SL_DOUT(0), SL_IN(1), SL_OUT(1), SL_INS(4)},
              .nwrt = 1,
              .wrt = {1}},
             {.op = &sl_op_bias_w, .cls = SL_CLASS_W, .in = {SL_DOUT(0)}, .nwrt = 1, .wrt = {2}}},
};

const sl_op sl_op_causal_conv_piece_b = {
    .name = "causal_conv_piece_b",
    .min_in = 2,
    .max_in = 5,
    .shard = &(const sl_op_shard){.behind = true},
    .nout = 2,
    .cut = &(const sl_op_cut){.pieces = SL_PIECES_STATE, .whole = 1},
    .memory = &(const sl_op_memory){.updates = 2},
    .infer = piece_b_infer,
    .cost = cost,
};

const sl_op sl_op_causal_conv_piece_w = {
    .name = "causal_conv_piece_w",
    .min_in = 4,
    .max_in = 5,
    .nout = 1,
    .memory = &(const sl_op_memory){.unread = 4},
    .cut = &(const sl_op_cut){.pieces = SL_PIECES_STATE, .whole = 12},
    .exact = &sli_exact_scatters,
    .infer = w_infer,
    .cost = cost,
    .accumulates = 1,
};

const sl_op sl_op_causal_conv_served = {
    .name = "causal_conv_served",
    .min_in = 6,
    .max_in = 6,
    .nout = 2,
    .memory = &(const sl_op_memory){.updates = 2},
    .serve = &serving,
    .infer = served_infer,
    .rows = &(const sl_op_rows){.looks = 1, .follows = 1},
};
