/* Matrix products of the linear rows: the one place that calls a library. */
#ifndef SLUICE_PRODUCT_H
#define SLUICE_PRODUCT_H

#include <stdbool.h>
#include <stdint.h>

#include <sluice/op.h>

/* C[m, n] = op(A)[m, k] op(B)[k, n]; op transposes a matrix that is stored the
 * other way round. Row-major and dense. */
typedef struct sli_product_shape {
  int64_t m, n, k;
  bool a_transposed, b_transposed;
  bool bias; /* a vector [n] is added to every row of C */
  bool add;  /* may be asked to add to C instead of overwriting it */
} sli_product_shape;

typedef struct sli_product sli_product;

/* Any thread. A product may run on several threads at once. */
sl_status sli_product_create(const sli_product_shape *shape, sli_product **product);
void sli_product_destroy(sli_product *product);

/* C = A B, or C += A B if `add`. Cut into chunks of rows by shape alone. */
void sli_product_run(const sli_product *product, struct sl_team *team, bool add, const float *a,
                     const float *b, const float *bias, float *c);

#endif
