/* SPDX-License-Identifier: Apache-2.0 */
/* Operands of a matrix product, for tests of the product kernels. */
#ifndef SLUICE_TESTS_SUPPORT_PRODUCTS_H
#define SLUICE_TESTS_SUPPORT_PRODUCTS_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/product.h"

/* C starts as `start` and should become `want`. bias: NULL if the shape has none. */
typedef struct operands {
  sli_product_shape shape;
  float *a, *b, *bias, *start, *want, *c;
} operands;

/* Draws one number. */
typedef float operand_fn(void);

static inline float *operand_numbers(int64_t count, operand_fn *draw) {
  float *p = aligned_alloc(64, ((size_t)count * sizeof *p + 63) / 64 * 64);
  for (int64_t i = 0; i < count; i++) p[i] = draw();
  return p;
}

static inline operands operands_of(sli_product_shape s, operand_fn *draw) {
  return (operands){s,
                    operand_numbers(s.m * s.k, draw),
                    operand_numbers(s.k * s.n, draw),
                    s.bias ? operand_numbers(s.n, draw) : NULL,
                    operand_numbers(s.m * s.n, draw),
                    operand_numbers(s.m * s.n, draw),
                    operand_numbers(s.m * s.n, draw)};
}

static inline void operands_release(operands *o) {
  float *all[] = {o->a, o->b, o->bias, o->start, o->want, o->c};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

static inline void operands_start(operands *o) {
  memcpy(o->c, o->start, (size_t)(o->shape.m * o->shape.n) * sizeof *o->c);
}

#endif
