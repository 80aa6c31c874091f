/* Matrix products of the linear rows: the one place that calls a library. */
#ifndef SLUICE_PRODUCT_H
#define SLUICE_PRODUCT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <sluice/op.h>

/* C[m, n] = op(A)[m, k] op(B)[k, n]; op transposes a matrix that is stored the
 * other way round. Row-major and dense.
 *
 * A product is in f32, or its operands are bf16 and its sums f32. Then A comes
 * as f32 and is rounded on the way if it is not transposed, and from sli_turn_run if
 * it is; B comes from sli_pack_run. */
typedef struct sli_product_shape {
  int64_t m, n, k;
  bool a_transposed, b_transposed;
  bool bias; /* a vector [n] is added to every row of C */
  bool add;  /* may be asked to add to C instead of overwriting it */
  bool bf16;
} sli_product_shape;

typedef struct sli_product sli_product;

/* Any thread. A product may run on several threads at once. */
sl_status sli_product_create(const sli_product_shape *shape, sli_product **product);
void sli_product_destroy(sli_product *product);

/* C = A B, or C += A B if `add`. Cut into chunks of rows by shape alone. */
void sli_product_run(const sli_product *product, struct sl_team *team, bool add, const void *a,
                     const void *b, const float *bias, float *c);

/* The same for the first `rows` rows of C at least. */
void sli_product_run_rows(const sli_product *product, struct sl_team *team, int64_t rows,
                          const void *a, const void *b, const float *bias, float *c);

/* One of those chunks, on this thread; and how many there are. */
void sli_product_run_chunk(const sli_product *product, bool add, const void *a, const void *b,
                           const float *bias, float *c, int chunk);
int sli_product_chunks(const sli_product *product);

/* This thread's room for operands that a caller puts together, 64-byte aligned: until it asks for that
 * one again. */
enum { SLI_PRODUCT_ROOMS = 2 };
float *sli_product_room(int which, size_t bytes);

/* Brings the f32 matrix B of products of this shape (bf16) into the form
 * they read. Fails if that takes more than `room` bytes. */
typedef struct sli_pack sli_pack;
sl_status sli_pack_create(const sli_product_shape *shape, size_t room, sli_pack **pack);
void sli_pack_destroy(sli_pack *pack);
void sli_pack_run(const sli_pack *pack, struct sl_team *team, const float *b, void *packed);

/* The same for a transposed A, [k, m], which takes so many bytes. */
size_t sli_turned_bytes(int64_t m, int64_t k);
void sli_turn_run(const sli_product_shape *shape, struct sl_team *team, const float *a, void *turned);

#endif
