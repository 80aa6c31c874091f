/* SPDX-License-Identifier: Apache-2.0 */
/* oneDNN primitives for matrix products. A call multiplies on the calling thread. */
#ifndef SLUICE_ONEDNN_H
#define SLUICE_ONEDNN_H

#include <dnnl.h>

#include "kernels/cpu/product.h"

/* Operand numbers. */
enum { SLI_ONEDNN_A, SLI_ONEDNN_B, SLI_ONEDNN_C, SLI_ONEDNN_BIAS, SLI_ONEDNN_SCRATCH, SLI_ONEDNN_OPERANDS };

/* A primitive: some rows of a product, which overwrites C or adds to it; or a packing, from A to
 * C. */
typedef struct sli_onednn {
  uint64_t number; /* unique in the process; 0: none */
  dnnl_primitive_t primitive;
  /* owned by the primitive; NULL: no such operand */
  const dnnl_memory_desc_t *desc[SLI_ONEDNN_OPERANDS];
} sli_onednn;

/* Initialises the library. Callable from any thread; must precede all other calls. */
sl_status sli_onednn_start(void);

/* Returns true if a transposed A must be turned before the kernels of this shape read it. */
bool sli_onednn_turned(const sli_product_shape *shape);
/* Returns the row stride, in numbers, of turned f32 rows of `k`. The stride is an odd number of
 * cache lines, or many rows would map to few cache sets. */
int64_t sli_onednn_turned_row(int64_t k);

/* Creates the product of `rows` rows of this shape, with all columns or, in f32, some. `packed`:
 * order of a packed B; NULL: the library may choose. */
sl_status sli_onednn_create(sli_onednn *kernel, const sli_product_shape *shape, int64_t rows, int64_t columns,
                            bool add, const dnnl_memory_desc_t *packed);

/* Creates the packing of an f32 B into this order. */
sl_status sli_onednn_packs(const sli_product_shape *shape, const dnnl_memory_desc_t *order, sli_onednn *kernel);

/* Runs a primitive. Callable from several threads at once. Operands that the primitive lacks may be
 * NULL. */
void sli_onednn_run(const sli_onednn *kernel, const void *a, const void *b, const float *bias, void *c);

#endif
