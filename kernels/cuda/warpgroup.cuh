/* SPDX-License-Identifier: Apache-2.0 */
/* Products of small matrices by a warpgroup, four consecutive warps, on the tensor cores of Hopper
 * GPUs (PTX ISA, "wgmma.mma_async"): D += A B with A [64, 16], B [16, N] and D [64, N] in float, of
 * bf16. They run asynchronously: from start_products() until wait_for_products() has waited for
 * them, their registers must not be touched.
 *
 * Warp w has rows 16 w to 16 w + 15 of D; its lanes hold elements of D as in mma.cuh. A comes from
 * registers, where a warp has its rows in the same order, or, like B, from shared memory, as tiles
 * of rows of 64 numbers. A row has 128 bytes. Pack c (16 bytes) of row r is stored at the place of
 * pack c ^ (r % 8) (the 128-byte swizzle), so that the same column of eight rows is in different
 * banks. A tile begins at a multiple of 1024 bytes. show_tiles() before the barrier makes data
 * written by threads visible to the tensor cores.
 *
 * Code for other GPUs has no such products and must not request them: has_warpgroups(). */
#ifndef SLUICE_CUDA_WARPGROUP_CUH
#define SLUICE_CUDA_WARPGROUP_CUH

#include <stdlib.h>

#include "kernels/cuda/mma.cuh"

namespace sli {

constexpr int GROUP_ROWS = 64, GROUP_THREADS = 4 * WARP, TILE_WIDTH = 64;
constexpr int TILE_STEP = 16 * sizeof(bf16); /* bytes from one product's columns to the next's */

/* Returns the place of element (r, c) of a tile. */
__device__ inline int in_tile(int r, int c) {
  return r * TILE_WIDTH + (c / 8 % 8 ^ r % 8) * 8 + c % 8;
}

#ifdef __CUDACC__
/* Returns the address of a tile in shared memory, in bytes. */
__device__ inline uint32_t place_of(const void *tile) {
  return (uint32_t)__cvta_generic_to_shared(tile);
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define SLI_WARPGROUP(...) asm volatile(__VA_ARGS__)
#else
#define SLI_WARPGROUP(...) __trap()
#endif

__device__ inline void start_products() { SLI_WARPGROUP("wgmma.fence.sync.aligned;" ::: "memory"); }
/* Makes a group of the products since the last commit. */
__device__ inline void commit_products() {
  SLI_WARPGROUP("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/* Waits for all groups except the NEWEST newest. */
template <int NEWEST> __device__ inline void wait_for_products() {
  SLI_WARPGROUP("wgmma.wait_group.sync.aligned %0;" ::"n"(NEWEST) : "memory");
}
__device__ inline void show_tiles() {
  SLI_WARPGROUP("fence.proxy.async.shared::cta;" ::: "memory");
}

/* Compiler barrier for d: no use of it moves across. */
template <int COLUMNS> __device__ inline void hold(float (&d)[COLUMNS][4]) {
#pragma unroll
  for (int n = 0; n < COLUMNS; n++)
    asm volatile("" : "+f"(d[n][0]), "+f"(d[n][1]), "+f"(d[n][2]), "+f"(d[n][3])::"memory");
}

#define SLI_4(d, n) "+f"(d[n][0]), "+f"(d[n][1]), "+f"(d[n][2]), "+f"(d[n][3])
#define SLI_32(d, n)                                                               \
  SLI_4(d, n), SLI_4(d, n + 1), SLI_4(d, n + 2), SLI_4(d, n + 3), SLI_4(d, n + 4), \
      SLI_4(d, n + 5), SLI_4(d, n + 6), SLI_4(d, n + 7)

/* D (+)= A B. Rows of A and columns of B are rows of tiles. */
__device__ inline void multiply_tiles(float (&d)[8][4], uint64_t a, uint64_t b, bool add) {
  SLI_WARPGROUP(
      "{.reg .pred p; setp.ne.b32 p, %34, 0; "
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "%32, %33, p, 1, 1, 0, 0;}"
      : SLI_32(d, 0)
      : "l"(a), "l"(b), "r"((int)add));
}
__device__ inline void multiply_tiles(float (&d)[16][4], uint64_t a, uint64_t b, bool add) {
  SLI_WARPGROUP(
      "{.reg .pred p; setp.ne.b32 p, %66, 0; "
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
      "%64, %65, p, 1, 1, 0, 0;}"
      : SLI_32(d, 0), SLI_32(d, 8)
      : "l"(a), "l"(b), "r"((int)add));
}

/* D += A B. Rows of B are rows of a tile. */
__device__ inline void multiply_across(float (&d)[8][4], const uint32_t (&a)[4], uint64_t b) {
  SLI_WARPGROUP(
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "{%32, %33, %34, %35}, %36, 1, 1, 1, 1;"
      : SLI_32(d, 0)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
#undef SLI_4
#undef SLI_32
#else
inline uint32_t place_of(const void *tile) {
  return (uint32_t)((const unsigned char *)tile - emulated_shared);
}
inline void start_products() {}
inline void commit_products() {}
template <int NEWEST> inline void wait_for_products() {}
inline void show_tiles() {}
template <int COLUMNS> inline void hold(float (&)[COLUMNS][4]) {}
template <int COLUMNS>
inline void multiply_tiles(float (&d)[COLUMNS][4], uint64_t a, uint64_t b, bool add) {
  emulated_wgmma(d, COLUMNS, NULL, a, b, add);
}
inline void multiply_across(float (&d)[8][4], const uint32_t (&a)[4], uint64_t b) {
  emulated_wgmma(d, 8, a, 0, b, true);
}
#endif

/* Returns the descriptor of the operand at `tile` (PTX ISA, "Matrix descriptor"): its swizzle, and
 * 1024 bytes from eight rows to the next eight. */
__device__ inline uint64_t operand_at(const void *tile) {
  return (uint64_t)1 << 62 | (uint64_t)(1024 >> 4) << 32 | (uint64_t)1 << 16 |
         (place_of(tile) & 0x3ffff) >> 4;
}

/* Returns true if the current device supports these products. The environment variable
 * SLUICE_CUDA_WARPGROUPS=0 turns them off. */
inline bool has_warpgroups() {
#if defined SLI_SM90A || defined SLUICE_EMULATED /* the build has code for them */
  static const char *const wanted = getenv("SLUICE_CUDA_WARPGROUPS");
  int device = 0, major = 0;
  if (wanted && !strcmp(wanted, "0")) return false;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  return major == 9;
#else
  return false;
#endif
}

} // namespace sli

#endif
