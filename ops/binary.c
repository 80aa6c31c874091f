/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of two numbers, with broadcasting (listed in binary.def), and `where`. */
#include "ops/broadcast.h"
#include "ops/ops.h"
#include "ops/space.h"

static bool is_loss(const sl_type *type) { return type->dtype == SL_F64; }

/* ---- shapes ---------------------------------------------------------------------------- */

/* Accepts f32 with f32, or one f64 scalar with another: sums of losses. */
static sl_status binary_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)attrs, (void)nin;
  SLI_TRY(sli_want_numbers("input 0", &in[0]));
  SLI_TRY(sli_want_numbers("input 1", &in[1]));
  if (is_loss(&in[0]) != is_loss(&in[1]))
    return sli_misfit(&in[1], "only an f64 scalar can be combined with an f64 scalar: input 1");
  return sli_broadcast(2, in, out);
}

static sl_status binary_b_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  sl_type y;
  SLI_TRY(binary_infer(attrs, nin, in, &y));
  y.dtype = SL_F32;
  SLI_TRY(sli_want("dy", &in[2], &y));
  for (int o = 0; o < 2; o++) {
    out[o] = in[o];
    out[o].dtype = SL_F32;
  }
  return SL_OK;
}

static sl_status compare_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)attrs, (void)nin;
  sl_dtype dtype = in[0].dtype == SL_I32 ? SL_I32 : SL_F32;
  SLI_TRY(sli_want_array("input 0", &in[0], dtype, in[0].ndim ? -1 : 0));
  SLI_TRY(sli_want_array("input 1", &in[1], dtype, in[1].ndim ? -1 : 0));
  SLI_TRY(sli_broadcast(2, in, out));
  out[0].dtype = SL_I32;
  return SL_OK;
}

static sl_status where_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)attrs;
  SLI_TRY(sli_want_array("the condition", &in[0], SL_I32, in[0].ndim ? -1 : 0));
  SLI_TRY(sli_want_array("input 1", &in[1], SL_F32, in[1].ndim ? -1 : 0));
  SLI_TRY(sli_want_array("input 2", &in[2], SL_F32, in[2].ndim ? -1 : 0));
  SLI_TRY(sli_broadcast(nin < 3 ? nin : 3, in, out));
  out[0].dtype = SL_F32;
  return SL_OK;
}

static sl_status where_b_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  sl_type y;
  SLI_TRY(where_infer(attrs, nin, in, &y));
  SLI_TRY(sli_want("dy", &in[3], &y));
  out[0] = in[1];
  out[1] = in[2];
  return SL_OK;
}

static void binary_cost(const sl_attrs *attrs, int nin, const sl_type *in, const sl_type *out,
                        double *flops, double *bytes) {
  (void)attrs;
  *flops = (double)sl_type_elements(&out[0]);
  *bytes = sli_argument_bytes(nin, in, 1, out);
}

static void back_cost(const sl_attrs *attrs, int nin, const sl_type *in, const sl_type *out,
                      double *flops, double *bytes) {
  (void)attrs;
  *flops = 4 * (double)sl_type_elements(&in[nin - 1]);
  *bytes = sli_argument_bytes(nin, in, 2, out);
}

/* ---- signatures ------------------------------------------------------------------------- */

int sli_broadcast_signatures(int nin, const sl_type *in, sl_signature *out) {
  sl_type y;
  if (sli_broadcast(nin, in, &y)) return 0;
  for (int d = 0; d < y.ndim; d++) {
    out[d] = (sl_signature){.out = {sli_split(d)}};
    for (int i = 0; i < nin; i++) {
      int own = d - (y.ndim - in[i].ndim);
      if (own >= 0 && in[i].dim[own] == y.dim[d]) out[d].in[i] = sli_split(own);
    }
  }
  return y.ndim;
}

static int binary_signatures(int partial, int nin, const sl_type *in, sl_signature *out) {
  int n = sli_broadcast_signatures(nin, in, out);
  for (int kind = 0; kind < 3; kind++) {
    if (!(partial >> kind & 1)) continue;
    out[n] = (sl_signature){.out = {sli_partial()}};
    if (kind != 2) out[n].in[0] = sli_partial();
    if (kind != 1) out[n].in[1] = sli_partial();
    n++;
  }
  return n;
}

