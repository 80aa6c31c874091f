/* Matrix products of the linear rows: the one place that calls a library. */
#ifndef SLUICE_PRODUCT_H
#define SLUICE_PRODUCT_H

#include <stdbool.h>
#include <stdint.h>

/* C[m, n] = op(A)[m, k] op(B)[k, n], plus C if `add`; op transposes a matrix
 * stored the other way round. Row-major, `*_row` floats from row to row. */
typedef struct sli_product {
  int64_t m, n, k;
  bool a_transposed, b_transposed, add;
  int64_t a_row, b_row, c_row;
} sli_product;

/* Runs on the calling thread alone. */
void sli_product_run(const sli_product *p, const float *a, const float *b, float *c);

#endif
