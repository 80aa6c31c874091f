/* SPDX-License-Identifier: Apache-2.0 */
/* Cross entropy, one block per row. The rows' parts of the loss are stored in the scratch, in
 * double, and added in order.
 *
 * The fused loss and gradient read each row twice, the second time from shared memory if it fits,
 * otherwise mostly from L2. Long rows get the largest blocks, so that few rows are in flight. */
#include "kernels/cuda/fuse.h"
#include "kernels/cuda/loss.cuh"

namespace {

using namespace sli;

/* One block per row. */
template <typename T> __global__ void __launch_bounds__(LARGEST, 2)
    cross_entropy(const T *logits, const int32_t *targets, float *lse, double *partial,
                  int64_t vocab, int64_t stride) {
  const T *row = logits + blockIdx.x * stride;
  sli_soft s = row_soft(row, vocab);
  if (threadIdx.x) return;
  float l = s.top + logf(s.total);
  int32_t target = targets[blockIdx.x];
  bool known = target >= 0 && target < vocab;
  partial[blockIdx.x] = known ? (double)l - (double)to_float(row[target]) : (double)NAN;
  if (lse) lse[blockIdx.x] = l;
}

/* One block per row. */
template <typename T> __global__ void __launch_bounds__(LARGEST, 2)
    log_probability(const T *logits, const int32_t *targets, float *y, float *lse, int64_t vocab,
                    int64_t stride) {
  const T *row = logits + blockIdx.x * stride;
  sli_soft s = row_soft(row, vocab);
  if (threadIdx.x) return;
  float l = s.top + logf(s.total);
  int32_t target = targets[blockIdx.x];
  bool known = target >= 0 && target < vocab;
  if (y) y[blockIdx.x] = known ? to_float(row[target]) - l : NAN;
  if (lse) lse[blockIdx.x] = l;
}

/* One thread per row. */
__global__ void log_probability_join(const float *parts, float *y, float *lse, int64_t rows,
                                     int64_t width) {
  int64_t r = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
  if (r >= rows) return;
  float l, found = sli_join_log_probability(parts + r * width, width, &l);
  if (y) y[r] = found;
  if (lse) lse[r] = l;
}

/* One block per row of a shard of the columns. A target outside [0, classes) has the logit NaN;
 * with classes 0, a target outside the shard has the logit 0. */
template <typename T> __global__ void __launch_bounds__(LARGEST, 2)
    cross_entropy_part(const T *logits, const int32_t *targets, float *part, int64_t first,
                       int64_t vocab, int64_t stride, int64_t classes) {
  const T *row = logits + blockIdx.x * stride;
  sli_soft s = row_soft(row, vocab);
  if (threadIdx.x) return;
  int64_t target = targets[blockIdx.x] - first;
  float *to = part + 3 * (int64_t)blockIdx.x;
  to[0] = s.top;
  to[1] = s.total;
  to[2] = target >= 0 && target < vocab ? to_float(row[target]) : 0.0f;
  if (classes && (target < -first || target >= classes - first)) to[2] = NAN;
}

/* One block per row. */
template <typename T> __global__ void __launch_bounds__(LARGEST, 2)
    softmax_part(const T *logits, T *soft, float *own, int64_t vocab) {
  const T *row = logits + blockIdx.x * vocab;
  T *to = soft + blockIdx.x * vocab;
  sli_soft s = row_soft(row, vocab);
  bool masked = !(s.total > 0); /* all columns are masked */
  float by = masked ? 0.0f : 1.0f / s.total;
  for (int64_t c = threadIdx.x; c < vocab && soft; c += blockDim.x)
    assign(to[c], masked ? 0.0f : expf(to_float(row[c]) - s.top) * by);
  if (own && !threadIdx.x) own[blockIdx.x] = masked ? s.top : s.top + logf(s.total);
}

/* One block per row. */
__global__ void softmax_rescale(const float *ahead, const float *taken, const float *own,
                                const float *lse, const float *dloss, float *dx, int64_t rows,
                                int64_t width) {
  float scale = *dloss / (float)rows, share = expf(own[blockIdx.x] - lse[blockIdx.x]) * scale;
  int64_t begin = blockIdx.x * width;
  for (int64_t c = threadIdx.x; c < width; c += blockDim.x)
    dx[begin + c] = ahead[begin + c] * share - taken[begin + c] * scale;
}

/* Writes a row's gradient, possibly in place. */
template <typename T> __device__ inline void row_gradient(const T *row, T *to, float lse,
                                                          float scale, int64_t target,
                                                          int64_t vocab) {
  constexpr int N = wide<T>;
  along_memory(row, vocab, 0, [&](int64_t c, const float(&x)[N], int begin, int end) {
    float d[N];
#pragma unroll
    for (int n = 0; n < N; n++) d[n] = power_of_e(x[n], lse) * scale;
    if (target >= c && target < c + N)
#pragma unroll
      for (int n = 0; n < N; n++) d[n] -= c + n == target ? scale : 0.0f;
    put_own<false>(to, c, d, begin, end);
  });
}

/* One block per row; dlogits may alias logits. */
template <typename T> __global__ void __launch_bounds__(LARGEST, 2)
    cross_entropy_b(const T *logits, const int32_t *targets, const float *lse, const float *dloss,
                    T *dlogits, int64_t rows, int64_t first, int64_t vocab, int64_t stride) {
  T *to = dlogits + blockIdx.x * stride;
  row_gradient(logits + blockIdx.x * stride, to, lse[blockIdx.x], *dloss / (float)rows,
               targets[blockIdx.x] - first, vocab);
  zeros_behind(to, vocab, stride);
}

/* One block per row; dlogits may alias logits. */
template <typename T> __global__ void __launch_bounds__(LARGEST, 2)
    log_probability_b(const T *logits, const int32_t *targets, const float *lse, const float *dy,
                      T *dlogits, int64_t first, int64_t vocab, int64_t stride) {
  T *to = dlogits + blockIdx.x * stride;
  row_gradient(logits + blockIdx.x * stride, to, lse[blockIdx.x], -dy[blockIdx.x],
               targets[blockIdx.x] - first, vocab);
  zeros_behind(to, vocab, stride);
}

/* Computes the loss and its gradient. The target's logit is read before anything is written. */
template <bool KEEP, typename T> __global__ void __launch_bounds__(LARGEST, 2)
    cross_entropy_both(const T *logits, const int32_t *targets, const float *dloss, float *lse,
                       double *partial, T *dlogits, int64_t rows, int64_t first, int64_t vocab,
                       int64_t stride) {
  const T *row = logits + blockIdx.x * stride;
  int32_t target = targets[blockIdx.x];
  bool known = target >= 0 && target < vocab;
  float hit = known && !threadIdx.x ? to_float(row[target]) : 0.0f;
  T *kept = place_to_keep<KEEP>(row);
  sli_soft s = row_soft<KEEP>(row, vocab, kept);
  float l = s.top + logf(s.total);
  if (!threadIdx.x) {
    partial[blockIdx.x] = known ? (double)l - (double)hit : (double)NAN;
    if (lse) lse[blockIdx.x] = l;
  }
  T *to = dlogits + blockIdx.x * stride;
  row_gradient(KEEP ? kept : row, to, l, *dloss / (float)rows, target - first, vocab);
  zeros_behind(to, vocab, stride);
}

} // namespace

