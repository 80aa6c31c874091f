/* SPDX-License-Identifier: Apache-2.0 */
/* Batch norm: one block per channel. */
#include "kernels/cuda/device.cuh"

namespace {

using namespace sli;

struct channels {
  int64_t count, inner, size;
  float eps;
  bool keep;
};

channels channels_of(const sl_call *call) {
  const sl_type *x = &call->in_type[0];
  channels c = {x->dim[1], 1, 0, call->attrs->norm.eps > 0 ? call->attrs->norm.eps : 1e-5f,
                call->attrs->norm.given};
  for (int d = 2; d < x->ndim; d++) c.inner *= x->dim[d];
  c.size = x->dim[0] * c.inner;
  return c;
}

/* Returns the index of number i of the block's channel. */
__device__ inline int64_t place(const channels &c, int64_t i) {
  return (i / c.inner * c.count + blockIdx.x) * c.inner + i % c.inner;
}

template <typename T> __global__ void norm(channels c, const T *x, const float *gain,
                                           const float *bias, const float *given_mean,
                                           const float *given_variance, T *y, float *means,
                                           float *rstds, float *variances) {
  int at = blockIdx.x;
  float mean, variance, unbiased;
  if (c.keep) {
    mean = given_mean[at];
    variance = unbiased = given_variance[at];
  } else {
    float sum = 0, squares = 0;
    for (int64_t i = threadIdx.x; i < c.size; i += blockDim.x) sum += to_float(x[place(c, i)]);
    mean = block_sum(sum) / (float)c.size;
    for (int64_t i = threadIdx.x; i < c.size; i += blockDim.x) {
      float away = to_float(x[place(c, i)]) - mean;
      squares += away * away;
    }
    squares = block_sum(squares);
    variance = squares / (float)c.size;
    unbiased = squares / (float)(c.size - 1);
  }
  float rstd = 1.0f / sqrtf(variance + c.eps);
  for (int64_t i = threadIdx.x; y && i < c.size; i += blockDim.x) {
    int64_t e = place(c, i);
    assign(y[e], (to_float(x[e]) - mean) * rstd * gain[at] + bias[at]);
  }
  if (threadIdx.x) return;
  if (means) means[at] = mean;
  if (rstds) rstds[at] = rstd;
  if (variances) variances[at] = unbiased;
}

/* With z = (x - mean) rstd: dx = gain rstd (dy - mean(dy) - z mean(dy z)). */
template <typename T> __global__ void norm_b(channels c, const T *x, const float *gain,
                                             const float *means, const float *rstds, const T *dy,
                                             T *dx) {
  float mean = means[blockIdx.x], rstd = rstds[blockIdx.x], sum = 0, slope = 0;
  for (int64_t i = threadIdx.x; !c.keep && i < c.size; i += blockDim.x) {
    float d = to_float(dy[place(c, i)]);
    sum += d;
    slope += d * (to_float(x[place(c, i)]) - mean) * rstd;
  }
  sum = block_sum(sum) / (float)c.size;
  slope = block_sum(slope) / (float)c.size;
  for (int64_t i = threadIdx.x; i < c.size; i += blockDim.x) {
    int64_t e = place(c, i);
    float z = (to_float(x[e]) - mean) * rstd;
    assign(dx[e], rstd * gain[blockIdx.x] * (to_float(dy[e]) - sum - z * slope));
  }
}

template <typename T> __global__ void norm_w(channels c, const T *x, const float *means,
                                             const float *rstds, const T *dy, float *dgain,
                                             float *dbias, uint32_t add) {
  int at = blockIdx.x;
  float gain = 0, bias = 0;
  for (int64_t i = threadIdx.x; i < c.size; i += blockDim.x) {
    float d = to_float(dy[place(c, i)]);
    gain += d * (to_float(x[place(c, i)]) - means[at]) * rstds[at];
    bias += d;
  }
  gain = block_sum(gain);
  bias = block_sum(bias);
  if (threadIdx.x) return;
  if (dgain) dgain[at] = add & 1 ? dgain[at] + gain : gain;
  if (dbias) dbias[at] = add & 2 ? dbias[at] + bias : bias;
}

} // namespace

void sli_cuda_batch_norm(const sl_call *call, void *stream) {
  channels c = channels_of(call);
  const float *const *in = (const float *const *)call->in;
  float *const *out = (float *const *)call->out;
  with_elements(call->in_type[0].dtype, [&](auto element) {
    using T = decltype(element);
    launch(stream, grid_of(c.count), threads_for(c.size), 0, norm<T>, c, (const T *)call->in[0],
           in[1], in[2], in[3], in[4], (T *)call->out[0], out[1], out[2], out[3]);
  });
}

void sli_cuda_batch_norm_b(const sl_call *call, void *stream) {
  channels c = channels_of(call);
  const float *const *in = (const float *const *)call->in;
  with_elements(call->in_type[0].dtype, [&](auto element) {
    using T = decltype(element);
    launch(stream, grid_of(c.count), threads_for(c.size), 0, norm_b<T>, c, (const T *)call->in[0],
           in[1], in[2], in[3], (const T *)call->in[4], (T *)call->out[0]);
  });
}

void sli_cuda_batch_norm_w(const sl_call *call, void *stream) {
  channels c = channels_of(call);
  const float *const *in = (const float *const *)call->in;
  float *const *out = (float *const *)call->out;
  with_elements(call->in_type[0].dtype, [&](auto element) {
    using T = decltype(element);
    launch(stream, grid_of(c.count), threads_for(c.size), 0, norm_w<T>, c, (const T *)call->in[0],
           in[1], in[2], (const T *)call->in[3], out[0], out[1], call->accumulate);
  });
}
