/* SPDX-License-Identifier: Apache-2.0 */
/* Products with weights as they are stored, y = x w^T + b, on the tensor cores, for rows of whole
 * chunks of 32 numbers.
 *
 * Weights are the left operand: their numbers in bf16, or the integers of their blocks, which bf16
 * holds exactly. Each x is the sum of two numbers of bf16, with 16 bits in all. Columns are cut
 * into chunks of 32, whose integers share a scale, and chunks into spans of 8. A span is summed
 * from zero, and the sums of spans are added in order, in float: a tensor core truncates its sums.
 * All kernels here, for few rows and for many, sum in this way. A row therefore has the same bits
 * alone and in any batch.
 *
 * Lane l of a warp has rows g = l / 4 and g + 8 of 16 rows of weights, row g of 8 rows of x, and of
 * both the same eight columns of a chunk: four for each of two products. */
#ifndef SLUICE_CUDA_TENSOR_PRODUCT_CUH
#define SLUICE_CUDA_TENSOR_PRODUCT_CUH

#include "kernels/cuda/copies.cuh"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/stored_product.cuh"

namespace sli {

constexpr int CHUNK = STORED_BLOCK, SPAN_CHUNKS = 8, HIGH_ROWS = 16, WIDE_ROWS = 8;

__device__ inline int lane_quarter() { return (int)(threadIdx.x % 4); }

/* Rows lane_row() and lane_row() + 8 of a chunk: words of two numbers. */
using left_words = uint32_t[2][4];

/* ---- weights --------------------------------------------------------------------------------- */

/* Numbers of bf16. */
struct tensor_bf16 {
  static constexpr bool SCALED = false, OFFSET = false, HALVES = false;
  struct raw {
    pack<uint32_t, 4> rows[2];
  };
  struct place { /* of a lane's rows */
    const uint32_t *rows[2];
  };
  /* Returns the column in a chunk of a lane's first number for product j. */
  __device__ static int column(int j) { return lane_quarter() * 8 + 4 * j; }
  __device__ static place place_of(const stored &w, int64_t row) {
    place at;
#pragma unroll
    for (int h = 0; h < 2; h++) {
      int64_t r = row + lane_row() + 8 * h;
      at.rows[h] =
          (const uint32_t *)((const bf16 *)w.data + (r < w.n ? r : w.n - 1) * w.k) + column(0) / 2;
    }
    return at;
  }
  __device__ static void read(raw &to, const place &at, int64_t chunk) {
#pragma unroll
    for (int h = 0; h < 2; h++) to.rows[h] = read_pack<4>(at.rows[h] + chunk * (CHUNK / 2));
  }
  __device__ static void unpack(left_words &to, const raw &from) {
#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
      for (int i = 0; i < 4; i++) to[h][i] = from.rows[h].v[i];
  }
  __device__ static float scale(const raw &, int, int) { return 1; }
  __device__ static float offset(const raw &, int, int) { return 0; }
};

/* The first block of a group; groups after the last one are the last one. */
template <int BYTES, int NUMBERS> struct group_of_blocks {
  stored_block first;
  __device__ static group_of_blocks at(const stored &w, int64_t row) {
    return {block_at<BYTES, NUMBERS>(w, row < w.n ? row : (w.n - 1) / GROUP * GROUP, 0)};
  }
  __device__ stored_block block(int64_t chunk) const {
    return {first.data + chunk * first.wide * BYTES, first.wide};
  }
};

/* Returns four bytes of a row of a group's block; a row that the group lacks is its last one. */
__device__ inline uint32_t quad_at(const stored_block &b, int quad, int row) {
  if (b.wide == GROUP) return ((const uint32_t *)b.data)[quad * GROUP + row];
  const uint8_t *from = b.data + (quad * b.wide + (row < b.wide ? row : b.wide - 1)) * 4;
  return from[0] | from[1] << 8 | from[2] << 16 | (uint32_t)from[3] << 24; /* at any even address */
}
__device__ inline uint16_t half_of_row(const stored_block &b, int64_t bytes, int kind, int row) {
  const uint16_t *halves = (const uint16_t *)(b.data + b.wide * bytes) + kind * b.wide;
  return halves[row < b.wide ? row : b.wide - 1];
}

/* Returns bytes i and i + 1 of a word in the lower bytes of its halves. */
__device__ inline uint32_t spread_bytes(uint32_t word, int i) {
#ifdef __CUDA_ARCH__
  return __byte_perm(word, 0, i ? 0x4342 : 0x4140);
#else
  return (word >> 8 * i & 255) | (word >> (8 * i + 8) & 255) << 16;
#endif
}

/* Returns the bytes of two words that the lower four bits of each byte of s name. */
__device__ inline uint32_t select_bytes(uint32_t x, uint32_t y, uint32_t s) {
#ifdef __CUDA_ARCH__
  s &= 0x07070707u;
  s = (s | s >> 4) & 0x00ff00ffu;
  return __byte_perm(x, y, s | s >> 8);
#else
  uint32_t z = 0;
  for (int i = 0; i < 4; i++) {
    int at = (int)(s >> 8 * i & 7);
    z |= ((at < 4 ? x : y) >> at % 4 * 8 & 255) << 8 * i;
  }
  return z;
#endif
}

/* Returns x - y of numbers of bf16 whose difference bf16 holds exactly. */
__device__ inline uint32_t subtract_pairs(uint32_t x, uint32_t y) {
#ifdef __CUDA_ARCH__
  uint32_t z;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(z) : "r"(y), "r"(0xbf80bf80u), "r"(x));
  return z;
#else
  return round_pair(__uint_as_float(x << 16) - __uint_as_float(y << 16),
                    __uint_as_float(x & 0xffff0000u) - __uint_as_float(y & 0xffff0000u));
#endif
}

