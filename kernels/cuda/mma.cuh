/* Products of small matrices by one warp on the tensor cores: D += A B with A
 * [16, DEPTH], B [DEPTH, 8] and D [16, 8] in float.
 *
 * Lane l holds of D the elements (g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1)
 * with g = l / 4, t = l % 4, in this order.
 *
 * bf16: DEPTH 16, one instruction. float: DEPTH 8; each number is split into its
 * upper and its lower eleven bits (TF32), and of the four products the three that
 * count are summed: nearly the precision of float (as in Markidis et al., arXiv
 * 1803.04014). A product does not care how its inner dimension is numbered, as long
 * as A and B agree; for float we let lane t hold 2t and 2t + 1, so that what a product
 * leaves in D can be the A of the next one in both types without moving. */
#ifndef SLUICE_CUDA_MMA_CUH
#define SLUICE_CUDA_MMA_CUH

#include "kernels/cuda/device.cuh"

namespace sli {

__device__ inline int lane_row() { return (int)(threadIdx.x % WARP / 4); }
__device__ inline int lane_pair() { return (int)(threadIdx.x % 4 * 2); }

#ifdef __CUDACC__
__device__ inline void mma_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
               "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ inline void mma_tf32(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
               "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
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

  __device__ static uint32_t join(bf16 low, bf16 high) {
    return (uint32_t)high.bits << 16 | low.bits;
  }
  __device__ static uint32_t pair(const bf16 *at) {
    return *reinterpret_cast<const uint32_t *>(at);
  }

  /* A(m, k) = tile[m, k] */
  __device__ static a rows(const bf16 *tile, int ld) {
    const bf16 *at = tile + lane_row() * ld + lane_pair();
    return {{pair(at), pair(at + 8 * ld), pair(at + 8), pair(at + 8 * ld + 8)}};
  }
  /* B(k, n) = tile[n, k] */
  __device__ static b columns(const bf16 *tile, int ld) {
    const bf16 *at = tile + lane_row() * ld + lane_pair();
    return {{pair(at), pair(at + 8)}};
  }
  /* B(k, n) = tile[k, n] */
  __device__ static b across(const bf16 *tile, int ld) {
    const bf16 *at = tile + lane_pair() * ld + lane_row();
    return {{join(at[0], at[ld]), join(at[8 * ld], at[9 * ld])}};
  }
  /* A = D of two products side by side */
  __device__ static a from(const float (*d)[4]) {
    a to;
#pragma unroll
    for (int i = 0; i < 4; i++) {
      bf16 low = {round_bf16(d[i / 2][i % 2 * 2])}, high = {round_bf16(d[i / 2][i % 2 * 2 + 1])};
      to.r[i] = join(low, high);
    }
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
  __device__ static b columns(const float *tile, int ld) {
    const float *at = tile + lane_row() * ld + lane_pair();
    b to;
#pragma unroll
    for (int i = 0; i < 2; i++) split(to.high[i], to.low[i], at[i]);
    return to;
  }
  __device__ static b across(const float *tile, int ld) {
    const float *at = tile + lane_pair() * ld + lane_row();
    b to;
#pragma unroll
    for (int i = 0; i < 2; i++) split(to.high[i], to.low[i], at[i * ld]);
    return to;
  }
  __device__ static a from(const float (*d)[4]) {
    a to;
#pragma unroll
    for (int i = 0; i < 4; i++) split(to.high[i], to.low[i], d[0][i % 2 * 2 + i / 2]);
    return to;
  }
  __device__ static void add(float (&d)[4], const a &x, const b &y) {
    mma_tf32(d, x.low, y.high);
    mma_tf32(d, x.high, y.low);
    mma_tf32(d, x.high, y.high);
  }
};

} // namespace sli

#endif
