/* SPDX-License-Identifier: Apache-2.0 */
/* Weights as they are stored (ops/storage.h), read by lanes of a warp.
 *
 * A warp reads 16 rows of weights together: lane l has four rows, from 4 (l % 4) on, and E numbers
 * of each, in packs of four adjacent ones. E numbers of eight lanes are a span; spans follow each
 * other along the row. A number's place depends on its column alone, not on its row, so every row
 * is summed in the same order. Blocks of Q8_0 and Q4_1 are stored in groups of 16 rows, which a
 * warp reads in order. */
#ifndef SLUICE_CUDA_STORED_CUH
#define SLUICE_CUDA_STORED_CUH

#include "kernels/cuda/batch.cuh"
#include "kernels/cuda/device.cuh"
#include "ops/storage.h"
#ifndef __CUDA_ARCH__
#include "io/half.h"
#endif

namespace sli {

constexpr int GROUP = SLI_STORAGE_GROUP, STORED_BLOCK = SLI_STORAGE_BLOCK;
constexpr int LANE_ROWS = 4;                    /* rows of a lane */
constexpr int QUADS = WARP * LANE_ROWS / GROUP; /* lanes that share rows */

__device__ inline float half_to_float(uint16_t half) {
#ifdef __CUDA_ARCH__
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(half));
  return x;
#else
  return sli_half_to_float(half);
#endif
}

/* Sizes of a format (ops/storage.def). */
template <sl_storage STORAGE> struct form_of;
#define FORM(storage, name, numbers, quads, halves, layout, sums, on_cpus)         \
  template <> struct form_of<SL_STORAGE_##storage> {                               \
    static constexpr int NUMBERS = numbers, QUADS = quads, BYTES = quads + halves; \
    static constexpr bool IN_GROUPS = layout >= SLI_LAYOUT_GROUPS;                 \
  };
#include "ops/storage.def"
#undef FORM

/* Returns a quad of the table of IQ4_NL and IQ4_XS, denser around 0, or of MXFP4's doubled values,
 * with 128 added to each byte. */
__device__ inline uint32_t uneven_quad(int i) {
  return i < 2 ? i ? 0x766a5d4fu : 0x3f2d1801u : i < 3 ? 0xa6998d81u : 0xf1d9c5b5u;
}
__device__ inline uint32_t doubled_quad(int i) {
  return i < 2 ? i ? 0x8c888684u : 0x83828180u : i < 3 ? 0x7d7e7f80u : 0x74787a7cu;
}

/* A number of 16 bits with five bits of exponent. */
struct fp16 {
  uint16_t bits;
};
__device__ inline float to_float(fp16 x) { return half_to_float(x.bits); }

/* Weights [n, k]. */
struct stored {
  const void *data;
  int64_t n, k;
  bool packed; /* rows of packs of four begin at multiples of 16 bytes */
};

__device__ inline int first_row_of_lane() {
  return (int)(threadIdx.x % (WARP / QUADS)) * LANE_ROWS;
}
__device__ inline int quad_of_lane() { return (int)(threadIdx.x % WARP) / (WARP / QUADS); }

/* Rows of numbers, each of which begins at a multiple of four bytes, except with bf16. */
template <typename T, int E_> struct stored_rows {
  static constexpr int E = E_, SPAN = QUADS * E_;
  /* Returns the column of pack p. */
  __device__ static int64_t column(int64_t span, int p) {
    return span * SPAN + quad_of_lane() * E + 4 * p;
  }
  __device__ static void read(const stored &w, int64_t row, int64_t span,
                              float (&to)[LANE_ROWS][E]) {
    for (int r = 0; r < LANE_ROWS; r++) {
      int64_t at = row + first_row_of_lane() + r, c = column(span, 0);
      int64_t each = std::is_same_v<T, fp16> ? w.k + w.k % 2 : w.k;
      const T *from = (const T *)w.data + (at < w.n ? at : w.n - 1) * each + c;
      if (w.packed && c + E <= w.k) load<E>(to[r], from);
      else
        for (int e = 0; e < E; e++) to[r][e] = c + e < w.k ? to_float(from[e]) : 0.0f;
    }
  }
};

/* Columns of numbers: weights [k, n]. */
struct stored_columns {
  static constexpr int E = 4, SPAN = QUADS * E;
  __device__ static int64_t column(int64_t span, int p) {
    return span * SPAN + quad_of_lane() * E + 4 * p;
  }
  __device__ static void read(const stored &w, int64_t row, int64_t span,
                              float (&to)[LANE_ROWS][E]) {
    int64_t c = column(span, 0);
    for (int r = 0; r < LANE_ROWS; r++) {
      int64_t at = row + first_row_of_lane() + r;
      for (int e = 0; e < E; e++)
        to[r][e] = c + e < w.k && at < w.n ? ((const float *)w.data)[(c + e) * w.n + at] : 0.0f;
    }
  }
};

/* A group's block: its address and its number of rows. */
struct stored_block {
  const uint8_t *data;
  int64_t wide;
};

template <int BYTES, int NUMBERS = STORED_BLOCK>
__device__ inline stored_block block_at(const stored &w, int64_t row, int64_t b) {
  int64_t left = w.n - row, wide = left < GROUP ? left : GROUP;
  int64_t bytes = (w.k / NUMBERS * BYTES + 3) / 4 * 4; /* of a row */
  return {(const uint8_t *)w.data + row * bytes + b * wide * BYTES, wide};
}