static int where_signatures(const sl_attrs *attrs, int nin, const sl_type *in, sl_signature *out) {
  (void)attrs;
  return sli_broadcast_signatures(nin, in, out);
}

/* ---- ops ------------------------------------------------------------------------------------ */

#define BINARY(name_, flops, unread_, partial_, y, da, db)                                  \
  static int name_##_signatures(const sl_attrs *attrs, int nin, const sl_type *in,          \
                                sl_signature *out) {                                        \
    (void)attrs;                                                                            \
    return binary_signatures(partial_, nin, in, out);                                       \
  }                                                                                         \
  const sl_op sl_op_##name_ = {                                                             \
      .name = #name_,                                                                       \
      .min_in = 2,                                                                          \
      .max_in = 2,                                                                          \
      .nout = 1,                                                                            \
      .narrow = &(const sl_op_narrow){.in = 3, .out = 1, .mixed = true},                    \
      .traits = SL_OP_CHEAP,                                                                \
      .cut = &(const sl_op_cut){.pieces = SL_PIECES_SIGNATURES, .along = SL_ALONG_NOTHING}, \
      .infer = binary_infer,                                                                \
      .cost = binary_cost,                                                                  \
      .shard = &(const sl_op_shard){.signatures = name_##_signatures},                      \
      .grad = {{.op = &sl_op_##name_##_b,                                                   \
                .cls = SL_CLASS_B,                                                          \
                .in = {SL_IN(0), SL_IN(1), SL_DOUT(0)},                                     \
                .nwrt = 2,                                                                  \
                .wrt = {0, 1}}},                                                            \
  };                                                                                        \
  const sl_op sl_op_##name_##_b = {                                                         \
      .name = #name_ "_b",                                                                  \
      .min_in = 3,                                                                          \
      .max_in = 3,                                                                          \
      .nout = 2,                                                                            \
      .narrow = &(const sl_op_narrow){.in = 7, .out = 3, .mixed = true},                    \
      .memory = &(const sl_op_memory){.unread = unread_},                                   \
      .cut = &sl_cut_elements,                                                              \
      .infer = binary_b_infer,                                                              \
      .cost = back_cost,                                                                    \
      .accumulates = 3,                                                                     \
  };

#define COMPARE(name_, y)                                                                   \
  const sl_op sl_op_##name_ = {                                                             \
      .name = #name_,                                                                       \
      .min_in = 2,                                                                          \
      .max_in = 2,                                                                          \
      .nout = 1,                                                                            \
      .narrow = &(const sl_op_narrow){.in = 3, .mixed = true},                              \
      .traits = SL_OP_CHEAP,                                                                \
      .cut = &(const sl_op_cut){.pieces = SL_PIECES_SIGNATURES, .along = SL_ALONG_NOTHING}, \
      .infer = compare_infer,                                                               \
      .cost = binary_cost,                                                                  \
      .shard = &(const sl_op_shard){.signatures = where_signatures},                        \
  };

#include "ops/binary.def"

const sl_op sl_op_where = {
    .name = "where",
    .min_in = 3,
    .max_in = 3,
    .nout = 1,
    .narrow = &(const sl_op_narrow){.in = 6, .out = 1, .mixed = true},
    .traits = SL_OP_CHEAP,
    .cut = &(const sl_op_cut){.pieces = SL_PIECES_SIGNATURES, .along = SL_ALONG_NOTHING},
    .infer = where_infer,
    .cost = binary_cost,
    .shard = &(const sl_op_shard){.signatures = where_signatures},
    .grad = {{.op = &sl_op_where_b,
              .cls = SL_CLASS_B,
              .in = {SL_IN(0), SL_IN(1), SL_IN(2), SL_DOUT(0)},
              .nwrt = 2,
              .wrt = {1, 2}}},
};

const sl_op sl_op_where_b = {
    .name = "where_b",
    .min_in = 4,
    .max_in = 4,
    .nout = 2,
    .narrow = &(const sl_op_narrow){.in = 14, .out = 3, .mixed = true},
    .memory = &(const sl_op_memory){.unread = 6},
    .cut = &sl_cut_elements,
    .infer = where_b_infer,
    .cost = back_cost,
    .accumulates = 3,
};
