/* SPDX-License-Identifier: Apache-2.0 */
/* Sum, mean and maximum along dims, and softmax along one. */
#include "kernels/cuda/fold.cuh"

namespace {

using namespace sli;

struct first {
  template <typename V> static __device__ inline V of(V a, V, V) { return a; }
};

uint32_t axes_of(const sl_call *call) {
  const sl_type *x = &call->in_type[0];
  return call->attrs->along.axes ? call->attrs->along.axes : (1u << x->ndim) - 1;
}

double factor_of(const sl_call *call) {
  return call->attrs->along.factor != 0 ? (double)call->attrs->along.factor : 1.0;
}

/* Folds input i, read as type `in`, into the output as type `out`. */
void fold_onto(const sl_call *call, int i, const sl_type *in, const sl_type *out, double factor,
               void *stream) {
  const sl_type *types[SLI_SPACE_ARRAYS] = {in, nullptr, nullptr, out};
  fold_args g = {};
  g.space = sli_space_make(&call->in_type[0], types);
  g.in[0] = operand_of(call, i);
  g.out = call->out[0];
  g.dtype = call->out_type[0].dtype;
  g.add = accumulates(call, 0);
  g.factor = factor;
  fold<first, float>(stream, g);
}

/* One block per element of the output. */
template <typename T> __global__ void largest(sli_space s, const T *x, T *y, int32_t *to) {
  __shared__ float tops[BLOCK];
  __shared__ int64_t places[BLOCK];
  int64_t base[SLI_SPACE_INPUTS] = {0, 0, 0}, where = threadIdx.x;
  move(s, 0, s.kept, blockIdx.x, base);
  float top = 0;
  for (int64_t k = threadIdx.x; k < s.summed; k += BLOCK) {
    int64_t at[SLI_SPACE_INPUTS] = {base[0], 0, 0};
    move(s, s.kept, s.ndim, k, at);
    float v = to_float(x[at[0]]);
    if (k == threadIdx.x || is_better(v, k, top, where)) top = v, where = k;
  }
  tops[threadIdx.x] = top;
  places[threadIdx.x] = where;
  __syncthreads();
  if (threadIdx.x) return;
  for (int t = 1; t < BLOCK && t < s.summed; t++)
    if (is_better(tops[t], places[t], top, where)) top = tops[t], where = places[t];
  if (y) assign(y[blockIdx.x], top);
  if (to) to[blockIdx.x] = (int32_t)where;
}

/* One thread per element of x. */
template <typename T>
__global__ void largest_b(sli_space s, const int32_t *at, const T *dy, T *dx) {
  int64_t n = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
  if (n >= s.total * s.summed) return;
  int64_t e = n / s.summed, k = n % s.summed, place[SLI_SPACE_INPUTS] = {0, 0, 0};
  move(s, 0, s.kept, e, place);
  move(s, s.kept, s.ndim, k, place);
  assign(dx[place[0]], k == at[e] ? to_float(dy[e]) : 0.0f);
}

sli_space search_space(const sl_call *call) {
  const sl_type *x = &call->in_type[0];
  sl_type out = sli_reduced(x, axes_of(call), true);
  const sl_type *types[SLI_SPACE_ARRAYS] = {x, nullptr, nullptr, &out};
  return sli_space_make(x, types);
}

/* ---- softmax ------------------------------------------------ */

struct lines {
  int64_t n, inner, count;
};

lines lines_of(const sl_call *call) {
  const sl_type *x = &call->in_type[0];
  int axis = sli_one_axis(call->attrs, x);
  lines l = {x->dim[axis], 1, sl_type_elements(x) / x->dim[axis]};
  for (int d = axis + 1; d < x->ndim; d++) l.inner *= x->dim[d];
  return l;
}

__device__ inline int64_t line_begin(const lines &l) {
  int64_t line = blockIdx.x;
  return line / l.inner * l.n * l.inner + line % l.inner;
}

__device__ inline float block_max(float x) {
  __shared__ float of_warp[WARP];
#pragma unroll
  for (int k = WARP / 2; k; k /= 2) x = fmaxf(x, __shfl_xor_sync(ALL, x, k));
  __syncthreads();
  if (threadIdx.x % WARP == 0) of_warp[threadIdx.x / WARP] = x;
  __syncthreads();
  x = of_warp[0];
  for (unsigned w = 1; w < blockDim.x / WARP; w++) x = fmaxf(x, of_warp[w]);
  return x;
}

/* One block per line. */
template <typename T> __global__ void softmax_lines(lines l, const T *x, T *y, bool is_log) {
  int64_t begin = line_begin(l);
  float top = -INFINITY, total = 0;
  for (int64_t k = threadIdx.x; k < l.n; k += blockDim.x)
    top = fmaxf(top, to_float(x[begin + k * l.inner]));
  top = block_max(top);
  for (int64_t k = threadIdx.x; k < l.n; k += blockDim.x)
    total += expf(to_float(x[begin + k * l.inner]) - top);
  total = block_sum(total);
  float lse = top + logf(total);
  for (int64_t k = threadIdx.x; k < l.n; k += blockDim.x) {
    float v = to_float(x[begin + k * l.inner]);
    assign(y[begin + k * l.inner], is_log ? v - lse : expf(v - top) / total);
  }
}

template <typename T>
__global__ void softmax_lines_b(lines l, const T *y, const T *dy, T *dx, bool is_log) {
  int64_t begin = line_begin(l);
  float total = 0;
  for (int64_t k = threadIdx.x; k < l.n; k += blockDim.x) {
    int64_t at = begin + k * l.inner;
    total += is_log ? to_float(dy[at]) : to_float(dy[at]) * to_float(y[at]);
  }
  total = block_sum(total);
  for (int64_t k = threadIdx.x; k < l.n; k += blockDim.x) {
    int64_t at = begin + k * l.inner;
    float v = to_float(y[at]), d = to_float(dy[at]);
    assign(dx[at], is_log ? d - expf(v) * total : v * (d - total));
  }
}

void run_softmax(const sl_call *call, bool is_log, void *stream) {
  lines l = lines_of(call);
  with_elements(call->in_type[0].dtype, [&](auto element) {
    using T = decltype(element);
    launch(stream, grid_of(l.count), threads_for(l.n), 0, softmax_lines<T>, l,
           (const T *)call->in[0], (T *)call->out[0], is_log);
  });
}

void run_softmax_b(const sl_call *call, bool is_log, void *stream) {
  lines l = lines_of(call);
  with_elements(call->in_type[0].dtype, [&](auto element) {
    using T = decltype(element);
    launch(stream, grid_of(l.count), threads_for(l.n), 0, softmax_lines_b<T>, l,
           (const T *)call->in[0], (const T *)call->in[1], (T *)call->out[0], is_log);
  });
}

} // namespace

