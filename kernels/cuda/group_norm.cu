/* SPDX-License-Identifier: Apache-2.0 */
/* Group norm: one block per group; one per channel for the weights' gradients. */
#include "kernels/cuda/device.cuh"

namespace {

using namespace sli;

struct groups {
  int64_t images, count, channels, inner, size;
  float eps;
};

groups groups_of(const sl_call *call) {
  const sl_type *x = &call->in_type[0];
  groups g = {x->dim[0],
              call->attrs->norm.groups,
              x->dim[1] / call->attrs->norm.groups,
              1,
              0,
              call->attrs->norm.eps > 0 ? call->attrs->norm.eps : 1e-5f};
  for (int d = 2; d < x->ndim; d++) g.inner *= x->dim[d];
  g.size = g.channels * g.inner;
  return g;
}

/* Returns the channel of element e of the block's group. */
__device__ inline int64_t channel_of(const groups &g, int64_t e) {
  return blockIdx.x % g.count * g.channels + e / g.inner;
}

template <typename T> __global__ void norm(groups g, const T *x, const float *gain,
                                           const float *bias, T *y, float *means, float *rstds) {
  int64_t at = blockIdx.x * g.size;
  float sum = 0, squares = 0;
  for (int64_t e = threadIdx.x; e < g.size; e += blockDim.x) sum += to_float(x[at + e]);
  float mean = block_sum(sum) / (float)g.size;
  for (int64_t e = threadIdx.x; e < g.size; e += blockDim.x) {
    float away = to_float(x[at + e]) - mean;
    squares += away * away;
  }
  float rstd = 1.0f / sqrtf(block_sum(squares) / (float)g.size + g.eps);
  for (int64_t e = threadIdx.x; y && e < g.size; e += blockDim.x) {
    int64_t c = channel_of(g, e);
    assign(y[at + e], (to_float(x[at + e]) - mean) * rstd * gain[c] + bias[c]);
  }
  if (threadIdx.x) return;
  if (means) means[blockIdx.x] = mean;
  if (rstds) rstds[blockIdx.x] = rstd;
}

/* With d = dy gain and z = (x - mean) rstd: dx = rstd (d - mean(d) - z mean(d z)). */
template <typename T> __global__ void norm_b(groups g, const T *x, const float *gain,
                                             const float *means, const float *rstds, const T *dy,
                                             T *dx) {
  int64_t at = blockIdx.x * g.size;
  float mean = means[blockIdx.x], rstd = rstds[blockIdx.x], sum = 0, slope = 0;
  for (int64_t e = threadIdx.x; e < g.size; e += blockDim.x) {
    float d = to_float(dy[at + e]) * gain[channel_of(g, e)];
    sum += d;
    slope += d * (to_float(x[at + e]) - mean) * rstd;
  }
  sum = block_sum(sum) / (float)g.size;
  slope = block_sum(slope) / (float)g.size;
  for (int64_t e = threadIdx.x; e < g.size; e += blockDim.x) {
    float d = to_float(dy[at + e]) * gain[channel_of(g, e)];
    float z = (to_float(x[at + e]) - mean) * rstd;
    assign(dx[at + e], rstd * (d - sum - z * slope));
  }
}

template <typename T> __global__ void norm_w(groups g, const T *x, const float *means,
                                             const float *rstds, const T *dy, float *dgain,
                                             float *dbias, uint32_t add) {
  int64_t c = blockIdx.x, all = g.count * g.channels;
  float gain = 0, bias = 0;
  for (int64_t i = threadIdx.x; i < g.images * g.inner; i += blockDim.x) {
    int64_t image = i / g.inner, at = (image * all + c) * g.inner + i % g.inner;
    int64_t group = image * g.count + c / g.channels;
    float d = to_float(dy[at]);
    gain += d * (to_float(x[at]) - means[group]) * rstds[group];
    bias += d;
  }
  gain = block_sum(gain);
  bias = block_sum(bias);
  if (threadIdx.x) return;
  if (dgain) dgain[c] = add & 1 ? dgain[c] + gain : gain;
  if (dbias) dbias[c] = add & 2 ? dbias[c] + bias : bias;
}

} // namespace

void sli_cuda_group_norm(const sl_call *call, void *stream) {
  groups g = groups_of(call);
  with_elements(call->in_type[0].dtype, [&](auto element) {
    using T = decltype(element);
    launch(stream, grid_of(g.images * g.count), threads_for(g.size), 0, norm<T>, g,
           (const T *)call->in[0], (const float *)call->in[1], (const float *)call->in[2],
           (T *)call->out[0], (float *)call->out[1], (float *)call->out[2]);
  });
}

void sli_cuda_group_norm_b(const sl_call *call, void *stream) {
  groups g = groups_of(call);
  with_elements(call->in_type[0].dtype, [&](auto element) {
    using T = decltype(element);
    launch(stream, grid_of(g.images * g.count), threads_for(g.size), 0, norm_b<T>, g,
           (const T *)call->in[0], (const float *)call->in[1], (const float *)call->in[2],
           (const float *)call->in[3], (const T *)call->in[4], (T *)call->out[0]);
  });
}

void sli_cuda_group_norm_w(const sl_call *call, void *stream) {
  groups g = groups_of(call);
  with_elements(call->in_type[0].dtype, [&](auto element) {
    using T = decltype(element);
    launch(stream, grid_of(g.count * g.channels), threads_for(g.images * g.inner), 0, norm_w<T>, g,
           (const T *)call->in[0], (const float *)call->in[1], (const float *)call->in[2],
           (const T *)call->in[3], (float *)call->out[0], (float *)call->out[1], call->accumulate);
  });
}
