/* SPDX-License-Identifier: Apache-2.0 */
/* Helpers for all CUDA files: element types, 16-byte accesses, sums over warps and blocks in a
 * fixed order, launching.
 *
 * Kernels read and write through packs of N elements: 16 bytes if rows allow it, otherwise one
 * element. Everything is computed in float. A kernel's work is cut by its shapes alone and its sums
 * are taken in a fixed order, without atomics, so the same call gives the same bits.
 *
 * The files also compile for the host, against the header in tests/emulated that replaces the
 * runtime's; there every thread of a block is a fiber. Kernels therefore use one-dimensional blocks
 * and only functions of that header. */
#ifndef SLUICE_CUDA_DEVICE_CUH
#define SLUICE_CUDA_DEVICE_CUH

#include <cuda_runtime.h>
#include <stdint.h>
#include <string.h>

#include <type_traits>

#include <sluice/ops.h>
#include <sluice/optimizer.h>

#include "kernels/cuda/math.h"
#include "kernels/cuda/ops.h"

namespace sli {

/* ---- elements ------------------------------------------------ */

struct bf16 {
  uint16_t bits;
};

__device__ inline float to_float(float x) { return x; }
__device__ inline float to_float(bf16 x) { return sli_bf16_to_float(x.bits); }

__device__ inline uint16_t round_bf16(float x) {
#ifdef __CUDA_ARCH__
  uint16_t bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return bits;
#else
  return sli_bf16_from_float(x);
#endif
}

__device__ inline void assign(float &to, float x) { to = x; }
__device__ inline void assign(bf16 &to, float x) { to.bits = round_bf16(x); }

/* Returns x as it reads back from an array of T. */
template <typename T> __device__ inline float kept(float x) {
  T t;
  assign(t, x);
  return to_float(t);
}

/* Returns x + y, never fused into a multiply-add, so that a product rounds the same whether or not
 * it was written to memory before. */
__device__ inline float plain_sum(float x, float y) {
#ifdef __CUDA_ARCH__
  return __fadd_rn(x, y);
#else
  return x + y;
#endif
}

constexpr float LOG2_E = 1.4426950408889634f;

__device__ inline float power_of_2(float x) {
#ifdef __CUDA_ARCH__
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return exp2f(x);
#endif
}

/* Returns e^(x - shift), with a relative error of about 2^-22 if x is near `shift`. */
__device__ inline float power_of_e(float x, float shift) {
  return power_of_2((x - shift) * LOG2_E);
}

/* Elements of one 16-byte access. */
template <typename T> constexpr int wide = 16 / (int)sizeof(T);

template <typename T, int N> struct alignas(sizeof(T) * N) pack { T v[N]; };

template <int N, typename T> __device__ inline pack<T, N> read_pack(const T *from) {
  return *reinterpret_cast<const pack<T, N> *>(from);
}

#ifdef __CUDACC__
__device__ inline void put(uint4 *to, uint4 x) {
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(to)),
               "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w)
               : "memory");
}
__device__ inline void put(uint2 *to, uint2 x) {
  asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(__cvta_generic_to_global(to)), "r"(x.x),
               "r"(x.y)
               : "memory");
}
__device__ inline void put(uint32_t *to, uint32_t x) {
  asm volatile("st.global.b32 [%0], %1;" ::"l"(__cvta_generic_to_global(to)), "r"(x) : "memory");
}

/* Writes a pack to device memory, in accesses of at most 16 bytes. Without this the compiler may
 * split the pack into single stores to merge them with other stores. */
template <int N, typename T> __device__ inline void write_pack(T *to, const pack<T, N> &p) {
  using pair = std::conditional_t<sizeof p % 8 == 0, uint2, uint32_t>;
  using word = std::conditional_t<sizeof p % 16 == 0, uint4, pair>;
  constexpr int WORDS = sizeof p / sizeof(word);
  word w[WORDS];
  memcpy(w, &p, sizeof p);
#pragma unroll
  for (int i = 0; i < WORDS; i++) put((word *)to + i, w[i]);
}
template <typename T> __device__ inline void write_pack(T *to, const pack<T, 1> &p) {
  *to = p.v[0];
}
#else
template <int N, typename T> inline void write_pack(T *to, const pack<T, N> &p) {
  *reinterpret_cast<pack<T, N> *>(to) = p;
}
#endif

template <int N, typename T> __device__ inline void load(float (&to)[N], const T *from) {
  pack<T, N> p = read_pack<N>(from);
#pragma unroll
  for (int i = 0; i < N; i++) to[i] = to_float(p.v[i]);
}

template <int N, typename T> __device__ inline void store(T *to, const float (&from)[N]) {
  pack<T, N> p;
#pragma unroll
  for (int i = 0; i < N; i++) assign(p.v[i], from[i]);
  write_pack(to, p);
}

/* ---- sums ------------------------------------------------ */

constexpr int WARP = 32, BLOCK = 256;
constexpr unsigned ALL = 0xffffffffu;

/* Sums over LANES consecutive lanes; each lane gets the result. */
template <int LANES = WARP, typename S> __device__ inline S warp_sum(S x) {
#pragma unroll
  for (int k = LANES / 2; k; k /= 2) x += __shfl_xor_sync(ALL, x, k);
  return x;
}

