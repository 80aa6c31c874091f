/* SPDX-License-Identifier: Apache-2.0 */
/* Ops whose numbers come from the graph, constants and positions, and casts of integers. */
#include <math.h>

#include "ops/layout.h"
#include "ops/leaves.h"
#include "ops/functions.h"
#include "ops/ops.h"
#include "ops/space.h"

/* Returns the type of this device's part. */
static sl_type region_type(const sl_type *whole, const sl_region *region) {
  sl_type type = *whole;
  for (int d = 0; region && d < region->ndim; d++) {
    if (!region->parts[d].nranges) continue;
    type.dim[d] = 0;
    for (int r = 0; r < region->parts[d].nranges; r++) type.dim[d] += region->parts[d].count[r];
  }
  return type;
}

/* ---- constants -------------------------------------------------------------------------- */

/* With `like`, a device has the same part of the constant as it has of `like`. */
static sl_status constant_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  const sl_values *values = attrs->user;
  if (!values) return sl_fail(SL_E_SHAPE, "attrs.user must point to an sl_values");
  if (values->type.dtype != SL_F32 && values->type.dtype != SL_I32)
    return sli_misfit(&values->type, "constants must be f32 or i32");
  out[0] = region_type(&values->type, attrs->region);
  if (nin < 1 || in[0].ndim < 0) return SL_OK;
  sl_type like = in[0];
  like.dtype = out[0].dtype;
  bool fits = like.ndim == values->type.ndim;
  for (int d = 0; d < like.ndim && fits; d++) fits = like.dim[d] <= values->type.dim[d];
  out[0] = like;
  return fits ? SL_OK : sli_misfit(&in[0], "like must have the shape of the constant");
}

static int constant_signatures(const sl_attrs *attrs, int nin, const sl_type *in,
                               sl_signature *out) {
  const sl_values *values = attrs->user;
  int n = 0;
  for (int d = 0; values && d < values->type.ndim; d++) {
    out[n] = (sl_signature){.out = {sli_split(d)}};
    if (nin && in[0].ndim >= 0) out[n].in[0] = sli_split(d);
    n++;
  }
  return n;
}

static uint64_t constant_hash(uint64_t hash, const sl_attrs *attrs, int nin) {
  const sl_values *values = attrs->user;
  (void)nin;
  hash = sli_hash_type(hash, &values->type);
  return values->values ? sli_hash(hash, values->values, sl_type_bytes(&values->type)) : hash;
}

/* ---- positions -------------------------------------------------------------------------- */

static sl_status arange_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)nin;
  if (in[0].ndim < 1 || (attrs->along.axes & (attrs->along.axes - 1)) ||
      sli_one_axis(attrs, &in[0]) >= in[0].ndim)
    return sli_misfit(&in[0],
                      "attrs.along.axes must have exactly one bit, for a dim of like, not %#x",
                      attrs->along.axes);
  out[0] = in[0];
  out[0].dtype = SL_I32;
  return SL_OK;
}

/* ---- integers and numbers --------------------------------------------------------------- */

static sl_status cast_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)attrs, (void)nin;
  bool integers = in[0].dtype == SL_I32;
  SLI_TRY(sli_want_array("x", &in[0], integers ? SL_I32 : SL_F32, in[0].ndim ? -1 : 0));
  out[0] = in[0];
  out[0].dtype = integers ? SL_F32 : SL_I32;
  return SL_OK;
}

/* Rejects numbers that the other type does not hold, if attrs.cast.refuses asks for it. */
static sl_status cast_check(const sl_call *call) {
  int64_t n = call->attrs->cast.refuses ? sl_type_elements(&call->in_type[0]) : 0;
  double most = call->attrs->cast.refuses == SLI_CAST_FITS ? 0x1p31 : 0x1p24;
  for (int64_t i = 0; i < n; i++) {
    double x = call->in_type[0].dtype == SL_I32 ? (double)((const int32_t *)call->in[0])[i]
                                                : (double)((const float *)call->in[0])[i];
    if (!(fabs(x) < most || x == -most || (most < 0x1p31 && x == most)))
      return sl_fail(SL_E_INPUT, "element %lld is %g, and only integers %s are computed here",
                     (long long)i, x, most < 0x1p31 ? "up to 2^24" : "of 32 bits");
  }
  return SL_OK;
}

static sl_status to_f32_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)attrs, (void)nin;
  SLI_TRY(sli_want_array("x", &in[0], SL_F64, in[0].ndim ? -1 : 0));
  out[0] = in[0];
  out[0].dtype = SL_F32;
  return SL_OK;
}