/* Weights in blocks of integers with a scale. HALVES: the numbers of each product have a scale, and
 * an offset, of their own. */
template <int BYTES, int NUMBERS = STORED_BLOCK> struct tensor_blocks {
  static constexpr bool SCALED = true, HALVES = false;
  using place = group_of_blocks<BYTES, NUMBERS>;
  __device__ static place place_of(const stored &w, int64_t row) { return place::at(w, row); }
  /* First of the numbers of a half that a lane has, where a byte holds numbers i and i + 16. */
  __device__ static int column(int j) { return lane_quarter() * 4 + 16 * j; }
};

/* Integers from -128 to 127, stored with 128 added. 0x4300 is 128, with the lowest seven bits of
 * integers up to 255; 0x4380 is 256. */
struct tensor_q8_0 : tensor_blocks<34> {
  static constexpr bool OFFSET = false;
  struct raw {
    uint32_t words[2][2];
    uint16_t d[2];
  };
  __device__ static int column(int j) { return lane_quarter() * 8 + 4 * j; }
  __device__ static void read(raw &to, const place &at, int64_t chunk) {
    stored_block b = at.block(chunk);
#pragma unroll
    for (int h = 0; h < 2; h++) {
      int r = lane_row() + 8 * h;
#pragma unroll
      for (int j = 0; j < 2; j++) to.words[h][j] = quad_at(b, lane_quarter() * 2 + j, r);
      to.d[h] = half_of_row(b, 32, 0, r);
    }
  }
  __device__ static uint32_t numbers(uint32_t word, int i) {
    uint32_t bytes = spread_bytes(word, i);
    return subtract_pairs((bytes & 0x007f007fu) | 0x43004300u,
                          (~bytes & 0x00800080u) | 0x43004300u);
  }
  __device__ static void unpack(left_words &to, const raw &from) {
#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
      for (int i = 0; i < 4; i++) to[h][i] = numbers(from.words[h][i / 2], i % 2 * 2);
  }
  __device__ static float scale(const raw &from, int h, int) { return half_to_float(from.d[h]); }
  __device__ static float offset(const raw &, int, int) { return 0; }
};

