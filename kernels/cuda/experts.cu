/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA kernels around the experts' linear maps: combine merges the outputs of a token's experts;
 * the capacity limit drops the ids that exceed an expert's capacity. */
#include "kernels/cuda/sort.cuh"

namespace {

using namespace sli;

/* ---- the terms of a token, in their order ------------------------------------------------ */

template <typename T, int N>
__global__ void combine(const T *y, const float *weights, T *out, int64_t k, int64_t width) {
  int64_t r = blockIdx.x;
  for (int64_t c = (int64_t)threadIdx.x * N; c < width; c += (int64_t)blockDim.x * N) {
    float sum[N] = {};
    for (int64_t j = r * k; j < (r + 1) * k; j++) {
      float x[N];
      load<N>(x, y + j * width + c);
#pragma unroll
      for (int n = 0; n < N; n++) sum[n] += weights[j] * x[n];
    }
    store<N>(out + r * width + c, sum);
  }
}

/* One block per term. */
template <typename T, int N> __global__ void combine_b(const T *y, const float *weights,
                                                       const T *dout, T *dy, float *dweights,
                                                       int64_t k, int64_t width) {
  int64_t j = blockIdx.x;
  float weight = weights[j], sum = 0;
  for (int64_t c = (int64_t)threadIdx.x * N; c < width; c += (int64_t)blockDim.x * N) {
    float x[N], d[N], to[N];
    load<N>(x, y + j * width + c);
    load<N>(d, dout + j / k * width + c);
#pragma unroll
    for (int n = 0; n < N; n++) sum += x[n] * d[n], to[n] = weight * d[n];
    if (dy) store<N>(dy + j * width + c, to);
  }
  if (!dweights) return;
  sum = block_sum(sum);
  if (!threadIdx.x) dweights[j] = sum;
}

/* ---- capacity ------------------------------------------------
 *
 * One block per expert, with the expert's places in order. The block searches bit by bit for the
 * weight of the last place that is kept, as an integer that sorts like the weight. It then searches
 * for the number of equal weights that are kept. */

/* Returns a number that sorts like the weight; -0 counts as 0. */
__device__ inline uint32_t sortable(float x) {
  uint32_t bits;
  x = x == 0.0f ? 0.0f : x;
  memcpy(&bits, &x, sizeof bits);
  return bits >> 31 ? ~bits : bits | 0x80000000u;
}

struct places {
  const uint64_t *keys;
  const float *weights;
  int64_t count;
  __device__ int32_t of(int64_t i) const { return (int32_t)place_of(keys[i]); }
  __device__ uint32_t weight(int64_t i) const { return sortable(weights[of(i)]); }
};

/* Returns how many of the first `end` indices satisfy f(). */
template <typename F> __device__ inline int64_t count_of(int64_t end, F f) {
  int32_t n = 0;
  for (int64_t i = threadIdx.x; i < end; i += blockDim.x) n += f(i);
  return block_sum(n);
}

__global__ void limit(const uint64_t *keys, const float *weights, int32_t *out, int64_t rows,
                      int64_t most) {
  int64_t begin = bisect(keys, 0, rows, key_of(blockIdx.x, 0));
  int64_t end = bisect(keys, begin, rows, key_of((int64_t)blockIdx.x + 1, 0));
  places p = {keys + begin, weights, end - begin};
  if (p.count <= most) return;
  uint32_t last = 0;
  for (int bit = 31; bit >= 0; bit--) {
    uint32_t more = last | 1u << bit;
    if (count_of(p.count, [&](int64_t i) { return p.weight(i) >= more; }) >= most) last = more;
  }
  int64_t equal = most - count_of(p.count, [&](int64_t i) { return p.weight(i) > last; });
  int64_t low = 0, high = p.count; /* bisection: equal weights are kept up to here */
  while (low < high) {
    int64_t middle = (low + high) / 2;
    if (count_of(middle, [&](int64_t i) { return p.weight(i) == last; }) < equal) low = middle + 1;
    else high = middle;
  }
  for (int64_t i = threadIdx.x; i < p.count; i += blockDim.x)
    if (p.weight(i) < last || (p.weight(i) == last && i >= low)) out[p.of(i)] = -1;
}

} // namespace

void sli_cuda_combine(const sl_call *call, void *stream) {
  int64_t width = sl_type_last(&call->in_type[0]), k = sl_type_last(&call->in_type[1]);
  with_elements(call->in_type[0].dtype, [&](auto element) {
    using T = decltype(element);
    with_packs<T>(width, [&](auto n) {
      constexpr int N = decltype(n)::value;
      launch(stream, grid_of(sl_type_rows(&call->out_type[0])), threads_for(width / N), 0,
             combine<T, N>, (const T *)call->in[0], (const float *)call->in[1], (T *)call->out[0],
             k, width);
    });
  });
}

void sli_cuda_combine_b(const sl_call *call, void *stream) {
  int64_t width = sl_type_last(&call->in_type[0]), k = sl_type_last(&call->in_type[1]);
  with_elements(call->in_type[0].dtype, [&](auto element) {
    using T = decltype(element);
    with_packs<T>(width, [&](auto n) {
      constexpr int N = decltype(n)::value;
      launch(stream, grid_of(sl_type_rows(&call->in_type[0])), threads_for(width / N), 0,
             combine_b<T, N>, (const T *)call->in[0], (const float *)call->in[1],
             (const T *)call->in[2], (T *)call->out[0], (float *)call->out[1], k, width);
    });
  });
}

size_t sli_cuda_expert_limit_scratch(const sl_call *call) {
  return (size_t)sl_type_elements(&call->in_type[0]) * 2 * sizeof(uint64_t);
}

void sli_cuda_expert_limit(const sl_call *call, void *stream) {
  const sl_attrs *a = call->attrs;
  int64_t rows = sl_type_elements(&call->in_type[0]);
  int64_t most = (int64_t)ceil((double)a->experts.factor * (double)rows / (double)a->experts.count);
  uint64_t *keys = (uint64_t *)call->scratch;
  id_in_table expert = {0, a->experts.count};
  const uint64_t *sorted =
      sort_places((const int32_t *)call->in[0], rows, keys, keys + rows, expert, stream);
  cudaMemcpyAsync(call->out[0], call->in[0], (size_t)rows * sizeof(int32_t), cudaMemcpyDefault,
                  (cudaStream_t)stream);
  launch(stream, grid_of(a->experts.count), BLOCK, 0, limit, sorted, (const float *)call->in[1],
         (int32_t *)call->out[0], rows, most);
}