size_t sli_cuda_cross_entropy_scratch(const sl_call *call) {
  return (size_t)sl_type_rows(&call->in_type[0]) * sizeof(double);
}

void sli_cuda_cross_entropy(const sl_call *call, void *stream) {
  int64_t rows = sl_type_rows(&call->in_type[0]), stride = sl_type_last(&call->in_type[0]);
  with_elements(call->in_type[0].dtype, [&](auto element) {
    using T = decltype(element);
    launch(stream, grid_of(rows), threads_of(columns(call)), 0, cross_entropy<T>,
           (const T *)call->in[0], (const int32_t *)call->in[1], (float *)call->out[1],
           (double *)call->scratch, columns(call), stride);
  });
  if (call->out[0]) sum_all(stream, call->scratch, rows, (double)rows, call->out[0]);
}

void sli_cuda_cross_entropy_b(const sl_call *call, void *stream) {
  int64_t rows = sl_type_rows(&call->in_type[0]), stride = sl_type_last(&call->in_type[0]);
  with_elements(call->in_type[0].dtype, [&](auto element) {
    using T = decltype(element);
    launch(stream, grid_of(rows), threads_of(columns(call)), 0, cross_entropy_b<T>,
           (const T *)call->in[0], (const int32_t *)call->in[1], (const float *)call->in[2],
           (const float *)call->in[3], (T *)call->out[0], rows, call->attrs->place.first,
           columns(call), stride);
  });
}

bool sli_cuda_cross_entropy_cross_entropy_b_prepare(const sl_call *calls, bool, void **) {
  return with_elements(calls[0].in_type[0].dtype, [&](auto element) {
    using T = decltype(element);
    return !allow(cross_entropy_both<true, T>, KEPT_BYTES);
  });
}