/* Returns a table's bytes, with 128 added, at the places in the lower four bits of each byte. */
template <sl_storage TABLE> __device__ inline uint32_t table_bytes(uint32_t places) {
  constexpr bool DOUBLED = TABLE == SL_STORAGE_MXFP4;
  uint32_t quads[4], upper = (places >> 3 & 0x01010101u) * 255u;
#pragma unroll
  for (int i = 0; i < 4; i++) quads[i] = DOUBLED ? doubled_quad(i) : uneven_quad(i);
  return (select_bytes(quads[0], quads[1], places) & ~upper) |
         (select_bytes(quads[2], quads[3], places) & upper);
}

/* Integers from 0 to 15. */
struct tensor_q4_1 : tensor_blocks<20> {
  static constexpr bool OFFSET = true;
  struct raw {
    uint32_t words[2];
    uint16_t d[2], m[2];
  };
  __device__ static void read(raw &to, const place &at, int64_t chunk) {
    stored_block b = at.block(chunk);
#pragma unroll
    for (int h = 0; h < 2; h++) {
      int r = lane_row() + 8 * h;
      to.words[h] = quad_at(b, lane_quarter(), r);
      to.d[h] = half_of_row(b, 16, 0, r);
      to.m[h] = half_of_row(b, 16, 1, r);
    }
  }
  __device__ static void unpack(left_words &to, const raw &from) {
#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
      for (int i = 0; i < 4; i++) {
        uint32_t bytes = spread_bytes(from.words[h] >> i / 2 * 4, i % 2 * 2);
        to[h][i] = subtract_pairs((bytes & 0x000f000fu) | 0x43004300u, 0x43004300u);
      }
  }
  __device__ static float scale(const raw &from, int h, int) { return half_to_float(from.d[h]); }
  __device__ static float offset(const raw &from, int h, int) { return half_to_float(from.m[h]); }
};

/* Places of four bits in a table, with a scale: 16 bytes hold the numbers i and i + 16. */
template <sl_storage STORAGE> struct tensor_places : tensor_blocks<18> {
  static constexpr bool OFFSET = false;
  struct raw {
    uint32_t words[2];
    uint16_t d[2];
  };
  __device__ static void read(raw &to, const place &at, int64_t chunk) {
    stored_block b = at.block(chunk);
#pragma unroll
    for (int h = 0; h < 2; h++) {
      int r = lane_row() + 8 * h;
      to.words[h] = quad_at(b, lane_quarter(), r);
      to.d[h] = half_of_row(b, 16, 0, r);
    }
  }
  __device__ static void unpack(left_words &to, const raw &from) {
#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
      for (int j = 0; j < 2; j++) {
        uint32_t bytes = table_bytes<STORAGE>(from.words[h] >> 4 * j);
#pragma unroll
        for (int i = 0; i < 2; i++) to[h][2 * j + i] = tensor_q8_0::numbers(bytes, 2 * i);
      }
  }
  __device__ static float scale(const raw &from, int h, int) {
    return STORAGE == SL_STORAGE_MXFP4 ? __uint_as_float((uint32_t)from.d[h] << 16)
                                       : half_to_float(from.d[h]);
  }
  __device__ static float offset(const raw &, int, int) { return 0; }
};
using tensor_iq4_nl = tensor_places<SL_STORAGE_IQ4_NL>;
using tensor_mxfp4 = tensor_places<SL_STORAGE_MXFP4>;

/* ---- rows of x ------------------------------------------------------------------------------- */

/* Sums of a chunk of x that offsets multiply: of all its numbers, or of those of each product. */
template <typename W> constexpr int SUMS = W::OFFSET ? W::HALVES ? 2 : 1 : 0;

/* A lane's eight columns of a chunk of row lane_row(), and the sums of the chunk in the rows of its
 * results. */
