/* SPDX-License-Identifier: Apache-2.0 */
/* Cross entropy with weighted rows, one block per row. Works like loss.cu, but a block whose row
 * does not count exits immediately. */
#include "kernels/cuda/fuse.h"
#include "kernels/cuda/loss.cuh"

namespace {

using namespace sli;

/* Returns the sum of w x over columns first .. first + width of the whole, the same in every
 * thread. */
template <typename T>
__device__ inline float row_dot(const sli_weighing &w, const T *row, int64_t first, int64_t width) {
  constexpr int N = wide<T>;
  float s = 0;
  along_memory(row, width, 0, [&](int64_t c, const float(&x)[N], int begin, int end) {
#pragma unroll
    for (int n = 0; n < N; n++)
      if (n >= begin && n < end) s += w.weights ? w.weights[first + c + n] * x[n] : x[n];
  });
  return block_sum(s);
}

__device__ inline float sum_of_weights(const sli_weighing &w) {
  float s = 0;
  if (!w.weights || w.each == 0) return 0;
  for (int64_t c = threadIdx.x; c < w.classes; c += blockDim.x) s += w.weights[c];
  return block_sum(s);
}

/* Returns the amount subtracted from the row's lse. */
template <typename T> __device__ inline double row_taken(const sli_weighing &w, const T *row,
                                                         int64_t first, int64_t width,
                                                         int32_t target) {
  int64_t own = target - first;
  double taken =
      own >= 0 && own < width ? (double)sli_weight_own(&w, target) * (double)to_float(row[own]) : 0;
  return w.each == 0 ? taken : taken + (double)(w.each * row_dot(w, row, first, width));
}

/* Returns the row's part of the loss, and sets its lse; kept: see row_soft(). */
template <bool KEEP, typename T>
__device__ inline double row_loss(const sli_weighing &w, const T *row, int64_t vocab,
                                  int32_t target, float *lse, T *kept) {
  double taken = row_taken(w, row, 0, vocab, target);
  float all = sum_of_weights(w);
  sli_soft s = row_soft<KEEP>(row, vocab, kept);
  *lse = s.top + logf(s.total);
  bool known = target >= 0 && target < vocab;
  return known ? (double)sli_weight_all(&w, target, all) * (double)*lse - taken : (double)NAN;
}

/* Writes the row's gradient, possibly in place. */
template <typename T>
__device__ inline void row_gradient(const sli_weighing &w, const T *row, T *to, float lse,
                                    float scale, int32_t target, int64_t first, int64_t vocab) {
  constexpr int N = wide<T>;
  float own = sli_weight_own(&w, target) * scale, each = w.each * scale;
  float whole = sli_weight_all(&w, target, sum_of_weights(w)) * scale;
  along_memory(row, vocab, 0, [&](int64_t c, const float(&x)[N], int begin, int end) {
    float d[N];
#pragma unroll
    for (int n = 0; n < N; n++) {
      bool there = n >= begin && n < end;
      float weight = w.weights && there ? w.weights[first + c + n] : 1.0f;
      d[n] = power_of_e(x[n], lse) * whole - each * weight - (first + c + n == target ? own : 0.0f);
    }
    put_own<false>(to, c, d, begin, end);
  });
}

__device__ inline float scale_of(const float *dloss, const double *total) {
  return *total == 0 ? 0 : (float)((double)*dloss / *total);
}

__device__ inline double over(double loss, const double *total) {
  return *total == 0 ? 0 : loss / *total;
}

__global__ void target_weight(sli_weighing w, const int32_t *targets, double *each, int64_t n) {
  int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
  if (i < n) each[i] = sli_counts(&w, targets[i]) ? (double)sli_weight(&w, targets[i]) : 0;
}

template <typename T> __global__ void __launch_bounds__(LARGEST)
    cross_entropy(sli_weighing w, const T *logits, const int32_t *targets, const double *total,
                  float *lse, double *partial, int64_t vocab, int64_t stride) {
  int32_t target = targets[blockIdx.x];
  float l = 0;
  double loss = 0;
  if (sli_counts(&w, target))
    loss = row_loss<false>(w, logits + blockIdx.x * stride, vocab, target, &l, (T *)NULL);
  if (threadIdx.x) return;
  partial[blockIdx.x] = over(loss, total);
  if (lse) lse[blockIdx.x] = l;
}

/* Computes the gradient; dlogits may alias logits. */
template <typename T> __global__ void __launch_bounds__(LARGEST)
    cross_entropy_b(sli_weighing w, const T *logits, const int32_t *targets, const float *lse,
                    const double *total, const float *dloss, T *dlogits, int64_t first,
                    int64_t vocab, int64_t stride) {
  int32_t target = targets[blockIdx.x];
  float scale = scale_of(dloss, total);
  T *to = dlogits + blockIdx.x * stride;
  if (!sli_counts(&w, target) || scale == 0) return zeros_behind(to, 0, stride);
  row_gradient(w, logits + blockIdx.x * stride, to, lse[blockIdx.x], scale, target, first, vocab);
  zeros_behind(to, vocab, stride);
}

/* Computes the loss and its gradient. The target's logit is read before anything is written. */
template <bool KEEP, typename T> __global__ void __launch_bounds__(LARGEST)
    cross_entropy_both(sli_weighing w, const T *logits, const int32_t *targets, const double *total,
                       const float *dloss, float *lse, double *partial, T *dlogits, int64_t vocab,
                       int64_t stride) {
  const T *row = logits + blockIdx.x * stride;
  T *to = dlogits + blockIdx.x * stride, *kept = place_to_keep<KEEP>(row);
  int32_t target = targets[blockIdx.x];
  bool counts = sli_counts(&w, target);
  float l = 0, scale = scale_of(dloss, total);
  double loss = counts ? row_loss<KEEP>(w, row, vocab, target, &l, kept) : 0;
  if (!threadIdx.x) {
    partial[blockIdx.x] = over(loss, total);
    if (lse) lse[blockIdx.x] = l;
  }
  if (!counts || scale == 0) return zeros_behind(to, 0, stride);
  row_gradient(w, KEEP ? kept : row, to, l, scale, target, 0, vocab);
  zeros_behind(to, vocab, stride);
}

template <typename T> __global__ void __launch_bounds__(LARGEST)
    cross_entropy_part(sli_weighing w, const T *logits, const int32_t *targets, const double *total,
                       float *part, int64_t first, int64_t vocab, int64_t stride) {
  const T *row = logits + blockIdx.x * stride;
  int32_t target = targets[blockIdx.x];
  bool counts = sli_counts(&w, target) && *total != 0;
  double taken = counts ? row_taken(w, row, first, vocab, target) / *total : 0;
  float all = counts ? sum_of_weights(w) : 0;
  sli_soft s = {0, 0};
  if (counts) s = row_soft(row, vocab);
  if (threadIdx.x) return;
  float *to = part + 4 * (int64_t)blockIdx.x;
  to[0] = s.top;
  to[1] = s.total;
  to[2] = counts ? (float)((double)sli_weight_all(&w, target, all) / *total) : 0;
  to[3] = (float)taken;
}

} // namespace

