/* SPDX-License-Identifier: Apache-2.0 */
#include "ops/collective.h"

static sl_status want_members(const sl_attrs *attrs) {
  return attrs->count > 0 ? SL_OK
                          : sl_fail(SL_E_SHAPE, "attrs.count must be the number of members");
}

/* Returns the split dim, or fails. */
static sl_status find_split(const sl_attrs *attrs, const sl_type *in, int *dim) {
  SLI_TRY(want_members(attrs));
  *dim = attrs->axes ? __builtin_ctz(attrs->axes) : 0;
  return *dim < in->ndim ? SL_OK : sli_misfit(in, "an array must have dim %d", *dim);
}

static sl_status all_reduce_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)nin;
  SLI_TRY(want_members(attrs));
  if (in[0].dtype == SL_I32) return sli_misfit(&in[0], "a summand must be f32, bf16 or f64");
  out[0] = in[0];
  return SL_OK;
}

static sl_status reduce_scatter_infer(const sl_attrs *attrs, int nin, const sl_type *in,
                                      sl_type *out) {
  int dim;
  SLI_TRY(all_reduce_infer(attrs, nin, in, out));
  SLI_TRY(find_split(attrs, &in[0], &dim));
  if (in[0].dim[dim] % attrs->count)
    return sli_misfit(&in[0], "dim %d must have an equal part for each of %lld members", dim,
                      (long long)attrs->count);
  out[0].dim[dim] /= attrs->count;
  return SL_OK;
}

static sl_status all_gather_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  int dim;
  (void)nin;
  SLI_TRY(find_split(attrs, &in[0], &dim));
  out[0] = in[0];
  out[0].dim[dim] *= attrs->count;
  return SL_OK;
}

int64_t sli_collective_rows(const sl_op *op, const sl_attrs *attrs, const sl_type *in) {
  int64_t rows = 1;
  for (int d = 0; op != &sl_op_all_reduce && d < __builtin_ctz(attrs->axes); d++)
    rows *= in->dim[d];
  return rows;
}

/* The device's own memory: every byte is read once and written once. */
static void collective_cost(const sl_attrs *attrs, int nin, const sl_type *in, const sl_type *out,
                            double *flops, double *bytes) {
  (void)attrs;
  *flops = 0;
  *bytes = sli_argument_bytes(nin, in, 1, out);
}

double sli_collective_received(const sl_op *op, int64_t members, const sl_type *in) {
  double own = (double)sl_type_bytes(in), others = (double)(members - 1);
  if (op == &sl_op_all_gather) return others * own;
  return (op == &sl_op_all_reduce ? 2 : 1) * others / (double)members * own;
}

#define COLLECTIVE(name_)                                 \
  const sl_op sl_op_##name_ = {                           \
      .name = #name_,                                     \
      .min_in = 1,                                        \
      .max_in = 1,                                        \
      .nout = 1,                                          \
      .narrow = &(const sl_op_narrow){.in = 1, .out = 1}, \
      .cut = &sl_cut_rows,                                \
      .infer = name_##_infer,                             \
      .cost = collective_cost,                            \
  }

COLLECTIVE(all_reduce);
COLLECTIVE(reduce_scatter);
COLLECTIVE(all_gather);