/* Rejects sums that may have been rounded. */
static sl_status to_f32_check(const sl_call *call) {
  const double *x = call->in[0];
  int64_t n = call->attrs->numbers.exact ? sl_type_elements(&call->in_type[0]) : 0;
  bool large = false;
  for (int64_t i = 0; i < n; i++) large |= fabs(x[i]) > SLI_LEAF_MOST;
  for (int64_t i = 0; i < n && large; i++)
    if (fabs(x[i]) > SLI_LEAF_MOST)
      return sl_fail(SL_E_NUMERIC,
                     "element %lld is %g, but numbers.exact sums gradients up to %g only",
                     (long long)i, x[i], SLI_LEAF_MOST);
  return SL_OK;
}

static sl_status to_f64_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)attrs, (void)nin;
  SLI_TRY(sli_want_array("x", &in[0], SL_F32, 0));
  out[0] = SL_SCALAR(SL_F64);
  return SL_OK;
}

/* A partial sum of a scalar converts to a partial sum of the result. */
static int to_other_signatures(const sl_attrs *attrs, int nin, const sl_type *in,
                               sl_signature *out) {
  (void)attrs, (void)nin, (void)in;
  out[0] = (sl_signature){.in = {sli_partial()}, .out = {sli_partial()}};
  return 1;
}

static sl_status one_hot_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)nin;
  SLI_TRY(sli_want_array("ids", &in[0], SL_I32, in[0].ndim ? -1 : 0));
  if (in[0].ndim == SL_MAX_DIMS)
    return sli_misfit(&in[0], "ids may have at most %d dims", SL_MAX_DIMS - 1);
  if (attrs->one_hot.classes < 1)
    return sl_fail(SL_E_SHAPE,
                   "attrs.one_hot.classes, the number of classes, must be at least 1, not %lld",
                   (long long)attrs->one_hot.classes);
  out[0] = in[0];
  out[0].dtype = SL_F32;
  out[0].dim[out[0].ndim++] = attrs->one_hot.classes;
  return SL_OK;
}

static sl_status one_hot_check(const sl_call *call) {
  const int32_t *ids = call->in[0];
  for (int64_t i = 0; i < sl_type_elements(&call->in_type[0]); i++)
    if (ids[i] < 0 || ids[i] >= call->attrs->one_hot.classes)
      return sl_fail(SL_E_INPUT, "element %lld of its ids is %d, but there are classes 0 to %lld",
                     (long long)i, (int)ids[i], (long long)call->attrs->one_hot.classes - 1);
  return SL_OK;
}

/* ---- ops -------------------------------------------------------------------------------- */

const sl_op sl_op_constant = {
    .name = "constant",
    .attrs = {&sl_attrs_fill},
    .min_in = 0,
    .max_in = 1,
    .nout = 1,
    .narrow = &(const sl_op_narrow){.out = 1},
    .traits = SL_OP_CHEAP | SL_OP_LOCATED,
    .memory = &(const sl_op_memory){.unread = 1},
    .cut = &(const sl_op_cut){.pieces = SL_PIECES_SIGNATURES, .along = SL_ALONG_NOTHING},
    .shard = &(const sl_op_shard){.signatures = constant_signatures},
    .infer = constant_infer,
    .hash = constant_hash,
};

const sl_op sl_op_arange = {
    .name = "arange",
    .attrs = {&sl_attrs_along},
    .min_in = 1,
    .max_in = 1,
    .nout = 1,
    .traits = SL_OP_CHEAP | SL_OP_LOCATED,
    .memory = &(const sl_op_memory){.unread = 1},
    .cut = &sl_cut_elements,
    .infer = arange_infer,
};

const sl_op sl_op_cast = {
    .name = "cast",
    .attrs = {&sl_attrs_cast},
    .min_in = 1,
    .max_in = 1,
    .nout = 1,
    .narrow = &(const sl_op_narrow){.in = 1},
    .traits = SL_OP_CHEAP,
    .cut = &sl_cut_elements,
    .infer = cast_infer,
    .check = cast_check,
};

/* Gradients are f32 on both sides. */
#define TO_OTHER(name_, ...)                                                    \
  const sl_op sl_op_##name_ = {                                                 \
      .name = #name_,                                                           \
      .min_in = 1,                                                              \
      .max_in = 1,                                                              \
      .nout = 1,                                                                \
      .infer = name_##_infer,                                                   \
      .shard = &(const sl_op_shard){.signatures = to_other_signatures},         \
      .grad = {{.cls = SL_CLASS_B, .in = {SL_DOUT(0)}, .nwrt = 1, .wrt = {0}}}, \
      __VA_ARGS__};
TO_OTHER(to_f32, .check = to_f32_check)
TO_OTHER(to_f64)

const sl_op sl_op_one_hot = {
    .name = "one_hot",
    .attrs = {&sl_attrs_one_hot},
    .min_in = 1,
    .max_in = 1,
    .nout = 1,
    .narrow = &(const sl_op_narrow){.out = 1},
    .traits = SL_OP_CHEAP,
    .cut = &sl_cut_rows,
    .infer = one_hot_infer,
    .check = one_hot_check,
};
