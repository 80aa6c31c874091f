/* SPDX-License-Identifier: Apache-2.0 */
/* Element-wise kernels, one functor each. */
#ifndef SLUICE_CUDA_MAP_CUH
#define SLUICE_CUDA_MAP_CUH

#include "kernels/cuda/device.cuh"

namespace sli {

template <int IN, int OUT> struct arrays {
  const void *in[IN];
  void *out[OUT]; /* NULL: unused */
};

/* Applies a functor F: F::in inputs to F::out outputs, with a scalar that it may read from the
 * device. */
template <typename F, typename T, int N>
__device__ inline void map_pack(const F &f, const arrays<F::in, F::out> &a, int64_t at) {
  float x[F::in][N], y[F::out][N];
#pragma unroll
  for (int i = 0; i < F::in; i++) load<N>(x[i], (const T *)a.in[i] + at);
#pragma unroll
  for (int n = 0; n < N; n++) {
    float from[F::in], to[F::out];
#pragma unroll
    for (int i = 0; i < F::in; i++) from[i] = x[i][n];
    f(from, to);
#pragma unroll
    for (int o = 0; o < F::out; o++) y[o][n] = to[o];
  }
#pragma unroll
  for (int o = 0; o < F::out; o++)
    if (a.out[o]) store<N>((T *)a.out[o] + at, y[o]);
}

template <typename F, typename T> __global__ void map(F f, arrays<F::in, F::out> a, int64_t n) {
  constexpr int N = wide<T>;
  int64_t at = ((int64_t)blockIdx.x * BLOCK + threadIdx.x) * N;
  f.begin();
  if (at + N <= n) map_pack<F, T, N>(f, a, at);
  else
    for (; at < n; at++) map_pack<F, T, 1>(f, a, at);
}

template <typename F>
void map_all(const sl_call *call, void *stream, F f, const arrays<F::in, F::out> &a) {
  int64_t n = sl_type_elements(&call->in_type[0]);
  with_elements(call->in_type[0].dtype, [&](auto element) {
    using T = decltype(element);
    launch(stream, grid_of(chunks(n, BLOCK * wide<T>)), BLOCK, 0, map<F, T>, f, a, n);
  });
}

template <typename F> void map_call(const sl_call *call, void *stream, F f) {
  arrays<F::in, F::out> a;
  for (int i = 0; i < F::in; i++) a.in[i] = call->in[i];
  for (int o = 0; o < F::out; o++) a.out[o] = call->out[o];
  map_all(call, stream, f, a);
}

template <int IN, int OUT> struct functor {
  static constexpr int in = IN, out = OUT;
  __device__ void begin() {}
};

} // namespace sli

#endif
