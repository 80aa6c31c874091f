/* SPDX-License-Identifier: Apache-2.0 */
/* Weights in a file's blocks as operands of products on the tensor cores. A block of 32 numbers, or
 * a part of a block of 256, is a chunk. Its integers are exact in bf16; scales are floats, made
 * from those of the part and of the block. The layouts are those of io/gguf/types.c, quad by quad
 * (ops/storage.h). */
#ifndef SLUICE_CUDA_TENSOR_PARTS_CUH
#define SLUICE_CUDA_TENSOR_PARTS_CUH

#include "kernels/cuda/tensor_product.cuh"

namespace sli {

constexpr int BLOCK_PARTS = 8, PART_QUADS = STORED_BLOCK / 4,
              WIDE_BLOCK = BLOCK_PARTS * STORED_BLOCK;

/* Returns byte i of a word. */
__device__ inline uint32_t byte_of(uint32_t word, int i) { return word >> 8 * i & 255; }

/* Returns bytes i and i + 1 of a word, less CENTRE, as bf16. */
template <int CENTRE> __device__ inline uint32_t small_numbers(uint32_t word, int i) {
  constexpr uint32_t ONE = 0x4300 + CENTRE; /* 128 + CENTRE */
  return subtract_pairs(spread_bytes(word, i) | 0x43004300u, ONE << 16 | ONE);
}

/* Quads of a lane's rows, and their scales. CENTRE is subtracted from numbers. */
template <int BYTES, int CENTRE, int NUMBERS = WIDE_BLOCK> struct tensor_parts
    : tensor_blocks<BYTES, NUMBERS> {
  using typename tensor_blocks<BYTES, NUMBERS>::place;
  struct raw {
    uint32_t words[2][2];
    float scales[2][2]; /* [row]: of both halves, or the scale and the offset */
  };
  __device__ static void unpack(left_words &to, const raw &from) {
#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
      for (int i = 0; i < 4; i++) to[h][i] = small_numbers<CENTRE>(from.words[h][i / 2], i % 2 * 2);
  }
  __device__ static float scale(const raw &from, int h, int) { return from.scales[h][0]; }
  __device__ static float offset(const raw &from, int h, int) { return from.scales[h][1]; }
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
};
using tensor_q4_k = tensor_offset_parts<144, false>;
using tensor_q5_k = tensor_offset_parts<176, true>;

/* Q5_1: a scale and an offset, the fifth bits as a quad, and the other four. */
struct tensor_q5_1 : tensor_parts<24, 0, STORED_BLOCK> {
  static constexpr bool OFFSET = true;
  __device__ static void read(raw &to, const place &at, int64_t chunk) {
    stored_block b = at.block(chunk);
#pragma unroll
    for (int h = 0; h < 2; h++) {
      int r = lane_row() + 8 * h;
      uint32_t head = quad_at(b, 0, r), fifth = quad_at(b, 1, r),
               four = quad_at(b, 2 + lane_quarter(), r);
#pragma unroll
      for (int j = 0; j < 2; j++) {
        uint32_t bits = fifth >> column(j) & 15; /* each goes to the fifth bit of a byte */
        to.words[h][j] = (four >> 4 * j & 0x0f0f0f0fu) | (bits * 0x204081u & 0x01010101u) << 4;
      }
      to.scales[h][0] = half_to_float((uint16_t)head);
      to.scales[h][1] = half_to_float((uint16_t)(head >> 16));
    }
  }
};

/* IQ4_XS: places in a table, and a scale of six bits for each part. */
struct tensor_iq4_xs : tensor_parts<136, 0> {
  static constexpr bool OFFSET = false;
  __device__ static void read(raw &to, const place &at, int64_t chunk) {
    stored_block b = at.block(chunk / BLOCK_PARTS);
    int part = (int)(chunk % BLOCK_PARTS);
#pragma unroll
    for (int h = 0; h < 2; h++) {
      int r = lane_row() + 8 * h;
      uint32_t head = quad_at(b, 0, r), word = quad_at(b, 2 + part * 4 + lane_quarter(), r),
               lower = quad_at(b, 1, r) >> 4 * part & 15, upper = head >> (16 + 2 * part) & 3;
      to.words[h][0] = word;
      to.scales[h][0] = half_to_float((uint16_t)head) * (float)((int)(lower | upper << 4) - 32);
    }
  }
  __device__ static void unpack(left_words &to, const raw &from) {
#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
      for (int i = 0; i < 4; i++)
        to[h][i] = tensor_q8_0::numbers(
            table_bytes<SL_STORAGE_IQ4_XS>(from.words[h][0] >> i / 2 * 4), i % 2 * 2);
  }
  __device__ static float offset(const raw &, int, int) { return 0; }
};

/* Q2_K: a scale and an offset of four bits for each half of a part. */
struct tensor_q2_k : tensor_parts<84, 0> {
  static constexpr bool OFFSET = true, HALVES = true;
  struct raw {
    uint32_t words[2][2];
    float scales[2][2], offsets[2][2];
  };
  __device__ static void read(raw &to, const place &at, int64_t chunk) {
    stored_block b = at.block(chunk / BLOCK_PARTS);
    int part = (int)(chunk % BLOCK_PARTS);
#pragma unroll
    for (int h = 0; h < 2; h++) {
      int r = lane_row() + 8 * h;
      uint32_t last = quad_at(b, 20, r), eight = quad_at(b, part / 2, r);
#pragma unroll
      for (int j = 0; j < 2; j++) {
        uint32_t two = quad_at(b, 4 + part / 4 * PART_QUADS + 4 * j + lane_quarter(), r),
                 scales = byte_of(eight, part % 2 * 2 + j);
        to.words[h][j] = two >> part % 4 * 2 & 0x03030303u;
        to.scales[h][j] = half_to_float((uint16_t)last) * (float)(scales & 15);
        to.offsets[h][j] = -half_to_float((uint16_t)(last >> 16)) * (float)(scales >> 4);
      }
    }
  }
  __device__ static void unpack(left_words &to, const raw &from) {
#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
      for (int i = 0; i < 4; i++) to[h][i] = small_numbers<0>(from.words[h][i / 2], i % 2 * 2);
  }
  __device__ static float scale(const raw &from, int h, int j) { return from.scales[h][j]; }
  __device__ static float offset(const raw &from, int h, int j) { return from.offsets[h][j]; }
};

/* Q3_K and Q6_K: a scale for each half of a part. FORMAT reads quad i of a part, and the scale of a
 * half. */
template <typename FORMAT> struct tensor_half_parts : tensor_parts<FORMAT::BYTES, FORMAT::CENTRE> {
  static constexpr bool OFFSET = false, HALVES = true;
  using base = tensor_parts<FORMAT::BYTES, FORMAT::CENTRE>;
  using typename base::place;
  using typename base::raw;
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
  __device__ static float offset(const raw &, int, int) { return 0; }
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