void sli_cuda_reduce_sum(const sl_call *call, void *stream) {
  const sl_type *x = &call->in_type[0];
  sl_type out = sli_reduced(x, axes_of(call), true);
  fold_onto(call, 0, x, &out, factor_of(call), stream);
}

void sli_cuda_reduce_sum_b(const sl_call *call, void *stream) {
  const sl_type *x = &call->in_type[0];
  sl_type dy = sli_reduced(x, axes_of(call), true);
  fold_onto(call, 1, &dy, x, factor_of(call), stream);
}

void sli_cuda_mean(const sl_call *call, void *stream) {
  const sl_type *x = &call->in_type[0];
  sl_type out = {SL_F64, 0, {0}};
  fold_onto(call, 0, x, &out, 1.0 / (double)sl_type_elements(x), stream);
}

void sli_cuda_mean_b(const sl_call *call, void *stream) {
  const sl_type *x = &call->in_type[0];
  sl_type dy = {SL_F32, 0, {0}};
  fold_onto(call, 1, &dy, x, 1.0 / (double)sl_type_elements(x), stream);
}

void sli_cuda_reduce_max(const sl_call *call, void *stream) {
  sli_space s = search_space(call);
  with_elements(call->in_type[0].dtype, [&](auto element) {
    using T = decltype(element);
    launch(stream, grid_of(s.total), BLOCK, 0, largest<T>, s, (const T *)call->in[0],
           (T *)call->out[0], (int32_t *)call->out[1]);
  });
}

void sli_cuda_reduce_max_b(const sl_call *call, void *stream) {
  sli_space s = search_space(call);
  with_elements(call->out_type[0].dtype, [&](auto element) {
    using T = decltype(element);
    launch(stream, grid_of(chunks(s.total * s.summed, BLOCK)), BLOCK, 0, largest_b<T>, s,
           (const int32_t *)call->in[1], (const T *)call->in[2], (T *)call->out[0]);
  });
}

void sli_cuda_softmax(const sl_call *call, void *stream) { run_softmax(call, false, stream); }
void sli_cuda_softmax_b(const sl_call *call, void *stream) { run_softmax_b(call, false, stream); }
void sli_cuda_log_softmax(const sl_call *call, void *stream) { run_softmax(call, true, stream); }
void sli_cuda_log_softmax_b(const sl_call *call, void *stream) {
  run_softmax_b(call, true, stream);
}

void sli_cuda_expand_b(const sl_call *call, void *stream) {
  fold_onto(call, 0, &call->in_type[0], &call->out_type[0], 1, stream);
}
