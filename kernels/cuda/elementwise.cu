/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA kernels of element-wise ops. */
#include "kernels/cuda/map.cuh"

namespace {

using namespace sli;

#define FUNCTOR(name, in_, out_, body)                                   \
  struct name : functor<in_, out_> {                                     \
    __device__ void operator()(const float *x, float *y) const { body; } \
  }

FUNCTOR(add, 2, 1, y[0] = x[0] + x[1]);
FUNCTOR(mul, 2, 1, y[0] = x[0] * x[1]);
FUNCTOR(mul_b, 3, 2, (y[0] = x[2] * x[1], y[1] = x[2] * x[0]));
FUNCTOR(gelu, 1, 1, y[0] = sli_gelu(x[0]));
FUNCTOR(gelu_b, 2, 1, y[0] = sli_gelu_b(x[0], x[1]));
FUNCTOR(relu, 1, 1, y[0] = sli_relu(x[0]));
FUNCTOR(relu_b, 2, 1, y[0] = x[0] > 0.0f ? x[1] : 0.0f);
FUNCTOR(tanh_of, 1, 1, y[0] = tanhf(x[0]));
FUNCTOR(tanh_b, 2, 1, y[0] = x[1] * (1.0f - x[0] * x[0]));
FUNCTOR(swiglu, 2, 1, y[0] = sli_swiglu(x[0], x[1]));
FUNCTOR(swiglu_b, 3, 2, sli_swiglu_b(x[0], x[1], x[2], &y[0], &y[1]));

/* dy = (y - t) 2 dloss / n */
struct mse_b : functor<2, 1> {
  const float *dloss;
  float elements, scale;
  __device__ void begin() { scale = 2.0f * *dloss / elements; }
  __device__ void operator()(const float *x, float *y) const { y[0] = (x[0] - x[1]) * scale; }
};

/* ---- casts ------------------------------------------------------------ */

constexpr int ROUNDED = 4; /* elements per thread */

__global__ void round_all(const float *from, bf16 *to, int64_t n, int64_t zeros) {
  constexpr int N = ROUNDED;
  int64_t at = ((int64_t)blockIdx.x * BLOCK + threadIdx.x) * N;
  float x[N];
  if (at + N <= n) {
    load<N>(x, from + at);
    store<N>(to + at, x);
  } else {
    for (int64_t i = at; i < at + N && i < n + zeros; i++) assign(to[i], i < n ? from[i] : 0.0f);
  }
}

template <typename T> __global__ void fill_all(T *to, T value, int64_t n) {
  int64_t at = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
  if (at < n) to[at] = value;
}

template <typename T> void fill_with(const sl_call *call, void *stream, T value) {
  int64_t n = sl_type_elements(&call->out_type[0]);
  launch(stream, grid_of(chunks(n, BLOCK)), BLOCK, 0, fill_all<T>, (T *)call->out[0], value, n);
}

} // namespace

#define LAUNCHER(name, functor_) \
  void sli_cuda_##name(const sl_call *call, void *stream) { map_call(call, stream, functor_()); }
LAUNCHER(add, add)
LAUNCHER(mul, mul)
LAUNCHER(mul_b, mul_b)
LAUNCHER(gelu, gelu)
LAUNCHER(gelu_b, gelu_b)
LAUNCHER(relu, relu)
LAUNCHER(relu_b, relu_b)
LAUNCHER(tanh, tanh_of)
LAUNCHER(tanh_b, tanh_b)
LAUNCHER(swiglu, swiglu)
LAUNCHER(swiglu_b, swiglu_b)

void sli_cuda_mse_b(const sl_call *call, void *stream) {
  mse_b f;
  f.dloss = (const float *)call->in[2];
  f.elements = (float)sl_type_elements(&call->in_type[0]);
  f.scale = 0;
  map_call(call, stream, f);
}

/* Copies between any two memories: the runtime recognises them by their addresses. */
/* Copies, if both arrays are present. In a program that copies one of several arrays to one of
 * several, all but one pair are absent. */
void sli_cuda_copy(const sl_call *call, void *stream) {
  if (!call->in[0] || !call->out[0]) return;
  if (accumulates(call, 0))
    return map_all(call, stream, add(), {{call->in[0], call->out[0]}, {call->out[0]}});
  cudaMemcpyAsync(call->out[0], call->in[0], sl_type_bytes(&call->in_type[0]), cudaMemcpyDefault,
                  (cudaStream_t)stream);
}

void sli_cuda_fill(const sl_call *call, void *stream) {
  float value = call->attrs->fill.value;
  switch (call->out_type[0].dtype) {
  case SL_F64: return fill_with(call, stream, (double)value);
  case SL_I32: return fill_with(call, stream, (int32_t)value);
  case SL_BF16: return fill_with(call, stream, bf16{sli_bf16_from_float(value)});
  default: return fill_with(call, stream, value);
  }
}

void sli_cuda_round(const float *from, void *to, int64_t count, int64_t zeros, void *stream) {
  launch(stream, grid_of(chunks(count + zeros, BLOCK * ROUNDED)), BLOCK, 0, round_all, from,
         (bf16 *)to, count, zeros);
}

/* Packs a weight. A GPU reads the weight in its original order: both outputs are the rounded
 * weight, followed by zeros (linear.c). */
void sli_cuda_pack(const sl_call *call, void *stream) {
  int64_t count = sl_type_elements(&call->in_type[0]);
  for (int o = 0; o < 2; o++)
    if (call->out[o])
      sli_cuda_round((const float *)call->in[0], call->out[o], count,
                     sl_type_elements(&call->out_type[o]) - count, stream);
}
