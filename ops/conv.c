/* SPDX-License-Identifier: Apache-2.0 */
/* Convolution ops. Kernels gather the columns under a kernel of an image (im2col), or use
 * Winograd's method (kernels/cpu/winograd.h). */
#include "ops/layout.h"
#include "ops/ops.h"

/* ---- shapes and costs -------------------------------------------------------------------- */

static sl_status conv_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  SLI_TRY(sli_window_check(attrs, &in[0], &in[1]));
  sl_type bias = SL_TYPE(SL_F32, in[1].dim[0]);
  if (nin > 2 && in[2].ndim >= 0) SLI_TRY(sli_want("bias", &in[2], &bias));
  sli_window w = sli_window_of(attrs, &in[0], &in[1]);
  out[0] = sli_window_output(&w, &in[0], in[1].dim[0]);
  return SL_OK;
}

static sl_status want_output(const sl_attrs *attrs, const sl_type *x, const sl_type *w,
                             const sl_type *dy) {
  sl_type y, xw[] = {*x, *w};
  xw[0].dtype = dy->dtype; /* x may be present for its type only */
  SLI_TRY(conv_infer(attrs, 2, xw, &y));
  return sli_want("dy", dy, &y);
}

static sl_status conv_b_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)nin;
  SLI_TRY(want_output(attrs, &in[2], &in[1], &in[0]));
  out[0] = in[2];
  out[0].dtype = in[0].dtype;
  return SL_OK;
}

static sl_status conv_w_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)nin;
  SLI_TRY(want_output(attrs, &in[0], &in[2], &in[1]));
  out[0] = in[2];
  return SL_OK;
}

static sl_status channel_sum_infer(const sl_attrs *attrs, int nin, const sl_type *in,
                                   sl_type *out) {
  (void)attrs, (void)nin;
  if (in[0].ndim < 2) return sli_misfit(&in[0], "dy must be f32[n, c, ...]");
  SLI_TRY(sli_want_array("dy", &in[0], SL_F32, -1));
  out[0] = SL_TYPE(SL_F32, in[0].dim[1]);
  return SL_OK;
}

/* Costs of a convolution: each number of y is a product over its output channel's kernel. */
static void product_cost(const sl_type *y, const sl_type *w, int nin, const sl_type *in,
                         const sl_type *out, double *flops, double *bytes) {
  double kernel = (double)sl_type_elements(w) / (double)w->dim[0];
  *flops = 2 * (double)sl_type_elements(y) * kernel;
  *bytes = sli_argument_bytes(nin, in, 1, out);
}

#define COST(name, y, w)                                                                  \
  static void name(const sl_attrs *attrs, int nin, const sl_type *in, const sl_type *out, \
                   double *flops, double *bytes) {                                        \
    (void)attrs;                                                                          \
    product_cost(y, w, nin, in, out, flops, bytes);                                       \
  }

COST(conv_cost, &out[0], &in[1])

COST(conv_b_cost, &in[0], &in[1])

COST(conv_w_cost, &in[1], &in[2])

SLI_COST(channel_sum_cost, 0, 1, 1)

/* Splits by images or output channels, and by input channels if there are no groups. */
static int conv_signatures(const sl_attrs *attrs, int nin, const sl_type *in, sl_signature *out) {
  const sl_window *record = attrs->user;
  bool bias = nin > 2 && in[2].ndim >= 0;
  out[0] = (sl_signature){.in = {sli_split(0)}, .out = {sli_split(0)}};
  if (record && record->groups > 1) return 1;
  out[1] = (sl_signature){.in = {[1] = sli_split(0)}, .out = {sli_split(1)}};
  out[2] = (sl_signature){.in = {sli_split(1), sli_split(1)}, .out = {sli_partial()}};
  if (bias) {
    out[1].in[2] = sli_split(0);
    out[2].in[2] = sli_partial();
  }
  return 3;
}

/* ---- ops ---------------------------------------------------------------------------------- */

const sl_op sl_op_conv = {
    .name = "conv",
    .min_in = 2,
    .max_in = 3,
    .nout = 1,
    .narrow = &(const sl_op_narrow){.in = 1, .out = 1},
    .cut = &(const sl_op_cut){.pieces = SL_PIECES_SIGNATURES, .whole = 6},
    .shard = &(const sl_op_shard){.signatures = conv_signatures},
    .infer = conv_infer,
    .cost = conv_cost,
    .hash = sli_window_hash,
    .grad =
        {{.op = &sl_op_conv_b,
          .cls = SL_CLASS_B,
          .in = {SL_DOUT(0), SL_IN(1), SL_IN(0)},
          .nwrt = 1,
          .wrt = {0}},
         {.op = &sl_op_conv_w,
          .cls = SL_CLASS_W,
          .in = {SL_IN(0), SL_DOUT(0), SL_IN(1)},
          .nwrt = 1,
          .wrt = {1}},
         {.op = &sl_op_channel_sum, .cls = SL_CLASS_W, .in = {SL_DOUT(0)}, .nwrt = 1, .wrt = {2}}},
    .rows = &(const sl_op_rows){.fixed = true},
};

const sl_op sl_op_conv_b = {
    .name = "conv_b",
    .min_in = 3,
    .max_in = 3,
    .nout = 1,
    .narrow = &(const sl_op_narrow){.in = 1 | 1 << 2, .out = 1},
    .memory = &(const sl_op_memory){.unread = 1 << 2},
    .cut = &(const sl_op_cut){.pieces = SL_PIECES_SIGNATURES},
    .infer = conv_b_infer,
    .cost = conv_b_cost,
    .hash = sli_window_hash,
    .rows = &(const sl_op_rows){.fixed = true},
};

const sl_op sl_op_conv_w = {
    .name = "conv_w",
    .min_in = 3,
    .max_in = 3,
    .nout = 1,
    .narrow = &(const sl_op_narrow){.in = 3},
    .memory = &(const sl_op_memory){.unread = 1 << 2},
    .accumulates = 1,
    .cut = &(const sl_op_cut){.pieces = SL_PIECES_SIGNATURES},
    .infer = conv_w_infer,
    .cost = conv_w_cost,
    .hash = sli_window_hash,
    .rows = &(const sl_op_rows){.fixed = true},
};

const sl_op sl_op_channel_sum = {
    .name = "channel_sum",
    .min_in = 1,
    .max_in = 1,
    .nout = 1,
    .narrow = &(const sl_op_narrow){.in = 1},
    .accumulates = 1,
    .cut = &(const sl_op_cut){.pieces = SL_PIECES_SIGNATURES},
    .infer = channel_sum_infer,
    .cost = channel_sum_cost,
};
