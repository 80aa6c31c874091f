/* SPDX-License-Identifier: Apache-2.0 */
/* Ops for training with frozen weights in their storage format: products, their input gradients,
 * and tables. attrs.weight has the numbers per row of the weight and its storage format. */
#include "base/base.h"
#include "ops/linear.h"
#include "ops/ops.h"
#include "ops/storage.h"

/* Checks a weight with rows of attrs.weight.width numbers and sets *rows to their number. */
static sl_status want_stored(const char *what, const sl_attrs *attrs, const sl_type *in,
                             int64_t *rows) {
  sl_storage storage = (sl_storage)attrs->weight.storage;
  sl_type values = SL_TYPE(SL_F32, in->ndim == 2 ? in->dim[0] : 0, attrs->weight.width);
  if (attrs->weight.width < 1 || attrs->weight.storage < 0 ||
      attrs->weight.storage >= SL_STORAGE_FP8)
    return sl_fail(SL_E_SHAPE, "attrs.weight must have the width of a row and its storage format");
  if (!sli_storage_fits(storage, &values))
    return sli_misfit(in, "%s must have rows of %lld numbers in whole blocks", what,
                      (long long)attrs->weight.width);
  sl_type lies = sli_storage_type(storage, &values);
  *rows = lies.dim[0];
  return sli_want(what, in, &lies);
}

static sl_status linear_stored_infer(const sl_attrs *attrs, int nin, const sl_type *in,
                                     sl_type *out) {
  int64_t n = 0;
  SLI_TRY(sli_want_array("x", &in[0], SL_F32, -1));
  SLI_TRY(want_stored("weight", attrs, &in[1], &n));
  sl_type x = sli_type_with_last(&in[0], attrs->weight.width), bias = SL_TYPE(SL_F32, n);
  SLI_TRY(sli_want("x", &in[0], &x));
  if (sli_linear_has(nin, in, 2)) SLI_TRY(sli_want("bias", &in[2], &bias));
  out[0] = sli_type_with_last(&in[0], n);
  return SL_OK;
}

static sl_status linear_b_stored_infer(const sl_attrs *attrs, int nin, const sl_type *in,
                                       sl_type *out) {
  int64_t n = 0;
  (void)nin;
  SLI_TRY(sli_want_array("dy", &in[0], SL_F32, -1));
  SLI_TRY(want_stored("weight", attrs, &in[1], &n));
  sl_type dy = sli_type_with_last(&in[0], n);
  SLI_TRY(sli_want("dy", &in[0], &dy));
  out[0] = sli_type_with_last(&in[0], attrs->weight.width);
  return SL_OK;
}

static void linear_stored_cost(const sl_attrs *attrs, int nin, const sl_type *in,
                               const sl_type *out, double *flops, double *bytes) {
  (void)attrs;
  *flops = 2.0 * (double)sl_type_elements(&in[0]) * (double)sl_type_last(&out[0]);
  *bytes = sli_argument_bytes(nin, in, 1, out);
}

static sl_status embedding_stored_infer(const sl_attrs *attrs, int nin, const sl_type *in,
                                        sl_type *out) {
  int64_t rows = 0;
  (void)nin;
  SLI_TRY(sli_want_array("ids", &in[0], SL_I32, -1));
  SLI_TRY(want_stored("table", attrs, &in[1], &rows));
  if (in[0].ndim == SL_MAX_DIMS)
    return sli_misfit(&in[0], "ids may have at most %d dims", SL_MAX_DIMS - 1);
  out[0] = in[0];
  out[0].dtype = SL_F32;
  out[0].dim[out[0].ndim++] = attrs->weight.width;
  return SL_OK;
}

/* Counts only the indexed rows, which are read. */
static void embedding_stored_cost(const sl_attrs *attrs, int nin, const sl_type *in,
                                  const sl_type *out, double *flops, double *bytes) {
  (void)attrs, (void)nin, (void)in;
  *flops = 0;
  *bytes = 2.0 * (double)sl_type_bytes(&out[0]);
}

const sl_op sl_op_linear_stored = {
    .name = "linear_stored",
    .attrs = {&sl_attrs_product},
    .min_in = 2,
    .max_in = 3,
    .nout = 1,
    .cut = &(const sl_op_cut){.pieces = SL_PIECES_ROWS, .whole = 6},
    .infer = linear_stored_infer,
    .cost = linear_stored_cost,
    .memory = &(const sl_op_memory){.keeps = sli_keeps_product},
    .rows = &(const sl_op_rows){.looks = 1, .follows = 1, .fixed = true},
    .narrow = &(const sl_op_narrow){.rounds = true},
    .exact = &sli_exact_groups,
};

const sl_op sl_op_linear_b_stored = {
    .name = "linear_b_stored",
    .attrs = {&sl_attrs_product},
    .min_in = 2,
    .max_in = 2,
    .nout = 1,
    .cut = &(const sl_op_cut){.pieces = SL_PIECES_ROWS, .whole = 2},
    .infer = linear_b_stored_infer,
    .cost = linear_stored_cost,
    .memory = &(const sl_op_memory){.keeps = sli_keeps_product},
    .rows = &(const sl_op_rows){.looks = 1, .follows = 1, .fixed = true},
    .narrow = &(const sl_op_narrow){.rounds = true},
    .exact = &sli_exact_groups,
};

const sl_op sl_op_embedding_stored = {
    .name = "embedding_stored",
    .min_in = 2,
    .max_in = 2,
    .nout = 1,
    .traits = SL_OP_CHEAP,
    .cut = &(const sl_op_cut){.pieces = SL_PIECES_ROWS, .whole = 2},
    .infer = embedding_stored_infer,
    .cost = embedding_stored_cost,
};
