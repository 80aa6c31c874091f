/* SPDX-License-Identifier: Apache-2.0 */
/* Traversal of a row of logits by a block.
 *
 * A row may begin at any address (vocabulary sizes are odd). A block walks the 16-byte packs of
 * memory that the row touches and skips elements outside the row. The row may also be longer than
 * the vocabulary (attrs.place.columns). The elements after the vocabulary are never read, and are
 * zeros in the gradient, because products continue to the end of the row. */
#ifndef SLUICE_CUDA_LOSS_CUH
#define SLUICE_CUDA_LOSS_CUH

#include "kernels/cuda/device.cuh"
#include "ops/target.h"

namespace sli {

/* Returns the number of elements before the row in the pack in which it begins. */
template <typename T> __device__ inline int before(const T *row) {
  return (int)((uintptr_t)row / sizeof(T) % wide<T>);
}

constexpr int AHEAD = 3; /* packs in flight per thread */

/* Calls f for a pack of which only x[begin] to x[end - 1] belong to the row. */
template <typename T, typename F>
__device__ inline void along_edge(const T *row, int64_t c, int begin, int end, float beside, F f) {
  constexpr int N = wide<T>;
  float x[N];
#pragma unroll
  for (int n = 0; n < N; n++) x[n] = n >= begin && n < end ? to_float(row[c + n]) : beside;
  f(c, x, begin, end);
}

/* Calls f(c, x, begin, end) with every pack of a row: x[begin] to x[end - 1] belong to the row,
 * from column c + begin on; the other elements are `beside`. For whole packs begin and end are
 * compile-time constants. No index into x depends on run-time values, so x stays in registers. */
template <typename T, typename F>
__device__ inline void along_memory(const T *row, int64_t width, float beside, F f) {
  constexpr int N = wide<T>;
  int others = before(row), step = (int)blockDim.x;
  int first = others ? 1 : 0, last = (int)((others + width) / N),
      rest = (int)((others + width) % N);
  for (int p = first + (int)threadIdx.x; p < last; p += AHEAD * step) {
    pack<T, N> come[AHEAD];
#pragma unroll
    for (int i = 0; i < AHEAD; i++)
      if (p + i * step < last) come[i] = read_pack<N>(row + (int64_t)(p + i * step) * N - others);
#pragma unroll
    for (int i = 0; i < AHEAD; i++) {
      if (p + i * step >= last) break;
      float x[N];
#pragma unroll
      for (int n = 0; n < N; n++) x[n] = to_float(come[i].v[n]);
      f((int64_t)(p + i * step) * N - others, x, 0, N);
    }
  }
  if (threadIdx.x == 0 && others) along_edge(row, -others, others, last ? N : rest, beside, f);
  if (threadIdx.x == WARP && rest && (last || !others))
    along_edge(row, (int64_t)last * N - others, 0, rest, beside, f);
}

/* Joins the sums of all threads; every thread gets the result. */
__device__ inline sli_soft block_join(sli_soft s) {
  __shared__ sli_soft of_warp[WARP];
#pragma unroll
  for (int k = WARP / 2; k; k /= 2) {
    sli_soft other = {__shfl_xor_sync(ALL, s.top, k), __shfl_xor_sync(ALL, s.total, k)};
    s = sli_soft_join(s, other);
  }
  __syncthreads();
  if (threadIdx.x % WARP == 0) of_warp[threadIdx.x / WARP] = s;
  __syncthreads();
  s = of_warp[0];
  for (unsigned w = 1; w < blockDim.x / WARP; w++) s = sli_soft_join(s, of_warp[w]);
  return s;
}

constexpr int64_t LONG = 8192; /* columns from which a row gets the largest block */
constexpr int LARGEST = 512;   /* threads of the largest block */
inline unsigned threads_of(int64_t vocab) { return vocab < LONG ? BLOCK : LARGEST; }

/* Stores the row's elements of x. The destination row has the same offset within its pack as the
 * source. SHARED: the destination is in shared memory. */
template <bool SHARED, int N, typename T>
__device__ inline void put_own(T *to, int64_t c, const float (&x)[N], int begin, int end) {
  if (end - begin == N) {
    if constexpr (SHARED) {
      pack<T, N> p;
#pragma unroll
      for (int n = 0; n < N; n++) assign(p.v[n], x[n]);
      *reinterpret_cast<pack<T, N> *>(to + c) = p;
    } else {
      store<N>(to + c, x);
    }
    return;
  }
#pragma unroll
  for (int n = 0; n < N; n++)
    if (n >= begin && n < end) assign(to[c + n], x[n]);
}

/* Writes zeros from column `width` to the end of a row. */
template <typename T> __device__ inline void zeros_behind(T *row, int64_t width, int64_t stride) {
  for (int64_t c = width + threadIdx.x; c < stride; c += blockDim.x) assign(row[c], 0);
}

/* Returns the softmax's sum over a row, the same in every thread. The shift for a pack is known
 * before its first power, so that powers do not wait for each other. KEEP: the row is also copied
 * to `kept`, where each thread may read the elements that it wrote. */
template <bool KEEP, typename T>
__device__ inline sli_soft row_soft(const T *row, int64_t width, T *kept) {
  constexpr int N = wide<T>;
  sli_soft s = {SLI_LOWEST, 0};
  along_memory(row, width, -INFINITY, [&](int64_t c, const float(&x)[N], int begin, int end) {
    float top = s.top;
    if (KEEP) put_own<true>(kept, c, x, begin, end);
#pragma unroll
    for (int n = 0; n < N; n++) top = fmaxf(top, x[n]);
    if (top > s.top) s = {top, s.total * power_of_e(s.top, top)};
#pragma unroll
    for (int n = 0; n < N; n++) s.total = plain_sum(s.total, power_of_e(x[n], top));
  });
  return block_join(s);
}
template <typename T> __device__ inline sli_soft row_soft(const T *row, int64_t width) {
  return row_soft<false>(row, width, (T *)NULL);
}

/* ---- rows that are read twice ------------------------------------------------
 *
 * Between the sum over a row and its gradient, the row stays in shared memory if two blocks' rows
 * fit a multiprocessor. */

enum { KEPT_BYTES = 112 << 10 };

template <typename T> inline size_t kept_bytes(int64_t width) {
  size_t bytes = (size_t)(width + wide<T>)*sizeof(T);
  return bytes <= KEPT_BYTES ? bytes : 0;
}

/* Returns the place where the row is kept, or NULL if it is not. */
template <bool KEEP, typename T> __device__ inline T *place_to_keep(const T *row) {
  SLI_SHARED(shared);
  return KEEP ? (T *)shared + before(row) : NULL;
}

/* Calls f(count<KEEP>()) for a row of `width` columns. */
template <typename T, typename F> auto with_kept(int64_t width, F f) {
  if (kept_bytes<T>(width)) return f(count<1>());
  return f(count<0>());
}

inline int64_t columns(const sl_call *call) {
  return call->attrs->place.columns ? call->attrs->place.columns : sl_type_last(&call->in_type[0]);
}

/* One thread per row of parts [R, width / part, part]. */
template <int PART> __global__ void join_rows(const float *parts, float *lse, double *partial,
                                              int64_t rows, int64_t width) {
  int64_t r = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
  if (r >= rows) return;
  float l;
  partial[r] = sli_join_parts(parts + r * width, width, PART, &l);
  if (lse) lse[r] = l;
}

/* Runs an op that joins parts; the loss is the sum over rows, divided by `over`. */
template <int PART> void join_parts(const sl_call *call, double over, void *stream) {
  int64_t rows = sl_type_rows(&call->in_type[0]), width = sl_type_last(&call->in_type[0]);
  launch(stream, grid_of(chunks(rows, BLOCK)), BLOCK, 0, join_rows<PART>,
         (const float *)call->in[0], (float *)call->out[1], (double *)call->scratch, rows, width);
  if (call->out[0]) sum_all(stream, call->scratch, rows, over, call->out[0]);
}

} // namespace sli

#endif
