/* Matrix products of the linear rows: the one place that calls libraries. */
#ifndef SLUICE_PRODUCT_H
#define SLUICE_PRODUCT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <sluice/op.h>

/* C[m, n] = op(A)[m, k] op(B)[k, n]; op transposes a matrix that is stored the
 * other way round. Row-major and dense.
 *
 * A product is in f32, or its operands are rounded to bf16 and its sums f32. Then B comes as f32 or
 * from sli_pack_run, with the same results. In f32 it is as near to the exact sum as f32 gets, but not everywhere the same:
 * libraries add up in their own order, and on tiles (tiles.h) numbers of bf16 that add up to those given are multiplied. */
typedef struct sli_product_shape {
  int64_t m, n, k;
  bool a_transposed, b_transposed;
  bool bias; /* a vector [n] is added to every row of C */
  bool add;  /* may be asked to add to C instead of overwriting it */
  bool cold; /* no cache has the place of C: much of it is written past them, on tiles */
  bool bf16;
  bool b_packed; /* bf16: B comes from sli_pack_run */
} sli_product_shape;

typedef struct sli_product sli_product;

/* Any thread. A product may run on several threads at once. */
sl_status sli_product_create(const sli_product_shape *shape, sli_product **product);
void sli_product_destroy(sli_product *product);

/* C = A B, or C += A B if `add`. Cut into chunks by shape alone. `scratch` has sli_product_scratch bytes, which is 0
 * in f32. */
void sli_product_run(const sli_product *product, struct sl_team *team, bool add, const float *a,
                     const void *b, const float *bias, float *c, void *scratch);
size_t sli_product_scratch(const sli_product_shape *shape);

/* The same for the first `rows` rows of C at least. */
void sli_product_run_rows(const sli_product *product, struct sl_team *team, int64_t rows,
                          const float *a, const void *b, const float *bias, float *c, void *scratch);

/* One chunk of a product in f32, on this thread; and how many there are. */
void sli_product_run_chunk(const sli_product *product, bool add, const void *a, const void *b,
                           const float *bias, float *c, int chunk);
int sli_product_chunks(const sli_product *product);

/* Brings the f32 matrix B of products of this shape (bf16) into the form
 * they read. Fails if that takes more than `room` bytes. */
typedef struct sli_pack sli_pack;
sl_status sli_pack_create(const sli_product_shape *shape, size_t room, sli_pack **pack);
void sli_pack_destroy(sli_pack *pack);
void sli_pack_run(const sli_pack *pack, struct sl_team *team, const float *b, void *packed);

#endif