struct right {
  uint32_t high[4], low[4];
  float sums[2][2];
};

/* Splits a lane's numbers, and sums those of the row's chunk. */
template <typename W> __device__ inline void split_chunk(const float (&x)[8], uint32_t (&high)[4],
                                                         uint32_t (&low)[4], float (&sums)[2]) {
  constexpr int EACH = W::HALVES ? 4 : 8;
#pragma unroll
  for (int s = 0; s < SUMS<W>; s++) {
    sums[s] = 0;
#pragma unroll
    for (int i = EACH * s; i < EACH * (s + 1); i++) sums[s] += x[i];
    sums[s] = warp_sum<4>(sums[s]);
  }
#pragma unroll
  for (int i = 0; i < 4; i++) {
    high[i] = round_pair(x[2 * i], x[2 * i + 1]);
    low[i] = round_pair(x[2 * i] - __uint_as_float(high[i] << 16),
                        x[2 * i + 1] - __uint_as_float(high[i] & 0xffff0000u));
  }
}

template <typename W>
__device__ inline void read_chunk(const float *row, int64_t chunk, float (&x)[8]) {
#pragma unroll
  for (int j = 0; j < 2; j++) {
    pack<float, 4> p = read_pack<4>(row + chunk * CHUNK + W::column(j));
#pragma unroll
    for (int e = 0; e < 4; e++) x[4 * j + e] = p.v[e];
  }
}

/* Rows as they are; a lane splits its own. */
template <typename W> struct rows_as_given {
  struct raw {
    float x[8];
  };
  const float *row;
  __device__ rows_as_given(const product &p, const rows_of_block &rows) {
    int64_t i = rows.first + (lane_row() < rows.count ? lane_row() : 0);
    row = p.x + row_of_y(p, i) / p.each * p.w.k;
  }
  __device__ void read(raw &to, int, int64_t chunk) const { read_chunk<W>(row, chunk, to.x); }
  __device__ void split(right &to, const raw &from) const {
    float sums[2] = {};
    split_chunk<W>(from.x, to.high, to.low, sums);
#pragma unroll
    for (int s = 0; s < SUMS<W>; s++)
      for (int e = 0; e < 2; e++) to.sums[s][e] = __shfl_sync(ALL, sums[s], (lane_pair() + e) * 4);
  }
};

/* Rows that split_rows() has split: of each chunk the upper numbers, then the lower ones, in the
 * order of lanes. */
template <typename W> struct rows_split {
  using raw = right;
  const uint32_t *words;
  const float *sums;
  int64_t first, last, chunks;
  __device__ rows_split(const product &p, const rows_of_block &rows)
      : words(p.split),
        sums(p.sums),
        first(rows.first),
        last(rows.first + rows.count - 1),
        chunks(p.w.k / CHUNK) {}
  /* Returns row i of the block, or its last one. */
  __device__ int64_t row(int64_t i) const { return first + i < last ? first + i : last; }
  __device__ const uint32_t *chunk_of_row(int64_t i, int64_t chunk) const {
    return words + (row(i) * chunks + chunk) * CHUNK;
  }
  __device__ void read_sums(right &to, int tile, int64_t chunk) const {
#pragma unroll
    for (int s = 0; s < SUMS<W>; s++)
      for (int e = 0; e < 2; e++)
        to.sums[s][e] =
            sums[(row(tile * WIDE_ROWS + lane_pair() + e) * chunks + chunk) * SUMS<W> + s];
  }
  __device__ static void read_words(right &to, const uint32_t *high, const uint32_t *low) {
    pack<uint32_t, 4> h = read_pack<4>(high), l = read_pack<4>(low);
#pragma unroll
    for (int i = 0; i < 4; i++) to.high[i] = h.v[i], to.low[i] = l.v[i];
  }
  __device__ void read(raw &to, int tile, int64_t chunk) const {
    const uint32_t *from = chunk_of_row(tile * WIDE_ROWS + lane_row(), chunk) + lane_quarter() * 4;
    read_words(to, from, from + CHUNK / 2);
    read_sums(to, tile, chunk);
  }
  __device__ void split(right &to, const raw &from) const { to = from; }
};

