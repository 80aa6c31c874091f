/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA kernels of constants, positions and casts of integers. */
#include "kernels/cuda/device.cuh"
#include "ops/layout.h"

#include <sluice/cuda.h>

namespace {

using namespace sli;

/* Positions of a device's elements in the whole. */
struct standing {
  sl_region region;
  int64_t dim[SL_MAX_DIMS], row;
  bool whole;
};

standing standing_of(const sl_call *call) {
  standing s = {};
  const sl_type *type = &call->out_type[0];
  s.whole = !call->attrs->region;
  if (!s.whole) s.region = *call->attrs->region;
  for (int d = 0; d < type->ndim; d++) s.dim[d] = type->dim[d];
  s.row = call->tick.row;
  return s;
}

__device__ inline int64_t stands(const standing &s, int64_t i) {
  int64_t run;
  return s.whole ? i : sli_region_index(&s.region, s.dim, s.row, i, &run);
}

__device__ inline void put_value(float &to, float x) { to = x; }
__device__ inline void put_value(bf16 &to, float x) { assign(to, x); }
__device__ inline void put_value(int32_t &to, int32_t x) { to = x; }
__device__ inline void put_value(int32_t &to, float x) { to = (int32_t)x; }

template <typename V, typename T>
__global__ void lay_out(standing s, const V *values, T *y, int64_t n) {
  int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
  if (i < n) put_value(y[i], values[stands(s, i)]);
}

template <typename T> __global__ void fill_with(float value, T *y, int64_t n) {
  int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
  if (i < n) put_value(y[i], value);
}

__global__ void number_along(standing s, int64_t inner, int64_t length, int32_t *y, int64_t n) {
  int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
  if (i < n) y[i] = (int32_t)(stands(s, i) / inner % length);
}

__global__ void to_numbers(const int32_t *x, float *y, int64_t n) {
  int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
  if (i < n) y[i] = (float)x[i];
}

template <typename X, typename Y> __global__ void convert_one(const X *x, Y *y) {
  if (!threadIdx.x) *y = (Y)*x;
}

__global__ void narrow_all(const double *x, float *y, int64_t n) {
  int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
  if (i < n) y[i] = (float)x[i];
}

/* Rounds as the CPU kernel does. */
template <typename T> __global__ void to_integers(const T *x, int32_t *y, int64_t n) {
  int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
  if (i >= n) return;
  float v = to_float(x[i]);
  if (isnan(v)) y[i] = 0;
  else y[i] = v >= 0x1p31f ? INT32_MAX : v <= -0x1p31f ? INT32_MIN : (int32_t)v;
}

template <typename T> __global__ void mark(const int32_t *ids, T *y, int64_t count, int64_t n) {
  int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
  if (i >= n) return;
  int64_t id = ids[i / count];
  bool there = id >= 0 && id < count;
  assign(y[i], there ? (i % count == id ? 1.0f : 0.0f) : NAN);
}

dim3 blocks_of(int64_t n) { return grid_of(chunks(n, BLOCK)); }

template <typename T> void constant_as(const sl_call *call, void *stream) {
  const sl_values *values = (const sl_values *)call->attrs->user;
  int64_t n = sl_type_elements(&call->out_type[0]);
  T *y = (T *)call->out[0];
  using V = std::conditional_t<std::is_same<T, int32_t>::value, int32_t, float>;
  if (values->values)
    launch(stream, blocks_of(n), BLOCK, 0, lay_out<V, T>, standing_of(call), (const V *)call->state,
           y, n);
  else launch(stream, blocks_of(n), BLOCK, 0, fill_with<T>, call->attrs->fill.value, y, n);
}

} // namespace

/* Copies the values to device memory. */
sl_status sli_cuda_constant_prepare(const sl_call *call, void **state) {
  const sl_values *values = (const sl_values *)call->attrs->user;
  size_t bytes = sl_type_bytes(&values->type);
  *state = NULL;
  if (!values->values) return SL_OK;
  if (cudaMalloc(state, bytes))
    return sl_fail(SL_E_MEMORY, "out of memory for a constant of %zu bytes", bytes);
  return sl_cuda_copy(*state, values->values, bytes);
}

void sli_cuda_constant_release(void *state) {
  if (state) cudaFree(state);
}

void sli_cuda_constant(const sl_call *call, void *stream) {
  if (call->out_type[0].dtype == SL_I32) return constant_as<int32_t>(call, stream);
  with_elements(call->out_type[0].dtype,
                [&](auto element) { constant_as<decltype(element)>(call, stream); });
}

void sli_cuda_arange(const sl_call *call, void *stream) {
  const sl_type *type = &call->out_type[0];
  const sl_region *region = call->attrs->region;
  const int64_t *whole = region ? region->whole : type->dim;
  int axis = call->attrs->along.axes ? __builtin_ctz(call->attrs->along.axes) : type->ndim - 1;
  int64_t inner = 1, n = sl_type_elements(type);
  for (int d = axis + 1; d < type->ndim; d++) inner *= whole[d];
  launch(stream, blocks_of(n), BLOCK, 0, number_along, standing_of(call), inner, whole[axis],
         (int32_t *)call->out[0], n);
}

void sli_cuda_cast(const sl_call *call, void *stream) {
  int64_t n = sl_type_elements(&call->in_type[0]);
  if (call->in_type[0].dtype == SL_I32) {
    launch(stream, blocks_of(n), BLOCK, 0, to_numbers, (const int32_t *)call->in[0],
           (float *)call->out[0], n);
    return;
  }
  with_elements(call->in_type[0].dtype, [&](auto element) {
    using T = decltype(element);
    launch(stream, blocks_of(n), BLOCK, 0, to_integers<T>, (const T *)call->in[0],
           (int32_t *)call->out[0], n);
  });
}

void sli_cuda_to_f32(const sl_call *call, void *stream) {
  int64_t n = sl_type_elements(&call->in_type[0]);
  launch(stream, blocks_of(n), BLOCK, 0, narrow_all, (const double *)call->in[0],
         (float *)call->out[0], n);
}

void sli_cuda_to_f64(const sl_call *call, void *stream) {
  launch(stream, grid_of(1), WARP, 0, convert_one<float, double>, (const float *)call->in[0],
         (double *)call->out[0]);
}

void sli_cuda_one_hot(const sl_call *call, void *stream) {
  int64_t n = sl_type_elements(&call->out_type[0]);
  with_elements(call->out_type[0].dtype, [&](auto element) {
    using T = decltype(element);
    launch(stream, blocks_of(n), BLOCK, 0, mark<T>, (const int32_t *)call->in[0], (T *)call->out[0],
           call->attrs->one_hot.classes, n);
  });
}
