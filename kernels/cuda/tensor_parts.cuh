/* SPDX-License-Identifier: Apache-2.0 */
/* Weights in blocks of 256 numbers as operands of products on the tensor cores. A part of 32
 * numbers is a chunk. Its integers are exact in bf16; scales are floats, made from those of the
 * part and of the block. The layouts are those of io/gguf/types.c, quad by quad (ops/storage.h). */
#ifndef SLUICE_CUDA_TENSOR_PARTS_CUH
#define SLUICE_CUDA_TENSOR_PARTS_CUH

#include "kernels/cuda/tensor_product.cuh"

namespace sli {

constexpr int BLOCK_PARTS = 8, PART_QUADS = STORED_BLOCK / 4,
              WIDE_BLOCK = BLOCK_PARTS * STORED_BLOCK;

/* Returns byte i of a word. */
__device__ inline uint32_t byte_of(uint32_t word, int i) { return word >> 8 * i & 255; }

/* Quads of a lane's rows, and their scales. CENTRE is subtracted from numbers. */
template <int BYTES, int CENTRE> struct tensor_parts : tensor_blocks<BYTES, WIDE_BLOCK> {
  using typename tensor_blocks<BYTES, WIDE_BLOCK>::place;
  struct raw {
    uint32_t words[2][2];
    float scales[2][2]; /* [row]: of both halves, or the scale and the offset */
  };
  __device__ static void unpack(left_words &to, const raw &from) {
    constexpr uint32_t ONE = 0x4300 + CENTRE; /* 128 + CENTRE */
#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
      for (int i = 0; i < 4; i++)
        to[h][i] = subtract_pairs(spread_bytes(from.words[h][i / 2], i % 2 * 2) | 0x43004300u,
                                  ONE << 16 | ONE);
  }
};

/* Q4_K and Q5_K: a scale and an offset of six bits for each part. */
template <int BYTES, bool FIFTH> struct tensor_offset_parts : tensor_parts<BYTES, 0> {
  static constexpr bool OFFSET = true;
  using typename tensor_parts<BYTES, 0>::place;
  using typename tensor_parts<BYTES, 0>::raw;
  __device__ static int column(int j) { return lane_quarter() * 8 + 4 * j; }
  __device__ static void read(raw &to, const place &at, int64_t chunk) {
    stored_block b = at.block(chunk / BLOCK_PARTS);
    int part = (int)(chunk % BLOCK_PARTS), shift = part % 4;
    int numbers = (FIFTH ? 12 : 4) + part / 2 * PART_QUADS;
#pragma unroll
    for (int h = 0; h < 2; h++) {
      int r = lane_row() + 8 * h;
#pragma unroll
      for (int j = 0; j < 2; j++) {
        int quad = lane_quarter() * 2 + j;
        uint32_t word = quad_at(b, numbers + quad, r) >> part % 2 * 4 & 0x0f0f0f0fu;
        if (FIFTH) word |= (quad_at(b, 4 + quad, r) >> part & 0x01010101u) << 4;
        to.words[h][j] = word;
      }
      uint32_t head = quad_at(b, 0, r), first = byte_of(quad_at(b, 1, r), shift),
               second = byte_of(quad_at(b, 2, r), shift), scale = first & 63, less = second & 63;
      if (part >= 4) {
        uint32_t last = byte_of(quad_at(b, 3, r), shift);
        scale = (last & 15) | first >> 6 << 4;
        less = last >> 4 | second >> 6 << 4;
      }
      to.scales[h][0] = half_to_float((uint16_t)head) * (float)scale;
      to.scales[h][1] = -half_to_float((uint16_t)(head >> 16)) * (float)less;
    }
  }
  __device__ static float scale(const raw &from, int h, int) { return from.scales[h][0]; }
  __device__ static float offset(const raw &from, int h) { return from.scales[h][1]; }
};
using tensor_q4_k = tensor_offset_parts<144, false>;
using tensor_q5_k = tensor_offset_parts<176, true>;

/* Q3_K and Q6_K: a scale for each half of a part. FORMAT reads quad i of a part, and the scale of a
 * half. */
template <typename FORMAT> struct tensor_half_parts : tensor_parts<FORMAT::BYTES, FORMAT::CENTRE> {
  static constexpr bool OFFSET = false, HALVES = true;
  using base = tensor_parts<FORMAT::BYTES, FORMAT::CENTRE>;
  using typename base::place;
  using typename base::raw;
  __device__ static int column(int j) { return 16 * j + lane_quarter() * 4; }
  __device__ static void read(raw &to, const place &at, int64_t chunk) {
    stored_block b = at.block(chunk / BLOCK_PARTS);
    int part = (int)(chunk % BLOCK_PARTS);
#pragma unroll
    for (int h = 0; h < 2; h++) {
      int r = lane_row() + 8 * h;
      float d = half_to_float(half_of_row(b, FORMAT::QUAD_BYTES, 0, r));
#pragma unroll
      for (int j = 0; j < 2; j++) {
        to.words[h][j] = FORMAT::numbers(b, part, 4 * j + lane_quarter(), r);
        to.scales[h][j] = d * (float)FORMAT::scale(b, 2 * part + j, r);
      }
    }
  }
  __device__ static float scale(const raw &from, int h, int j) { return from.scales[h][j]; }
  __device__ static float offset(const raw &, int) { return 0; }
};

struct format_q6_k {
  static constexpr int BYTES = 210, QUAD_BYTES = 208, CENTRE = 32;
  __device__ static uint32_t numbers(const stored_block &b, int part, int quad, int row) {
    int side = part / 4, quarter = part % 4;
    uint32_t lower = quad_at(b, side * 16 + quarter % 2 * PART_QUADS + quad, row),
             upper = quad_at(b, 32 + side * PART_QUADS + quad, row);
    return (lower >> quarter / 2 * 4 & 0x0f0f0f0fu) | (upper >> quarter * 2 & 0x03030303u) << 4;
  }
  __device__ static int scale(const stored_block &b, int half, int row) {
    return (int8_t)byte_of(quad_at(b, 48 + half / 4, row), half % 4);
  }
};
using tensor_q6_k = tensor_half_parts<format_q6_k>;

struct format_q3_k {
  static constexpr int BYTES = 110, QUAD_BYTES = 108, CENTRE = 4;
  __device__ static uint32_t numbers(const stored_block &b, int part, int quad, int row) {
    uint32_t two = quad_at(b, 8 + part / 4 * PART_QUADS + quad, row), third = quad_at(b, quad, row);
    return (two >> part % 4 * 2 & 0x03030303u) | (third >> part & 0x01010101u) << 2;
  }
  __device__ static int scale(const stored_block &b, int half, int row) {
    uint32_t lower = byte_of(quad_at(b, 24 + half % 8 / 4, row), half % 4) >> half / 8 * 4 & 15,
             upper = byte_of(quad_at(b, 26, row), half % 4) >> half / 4 * 2 & 3;
    return (int)(lower | upper << 4) - 32;
  }
};
using tensor_q3_k = tensor_half_parts<format_q3_k>;

} // namespace sli

#endif
