/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers of the KV cache's pages, in f32, bf16, fp8, or Q8_0 (ops/pages.h), whose type is uint8_t.
 */
#ifndef SLUICE_CUDA_PAGES_CUH
#define SLUICE_CUDA_PAGES_CUH

#include "io/small.h"
#include "kernels/cuda/batch.cuh"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/stored.cuh"
#include "ops/pages.h"

namespace sli {

/* A float of 8 bits. */
struct fp8 {
  uint8_t bits;
};
__device__ inline float to_float(fp8 x) { return sli_e4m3_to_float(x.bits); }
__device__ inline void assign(fp8 &to, float x) { to.bits = sli_float_to_e4m3(x); }

template <typename P> constexpr bool is_scaled = std::is_same_v<P, uint8_t>;

/* Where the numbers of a key and of a value are in a page, and the halves of Q8_0. */
struct page_layout {
  int64_t page;                          /* numbers, or bytes, of a page of one KV head */
  int64_t key_row, key_step;             /* strides of keys and of a key's numbers */
  int64_t values, value_row;             /* where the values begin, and their stride */
  int64_t scales;                        /* bytes before the halves */
  int64_t key_scale_row, key_scale_step; /* strides, in halves, of keys and of a key's blocks */
  int64_t value_scales, value_scale_row; /* where the halves of the values begin, their stride */
};

/* Layout of a page of keys and of values. */
template <typename P> inline page_layout layout_of_heads(int64_t dim) {
  page_layout l = {};
  int64_t blocks = sli_page_blocks(dim);
  l.page = is_scaled<P> ? sli_page_bytes(2 * SL_PAGE, dim) : 2 * SL_PAGE * dim;
  l.key_row = 1, l.key_step = SL_PAGE;
  l.values = SL_PAGE * dim, l.value_row = dim;
  l.scales = 2 * SL_PAGE * dim;
  l.key_scale_row = 1, l.key_scale_step = SL_PAGE;
  l.value_scales = SL_PAGE * blocks, l.value_scale_row = blocks;
  return l;
}

/* Layout of a page of latents, whose first numbers are the values too. */
template <typename P> inline page_layout layout_of_latents(int64_t width) {
  page_layout l = {};
  l.page = is_scaled<P> ? sli_page_bytes(SL_PAGE, width) : SL_PAGE * width;
  l.key_row = l.value_row = width, l.key_step = 1;
  l.scales = SL_PAGE * width;
  l.key_scale_row = l.value_scale_row = sli_page_blocks(width), l.key_scale_step = 1;
  return l;
}

/* Calls f with a number of the type of the pages. */
template <typename F> void with_pages(sl_storage storage, F f) {
  if (storage == SL_STORAGE_F32) f(float());
  else if (storage == SL_STORAGE_BF16) f(bf16());
  else if (storage == SL_STORAGE_FP8) f(fp8());
  else f(uint8_t());
}

__device__ inline float page_number(float x) { return x; }
__device__ inline float page_number(bf16 x) { return to_float(x); }
__device__ inline float page_number(fp8 x) { return to_float(x); }
__device__ inline float page_number(uint8_t x) { return (float)((int)x - SLI_PAGE_CENTRE); }

/* Return the scale of a block of key j, and of number d of value j. */
template <typename P>
__device__ inline float key_scale(const page_layout &, const P *, int64_t, int64_t) {
  return 1;
}
template <typename P>
__device__ inline float value_scale(const page_layout &, const P *, int64_t, int64_t) {
  return 1;
}
__device__ inline const uint16_t *halves_of(const page_layout &l, const uint8_t *page) {
  return (const uint16_t *)(page + l.scales);
}
__device__ inline float key_scale(const page_layout &l, const uint8_t *page, int64_t j, int64_t b) {
  return half_to_float(halves_of(l, page)[j * l.key_scale_row + b * l.key_scale_step]);
}
__device__ inline float value_scale(const page_layout &l, const uint8_t *page, int64_t j,
                                    int64_t d) {
  int64_t at = l.value_scales + j * l.value_scale_row + d / SLI_PAGE_BLOCK;
  return half_to_float(halves_of(l, page)[at]);
}

__device__ inline uint16_t float_to_half(float x) {
#ifdef __CUDA_ARCH__
  uint16_t half;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(x));
  return half;
#else
  return sli_float_to_half(x);
#endif
}

/* Writes key j, or value j, of a page, with a thread per number, or per block. number(d) is number
 * d. */
template <typename P, typename F>
__device__ inline void keep_key(const page_layout &l, P *page, int64_t j, int64_t dim, F number) {
  for (int64_t d = threadIdx.x; d < dim; d += blockDim.x)
    assign(page[j * l.key_row + d * l.key_step], number(d));
}
template <typename P, typename F>
__device__ inline void keep_value(const page_layout &l, P *page, int64_t j, int64_t dim, F number) {
  for (int64_t d = threadIdx.x; d < dim; d += blockDim.x)
    assign(page[l.values + j * l.value_row + d], number(d));
}

template <typename F>
__device__ inline uint16_t keep_block(int64_t b, int64_t dim, F number, uint8_t *to, int64_t step) {
  float x[SLI_PAGE_BLOCK];
  int64_t first = b * SLI_PAGE_BLOCK, left = dim - first;
  int64_t n = left < SLI_PAGE_BLOCK ? left : (int64_t)SLI_PAGE_BLOCK;
  for (int64_t i = 0; i < n; i++) x[i] = number(first + i);
  return float_to_half(sli_page_round(x, n, to + first * step, step));
}
template <typename F> __device__ inline void keep_key(const page_layout &l, uint8_t *page,
                                                      int64_t j, int64_t dim, F number) {
  uint16_t *halves = (uint16_t *)(page + l.scales) + j * l.key_scale_row;
  for (int64_t b = threadIdx.x; b < sli_page_blocks(dim); b += blockDim.x)
    halves[b * l.key_scale_step] = keep_block(b, dim, number, page + j * l.key_row, l.key_step);
}
template <typename F> __device__ inline void keep_value(const page_layout &l, uint8_t *page,
                                                        int64_t j, int64_t dim, F number) {
  uint16_t *halves = (uint16_t *)(page + l.scales) + l.value_scales + j * l.value_scale_row;
  for (int64_t b = threadIdx.x; b < sli_page_blocks(dim); b += blockDim.x)
    halves[b] = keep_block(b, dim, number, page + l.values + j * l.value_row, 1);
}

} // namespace sli

#endif
