/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of grouped linear maps, sorted by the expert that their ids name, and their products. */
#ifndef SLUICE_KERNELS_CPU_GROUPED_H
#define SLUICE_KERNELS_CPU_GROUPED_H

#include "kernels/cpu/served.h"

/* Returns the expert of a row among the call's first `experts`, or -1 if it has none
 * here. */
static inline int64_t sli_expert_of(const sl_call *call, int experts, int64_t row) {
  int64_t id = (int64_t)((const int32_t *)call->in[1])[row];
  int64_t e = id < 0 ? -1 : id - call->attrs->place.first;
  return e >= 0 && e < experts ? e : -1;
}

/* Sorts rows by expert and keeps their order within each expert. Rows of expert e end at ends[e] in
 * `order`, where those of the next expert begin. `ends` has room for one more. */
void sli_sort_by_expert(const sl_call *call, int experts, int64_t rows, int32_t *order,
                        int32_t *ends);

/* Sets the rows without an expert to 0. */
void sli_clear_without_expert(const sl_call *call, int experts, int64_t rows, float *y,
                              int64_t width);

/* The product of some rows with one expert's matrix, as a linear layer with that weight computes
 * it. */
typedef struct sli_expert_product {
  const sl_attrs *attrs;
  const sl_type *weight; /* [n, k], in its storage format */
  sl_storage storage;
  const void *values;
  const float *x; /* [rows, k] */
  float *y;       /* [rows, n] */
  int64_t rows, k;
  sli_digits *digits; /* room for the digits of x, if the weight is in blocks */
} sli_expert_product;

void sli_expert_product_piece(const sli_expert_product *p, int pieces, int piece);
/* Computes the digits of a row of x, unless pieces compute their own. */
void sli_expert_product_digits(const sli_expert_product *p, int64_t row);

#endif