/* Sums over a block of whole warps, up to 1024 threads; every thread gets the result. */
template <typename S> __device__ inline S block_sum(S x) {
  __shared__ S of_warp[WARP];
  x = warp_sum(x);
  __syncthreads(); /* the previous sum has been read */
  if (threadIdx.x % WARP == 0) of_warp[threadIdx.x / WARP] = x;
  __syncthreads();
  S total = of_warp[0];
  for (unsigned w = 1; w < blockDim.x / WARP; w++) total += of_warp[w];
  return total;
}

/* Prefix sums over a block of BLOCK threads: [t] is the sum of threads 0 .. t. The threads must
 * have read them (__syncthreads) before the block calls this again. */
template <typename S> __device__ inline const S *sums_up_to(S x) {
  __shared__ S sums[2][BLOCK];
  int from = 0;
  sums[0][threadIdx.x] = x;
  __syncthreads();
  for (unsigned far = 1; far < BLOCK; far *= 2, from = 1 - from) {
    S sum = sums[from][threadIdx.x];
    if (threadIdx.x >= far) sum += sums[from][threadIdx.x - far];
    sums[1 - from][threadIdx.x] = sum;
    __syncthreads();
  }
  return sums[from];
}

/* ---- shared memory ------------------------------------------------ */

/* Dynamic shared memory of the launch, with the alignment that warpgroups need (warpgroup.cuh). */
#ifdef __CUDACC__
#define SLI_SHARED(name) extern __shared__ __align__(1024) unsigned char name[]
#else
#define SLI_SHARED(name) unsigned char *name = emulated_shared
#endif

/* ---- launching ------------------------------------------------ */

inline int64_t chunks(int64_t total, int64_t chunk) { return (total + chunk - 1) / chunk; }

/* Returns the threads per block for a block that walks `n` packs. */
inline unsigned threads_for(int64_t n) {
  int64_t warps = chunks(n, WARP);
  return (unsigned)(warps < 1 ? 1 : warps > BLOCK / WARP ? BLOCK / WARP : warps) * WARP;
}

template <typename... P, typename... A> void launch(void *stream, dim3 grid, unsigned threads,
                                                    size_t shared, void (*kernel)(P...),
                                                    A... args) {
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = shared;
  config.stream = (cudaStream_t)stream;
  cudaLaunchKernelEx(&config, kernel, P(args)...);
}

/* Allows a kernel this much dynamic shared memory. */
template <typename... P> cudaError_t allow(void (*kernel)(P...), size_t bytes) {
  return cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              (int)bytes);
}

inline dim3 grid_of(int64_t blocks) { return dim3((unsigned)blocks); }

/* Calls f(T()) with the element type. */
template <typename F> auto with_elements(sl_dtype dtype, F f) {
  if (dtype == SL_BF16) return f(bf16());
  return f(float());
}

/* Calls f with wide packs if a row of `width` elements is a whole number of them, otherwise with
 * packs of one. */
template <int N> struct count { static constexpr int value = N; };
template <typename T, typename F> void with_packs(int64_t width, F f) {
  if (width % wide<T> == 0) f(count<wide<T>>());
  else f(count<1>());
}

/* ---- shared by files ------------------------------------------------ */

struct parts {
  const void *const *of;
  int count;
};

/* Kernel parameters for a run of calls: tables of at most 4 KB, the limit on every device. Each
 * call is a segment with `blocks` blocks. Pointers vary in number, so they share one pool. */
constexpr size_t PARAMETER_BYTES = 4096;
template <typename S, int SEGMENTS, int POINTERS> struct run {
  S segments[SEGMENTS];
  const void *pool[POINTERS];
  int count, pointers;
  unsigned blocks;

  /* Returns the segment of a block. */
  __device__ const S &of_block(unsigned block) const {
    int low = 0, high = count - 1;
    while (low < high) {
      int middle = (low + high + 1) / 2;
      if (segments[middle].first_block <= block) low = middle;
      else high = middle - 1;
    }
    return segments[low];
  }
  __device__ parts parts_of(const S &s) const { return {pool + s.first_part, s.nparts}; }

  /* Adds a segment with these parts and `more_blocks` blocks; returns NULL if it does not fit. */
  S *add(int nparts, const void *const *of, int64_t more_blocks) {
    if (count == SEGMENTS || pointers + nparts > POINTERS) return nullptr;
    S *s = &segments[count++];
    s->first_part = (unsigned short)pointers;
    s->nparts = (unsigned short)nparts;
    s->first_block = blocks;
    for (int i = 0; i < nparts; i++) pool[pointers++] = of[i];
    blocks += (unsigned)more_blocks;
    return s;
  }
};

/* Sums a gradient's parts at `at`, from part `from` on. */
template <int N, typename T>
__device__ inline void add_up(float (&g)[N], const parts &p, int64_t at) {
  load<N>(g, (const T *)p.of[0] + at);
  for (int k = 1; k < p.count; k++) {
    float x[N];
    load<N>(x, (const T *)p.of[k] + at);
#pragma unroll
    for (int n = 0; n < N; n++) g[n] += x[n];
  }
}

/* *to = the sum of `count` doubles / divisor (squares.cu). */
void sum_all(void *stream, const void *partial, int64_t count, double divisor, void *to);

/* Returns the sequence position of the call's first row. */
inline int64_t first_position(const sl_call *call) {
  return call->tick.row + call->attrs->place.first;
}

inline bool accumulates(const sl_call *call, int output) { return call->accumulate >> output & 1; }

} // namespace sli

#endif
