/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA kernels that scan along a dim: top-k of a line, cumulative sums. */
#include "kernels/cuda/fold.cuh"
#include "ops/indexing.h"

namespace {

using namespace sli;

/* ---- top-k ------------------------------------------------------ */

struct candidate {
  float v;
  int64_t k; /* negative: none */
};

__device__ inline candidate better_of(candidate a, candidate b) {
  if (a.k < 0 || b.k < 0) return a.k < 0 ? b : a;
  return is_better(b.v, b.k, a.v, a.k) ? b : a;
}

__device__ inline candidate best_of_block(candidate c) {
  __shared__ float v[WARP];
  __shared__ int64_t k[WARP];
#pragma unroll
  for (int i = WARP / 2; i; i /= 2) {
    candidate other = {__shfl_xor_sync(ALL, c.v, i),
                       (int64_t)__shfl_xor_sync(ALL, (long long)c.k, i)};
    c = better_of(c, other);
  }
  __syncthreads(); /* the previous candidates have been read */
  if (threadIdx.x % WARP == 0) v[threadIdx.x / WARP] = c.v, k[threadIdx.x / WARP] = c.k;
  __syncthreads();
  for (unsigned w = 0; w < blockDim.x / WARP; w++) c = better_of(c, candidate{v[w], k[w]});
  return c;
}

/* One block per line: finds, k times, the best candidate that ranks after the last one found. */
template <typename T>
__global__ void rank(sli_lines l, int64_t count, const T *x, T *values, int32_t *places) {
  int64_t outer = blockIdx.x / l.inner, c = blockIdx.x % l.inner;
  const T *from = x + outer * l.n * l.inner + c;
  int64_t to = outer * count * l.inner + c;
  candidate last = {0, -1};
  for (int64_t j = 0; j < count; j++) {
    candidate best = {0, -1};
    for (int64_t k = threadIdx.x; k < l.n; k += blockDim.x) {
      float v = to_float(from[k * l.inner]);
      if (last.k < 0 || is_better(last.v, last.k, v, k)) best = better_of(best, candidate{v, k});
    }
    last = best_of_block(best);
    if (threadIdx.x) continue;
    if (values) assign(values[to + j * l.inner], last.v);
    if (places) places[to + j * l.inner] = (int32_t)last.k;
  }
}

/* ---- sums ------------------------------------------------ */

__device__ inline double number(float x) { return (double)x; }
__device__ inline double number(bf16 x) { return (double)to_float(x); }
__device__ inline uint32_t number(int32_t x) { return (uint32_t)x; }
__device__ inline void put_sum(int32_t &to, uint32_t x) { to = (int32_t)x; }
template <typename T> __device__ inline void put_sum(T &to, double x) { assign(to, (float)x); }

/* One thread per line. */
template <typename T>
__global__ void sum_short(sli_lines l, const T *x, T *y, bool reverse, bool exclusive) {
  int64_t line = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
  if (line >= l.outer * l.inner) return;
  int64_t at = line / l.inner * l.n * l.inner + line % l.inner;
  decltype(number(*x)) sum = 0;
  for (int64_t k = 0; k < l.n; k++) {
    int64_t place = at + (reverse ? l.n - 1 - k : k) * l.inner;
    auto before = sum;
    sum += number(x[place]);
    put_sum(y[place], exclusive ? before : sum);
  }
}

/* One block per line, BLOCK positions at a time. */
template <typename T>
__global__ void sum_long(sli_lines l, const T *x, T *y, bool reverse, bool exclusive) {
  using S = decltype(number(*x));
  int64_t at = blockIdx.x / l.inner * l.n * l.inner + blockIdx.x % l.inner;
  S carry = 0;
  for (int64_t begin = 0; begin < l.n; begin += BLOCK) {
    int64_t k = begin + threadIdx.x, place = at + (reverse ? l.n - 1 - k : k) * l.inner;
    S own = k < l.n ? number(x[place]) : S(0);
    const S *sums = sums_up_to(own);
    S before = threadIdx.x ? sums[threadIdx.x - 1] : S(0);
    if (k < l.n) put_sum(y[place], carry + (exclusive ? before : sums[threadIdx.x]));
    carry += sums[BLOCK - 1];
    __syncthreads();
  }
}

enum { SHORT = 64 };

template <typename T> void sum_as(const sl_call *call, bool reverse, void *stream) {
  sli_lines l = sli_lines_of(call->attrs, &call->in_type[0]);
  const T *x = (const T *)call->in[0];
  T *y = (T *)call->out[0];
  if (l.n <= SHORT)
    launch(stream, grid_of(chunks(l.outer * l.inner, BLOCK)), BLOCK, 0, sum_short<T>, l, x, y,
           reverse, call->attrs->along.exclusive);
  else
    launch(stream, grid_of(l.outer * l.inner), BLOCK, 0, sum_long<T>, l, x, y, reverse,
           call->attrs->along.exclusive);
}

void sum_along(const sl_call *call, bool back, void *stream) {
  bool reverse = call->attrs->along.reverse != back;
  if (call->in_type[0].dtype == SL_I32) return sum_as<int32_t>(call, reverse, stream);
  with_elements(call->in_type[0].dtype,
                [&](auto element) { sum_as<decltype(element)>(call, reverse, stream); });
}

} // namespace

void sli_cuda_top_k(const sl_call *call, void *stream) {
  sli_lines l = sli_lines_of(call->attrs, &call->in_type[0]);
  with_elements(call->in_type[0].dtype, [&](auto element) {
    using T = decltype(element);
    launch(stream, grid_of(l.outer * l.inner), threads_for(l.n), 0, rank<T>, l,
           call->attrs->along.k, (const T *)call->in[0], (T *)call->out[0],
           (int32_t *)call->out[1]);
  });
}

void sli_cuda_cumsum(const sl_call *call, void *stream) { sum_along(call, false, stream); }
void sli_cuda_cumsum_b(const sl_call *call, void *stream) { sum_along(call, true, stream); }
