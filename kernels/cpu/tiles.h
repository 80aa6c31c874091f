/* Products on tiles of numbers, for processors that have them (AMX): in bf16, and in f32 as sums of such. */
#ifndef SLUICE_TILES_H
#define SLUICE_TILES_H

#include "kernels/cpu/product.h"

/* Any thread. False: this processor multiplies otherwise: numbers of bf16; products of a shape. */
bool sli_has_tiles(void);
bool sli_tiles_take(const sli_product_shape *shape);

/* C = A B, or C += A B, of `rows` rows of A; A as f32, B too or packed (sli_product_shape). `scratch` is 64-byte aligned
 * and of sli_tiles_scratch bytes. */
void sli_tiles_multiply(const sli_product_shape *shape, struct sl_team *team, int64_t rows, bool add, const float *a,
                        const void *b, const float *bias, float *c, void *scratch);
size_t sli_tiles_scratch(const sli_product_shape *shape);

/* One chunk of a product in f32, on this thread; and how many there are. */
void sli_tiles_multiply_chunk(const sli_product_shape *shape, bool add, const float *a, const float *b, const float *bias,
                              float *c, int chunk);
int sli_tiles_chunks(const sli_product_shape *shape);

#endif
