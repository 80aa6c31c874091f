/* SPDX-License-Identifier: Apache-2.0 */
/* Ops of served graphs that read weights: products and tables. Each existing row is computed as if
 * it were alone. Weights may have any storage format; results have the same bits as with f32
 * weights of the same values. */
#include "base/base.h"
#include "ops/batch.h"
#include "ops/ops.h"
#include "ops/storage.h"
#include "ops/table_loads.h"

/* ---- products -------------------------------------------------------------------------------- */

/* Checks for rows of k numbers in the weight's storage format. */
static sl_status want_rows(const char *what, const sl_attrs *attrs, const sl_type *in, int64_t k) {
  sl_type values = SL_TYPE(SL_F32, in->ndim == 2 ? in->dim[0] : 0, k);
  sl_storage storage = sli_storage_of(attrs, in);
  sl_type lies = sli_storage_type(storage, &values);
  if (sli_storage_fits(storage, &values)) return sli_want(what, in, &lies);
  return sli_misfit(in, "%s must have rows of %lld numbers", what, (long long)k);
}

static sl_status linear_served_infer(const sl_attrs *attrs, int nin, const sl_type *in,
                                     sl_type *out) {
  SLI_TRY(sli_want_batch(nin, in, 4));
  SLI_TRY(sli_want_array("x", &in[0], SL_F32, -1));
  int64_t k = sl_type_last(&in[0]);
  sl_type turned = SL_TYPE(SL_F32, k, sl_type_last(&in[1])), bias;
  SLI_TRY(attrs->product.transposed ? sli_want("weight", &in[1], &turned)
                                    : want_rows("weight", attrs, &in[1], k));
  int64_t n = in[1].dim[attrs->product.transposed ? 1 : 0];
  bias = SL_TYPE(SL_F32, n);
  if (in[2].ndim >= 0) SLI_TRY(sli_want("bias", &in[2], &bias));
  out[0] = sli_type_with_last(&in[0], n);
  return SL_OK;
}

static void linear_served_cost(const sl_attrs *attrs, int nin, const sl_type *in,
                               const sl_type *out, double *flops, double *bytes) {
  (void)attrs;
  *flops = 2.0 * (double)sl_type_elements(&in[0]) * (double)sl_type_last(&out[0]);
  *bytes = sli_argument_bytes(nin, in, 1, out);
}

const sl_op sl_op_linear_served = {
    .name = "linear_served",
    .attrs = {&sl_attrs_product},
    .min_in = 5,
    .max_in = 5,
    .nout = 1,
    .infer = linear_served_infer,
    .cost = linear_served_cost,
    .rows = &(const sl_op_rows){.looks = 1, .follows = 1},
};

/* ---- tables ---------------------------------------------------------------------------------- */

/* attrs.weight: numbers of a row, and the table's storage format */
static sl_status embedding_served_infer(const sl_attrs *attrs, int nin, const sl_type *in,
                                        sl_type *out) {
  SLI_TRY(sli_want_batch(nin, in, 2));
  SLI_TRY(sli_want_array("ids", &in[0], SL_I32, -1));
  SLI_TRY(want_rows("table", attrs, &in[1], attrs->weight.width));
  if (in[0].ndim < 2 || in[0].ndim == SL_MAX_DIMS)
    return sli_misfit(&in[0], "ids must have 2 to %d dims", SL_MAX_DIMS - 1);
  out[0] = in[0];
  out[0].dtype = SL_F32;
  out[0].dim[out[0].ndim++] = attrs->weight.width;
  return SL_OK;
}

static void embedding_served_cost(const sl_attrs *attrs, int nin, const sl_type *in,
                                  const sl_type *out, double *flops, double *bytes) {
  (void)attrs, (void)nin, (void)in;
  *flops = 0;
  *bytes = 2.0 * (double)sl_type_bytes(&out[0]);
}

const sl_op sl_op_embedding_served = {
    .name = "embedding_served",
    .min_in = 3,
    .max_in = 3,
    .nout = 1,
    .infer = embedding_served_infer,
    .cost = embedding_served_cost,
    .rows = &(const sl_op_rows){.looks = 1, .follows = 1},
};

/* Counts the bytes of the pages that hold the rows, which begin anywhere in their first page. */
static void load_rows_cost(const sl_attrs *attrs, int nin, const sl_type *in, const sl_type *out,
                           double *flops, double *bytes) {
  enum { PAGE = 4096 };
  (void)attrs, (void)nin, (void)out;
  sl_type row = SL_TYPE(in[1].dtype, sl_type_last(&in[1]));
  size_t all = sl_type_bytes(&row);
  *flops = 0;
  *bytes = (double)sl_type_elements(&in[0]) * (double)(all % PAGE ? all + PAGE : all);
}

const sl_op sl_op_load_rows = {
    .name = "load_rows",
    .attrs = {&sl_attrs_experts},
    .min_in = 3,
    .max_in = 3,
    .nout = 1,
    .infer = embedding_served_infer,
    .cost = load_rows_cost,
    .traits = SL_OP_REPEATS | SL_OP_LOADS,
    .rows = &(const sl_op_rows){.looks = 1, .follows = 1},
};
