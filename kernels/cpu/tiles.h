/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products on tiles, for processors that have them (AMX): in bf16, and in f32 as sums of
 * bf16 products. */
#ifndef SLUICE_KERNELS_CPU_TILES_H
#define SLUICE_KERNELS_CPU_TILES_H

#include "kernels/cpu/product.h"

/* Returns true if this processor multiplies bf16 on tiles. Callable from any thread. */
bool sli_has_tiles(void);

/* Computes C = A B, or C += A B, for `rows` rows of A. A is f32, B f32 or packed
 * (sli_product_shape). `scratch` has sli_tiles_scratch bytes and is 64-byte aligned. */
void sli_tiles_multiply(const sli_product_shape *shape, struct sl_team *team, int64_t rows,
                        bool add, const float *a, const void *b, const float *bias, float *c,
                        void *scratch);
size_t sli_tiles_scratch(const sli_product_shape *shape);

/* Compute one chunk of an f32 product on this thread, and return the number of chunks. */
void sli_tiles_multiply_chunk(const sli_product_shape *shape, bool add, const float *a,
                              const float *b, const float *bias, float *c, int chunk);
int sli_tiles_chunks(const sli_product_shape *shape);

#endif