size_t sli_cuda_target_weight_scratch(const sl_call *call) {
  return (size_t)sl_type_elements(&call->in_type[0]) * sizeof(double);
}

void sli_cuda_target_weight(const sl_call *call, void *stream) {
  int64_t n = sl_type_elements(&call->in_type[0]);
  launch(stream, grid_of(chunks(n, BLOCK)), BLOCK, 0, target_weight, sli_weighing_of(call, 1),
         (const int32_t *)call->in[0], (double *)call->scratch, n);
  sum_all(stream, call->scratch, n, 1, call->out[0]);
}

void sli_cuda_weighted_cross_entropy(const sl_call *call, void *stream) {
  int64_t rows = sl_type_rows(&call->in_type[0]), stride = sl_type_last(&call->in_type[0]);
  with_elements(call->in_type[0].dtype, [&](auto element) {
    using T = decltype(element);
    launch(stream, grid_of(rows), threads_of(columns(call)), 0, cross_entropy<T>,
           sli_weighing_of(call, 3), (const T *)call->in[0], (const int32_t *)call->in[1],
           (const double *)call->in[2], (float *)call->out[1], (double *)call->scratch,
           columns(call), stride);
  });
  if (call->out[0]) sum_all(stream, call->scratch, rows, 1, call->out[0]);
}

void sli_cuda_weighted_cross_entropy_b(const sl_call *call, void *stream) {
  int64_t rows = sl_type_rows(&call->in_type[0]), stride = sl_type_last(&call->in_type[0]);
  with_elements(call->in_type[0].dtype, [&](auto element) {
    using T = decltype(element);
    launch(stream, grid_of(rows), threads_of(columns(call)), 0, cross_entropy_b<T>,
           sli_weighing_of(call, 5), (const T *)call->in[0], (const int32_t *)call->in[1],
           (const float *)call->in[2], (const double *)call->in[3], (const float *)call->in[4],
           (T *)call->out[0], call->attrs->place.first, columns(call), stride);
  });
}

bool sli_cuda_weighted_cross_entropy_weighted_cross_entropy_b_prepare(const sl_call *calls, bool,
                                                                      void **) {
  return with_elements(calls[0].in_type[0].dtype, [&](auto element) {
    using T = decltype(element);
    return !allow(cross_entropy_both<true, T>, KEPT_BYTES);
  });
}

void sli_cuda_weighted_cross_entropy_weighted_cross_entropy_b(const sli_cuda_fused *,
                                                              const sl_call *calls, int, void *,
                                                              void *stream) {
  const sl_call *loss = &calls[0], *gradient = &calls[1];
  int64_t rows = sl_type_rows(&loss->in_type[0]), stride = sl_type_last(&loss->in_type[0]);
  with_elements(loss->in_type[0].dtype, [&](auto element) {
    using T = decltype(element);
    with_kept<T>(columns(loss), [&](auto keep) {
      launch(stream, grid_of(rows), threads_of(columns(loss)), kept_bytes<T>(columns(loss)),
             cross_entropy_both<decltype(keep)::value, T>, sli_weighing_of(loss, 3),
             (const T *)loss->in[0], (const int32_t *)loss->in[1], (const double *)loss->in[2],
             (const float *)gradient->in[4], (float *)loss->out[1], (double *)loss->scratch,
             (T *)gradient->out[0], columns(loss), stride);
    });
  });
  if (loss->out[0]) sum_all(stream, loss->scratch, rows, 1, loss->out[0]);
}

void sli_cuda_weighted_cross_entropy_part(const sl_call *call, void *stream) {
  int64_t rows = sl_type_rows(&call->in_type[0]), stride = sl_type_last(&call->in_type[0]);
  with_elements(call->in_type[0].dtype, [&](auto element) {
    using T = decltype(element);
    launch(stream, grid_of(rows), threads_of(columns(call)), 0, cross_entropy_part<T>,
           sli_weighing_of(call, 3), (const T *)call->in[0], (const int32_t *)call->in[1],
           (const double *)call->in[2], (float *)call->out[0], call->attrs->place.first,
           columns(call), stride);
  });
}

void sli_cuda_weighted_cross_entropy_join(const sl_call *call, void *stream) {
  join_parts<SLI_WEIGHTED_PART>(call, 1, stream);
}
