/* SPDX-License-Identifier: Apache-2.0 */
/* Format of the KV cache's pages, and their numbers in Q8_0, for CPU and CUDA. Pages in fp8 have
 * floats of 8 bits (e4m3) without scales.
 *
 * In Q8_0 each key and each value is cut into blocks of SLI_PAGE_BLOCK numbers, the last of which
 * may be shorter. A block has a scale d, the largest size of its numbers / 127, and number i is
 * stored as the byte 128 + q with q = rint(x_i (1 / d)). The scale is stored as a half. Readers
 * compute in f32 with q times the half, a product that is exact, so the format is a rounding and
 * everything else is as with pages in f32.
 *
 * A page of a KV head holds the bytes of its keys, as K^T [dim, SL_PAGE], and of its values
 * [SL_PAGE, dim], then the halves of the keys [blocks, SL_PAGE] and of the values [SL_PAGE,
 * blocks]. A page of latents holds the bytes [SL_PAGE, width], then the halves [SL_PAGE, blocks].
 */
#ifndef SLUICE_OPS_PAGES_H
#define SLUICE_OPS_PAGES_H

#include <math.h>
#include <stdint.h>

#include <sluice/batch.h>
#include <sluice/op.h>

#ifdef __CUDACC__
#define SLI_PAGES __host__ __device__ static inline
#else
#define SLI_PAGES static inline
#endif

/* Returns the format of the pages that a served op keeps. */
static inline sl_storage sli_pages_storage(const sl_attrs *attrs) {
  return (sl_storage)attrs->pages.storage;
}

enum { SLI_PAGE_BLOCK = 32, SLI_PAGE_CENTRE = 128 };

SLI_PAGES int64_t sli_page_blocks(int64_t dim) {
  return (dim + SLI_PAGE_BLOCK - 1) / SLI_PAGE_BLOCK;
}

/* Bytes of `rows` keys or values of `dim` numbers. */
SLI_PAGES int64_t sli_page_bytes(int64_t rows, int64_t dim) {
  return rows * (dim + 2 * sli_page_blocks(dim));
}

/* Stores n numbers, `step` bytes apart, and returns their scale, before its rounding. If a number
 * is not finite, the scale is NaN. */
SLI_PAGES float sli_page_round(const float *x, int64_t n, uint8_t *to, int64_t step) {
  const float least = 0x1p-25f; /* half rounds scales up to this to 0 */
  float most = 0, odd = 0;
  for (int64_t i = 0; i < n; i++) {
    float size = fabsf(x[i]);
    most = size > most ? size : most;
    odd += x[i] - x[i];
  }
  float scale = odd == 0 ? most / 127 : odd, by = scale > least ? 1 / scale : 0;
  for (int64_t i = 0; i < n; i++)
    to[i * step] = (uint8_t)(SLI_PAGE_CENTRE + (by > 0 ? (int)rintf(x[i] * by) : 0));
  return scale;
}

#endif
