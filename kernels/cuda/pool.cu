/* SPDX-License-Identifier: Apache-2.0 */
/* Pooling, one thread per number. Gradients are gathered: a number of the image reads the windows
 * that contain it, in order. */
#include "kernels/cuda/device.cuh"
#include "ops/layout.h"

namespace {

using namespace sli;

struct range {
  int64_t begin, end;
};

/* Returns the range of input positions in output i's window along an axis. */
__device__ inline range window_range(const sli_window &w, int a, int64_t i) {
  int64_t begin = i * w.stride[a] - w.pad[a], end = begin + w.size[a];
  return {begin < 0 ? 0 : begin, end > w.in[a] ? w.in[a] : end};
}

/* Returns the range of outputs whose windows contain position i of an axis. */
__device__ inline range outputs_of(const sli_window &w, int a, int64_t i) {
  int64_t at = i + w.pad[a], end = at / w.stride[a] + 1;
  int64_t begin = at < w.size[a] ? 0 : (at - w.size[a]) / w.stride[a] + 1;
  return {begin, end > w.out[a] ? w.out[a] : end};
}

__device__ inline bool is_larger(float x, float largest) {
  return x > largest || (isnan(x) && !isnan(largest));
}

/* Returns the position of the largest number in an output's window, on one plane. */
template <typename T>
__device__ inline int64_t find_largest(const sli_window &w, const T *x, int64_t i, int64_t j) {
  range down = window_range(w, 0, i), along = window_range(w, 1, j);
  int64_t at = down.begin * w.in[1] + along.begin;
  for (int64_t r = down.begin; r < down.end; r++)
    for (int64_t c = along.begin; c < along.end; c++)
      if (is_larger(to_float(x[r * w.in[1] + c]), to_float(x[at]))) at = r * w.in[1] + c;
  return at;
}

/* Plane, line and column of a number. */
struct spot {
  int64_t plane, i, j;
};

__device__ inline spot spot_of(const int64_t (&positions)[2], int64_t at) {
  int64_t plane = positions[0] * positions[1];
  return {at / plane, at % plane / positions[1], at % positions[1]};
}

__device__ inline float share_of(const sli_window &w) {
  return 1.0f / (float)(w.size[0] * w.size[1]);
}

template <typename T> __global__ void max_pool(sli_window w, const T *x, T *y, int64_t n) {
  int64_t at = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
  if (at >= n) return;
  spot s = spot_of(w.out, at);
  const T *plane = x + s.plane * w.in[0] * w.in[1];
  y[at] = plane[find_largest(w, plane, s.i, s.j)];
}

template <typename T>
__global__ void max_pool_b(sli_window w, const T *x, const T *dy, T *dx, int64_t n) {
  int64_t at = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
  if (at >= n) return;
  spot s = spot_of(w.in, at);
  const T *plane = x + s.plane * w.in[0] * w.in[1], *from = dy + s.plane * w.out[0] * w.out[1];
  range down = outputs_of(w, 0, s.i), along = outputs_of(w, 1, s.j);
  float sum = 0;
  for (int64_t i = down.begin; i < down.end; i++)
    for (int64_t j = along.begin; j < along.end; j++)
      if (find_largest(w, plane, i, j) == s.i * w.in[1] + s.j)
        sum += to_float(from[i * w.out[1] + j]);
  assign(dx[at], sum);
}

template <typename T> __global__ void mean_pool(sli_window w, const T *x, T *y, int64_t n) {
  int64_t at = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
  if (at >= n) return;
  spot s = spot_of(w.out, at);
  const T *plane = x + s.plane * w.in[0] * w.in[1];
  range down = window_range(w, 0, s.i), along = window_range(w, 1, s.j);
  float sum = 0;
  for (int64_t r = down.begin; r < down.end; r++)
    for (int64_t c = along.begin; c < along.end; c++) sum += to_float(plane[r * w.in[1] + c]);
  assign(y[at], share_of(w) * sum);
}

template <typename T> __global__ void mean_pool_b(sli_window w, const T *dy, T *dx, int64_t n) {
  int64_t at = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
  if (at >= n) return;
  spot s = spot_of(w.in, at);
  const T *from = dy + s.plane * w.out[0] * w.out[1];
  range down = outputs_of(w, 0, s.i), along = outputs_of(w, 1, s.j);
  float sum = 0;
  for (int64_t i = down.begin; i < down.end; i++)
    for (int64_t j = along.begin; j < along.end; j++)
      sum += share_of(w) * to_float(from[i * w.out[1] + j]);
  assign(dx[at], sum);
}

/* Calls f(T(), window, numbers, blocks) for a call on images of this type. */
template <typename F> void with_pool(const sl_call *call, const sl_type *x, F f) {
  int64_t n = sl_type_elements(&call->out_type[0]);
  sli_window w = sli_window_of(call->attrs, x, NULL);
  with_elements(call->in_type[0].dtype,
                [&](auto element) { f(element, w, n, grid_of(chunks(n, BLOCK))); });
}

} // namespace

void sli_cuda_max_pool(const sl_call *call, void *stream) {
  with_pool(call, &call->in_type[0], [&](auto element, const sli_window &w, int64_t n, dim3 grid) {
    using T = decltype(element);
    launch(stream, grid, BLOCK, 0, max_pool<T>, w, (const T *)call->in[0], (T *)call->out[0], n);
  });
}

void sli_cuda_max_pool_b(const sl_call *call, void *stream) {
  with_pool(call, &call->in_type[0], [&](auto element, const sli_window &w, int64_t n, dim3 grid) {
    using T = decltype(element);
    launch(stream, grid, BLOCK, 0, max_pool_b<T>, w, (const T *)call->in[0], (const T *)call->in[1],
           (T *)call->out[0], n);
  });
}

void sli_cuda_mean_pool(const sl_call *call, void *stream) {
  with_pool(call, &call->in_type[0], [&](auto element, const sli_window &w, int64_t n, dim3 grid) {
    using T = decltype(element);
    launch(stream, grid, BLOCK, 0, mean_pool<T>, w, (const T *)call->in[0], (T *)call->out[0], n);
  });
}

void sli_cuda_mean_pool_b(const sl_call *call, void *stream) {
  with_pool(call, &call->in_type[1], [&](auto element, const sli_window &w, int64_t n, dim3 grid) {
    using T = decltype(element);
    launch(stream, grid, BLOCK, 0, mean_pool_b<T>, w, (const T *)call->in[0], (T *)call->out[0], n);
  });
}
