/* SPDX-License-Identifier: Apache-2.0 */
/* Tiles of attention to pages, on the tensor cores (mma.cuh). Pages of bf16 stay in bf16, and
 * queries and weights of keys, in f32, are sums of two numbers of bf16. Other pages become f32. */
#ifndef SLUICE_CUDA_PAGE_TILES_CUH
#define SLUICE_CUDA_PAGE_TILES_CUH

#include "kernels/cuda/copies.cuh"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/pages.cuh"

namespace sli {

constexpr int TILE_QUERIES = 16;

/* Type of a tile's numbers. */
template <typename P> struct tile_of_pages { using number = float; };
template <> struct tile_of_pages<bf16> { using number = bf16; };

/* Rows of a tile are padded by 16 bytes: the same column of eight rows is in different banks. */
template <typename T> __host__ __device__ inline int pitch_of(int64_t columns) {
  return (int)columns + wide<T>;
}

/* Rows of f32 numbers, left operands of products with T. */
template <typename T> struct left_tile;

template <> struct left_tile<float> {
  static constexpr int PARTS = 1;
  using operand = mma<float>::a;
  float *at;
  int pitch;
  __device__ left_tile(float *at, int pitch, int) : at(at), pitch(pitch) {}
  __device__ void put(int row, int column, float x) const { at[row * pitch + column] = x; }
  __device__ operand read(int row, int column) const {
    return mma<float>::rows(at + row * pitch + column, pitch);
  }
  __device__ static void add(float (&d)[4], const operand &x, const mma<float>::b &y) {
    mma<float>::add(d, x, y);
  }
};

template <> struct left_tile<bf16> {
  static constexpr int PARTS = 2;
  struct operand {
    mma<bf16>::a high, low;
  };
  bf16 *at;
  int pitch, part; /* numbers before the lower parts */
  __device__ left_tile(bf16 *at, int pitch, int rows) : at(at), pitch(pitch), part(rows * pitch) {}
  __device__ void put(int row, int column, float x) const {
    bf16 *to = at + row * pitch + column;
    assign(to[0], x);
    assign(to[part], x - to_float(to[0]));
  }
  __device__ operand read(int row, int column) const {
    const bf16 *from = at + row * pitch + column;
    return {mma<bf16>::rows(from, pitch), mma<bf16>::rows(from + part, pitch)};
  }
  __device__ static void add(float (&d)[4], const operand &x, const mma<bf16>::b &y) {
    mma<bf16>::add(d, x.low, y);
    mma<bf16>::add(d, x.high, y);
  }
};

/* Computes products of the first `tiles` tiles of rows with two adjacent right operands of COLUMNS
 * columns in all; the inner dimension has `depth` numbers. `right` is [depth][pitch]. */
template <typename T, int TILES>
__device__ inline void multiply_tiles(float (&d)[TILES][2][4], const left_tile<T> &left, int tiles,
                                      const T *right, int pitch, int depth) {
#pragma unroll
  for (int m = 0; m < TILES; m++)
#pragma unroll
    for (int i = 0; i < 8; i++) d[m][i / 4][i % 4] = 0;
  for (int k = 0; k < depth; k += mma<T>::depth) {
    typename mma<T>::b y[2];
    mma<T>::across(y, right + k * pitch, pitch);
#pragma unroll
    for (int m = 0; m < TILES; m++) {
      if (m >= tiles) break;
      typename left_tile<T>::operand x = left.read(m * TILE_QUERIES, k);
#pragma unroll
      for (int i = 0; i < 2; i++) left_tile<T>::add(d[m][i], x, y[i]);
    }
  }
}

/* Copies a page's keys, [dim][SL_PAGE], and its first `count` values, [SL_PAGE][dim]; other values
 * become 0. They are there after wait_for_copies() and a barrier. */
template <typename T> __device__ inline void copy_page(const page_layout &l, const T *page, int dim,
                                                       int count, T *keys, T *values) {
  constexpr int N = wide<T>;
  int key_pitch = pitch_of<T>(SL_PAGE), value_pitch = pitch_of<T>(dim);
  for (int i = (int)threadIdx.x; i < dim * SL_PAGE / N; i += (int)blockDim.x) {
    int d = i / (SL_PAGE / N), key = i % (SL_PAGE / N) * N, j = i / (dim / N),
        c = i % (dim / N) * N;
    copy_async<16>(keys + d * key_pitch + key, page + d * l.key_step + key);
    copy_async<16>(values + j * value_pitch + c, page + l.values + j * l.value_row + c, j < count);
  }
  commit_copies();
}
/* Widens numbers of one byte. */
template <typename P> __device__ inline void widen_page(const page_layout &l, const P *page,
                                                        int dim, int count, float *keys,
                                                        float *values) {
  int key_pitch = pitch_of<float>(SL_PAGE), value_pitch = pitch_of<float>(dim);
  for (int i = (int)threadIdx.x; i < dim * SL_PAGE; i += (int)blockDim.x) {
    int d = i / SL_PAGE, key = i % SL_PAGE, j = i / dim, c = i % dim;
    keys[d * key_pitch + key] = page_number(page[key * l.key_row + d * l.key_step]) *
                                key_scale(l, page, key, d / SLI_PAGE_BLOCK);
    values[j * value_pitch + c] =
        j < count ? page_number(page[l.values + j * l.value_row + c]) * value_scale(l, page, j, c)
                  : 0.0f;
  }
  commit_copies();
}
__device__ inline void copy_page(const page_layout &l, const uint8_t *page, int dim, int count,
                                 float *keys, float *values) {
  widen_page(l, page, dim, count, keys, values);
}
__device__ inline void copy_page(const page_layout &l, const fp8 *page, int dim, int count,
                                 float *keys, float *values) {
  widen_page(l, page, dim, count, keys, values);
}

} // namespace sli

#endif
