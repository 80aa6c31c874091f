/* oneDNN's primitives for matrix products: one call multiplies on the calling thread. */
#ifndef SLUICE_ONEDNN_H
#define SLUICE_ONEDNN_H

#include <dnnl.h>

#include "kernels/cpu/product.h"

/* Operands by number. */
enum { SLI_ONEDNN_A, SLI_ONEDNN_B, SLI_ONEDNN_C, SLI_ONEDNN_BIAS, SLI_ONEDNN_SCRATCH, SLI_ONEDNN_OPERANDS };

/* One primitive: some rows of a product, which overwrites C or adds to it; or a packing, from A to C. */
typedef struct sli_onednn {
  uint64_t number; /* unique in the process; 0: there is none */
  dnnl_primitive_t primitive;
  const dnnl_memory_desc_t *desc[SLI_ONEDNN_OPERANDS]; /* the primitive's; NULL: it has no such operand */
} sli_onednn;

/* Any thread; before all else. */
sl_status sli_onednn_start(void);

/* Is an A that is transposed to be turned before the kernels of this shape read it? */
bool sli_onednn_turned(const sli_product_shape *shape);
/* From row to row, in numbers, of `k` in f32 that are turned: an odd number of cache lines, or many rows would share few
 * places in the cache. */
int64_t sli_onednn_turned_row(int64_t k);

/* `rows` rows of a product of this shape, all of their columns or, in f32, some. `packed`: the order of a packed B;
 * NULL: the library may choose. */
sl_status sli_onednn_create(sli_onednn *kernel, const sli_product_shape *shape, int64_t rows, int64_t columns,
                            bool add, const dnnl_memory_desc_t *packed);

/* Brings an f32 B into this order. */
sl_status sli_onednn_packs(const sli_product_shape *shape, const dnnl_memory_desc_t *order, sli_onednn *kernel);

/* Any thread, several at once. What a primitive has no operand for may be NULL. */
void sli_onednn_run(const sli_onednn *kernel, const void *a, const void *b, const float *bias, void *c);

#endif