/* Splits rows of x, in the order of results; four lanes have a chunk. */
template <typename W> __global__ void split_rows(product p, uint32_t *words, float *sums) {
  int64_t at = ((int64_t)blockIdx.x * BLOCK + threadIdx.x) / 4, all = p.w.k / CHUNK;
  bool here = at < p.rows * all;
  if (!here) at = 0;
  int64_t row = row_of_y(p, at / all);
  bool none = p.keys && number_of(p.keys[at / all]) >= p.experts;
  float x[8];
  pack<uint32_t, 4> high, low;
  read_chunk<W>(p.x + (none ? 0 : row / p.each * p.w.k), at % all, x);
  float mine[2] = {};
  split_chunk<W>(x, high.v, low.v, mine);
  if (!here) return;
  uint32_t *to = words + at * CHUNK + lane_quarter() * 4;
  write_pack(to, high);
  write_pack(to + CHUNK / 2, low);
#pragma unroll
  for (int s = 0; s < SUMS<W>; s++)
    if (!lane_quarter()) sums[at * SUMS<W> + s] = mine[s];
}

/* ---- sums ------------------------------------------------------------------------------------ */

/* Sums of HIGH_ROWS M rows of weights and WIDE_ROWS N rows of x. */
template <int M, int N> using tile_sums = float[M][N][4];

template <int M, int N> __device__ inline void clear(tile_sums<M, N> &sum) {
#pragma unroll
  for (int m = 0; m < M; m++)
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
      for (int i = 0; i < 4; i++) sum[m][n][i] = 0;
}

/* Adds the product of a chunk: 16 rows of weights and 8 rows of x. */
template <typename W> __device__ inline void add_products(float (&sum)[4], const left_words &left,
                                                          const typename W::raw &raw,
                                                          const right &r) {
  float step[4];
#pragma unroll
  for (int i = 0; i < 4; i++) step[i] = W::SCALED ? 0 : sum[i];
#pragma unroll
  for (int j = 0; j < 2; j++) {
    const uint32_t a[4] = {left[0][2 * j], left[1][2 * j], left[0][2 * j + 1], left[1][2 * j + 1]};
    const uint32_t low[2] = {r.low[2 * j], r.low[2 * j + 1]},
                   high[2] = {r.high[2 * j], r.high[2 * j + 1]};
    mma_bf16(step, a, low);
    mma_bf16(step, a, high);
    if constexpr (W::HALVES)
#pragma unroll
      for (int i = 0; i < 4 && !j; i++) {
        sum[i] = fmaf(W::scale(raw, i / 2, j), step[i], sum[i]), step[i] = 0;
        if (W::OFFSET) sum[i] = fmaf(W::offset(raw, i / 2, j), r.sums[j][i % 2], sum[i]);
      }
  }
#pragma unroll
  for (int i = 0; i < 4; i++) {
    if (W::SCALED) step[i] = fmaf(W::scale(raw, i / 2, 1), step[i], sum[i]);
    if (W::OFFSET) step[i] = fmaf(W::offset(raw, i / 2, 1), r.sums[W::HALVES][i % 2], step[i]);
    sum[i] = step[i];
  }
}

/* Places of HIGH_ROWS M rows of weights. */
template <typename W, int M> struct left_rows {
  typename W::place at[M];
  __device__ left_rows(const stored &w, int64_t row) {
#pragma unroll
    for (int m = 0; m < M; m++) at[m] = W::place_of(w, row + m * HIGH_ROWS);
  }
  __device__ void read(typename W::raw (&raw)[M], int64_t chunk) const {
#pragma unroll
    for (int m = 0; m < M; m++) W::read(raw[m], at[m], chunk);
  }
};

