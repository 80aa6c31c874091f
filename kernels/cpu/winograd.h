/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions with kernels of 3x3 by Winograd's method: 16 products of channels in place of the 36
 * that 2x2 outputs have by columns. Sums are in another order than by columns; errors are about
 * twice as large. */
#ifndef SLUICE_KERNELS_CPU_WINOGRAD_H
#define SLUICE_KERNELS_CPU_WINOGRAD_H

#include <sluice/op.h>

#include "ops/layout.h"

/* A convolution of x with `outputs` kernels, or a gradient. */
typedef struct sli_winograd_shape {
  sli_window window;
  int64_t outputs;
  enum { SLI_WINOGRAD_Y, SLI_WINOGRAD_X, SLI_WINOGRAD_W } of; /* what is computed: y, dx, dw */
} sli_winograd_shape;

/* Returns true if this method is faster. */
bool sli_winograd_takes(const sl_attrs *attrs, const sli_window *window, int64_t outputs);

typedef struct sli_winograd_plan sli_winograd_plan;

sl_status sli_winograd_create(const sli_winograd_shape *shape, sli_winograd_plan **plan);
void sli_winograd_destroy(sli_winograd_plan *plan);
size_t sli_winograd_scratch(const sli_winograd_shape *shape);

/* Computes `to` for `images` images: y from x and w (and the bias, or NULL), dx from dy and w, or
 * dw, to which it adds if `adds`, from x and dy. */
void sli_winograd_run(const sli_winograd_plan *plan, struct sl_team *team, int64_t images,
                      const float *from, const float *w, const float *bias, bool adds, float *to,
                      void *scratch);

#endif
