/* SPDX-License-Identifier: Apache-2.0 */
/* Products of small matrices by one warp on the tensor cores: D += A B with A [16, DEPTH], B
 * [DEPTH, 8] and D [16, 8] in float.
 *
 * Lane l holds of D the elements (g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1) with g = l / 4,
 * t = l % 4, in this order.
 *
 * bf16: DEPTH 16, one instruction. float: DEPTH 8; each number is split into its upper and its
 * lower eleven bits (TF32), and the three significant ones of the four products are summed: nearly
 * the precision of float (as in Markidis et al., arXiv 1803.04014). A product does not depend on
 * the numbering of its inner dimension, as long as A and B agree. For float, lane t holds 2t and 2t
 * + 1, so that in both types the D of a product can be the A of the next one without moving.
 *
 * bf16 operands come from shared memory by `ldmatrix`: lanes 8j to 8j + 7 give the addresses of the
 * eight 16-byte rows of matrix j. Lane l receives of each matrix the elements (g, 2t) and (g, 2t +
 * 1), or, transposed, (2t, g) and (2t + 1, g). */
#ifndef SLUICE_CUDA_MMA_CUH
#define SLUICE_CUDA_MMA_CUH

#include "kernels/cuda/device.cuh"

namespace sli {

__device__ inline int lane_row() { return (int)(threadIdx.x % WARP / 4); }
__device__ inline int lane_pair() { return (int)(threadIdx.x % 4 * 2); }

#ifdef __CUDACC__
__device__ inline void mma_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ inline void mma_tf32(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

template <bool TRANSPOSED>
__device__ inline void load_matrices(uint32_t (&to)[4], const void *row) {
  unsigned at = (unsigned)__cvta_generic_to_shared(row);
  if constexpr (TRANSPOSED)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(at)
                 : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(at)
                 : "memory");
}

/* Rounds two numbers to bf16, `low` in the lower half. */
__device__ inline uint32_t round_pair(float low, float high) {
  uint32_t bits;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
  return bits;
}

__device__ inline uint32_t round_tf32(float x) {
  uint32_t bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
  return bits;
}
#else
inline void mma_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  emulated_mma_bf16(d, a, b);
}
inline void mma_tf32(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  emulated_mma_tf32(d, a, b);
}
template <bool TRANSPOSED> inline void load_matrices(uint32_t (&to)[4], const void *row) {
  emulated_ldmatrix(to, row, TRANSPOSED);
}
inline uint32_t round_pair(float low, float high) {
  return (uint32_t)round_bf16(high) << 16 | round_bf16(low);
}
inline uint32_t round_tf32(float x) { return emulated_round_tf32(x); }
#endif

template <typename T> struct mma;

template <> struct mma<bf16> {
  static constexpr int depth = 16;
  struct a {
    uint32_t r[4];
  };
  struct b {
    uint32_t r[2];
  };

  /* A(m, k) = tile[m, k] */
  __device__ static a rows(const bf16 *tile, int ld) {
    int lane = (int)(threadIdx.x % WARP);
    a to;
    load_matrices<false>(to.r, tile + lane % 16 * ld + lane / 16 * 8);
    return to;
  }
  /* A(m, k) = tile[k, m] */
  __device__ static a down(const bf16 *tile, int ld) {
    int lane = (int)(threadIdx.x % WARP);
    a to;
    load_matrices<true>(to.r, tile + (lane / 16 * 8 + lane % 8) * ld + lane / 8 % 2 * 8);
    return to;
  }
  /* Two adjacent operands: B(k, n) = tile[n, k], n from 0 on and from 8 on */
  __device__ static void columns(b (&to)[2], const bf16 *tile, int ld) {
    int lane = (int)(threadIdx.x % WARP);
    uint32_t r[4];
    load_matrices<false>(r, tile + (lane / 16 * 8 + lane % 8) * ld + lane / 8 % 2 * 8);
    to[0] = {{r[0], r[1]}};
    to[1] = {{r[2], r[3]}};
  }
  /* Two adjacent operands: B(k, n) = tile[k, n] */
  __device__ static void across(b (&to)[2], const bf16 *tile, int ld) {
    int lane = (int)(threadIdx.x % WARP);
    uint32_t r[4];
    load_matrices<true>(r, tile + lane % 16 * ld + lane / 16 * 8);
    to[0] = {{r[0], r[1]}};
    to[1] = {{r[2], r[3]}};
  }
  /* A = D of two adjacent products */
  __device__ static a from(const float (*d)[4]) {
    a to;
#pragma unroll
    for (int i = 0; i < 4; i++) to.r[i] = round_pair(d[i / 2][i % 2 * 2], d[i / 2][i % 2 * 2 + 1]);
    return to;
  }
  __device__ static void add(float (&d)[4], const a &x, const b &y) { mma_bf16(d, x.r, y.r); }
};

template <> struct mma<float> {
  static constexpr int depth = 8;
  struct a {
    uint32_t high[4], low[4];
  };
  struct b {
    uint32_t high[2], low[2];
  };

  __device__ static void split(uint32_t &high, uint32_t &low, float x) {
    high = round_tf32(x);
    low = round_tf32(x - __uint_as_float(high));
  }
  __device__ static a rows(const float *tile, int ld) {
    const float *at = tile + lane_row() * ld + lane_pair();
    a to;
#pragma unroll
    for (int i = 0; i < 4; i++) split(to.high[i], to.low[i], at[i % 2 * 8 * ld + i / 2]);
    return to;
  }
  __device__ static a down(const float *tile, int ld) {
    const float *at = tile + lane_pair() * ld + lane_row();
    a to;
#pragma unroll
    for (int i = 0; i < 4; i++) split(to.high[i], to.low[i], at[i / 2 * ld + i % 2 * 8]);
    return to;
  }
  __device__ static void columns(b (&to)[2], const float *tile, int ld) {
    const float *at = tile + lane_row() * ld + lane_pair();
#pragma unroll
    for (int i = 0; i < 4; i++)
      split(to[i / 2].high[i % 2], to[i / 2].low[i % 2], at[i / 2 * 8 * ld + i % 2]);
  }
  __device__ static void across(b (&to)[2], const float *tile, int ld) {
    const float *at = tile + lane_pair() * ld + lane_row();
#pragma unroll
    for (int i = 0; i < 4; i++)
      split(to[i / 2].high[i % 2], to[i / 2].low[i % 2], at[i % 2 * ld + i / 2 * 8]);
  }
  __device__ static a from(const float (*d)[4]) {
    a to;
#pragma unroll
    for (int i = 0; i < 4; i++) split(to.high[i], to.low[i], d[0][i % 2 * 2 + i / 2]);
    return to;
  }
  /* Accumulates by ordinary additions. A tensor core truncates its sums, which would cause a bias
   * over many steps (Fasi et al., PeerJ Comput. Sci. 7:e330, 2021; Ootomo & Yokota, Int. J. High
   * Perform. Comput. Appl. 36(4), 2022). */
  __device__ static void add(float (&d)[4], const a &x, const b &y) {
    float step[4] = {};
    mma_tf32(step, x.low, y.high);
    mma_tf32(step, x.high, y.low);
    mma_tf32(step, x.high, y.high);
#pragma unroll
    for (int i = 0; i < 4; i++) d[i] += step[i];
  }
};

} // namespace sli

#endif