/* Adds COUNT chunks, all of which are read before the first is added. */
template <typename W, int M, int N, int COUNT, typename X>
__device__ inline void add_chunks(const left_rows<W, M> &w, int64_t chunk, const X &x,
                                  tile_sums<M, N> &sum) {
  typename W::raw raw[COUNT][M];
  typename X::raw given[COUNT][N];
#pragma unroll
  for (int c = 0; c < COUNT; c++) {
    w.read(raw[c], chunk + c);
#pragma unroll
    for (int n = 0; n < N; n++) x.read(given[c][n], n, chunk + c);
  }
#pragma unroll
  for (int c = 0; c < COUNT; c++) {
    left_words left[M];
#pragma unroll
    for (int m = 0; m < M; m++) W::unpack(left[m], raw[c][m]);
#pragma unroll
    for (int n = 0; n < N; n++) {
      right r;
      x.split(r, given[c][n]);
#pragma unroll
      for (int m = 0; m < M; m++) add_products<W>(sum[m][n], left[m], raw[c][m], r);
    }
  }
}

/* Returns the end of a span that begins at a chunk. */
__device__ inline int64_t span_end(const stored &w, int64_t begin) {
  int64_t end = w.k / CHUNK;
  return end < begin + SPAN_CHUNKS ? end : begin + SPAN_CHUNKS;
}
__device__ inline int64_t spans_of(const stored &w) {
  return (w.k / CHUNK + SPAN_CHUNKS - 1) / SPAN_CHUNKS;
}

__device__ inline void write_y(const product &p, const rows_of_block &rows, int64_t r, int64_t c,
                               float total) {
  if (r >= rows.count || c >= p.w.n) return;
  p.y[row_of_y(p, rows.first + r) * p.w.n + c] = p.bias ? total + p.bias[c] : total;
}

/* ---- few rows -------------------------------------------------------------------------------- */

/* Warps of a block compute spans in turn, for the same rows. */
template <typename W, int M, int N, typename X>
__global__ void __launch_bounds__(BLOCK, N <= 2 ? 2 : 1) multiply_spans(product p) {
  constexpr int HIGH = M * HIGH_ROWS, WIDE = N * WIDE_ROWS, ALL_SUMS = HIGH * WIDE;
  constexpr int MINE = (ALL_SUMS + BLOCK - 1) / BLOCK, AHEAD = N == 1 ? 4 : N == 2 ? 2 : 1;
  SLI_SHARED(shared);
  rows_of_block rows = block_rows(p, WIDE);
  if (!rows.count) return;
  stored w = {rows.weights, p.w.n, p.w.k, p.w.packed};
  X x(p, rows);
  int64_t row = (int64_t)blockIdx.x * HIGH, spans = spans_of(w);
  left_rows<W, M> left(w, row);
  int warp = (int)threadIdx.x / WARP;
  float total[MINE] = {};
  for (int64_t first = 0; first < spans; first += PRODUCT_WARPS) {
    float *parts = (float *)shared + first / PRODUCT_WARPS % 2 * PRODUCT_WARPS * ALL_SUMS;
    if (first + warp < spans) {
      tile_sums<M, N> sum;
      clear<M, N>(sum);
      int64_t chunk = (first + warp) * SPAN_CHUNKS, end = span_end(w, chunk);
      for (; chunk + AHEAD <= end; chunk += AHEAD) add_chunks<W, M, N, AHEAD>(left, chunk, x, sum);
      for (; chunk < end; chunk++) add_chunks<W, M, N, 1>(left, chunk, x, sum);
#pragma unroll
      for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
          for (int i = 0; i < 4; i++)
            parts[warp * ALL_SUMS + (n * WIDE_ROWS + lane_pair() + i % 2) * HIGH + m * HIGH_ROWS +
                  lane_row() + i / 2 * 8] = sum[m][n][i];
    }
    __syncthreads();
    for (int s = 0; s < PRODUCT_WARPS && first + s < spans; s++)
#pragma unroll
      for (int i = 0; i < MINE; i++) {
        int at = i * BLOCK + (int)threadIdx.x;
        if (at < ALL_SUMS) total[i] += parts[s * ALL_SUMS + at];
      }
  }
#pragma unroll
  for (int i = 0; i < MINE; i++) {
    int at = i * BLOCK + (int)threadIdx.x;
    if (at < ALL_SUMS) write_y(p, rows, at / HIGH, row + at % HIGH, total[i]);
  }
}