void sli_cuda_cross_entropy_cross_entropy_b(const sli_cuda_fused *, const sl_call *calls, int,
                                            void *, void *stream) {
  const sl_call *loss = &calls[0], *gradient = &calls[1];
  int64_t rows = sl_type_rows(&loss->in_type[0]), stride = sl_type_last(&loss->in_type[0]);
  with_elements(loss->in_type[0].dtype, [&](auto element) {
    using T = decltype(element);
    with_kept<T>(columns(loss), [&](auto keep) {
      launch(stream, grid_of(rows), threads_of(columns(loss)), kept_bytes<T>(columns(loss)),
             cross_entropy_both<decltype(keep)::value, T>, (const T *)loss->in[0],
             (const int32_t *)loss->in[1], (const float *)gradient->in[3], (float *)loss->out[1],
             (double *)loss->scratch, (T *)gradient->out[0], rows, gradient->attrs->place.first,
             columns(loss), stride);
    });
  });
  if (loss->out[0]) sum_all(stream, loss->scratch, rows, (double)rows, loss->out[0]);
}

static void part_of_columns(const sl_call *call, int64_t classes, void *stream) {
  int64_t rows = sl_type_rows(&call->in_type[0]), stride = sl_type_last(&call->in_type[0]);
  with_elements(call->in_type[0].dtype, [&](auto element) {
    using T = decltype(element);
    launch(stream, grid_of(rows), threads_of(columns(call)), 0, cross_entropy_part<T>,
           (const T *)call->in[0], (const int32_t *)call->in[1], (float *)call->out[0],
           call->attrs->place.first, columns(call), stride, classes);
  });
}

void sli_cuda_cross_entropy_part(const sl_call *call, void *stream) {
  part_of_columns(call, 0, stream);
}

void sli_cuda_log_probability_part(const sl_call *call, void *stream) {
  part_of_columns(call, call->attrs->place.whole, stream);
}

void sli_cuda_log_probability(const sl_call *call, void *stream) {
  int64_t rows = sl_type_rows(&call->in_type[0]), stride = sl_type_last(&call->in_type[0]);
  with_elements(call->in_type[0].dtype, [&](auto element) {
    using T = decltype(element);
    launch(stream, grid_of(rows), threads_of(columns(call)), 0, log_probability<T>,
           (const T *)call->in[0], (const int32_t *)call->in[1], (float *)call->out[0],
           (float *)call->out[1], columns(call), stride);
  });
}

void sli_cuda_log_probability_b(const sl_call *call, void *stream) {
  int64_t rows = sl_type_rows(&call->in_type[0]), stride = sl_type_last(&call->in_type[0]);
  with_elements(call->in_type[0].dtype, [&](auto element) {
    using T = decltype(element);
    launch(stream, grid_of(rows), threads_of(columns(call)), 0, log_probability_b<T>,
           (const T *)call->in[0], (const int32_t *)call->in[1], (const float *)call->in[2],
           (const float *)call->in[3], (T *)call->out[0], call->attrs->place.first, columns(call),
           stride);
  });
}

void sli_cuda_log_probability_join(const sl_call *call, void *stream) {
  int64_t rows = sl_type_rows(&call->in_type[0]), width = sl_type_last(&call->in_type[0]);
  launch(stream, grid_of(chunks(rows, BLOCK)), BLOCK, 0, log_probability_join,
         (const float *)call->in[0], (float *)call->out[0], (float *)call->out[1], rows, width);
}

void sli_cuda_cross_entropy_join(const sl_call *call, void *stream) {
  join_parts<SLI_PART>(call, (double)sl_type_rows(&call->in_type[0]), stream);
}

void sli_cuda_softmax_part(const sl_call *call, void *stream) {
  int64_t rows = sl_type_rows(&call->in_type[0]), vocab = sl_type_last(&call->in_type[0]);
  with_elements(call->in_type[0].dtype, [&](auto element) {
    using T = decltype(element);
    launch(stream, grid_of(rows), threads_of(vocab), 0, softmax_part<T>, (const T *)call->in[0],
           (T *)call->out[0], (float *)call->out[1], vocab);
  });
}

void sli_cuda_softmax_rescale(const sl_call *call, void *stream) {
  int64_t rows = sl_type_rows(&call->in_type[0]), width = sl_type_last(&call->in_type[0]);
  launch(stream, grid_of(rows), BLOCK, 0, softmax_rescale, (const float *)call->in[0],
         (const float *)call->in[1], (const float *)call->in[2], (const float *)call->in[3],
         (const float *)call->in[4], (float *)call->out[0], rows, width);
}

namespace {

template <typename T> __global__ void times(const T *x, T *y, double share) {
  if (!threadIdx.x) *y = (T)(share * (double)*x);
}

} // namespace

void sli_cuda_share(const sl_call *call, void *stream) {
  const double share = call->attrs->user ? *(const double *)call->attrs->user : 1;
  if (call->in_type[0].dtype == SL_F64)
    launch(stream, dim3(1), WARP, 0, times<double>, (const double *)call->in[0],
           (double *)call->out[0], share);
  else
    launch(stream, dim3(1), WARP, 0, times<float>, (const float *)call->in[0],
           (float *)call->out[0], share);
}
