/* SPDX-License-Identifier: Apache-2.0 */
/* Floats of 8 and 4 bits in blocks of 128 (io/small.h) as operands of products on the tensor cores.
 * A block is four chunks. The numbers are exact in bf16; scales are floats. */
#ifndef SLUICE_CUDA_TENSOR_SMALL_CUH
#define SLUICE_CUDA_TENSOR_SMALL_CUH

#include "io/small.h"
#include "kernels/cuda/tensor_product.cuh"

namespace sli {

constexpr int BLOCK_CHUNKS = SLI_SMALL_BLOCK / CHUNK;

/* Multiplies two numbers of bf16 by a power of two, also numbers without an exponent. */
__device__ inline uint32_t multiply_pairs(uint32_t x, uint32_t y) {
#ifdef __CUDA_ARCH__
  uint32_t z;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(z) : "r"(x), "r"(y), "r"(0x80008000u));
  return z;
#else
  return round_pair(__uint_as_float(x << 16) * __uint_as_float(y << 16),
                    __uint_as_float(x & 0xffff0000u) * __uint_as_float(y & 0xffff0000u));
#endif
}

/* Returns two floats of 8 bits, in the lower bytes of halves, as bf16: the exponent and the
 * fraction move to the places of bf16, whose bias is 120 more. */
__device__ inline uint32_t widen_e4m3(uint32_t bytes) {
  return multiply_pairs((bytes & 0x007f007fu) << 4 | (bytes & 0x00800080u) << 8, 0x7b807b80u);
}

/* Returns two floats of 4 bits, in the lower bits of halves, as bf16. */
__device__ inline uint32_t widen_e2m1(uint32_t numbers) {
  return multiply_pairs((numbers & 0x00070007u) << 6 | (numbers & 0x00080008u) << 12, 0x7e807e80u);
}

/* Blocks of BYTES bytes of a lane's rows. */
template <int BYTES> struct tensor_small {
  static constexpr bool SCALED = true, OFFSET = false;
  struct place {
    const uint8_t *rows[2];
    __device__ const uint8_t *block(int h, int64_t chunk) const {
      return rows[h] + chunk / BLOCK_CHUNKS * BYTES;
    }
  };
  __device__ static place place_of(const stored &w, int64_t row) {
    place at;
#pragma unroll
    for (int h = 0; h < 2; h++) {
      int64_t r = row + lane_row() + 8 * h;
      at.rows[h] = (const uint8_t *)w.data +
                   (r < w.n ? r : w.n - 1) * (w.k / SLI_SMALL_BLOCK * (int64_t)BYTES);
    }
    return at;
  }
};

struct tensor_fp8 : tensor_small<SLI_FP8_BYTES> {
  static constexpr bool HALVES = false;
  struct raw {
    uint32_t words[2][2];
    float scales[2];
  };
  __device__ static int column(int j) { return lane_quarter() * 8 + 4 * j; }
  __device__ static void read(raw &to, const place &at, int64_t chunk) {
#pragma unroll
    for (int h = 0; h < 2; h++) {
      const uint8_t *block = at.block(h, chunk);
      const uint32_t *from = (const uint32_t *)(block + chunk % BLOCK_CHUNKS * CHUNK + column(0));
      to.words[h][0] = from[0], to.words[h][1] = from[1];
      to.scales[h] = *(const float *)(block + SLI_SMALL_BLOCK);
    }
  }
  __device__ static void unpack(left_words &to, const raw &from) {
#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
      for (int i = 0; i < 4; i++)
        to[h][i] = widen_e4m3(spread_bytes(from.words[h][i / 2], i % 2 * 2));
  }
  __device__ static float scale(const raw &from, int h, int) { return from.scales[h]; }
  __device__ static float offset(const raw &, int, int) { return 0; }
};

/* The numbers of each product of a chunk are a run with a scale. */
struct tensor_nvfp4 : tensor_small<SLI_NVFP4_BYTES> {
  static constexpr bool HALVES = true;
  struct raw {
    uint16_t four[2][2];
    float scales[2][2];
  };
  __device__ static int column(int j) { return SLI_NVFP4_RUN * j + lane_quarter() * 4; }
  __device__ static void read(raw &to, const place &at, int64_t chunk) {
    int first = (int)(chunk % BLOCK_CHUNKS) * CHUNK;
#pragma unroll
    for (int h = 0; h < 2; h++) {
      const uint8_t *block = at.block(h, chunk);
#pragma unroll
      for (int j = 0; j < 2; j++) {
        to.four[h][j] = *(const uint16_t *)(block + (first + column(j)) / 2);
        to.scales[h][j] = sli_nvfp4_scale(block, first / SLI_NVFP4_RUN + j);
      }
    }
  }
  __device__ static void unpack(left_words &to, const raw &from) {
#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
      for (int i = 0; i < 4; i++) {
        uint32_t two = from.four[h][i / 2] >> i % 2 * 8;
        to[h][i] = widen_e2m1((two & 15) | (two & 240) << 12);
      }
  }
  __device__ static float scale(const raw &from, int h, int j) { return from.scales[h][j]; }
  __device__ static float offset(const raw &, int, int) { return 0; }
};

} // namespace sli

#endif