/* ---- many rows ------------------------------------------------------------------------------- */

/* Chunks of rows of x in shared memory: words [chunk][high, low][row][quarter]. */
template <int ROWS> struct x_tile {
  static constexpr int CHUNKS = 4, HALF = ROWS * CHUNK / 2, WORDS = CHUNKS * 2 * HALF;
  /* Starts copies of the chunks from `chunk` on. */
  template <typename X>
  __device__ static void copy(uint32_t *to, const X &x, int64_t chunk, int64_t end) {
    for (int i = (int)threadIdx.x; i < WORDS / 4; i += BLOCK) {
      int quarter = i % 4, row = i / 4 % ROWS, half = i / (4 * ROWS) % 2, c = i / (8 * ROWS);
      if (chunk + c < end)
        copy_async<16>(to + 4 * i,
                       x.chunk_of_row(row, chunk + c) + half * (CHUNK / 2) + quarter * 4);
    }
    commit_copies();
  }
};

/* Each warp of a block computes rows of its own, span by span. */
template <typename W, int M, int N> __global__ void __launch_bounds__(BLOCK, 1)
    multiply_tiles_of_rows(product p) {
  using X = rows_split<W>;
  using tile = x_tile<N * WIDE_ROWS>;
  SLI_SHARED(shared);
  uint32_t *tiles = (uint32_t *)shared;
  rows_of_block rows = block_rows(p, N * WIDE_ROWS);
  if (!rows.count) return;
  stored w = {rows.weights, p.w.n, p.w.k, p.w.packed};
  X x(p, rows);
  int64_t row = ((int64_t)blockIdx.x * PRODUCT_WARPS + threadIdx.x / WARP) * M * HIGH_ROWS;
  int64_t end = w.k / CHUNK;
  tile_sums<M, N> total, sum;
  clear<M, N>(total);
  clear<M, N>(sum);
  left_rows<W, M> weights(w, row);
  typename W::raw raw[M], next[M];
  weights.read(raw, 0);
  tile::copy(tiles, x, 0, end);
  for (int64_t chunk = 0; chunk < end; chunk++) {
    int64_t stage = chunk / tile::CHUNKS;
    if (chunk % tile::CHUNKS == 0) {
      wait_for_copies();
      __syncthreads();
      if (chunk + tile::CHUNKS < end)
        tile::copy(tiles + (stage + 1) % 2 * tile::WORDS, x, chunk + tile::CHUNKS, end);
    }
    weights.read(next, chunk + 1 < end ? chunk + 1 : chunk);
    left_words left[M];
#pragma unroll
    for (int m = 0; m < M; m++) W::unpack(left[m], raw[m]);
    const uint32_t *words = tiles + stage % 2 * tile::WORDS + chunk % tile::CHUNKS * 2 * tile::HALF;
#pragma unroll
    for (int n = 0; n < N; n++) {
      const uint32_t *from =
          words + (n * WIDE_ROWS + lane_row()) * (CHUNK / 2) + lane_quarter() * 4;
      right r;
      X::read_words(r, from, from + tile::HALF);
      x.read_sums(r, n, chunk);
#pragma unroll
      for (int m = 0; m < M; m++) add_products<W>(sum[m][n], left[m], raw[m], r);
    }
#pragma unroll
    for (int m = 0; m < M; m++) raw[m] = next[m];
    if ((chunk + 1) % SPAN_CHUNKS && chunk + 1 < end) continue;
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
      for (int n = 0; n < N; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) total[m][n][i] += sum[m][n][i];
    clear<M, N>(sum);
  }
#pragma unroll
  for (int m = 0; m < M; m++)
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
      for (int i = 0; i < 4; i++)
        write_y(p, rows, n * WIDE_ROWS + lane_pair() + i % 2,
                row + m * HIGH_ROWS + lane_row() + i / 2 * 8, total[m][n][i]);
}