/* Reads a quad of each of the lane's rows; rows that the group lacks are those of its last row. */
__device__ inline void read_quads(const stored_block &b, int quad, uint32_t (&to)[LANE_ROWS]) {
  int first = first_row_of_lane();
  if (b.wide == GROUP) {
    const uint32_t *from = (const uint32_t *)b.data + quad * GROUP;
    pack<uint32_t, LANE_ROWS> p = read_pack<LANE_ROWS>(from + first);
    for (int r = 0; r < LANE_ROWS; r++) to[r] = p.v[r];
    return;
  }
  for (int r = 0; r < LANE_ROWS; r++) { /* blocks of fewer rows begin at any even address */
    int64_t at = first + r < b.wide ? first + r : b.wide - 1;
    const uint8_t *from = b.data + (quad * b.wide + at) * 4;
    to[r] = from[0] | from[1] << 8 | from[2] << 16 | (uint32_t)from[3] << 24;
  }
}

__device__ inline float scale_at(const stored_block &b, int64_t bytes, int kind, int r) {
  int64_t at = first_row_of_lane() + r;
  const uint16_t *halves = (const uint16_t *)(b.data + b.wide * bytes) + kind * b.wide;
  return half_to_float(halves[at < b.wide ? at : b.wide - 1]);
}

struct stored_q8_0 {
  static constexpr int E = 4, SPAN = QUADS * E;
  __device__ static int64_t column(int64_t span, int) { return span * SPAN + quad_of_lane() * 4; }
  __device__ static void read(const stored &w, int64_t row, int64_t span,
                              float (&to)[LANE_ROWS][E]) {
    stored_block b = block_at<34>(w, row, span);
    uint32_t quads[LANE_ROWS];
    read_quads(b, quad_of_lane(), quads);
    for (int r = 0; r < LANE_ROWS; r++) {
      float d = scale_at(b, 32, 0, r);
      for (int e = 0; e < E; e++) to[r][e] = d * (float)((int)(quads[r] >> 8 * e & 255) - 128);
    }
  }
};

/* A lane has a quad of each half of a block; a span is two blocks, of which the last may be
 * absent. */
struct stored_q4_1 {
  static constexpr int E = 8, SPAN = QUADS * E;
  __device__ static int64_t block(int64_t span) { return span * 2 + quad_of_lane() / 4; }
  __device__ static int64_t column(int64_t span, int p) {
    return block(span) * STORED_BLOCK + 16 * p + quad_of_lane() % 4 * 4;
  }
  __device__ static void read(const stored &w, int64_t row, int64_t span,
                              float (&to)[LANE_ROWS][E]) {
    if (block(span) * STORED_BLOCK >= w.k) {
      for (int r = 0; r < LANE_ROWS; r++)
        for (int e = 0; e < E; e++) to[r][e] = 0;
      return;
    }
    stored_block b = block_at<20>(w, row, block(span));
    uint32_t quads[LANE_ROWS];
    read_quads(b, quad_of_lane() % 4, quads);
    for (int r = 0; r < LANE_ROWS; r++) {
      float d = scale_at(b, 16, 0, r), m = scale_at(b, 16, 1, r);
      for (int e = 0; e < E; e++)
        to[r][e] = (float)(quads[r] >> (8 * (e % 4) + 4 * (e / 4)) & 15) * d + m;
    }
  }
};

/* Returns number c of a row of weights. */
__device__ inline float stored_number(sl_storage storage, const stored &w, int64_t row, int64_t c) {
  if (storage == SL_STORAGE_BF16) return to_float(((const bf16 *)w.data)[row * w.k + c]);
  if (storage != SL_STORAGE_Q8_0 && storage != SL_STORAGE_Q4_1)
    return ((const float *)w.data)[row * w.k + c];
  int64_t at = row % GROUP, first = row - at, b = c / STORED_BLOCK, i = c % STORED_BLOCK;
  if (storage == SL_STORAGE_Q8_0) {
    stored_block s = block_at<34>(w, first, b);
    const uint16_t *d = (const uint16_t *)(s.data + s.wide * 32) + at;
    return half_to_float(*d) * (float)((int)s.data[(i / 4 * s.wide + at) * 4 + i % 4] - 128);
  }
  stored_block s = block_at<20>(w, first, b);
  const uint16_t *d = (const uint16_t *)(s.data + s.wide * 16) + at;
  int byte = s.data[(i % 16 / 4 * s.wide + at) * 4 + i % 4], q = i < 16 ? byte & 15 : byte >> 4;
  return (float)q * half_to_float(d[0]) + half_to_float(d[s.wide]);
}

/* Calls f with the reader of a format that served graphs read. */
template <typename F> void with_stored(sl_storage storage, F f) {
  if (storage == SL_STORAGE_BF16) f(stored_rows<bf16, 8>());
  else if (storage == SL_STORAGE_Q8_0) f(stored_q8_0());
  else if (storage == SL_STORAGE_Q4_1) f(stored_q4_1());
  else f(stored_rows<float, 4>());
}

} // namespace sli

#endif
