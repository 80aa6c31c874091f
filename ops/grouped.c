/* SPDX-License-Identifier: Apache-2.0 */
/* Grouped linear maps: each row goes through the map of the expert that its id names.
 *
 * A call sorts its rows by expert, then by place, and multiplies them in tiles of one expert's
 * rows. A tile's rows are gathered and its results scattered back, so arrays stay in token order. A
 * row's result does not depend on the other experts of the device. A tile has TILE rows, or FEW;
 * zeros pad an expert's last tile. Weight gradients are summed tile by tile. An expert without rows
 * needs no special case.
 *
 * Exact weight gradients are sums over leaves. For them an expert's rows are also sorted by leaf,
 * which keeps their order within a leaf, and no tile has rows of two leaves. A leaf's sum is
 * rounded and added in f64 (ops/leaves.h), so the result does not depend on which rows a device
 * receives. */
#include <math.h>

#include "ops/batch.h"
#include "ops/grouped.h"
#include "ops/ops.h"
#include "ops/storage.h"

/* ---- shapes ------------------------------------------------------------------------------ */

static sl_status want_rows(const char *name, const sl_type *x, const sl_type *ids, bool may_share,
                           int64_t width) {
  int dims = may_share && sli_grouped_shared(x, ids) ? ids->ndim - 1 : ids->ndim;
  SLI_TRY(sli_want_array(name, x, SL_F32, -1));
  bool fits = x->ndim == dims + 1 && x->dim[dims] == width;
  for (int d = 0; fits && d < dims; d++) fits = x->dim[d] == ids->dim[d];
  char of[SL_TYPE_TEXT];
  if (fits) return SL_OK;
  return sli_misfit(x, "%s must be f32 with a row of %lld for each %s of ids %s", name,
                    (long long)width, may_share ? "token or id" : "id", sl_type_format(of, ids));
}

static sl_status want_ids(const sl_type *ids) {
  SLI_TRY(sli_want_array("ids", ids, SL_I32, -1));
  if (ids->ndim < SL_MAX_DIMS) return SL_OK;
  return sli_misfit(ids, "ids may have at most %d dims", SL_MAX_DIMS - 1);
}

static sl_type rows_type(const sl_type *ids, int64_t width) {
  sl_type t = *ids;
  t.dtype = SL_F32;
  t.dim[t.ndim++] = width;
  return t;
}

static sl_status grouped_linear_infer(const sl_attrs *attrs, int nin, const sl_type *in,
                                      sl_type *out) {
  (void)attrs, (void)nin;
  SLI_TRY(want_ids(&in[1]));
  SLI_TRY(sli_want_array("weight", &in[2], SL_F32, 3));
  SLI_TRY(want_rows("x", &in[0], &in[1], true, in[2].dim[2]));
  out[0] = rows_type(&in[1], in[2].dim[1]);
  return SL_OK;
}

static sl_status grouped_linear_b_infer(const sl_attrs *attrs, int nin, const sl_type *in,
                                        sl_type *out) {
  (void)attrs, (void)nin;
  SLI_TRY(want_ids(&in[1]));
  SLI_TRY(sli_want_array("weight", &in[2], SL_F32, 3));
  SLI_TRY(want_rows("dy", &in[0], &in[1], false, in[2].dim[1]));
  SLI_TRY(want_rows("x", &in[3], &in[1], true, in[2].dim[2]));
  out[0] = in[3];
  return SL_OK;
}

static sl_status grouped_linear_w_infer(const sl_attrs *attrs, int nin, const sl_type *in,
                                        sl_type *out) {
  (void)attrs;
  SLI_TRY(want_ids(&in[1]));
  SLI_TRY(sli_want_array("weight", &in[3], SL_F32, 3));
  SLI_TRY(want_rows("x", &in[0], &in[1], true, in[3].dim[2]));
  SLI_TRY(want_rows("dy", &in[2], &in[1], false, in[3].dim[1]));
  if (nin > 4) SLI_TRY(sli_want("leaves", &in[4], &in[1]));
  out[0] = in[3];
  return SL_OK;
}

static double flops_of(const sl_type *ids, const sl_type *w) {
  return 2 * (double)sl_type_elements(ids) * (double)w->dim[1] * (double)w->dim[2];
}

static void grouped_linear_cost(const sl_attrs *attrs, int nin, const sl_type *in,
                                const sl_type *out, double *flops, double *bytes) {
  (void)attrs;
  *flops = flops_of(&in[1], &in[2]);
  *bytes = sli_argument_bytes(nin, in, 1, out);
}

static void grouped_linear_w_cost(const sl_attrs *attrs, int nin, const sl_type *in,
                                  const sl_type *out, double *flops, double *bytes) {
  (void)attrs, (void)nin;
  *flops = flops_of(&in[1], &in[3]);
  *bytes = sli_argument_bytes(3, in, 1, out);
}

/* Splits by experts, or by output or input features of their maps, or routes rows to the devices of
 * their experts. */
static int grouped_linear_signatures(const sl_attrs *attrs, int nin, const sl_type *in,
                                     sl_signature *out) {
  sl_sbp last = sli_split(in[1].ndim), rows = {SL_DISPATCHED, in[0].ndim - 2},
         ids = {SL_DISPATCHED, in[1].ndim - 1};
  (void)attrs, (void)nin;
  out[0] = (sl_signature){.in = {[2] = sli_split(0)}, .out = {sli_partial()}, .first = 3};
  out[1] = (sl_signature){.in = {[2] = sli_split(1)}, .out = {last}};
  out[2] =
      (sl_signature){.in = {sli_split_last(&in[0]), [2] = sli_split(2)}, .out = {sli_partial()}};
  out[3] = (sl_signature){.in = {rows, ids, sli_split(0)}, .out = {ids}, .first = 3};
  return in[1].ndim == 3 ? 4 : 3; /* [B, T, k] */
}