/* ---- launching ------------------------------------------------------------------------------- */

/* Returns the bytes of split rows. Those of Q2_K have two sums per chunk. */
inline size_t split_bytes(sl_storage storage, int64_t rows, int64_t k) {
  size_t sums = storage == SL_STORAGE_Q2_K ? 2 : 1;
  return (size_t)(rows * chunks(k, CHUNK)) * (2 * CHUNK * sizeof(bf16) + sums * sizeof(float));
}

/* Launches a block for every `high` rows of weights and every `wide` rows of x. */
inline dim3 blocks_of(const product &p, int64_t high, int64_t wide) {
  return dim3((unsigned)chunks(p.w.n, high), (unsigned)(p.keys ? p.rows : chunks(p.rows, wide)));
}

template <typename W, int M, int N, typename X> void launch_spans(const product &p, void *stream) {
  constexpr size_t SHARED = 2 * PRODUCT_WARPS * M * HIGH_ROWS * N * WIDE_ROWS * sizeof(float);
  allow(multiply_spans<W, M, N, X>, SHARED);
  launch(stream, blocks_of(p, M * HIGH_ROWS, N * WIDE_ROWS), BLOCK, SHARED,
         multiply_spans<W, M, N, X>, p);
}

/* Least blocks that keep a GPU busy. */
constexpr int64_t MANY_BLOCKS = 96;

/* `rows`: rows of x that share a matrix. */
template <typename W> void multiply_split(const product &p, int64_t rows, void *stream) {
  constexpr int M = 2, N = 8, HIGH = PRODUCT_WARPS * M * HIGH_ROWS, WIDE = N * WIDE_ROWS;
  constexpr size_t SHARED = 2 * x_tile<WIDE>::WORDS * sizeof(uint32_t);
  using X = rows_split<W>;
  if (rows <= 2 * WIDE_ROWS) return launch_spans<W, M, 2, X>(p, stream);
  if (rows <= 4 * WIDE_ROWS) return launch_spans<W, M, 4, X>(p, stream);
  if (chunks(p.w.n, HIGH) * chunks(p.rows, WIDE) < MANY_BLOCKS)
    return launch_spans<W, M, N, X>(p, stream);
  allow(multiply_tiles_of_rows<W, M, N>, SHARED);
  launch(stream, blocks_of(p, HIGH, WIDE), BLOCK, SHARED, multiply_tiles_of_rows<W, M, N>, p);
}

/* Launches a product. `scratch` has split_bytes() for all rows. */
template <typename W> void multiply_on_tensor_cores(product p, void *scratch, void *stream) {
  int64_t rows = p.keys ? chunks(p.rows, p.experts) : p.rows;
  if (rows <= WIDE_ROWS && p.w.n < 2 * HIGH_ROWS * MANY_BLOCKS)
    return launch_spans<W, 1, 1, rows_as_given<W>>(p, stream);
  if (rows <= WIDE_ROWS) return launch_spans<W, 2, 1, rows_as_given<W>>(p, stream);
  int64_t all = p.rows * (p.w.k / CHUNK);
  uint32_t *words = (uint32_t *)scratch;
  float *sums = (float *)(words + all * CHUNK);
  p.split = words;
  p.sums = sums;
  launch(stream, grid_of(chunks(4 * all, BLOCK)), BLOCK, 0, split_rows<W>, p, words, sums);
  multiply_split<W>(p, rows, stream);
}

} // namespace sli

#endif
