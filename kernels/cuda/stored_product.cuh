/* SPDX-License-Identifier: Apache-2.0 */
/* Products with weights as they are stored, y = x w^T + b. Weights are unpacked in registers. Sums
 * are split by columns of the weights alone, over the lanes and warps of a block, and are joined in
 * order, so a row has the same bits alone and in any batch. */
#ifndef SLUICE_CUDA_STORED_PRODUCT_CUH
#define SLUICE_CUDA_STORED_PRODUCT_CUH

#include "kernels/cuda/sort.cuh"
#include "kernels/cuda/stored.cuh"

namespace sli {

constexpr int PRODUCT_WARPS = BLOCK / WARP, PARTS = PRODUCT_WARPS * QUADS;
constexpr int MOST_ROWS = 8; /* rows of x that share a reading of the weights */

struct product {
  stored w;
  const float *x, *bias;
  float *y;
  int64_t rows;
  bool packed; /* rows of x begin at multiples of 16 bytes */
  /* experts: places of rows, sorted by expert; NULL: one matrix for all rows */
  const uint64_t *keys = nullptr;
  int64_t experts = 1, each = 1;       /* each: places that share a row of x */
  int64_t expert_bytes = 0;            /* of an expert's matrix */
  const uint64_t *addresses = nullptr; /* of the experts' matrices, if they are not adjacent */
  /* rows of x that tensor_product.cuh has split */
  const uint32_t *split = nullptr;
  const float *sums = nullptr;
};

/* Rows of a block, and its matrix. */
struct rows_of_block {
  const void *weights;
  int64_t first, count; /* rows, or sorted places */
};

/* Returns the rows of a block of up to `most`: those of one expert, counted from its first. */
__device__ inline rows_of_block block_rows(const product &p, int64_t most) {
  int64_t at = blockIdx.y;
  if (!p.keys) {
    int64_t first = at * most, rest = p.rows - first;
    return {p.w.data, first, rest < most ? rest : most};
  }
  int64_t expert = number_of(p.keys[at]), begin = bisect(p.keys, 0, at, key_of(expert, 0));
  if (expert >= p.experts || (at - begin) % most) return {nullptr, at, 0};
  int64_t end = at;
  while (end < p.rows && end < at + most && number_of(p.keys[end]) == expert) end++;
  const char *matrix = p.addresses ? (const char *)p.addresses[expert]
                                   : (const char *)p.w.data + expert * p.expert_bytes;
  return {matrix, at, end - at};
}

__device__ inline int64_t row_of_y(const product &p, int64_t i) {
  return p.keys ? place_of(p.keys[i]) : i;
}

/* Reads four numbers of a row of x from column c on. */
__device__ inline void read_four(const product &p, const float *row, int64_t c, float (&to)[4]) {
  if (p.packed && c + 4 <= p.w.k) load<4>(to, row + c);
  else
    for (int e = 0; e < 4; e++) to[e] = c + e < p.w.k ? row[c + e] : 0.0f;
}

/* Adds the products of a span. */
template <typename W, int R>
__device__ inline void add_span(const product &p, const stored &matrix, const rows_of_block &rows,
                                int64_t column, int64_t span, float (&sum)[R][LANE_ROWS]) {
  float w[LANE_ROWS][W::E];
  W::read(matrix, column, span, w);
#pragma unroll
  for (int r = 0; r < R; r++) {
    int64_t row = row_of_y(p, rows.first + (r < rows.count ? r : 0)) / p.each;
#pragma unroll
    for (int q = 0; q < W::E / 4; q++) {
      float x[4];
      read_four(p, p.x + row * p.w.k, W::column(span, q), x);
#pragma unroll
      for (int l = 0; l < LANE_ROWS; l++)
#pragma unroll
        for (int e = 0; e < 4; e++) sum[r][l] += w[l][4 * q + e] * x[e];
    }
  }
}

/* A block computes GROUP columns of y for R rows. Lanes of a warp take parts of each span, warps
 * take spans in turn; their sums are added in this order. */
template <typename W, int R> __global__ void multiply(product p) {
  SLI_SHARED(shared);
  float(*parts)[R][GROUP] = (float(*)[R][GROUP])shared;
  rows_of_block rows = block_rows(p, R);
  if (!rows.count) return;
  stored matrix = {rows.weights, p.w.n, p.w.k, p.w.packed};
  int64_t column = (int64_t)blockIdx.x * GROUP;
  int warp = (int)threadIdx.x / WARP, lane_row = first_row_of_lane();
  float sum[R][LANE_ROWS] = {};
  for (int64_t span = warp; span * W::SPAN < p.w.k; span += PRODUCT_WARPS)
    add_span<W, R>(p, matrix, rows, column, span, sum);
#pragma unroll
  for (int r = 0; r < R; r++)
#pragma unroll
    for (int l = 0; l < LANE_ROWS; l++)
      parts[warp * QUADS + quad_of_lane()][r][lane_row + l] = sum[r][l];
  __syncthreads();
  for (int i = (int)threadIdx.x; i < R * GROUP; i += BLOCK) {
    int64_t r = i / GROUP, c = column + i % GROUP;
    if (r >= rows.count || c >= p.w.n) continue;
    float total = parts[0][r][i % GROUP];
    for (int k = 1; k < PARTS; k++) total += parts[k][r][i % GROUP];
    p.y[row_of_y(p, rows.first + r) * p.w.n + c] = p.bias ? total + p.bias[c] : total;
  }
}

template <typename W, int R> void multiply_rows(const product &p, void *stream) {
  int64_t blocks = p.keys ? p.rows : chunks(p.rows, R);
  launch(stream, dim3((unsigned)chunks(p.w.n, GROUP), (unsigned)blocks), BLOCK,
         sizeof(float) * PARTS * R * GROUP, multiply<W, R>, p);
}

template <typename W> void multiply_all(const product &p, void *stream) {
  if (p.rows == 1) multiply_rows<W, 1>(p, stream);
  else if (p.rows == 2) multiply_rows<W, 2>(p, stream);
  else if (p.rows <= 4) multiply_rows<W, 4>(p, stream);
  else multiply_rows<W, MOST_ROWS>(p, stream);
}

/* Multiplies by rows of weights of any format of a server. `scratch` has split_product_bytes() for
 * all rows of k numbers. */
void multiply_stored(sl_storage storage, product p, void *scratch, void *stream);
size_t split_product_bytes(sl_storage storage, int64_t rows, int64_t k);

} // namespace sli

#endif