static sl_status grouped_linear_check(const sl_call *call) {
  const int32_t *ids = call->in[1];
  int64_t count = call->attrs->place.whole;
  if (!count && call->attrs->place.partial) return SL_OK;
  if (!count) count = call->in_type[2].dim[0];
  for (int64_t i = 0; i < sli_grouped_valid_ids(call); i++)
    if (ids[i] < -1 || ids[i] >= count)
      return sl_fail(SL_E_INPUT, "element %lld of its ids is %d, but there are experts 0 to %lld",
                     (long long)i, (int)ids[i], (long long)count - 1);
  return SL_OK;
}

/* ---- products -------------------------------------------------------------------------------- */

/* Layers with equal shapes share their products: see linear.c. */
static size_t keeps_products(const sl_call *call, uint64_t *which) {
  uint64_t hash = SLI_HASH_SEED;
  for (int i = 0; i < call->nin; i++) hash = sli_hash_type(hash, &call->in_type[i]);
  *which = hash;
  return 0;
}

/* ---- ops ------------------------------------------------------------------------------------- */

const sl_op sl_op_grouped_linear = {
    .name = "grouped_linear",
    .serve = &(const sl_op_serve){.op = &sl_op_grouped_linear_served, .stored = 4},
    .min_in = 3,
    .max_in = 3,
    .nout = 1,
    .cut = &(const sl_op_cut){.pieces = SL_PIECES_ROWS, .whole = 4},
    .narrow = &(const sl_op_narrow){.in = 1, .out = 1},
    .infer = grouped_linear_infer,
    .cost = grouped_linear_cost,
    .check = grouped_linear_check,
    .memory = &(const sl_op_memory){.keeps = keeps_products},
    .rows = &(const sl_op_rows){.looks = 3, .follows = 1, .fixed = true},
    .shard =
        &(const sl_op_shard){.signatures = grouped_linear_signatures, .weight = SL_WEIGHT_EXPERTS},
    .grad = {{.op = &sl_op_grouped_linear_b,
              .cls = SL_CLASS_B,
              .in = {SL_DOUT(0), SL_IN(1), SL_IN(2), SL_IN(0)},
              .nwrt = 1,
              .wrt = {0}},
             {.op = &sl_op_grouped_linear_w,
              .cls = SL_CLASS_W,
              .in = {SL_IN(0), SL_IN(1), SL_DOUT(0), SL_IN(2)},
              .nwrt = 1,
              .wrt = {2}}},
};

const sl_op sl_op_grouped_linear_b = {
    .name = "grouped_linear_b",
    .min_in = 4,
    .max_in = 4,
    .nout = 1,
    .cut = &(const sl_op_cut){.pieces = SL_PIECES_ROWS, .whole = 4},
    .memory = &(const sl_op_memory){.unread = 8, .keeps = keeps_products},
    .narrow = &(const sl_op_narrow){.in = 9, .out = 1},
    .infer = grouped_linear_b_infer,
    .cost = grouped_linear_cost,
    .rows = &(const sl_op_rows){.looks = 11, .follows = 1, .fixed = true},
};

const sl_op sl_op_grouped_linear_w = {
    .name = "grouped_linear_w",
    .min_in = 4,
    .max_in = 5,
    .nout = 1,
    .cut = &(const sl_op_cut){.pieces = SL_PIECES_ROWS, .whole = 8},
    .memory = &(const sl_op_memory){.unread = 8, .keeps = keeps_products},
    .narrow = &(const sl_op_narrow){.in = 5},
    .infer = grouped_linear_w_infer,
    .cost = grouped_linear_w_cost,
    .accumulates = 1,
    .rows = &(const sl_op_rows){.looks = 0x17, .fixed = true},
    .exact = &sli_exact_by_leaf,
};

/* ---- serving ----------------------------------------------------------------------------------
 */

/* Returns the type of a weight's values, or the weight's own if that is no storage format. */
static sl_type values_of(const sl_attrs *attrs, const sl_type *x, const sl_type *weight) {
  sl_type values = sli_type_with_last(weight, sl_type_last(x));
  values.dtype = SL_F32;
  sl_type stored = sli_storage_type(sli_storage_of(attrs, weight), &values);
  return sl_type_equal(weight, &stored) ? values : *weight;
}

static sl_status served_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  SLI_TRY(sli_want_batch(nin, in, 3));
  sl_type values[3] = {in[0], in[1], values_of(attrs, &in[0], &in[2])};
  return grouped_linear_infer(attrs, 3, values, out);
}

/* Counts the weights of the experts that rows choose, each evenly: all of them for many rows. */
static void served_cost(const sl_attrs *attrs, int nin, const sl_type *in, const sl_type *out,
                        double *flops, double *bytes) {
  sl_type values = values_of(attrs, &in[0], &in[2]);
  grouped_linear_cost(attrs, nin, in, out, flops, bytes);
  *flops = flops_of(&in[1], &values);
  double experts = (double)in[2].dim[0], rows = (double)sl_type_elements(&in[1]);
  *bytes -= (double)sl_type_bytes(&in[2]) * pow(1 - 1 / experts, rows);
}

const sl_op sl_op_grouped_linear_served = {
    .name = "grouped_linear_served",
    .attrs = {&sl_attrs_product},
    .min_in = 4,
    .max_in = 4,
    .nout = 1,
    .infer = served_infer,
    .cost = served_cost,
    .rows = &(const sl_op_rows){.looks = 3, .follows = 1},
};
