/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products of the linear ops; no other code calls the libraries. */
#ifndef SLUICE_KERNELS_CPU_PRODUCT_H
#define SLUICE_KERNELS_CPU_PRODUCT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <sluice/op.h>

#include "kernels/cpu/choice.h"

/* C[m, n] = op(A)[m, k] op(B)[k, n]; op transposes a matrix that is stored transposed. Row-major
 * and dense.
 *
 * A product is in f32, or rounds its operands to bf16 and sums in f32. In bf16, B comes as f32 or
 * from sli_pack_run, with the same results. In f32 the result is as close to the exact sum as f32
 * allows, but differs between machines: each library has an order of summation, and tiles (tiles.h)
 * multiply bf16 numbers that add up to the given ones. */
typedef struct sli_product_shape {
  int64_t m, n, k;
  bool a_transposed, b_transposed;
  bool bias; /* add a vector [n] to every row of C */
  bool add;  /* runs may add to C instead of overwriting it */
  bool cold; /* C is in no cache; on tiles, a large C is written past the caches */
  bool bf16;
  bool b_packed; /* bf16: B comes from sli_pack_run */
  /* 0: sums in any order. Otherwise f32 sums run along k in groups of `chunk` steps, and a binary
   * tree over the groups' numbers adds them; the first group's sum begins with the bias. An element
   * of C then depends only on its row of A and column of B. `part`: lengths of the parts of k (all
   * 0: one part); each part is divided evenly among the groups. */
  int64_t chunk, part[SL_PART_RANGES];
  sli_family family; /* of an f32 product without an order */
} sli_product_shape;

/* Sets the summation order that a call asks for in the shape of an f32 product over k, which may be
 * a part of the whole. */
static inline void sli_product_order(sli_product_shape *shape, const sl_attrs *attrs) {
  if (!attrs->numbers.exact || shape->bf16) return;
  shape->chunk = attrs->numbers.chunk ? attrs->numbers.chunk : shape->k;
  int64_t whole = 0;
  for (int p = 0; p < SL_PART_RANGES; p++) whole += attrs->numbers.part[p];
  for (int p = 0; p < SL_PART_RANGES && whole; p++)
    shape->part[p] = attrs->numbers.part[p] * shape->k / whole;
}

/* Returns the valid rows of input i, counted along its first dim that is not 1. */
static inline int64_t sli_valid_rows(const sl_call *call, int i) {
  const sl_type *type = &call->in_type[i];
  int64_t all = type->ndim > 2 && type->dim[0] == 1 ? type->dim[1] : type->dim[0];
  return sl_call_rows(call, i, all) * (sl_type_rows(type) / all);
}

typedef struct sli_product sli_product;

/* Creates a product. Callable from any thread. Several threads may run a product concurrently. */
sl_status sli_product_create(const sli_product_shape *shape, sli_product **product);
void sli_product_destroy(sli_product *product);

/* Computes C = A B, or C += A B if `add`, cut into chunks by shape alone. `scratch` has
 * sli_product_scratch bytes, which is 0 in f32. */
void sli_product_run(const sli_product *product, struct sl_team *team, bool add, const float *a,
                     const void *b, const float *bias, float *c, void *scratch);
size_t sli_product_scratch(const sli_product_shape *shape);

/* Computes at least the first `rows` rows of C. */
void sli_product_run_rows(const sli_product *product, struct sl_team *team, int64_t rows,
                          const float *a, const void *b, const float *bias, float *c,
                          void *scratch);

/* Multiplies only the first `steps` of k, in a product with a summation order whose k is one
 * part. */
void sli_product_run_steps(const sli_product *product, struct sl_team *team, int64_t steps,
                           bool add, const float *a, const float *b, float *c);

/* Multiplies the first `steps` of k, in a product whose groups are leaves: rounds each group's sum
 * (ops/leaves.h) and adds it to C. */
void sli_product_run_leaves(const sli_product *product, struct sl_team *team, int64_t steps,
                            bool add, const float *a, const float *b, double *c);

/* Compute one chunk of an f32 product on this thread, and return the number of chunks. */
void sli_product_run_chunk(const sli_product *product, bool add, const void *a, const void *b,
                           const float *bias, float *c, int chunk);
int sli_product_chunks(const sli_product *product);
/* The part of C that a chunk covers, in a product with a summation order. */
typedef struct sli_product_part {
  int64_t row, rows, column, columns;
} sli_product_part;
sli_product_part sli_product_part_of(const sli_product *product, int chunk);

/* Packing of the f32 matrix B for bf16 products of this shape. Creation fails if the packed form
 * needs more than `room` bytes. */
typedef struct sli_pack sli_pack;
sl_status sli_pack_create(const sli_product_shape *shape, size_t room, sli_pack **pack);
void sli_pack_destroy(sli_pack *pack);
void sli_pack_run(const sli_pack *pack, struct sl_team *team, const float *b, void *packed);

#endif
