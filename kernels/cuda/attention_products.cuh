/* SPDX-License-Identifier: Apache-2.0 */
/* Products of attention tiles (attention_tiles.cuh): scores() and gather(). Either each warp
 * multiplies its bands, or a warpgroup multiplies the whole tile, as the cut C says. */
#ifndef SLUICE_CUDA_ATTENTION_PRODUCTS_CUH
#define SLUICE_CUDA_ATTENTION_PRODUCTS_CUH

#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/warpgroup.cuh"

namespace sli {

/* Waits until all products are done except those of the NEWEST newest scores() and gather(), and
 * makes a result usable. A warpgroup's products run asynchronously; a warp's are complete on
 * return. */
template <typename C, int NEWEST, int BANDS, int COLUMNS>
__device__ inline void settle(float (&d)[BANDS][COLUMNS][4]) {
  if constexpr (C::together) {
    wait_for_products<NEWEST>();
    hold(d[0]);
  }
}

/* Scores by warps. */
template <int LD, int BANDS, int COLUMNS, typename T>
__device__ inline void warp_scores(float (&s)[BANDS][COLUMNS][4], const T *a, const T *b) {
  constexpr int D = LD - wide<T>, DEPTH = mma<T>::depth;
#pragma unroll
  for (int m = 0; m < BANDS; m++)
#pragma unroll
    for (int n = 0; n < COLUMNS; n++)
#pragma unroll
      for (int i = 0; i < 4; i++) s[m][n][i] = 0;
#pragma unroll(D > 64 ? 2 : 4)
  for (int k = 0; k < D; k += DEPTH) {
    typename mma<T>::a left[BANDS];
#pragma unroll
    for (int m = 0; m < BANDS; m++) left[m] = mma<T>::rows(a + m * 16 * LD + k, LD);
#pragma unroll
    for (int n = 0; n < COLUMNS; n += 2) {
      typename mma<T>::b right[2];
      mma<T>::columns(right, b + n * 8 * LD + k, LD);
#pragma unroll
      for (int m = 0; m < BANDS; m++)
#pragma unroll
        for (int i = 0; i < 2; i++) mma<T>::add(s[m][n + i], left[m], right[i]);
    }
  }
}

/* Scores by a warpgroup: S[64, 8 COLUMNS]. */
template <typename C, int COLUMNS>
__device__ inline void group_scores(float (&s)[COLUMNS][4], const bf16 *a, const bf16 *b) {
  uint64_t left = operand_at(a), right = operand_at(b);
  start_products();
#pragma unroll
  for (int k = 0; k < C::width / 16; k++) {
    int tile = k / 4 * TILE_WIDTH * (int)sizeof(bf16), step = k % 4 * TILE_STEP;
    multiply_tiles(s, left + (unsigned)(tile * C::own + step) / 16,
                   right + (unsigned)(tile * C::passing + step) / 16, k > 0);
  }
  commit_products();
}

/* S[16 BANDS, 8 COLUMNS] = A[16 BANDS, D] B[8 COLUMNS, D]^T, both in shared memory: the rows from
 * `row` on of the block's tile `a`, and the whole passing tile `b`. */
template <typename C, int BANDS, int COLUMNS, typename T>
__device__ inline void scores(float (&s)[BANDS][COLUMNS][4], const T *a, int row, const T *b) {
  if constexpr (C::together) group_scores<C>(s[0], a, b);
  else warp_scores<C::ld>(s, a + row * C::ld, b);
}

/* Gathers by warps, column by column: with all columns in flight, heads of 256 in f32 exceed the
 * registers. */
template <int LD, int BANDS, int COLUMNS, int ROWS, typename T>
__device__ inline void warp_gather(float (&o)[BANDS][COLUMNS][4], const float (&p)[BANDS][ROWS][4],
                                   const T *b) {
  constexpr int DEPTH = mma<T>::depth, STEPS = ROWS * 8 / DEPTH;
  typename mma<T>::a left[STEPS][BANDS];
#pragma unroll
  for (int k = 0; k < STEPS; k++)
#pragma unroll
    for (int m = 0; m < BANDS; m++) left[k][m] = mma<T>::from(&p[m][k * DEPTH / 8]);
#pragma unroll
  for (int n = 0; n < COLUMNS; n += 2) {
#pragma unroll
    for (int k = 0; k < STEPS; k++) {
      typename mma<T>::b right[2];
      mma<T>::across(right, b + k * DEPTH * LD + n * 8, LD);
#pragma unroll
      for (int m = 0; m < BANDS; m++)
#pragma unroll
        for (int i = 0; i < 2; i++) mma<T>::add(o[m][n + i], left[k][m], right[i]);
    }
  }
}

/* Gathers by a warpgroup. */
template <typename C, int COLUMNS, int ROWS>
__device__ inline void group_gather(float (&o)[COLUMNS][4], const float (&p)[ROWS][4],
                                    const bf16 *b) {
  uint64_t right = operand_at(b);
  mma<bf16>::a left[ROWS / 2];
#pragma unroll
  for (int k = 0; k < ROWS / 2; k++) left[k] = mma<bf16>::from(&p[2 * k]);
  hold(o);
  start_products();
#pragma unroll
  for (int k = 0; k < ROWS / 2; k++)
#pragma unroll
    for (int n = 0; n < COLUMNS; n += 8)
      multiply_across(*reinterpret_cast<float(*)[8][4]>(&o[n]), left[k].r,
                      right + (unsigned)(n * 8 * C::passing + k * 16 * TILE_WIDTH) *
                                  (unsigned)sizeof(bf16) / 16);
  commit_products();
}

/* O[16 BANDS, 8 COLUMNS] += P[16 BANDS, 8 ROWS] B[8 ROWS, 8 COLUMNS], with P in registers, and B
 * the columns of a passing tile from c0 on. */
template <typename C, int BANDS, int COLUMNS, int ROWS, typename T>
__device__ inline void gather(float (&o)[BANDS][COLUMNS][4], const float (&p)[BANDS][ROWS][4],
                              const T *b, int c0 = 0) {
  if constexpr (C::together) group_gather<C>(o[0], p[0], b);
  else warp_gather<C::ld>(o, p, b + c0);
}

} // namespace sli

#endif
