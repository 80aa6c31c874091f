/* SPDX-License-Identifier: Apache-2.0 */
/* Layer norm and RMS norm, one block per row, and the sums over rows for the gradients of their
 * weights and of a bias. Weights, means and reciprocal deviations are float for every data type.
 *
 * Fused kernels normalise the sum of two arrays, or add another gradient to that of the norm, with
 * the same bits as two kernels. */
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/fuse.h"

namespace {

using namespace sli;

/* Input of a norm: an array. */
template <typename T> struct array {
  using element = T;
  const T *x;
  template <int N> __device__ void get(float (&to)[N], int64_t at) const { load<N>(to, x + at); }
  template <int N> __device__ void keep(const float (&)[N], int64_t) const {}
  __device__ bool is_kept() const { return false; }
};

/* Input of a norm: the sum of two arrays, written to `sum` unless NULL. */
template <typename T> struct sum_of_two {
  using element = T;
  const T *a, *b;
  T *sum;
  template <int N> __device__ void get(float (&to)[N], int64_t at) const {
    float y[N];
    load<N>(to, a + at);
    load<N>(y, b + at);
#pragma unroll
    for (int n = 0; n < N; n++) to[n] = kept<T>(to[n] + y[n]);
  }
  template <int N> __device__ void keep(const float (&x)[N], int64_t at) const {
    if (sum) store<N>(sum + at, x);
  }
  __device__ bool is_kept() const { return sum; }
};

/* Calls f(c, x) for this thread's elements of the row of X that begins at `row`. */
template <int N, typename X, typename F>
__device__ inline void along_row(const X &from, int64_t row, int64_t width, F f) {
  for (int64_t c = (int64_t)threadIdx.x * N; c < width; c += (int64_t)blockDim.x * N) {
    float x[N];
    from.template get<N>(x, row + c);
    f(c, x);
  }
}

/* Returns the sum over a row of (x - shift)^2. */
template <int N, typename X>
__device__ inline float row_squares(const X &from, int64_t row, int64_t width, float shift) {
  float total = 0;
  along_row<N>(from, row, width, [&](int64_t, const float(&x)[N]) {
#pragma unroll
    for (int n = 0; n < N; n++) total += (x[n] - shift) * (x[n] - shift);
  });
  return block_sum(total);
}

template <int N, typename X>
__device__ inline float row_sum(const X &from, int64_t row, int64_t width) {
  float total = 0;
  along_row<N>(from, row, width, [&](int64_t, const float(&x)[N]) {
#pragma unroll
    for (int n = 0; n < N; n++) total += x[n];
  });
  return block_sum(total);
}

/* x [R, C], g [C], b [C] or NULL for RMS norm -> y [R, C], mean [R], rstd [R]. */
template <typename X, int N> __global__ void norm(X x, const float *g, const float *b,
                                                  typename X::element *y, float *mean, float *rstd,
                                                  int64_t width, float eps) {
  int64_t row = blockIdx.x * width;
  float m = b ? row_sum<N>(x, row, width) / (float)width : 0.0f;
  float s = 1.0f / sqrtf(row_squares<N>(x, row, width, m) / (float)width + eps);
  if (y || x.is_kept())
    along_row<N>(x, row, width, [&](int64_t c, const float(&v)[N]) {
      float gain[N], bias[N] = {}, to[N];
      x.template keep<N>(v, row + c);
      if (!y) return;
      load<N>(gain, g + c);
      if (b) load<N>(bias, b + c);
#pragma unroll
      for (int n = 0; n < N; n++) to[n] = (v[n] - m) * s * gain[n] + bias[n];
      store<N>(y + row + c, to);
    });
  if (threadIdx.x) return;
  if (mean) mean[blockIdx.x] = m;
  if (rstd) rstd[blockIdx.x] = s;
}

/* With d = dy g and z = (x - mean) rstd: dx = rstd (d - mean(d) - z mean(d z)); RMS norm omits the
 * means of x and of d. ADD: also sum = dx + other; dx may be NULL. */
template <typename T, int N, bool ADD>
__global__ void norm_b(array<T> x, const float *g, const float *mean, const float *rstd,
                       const T *dy, T *dx, const T *other, T *sum, int64_t width) {
  int64_t row = blockIdx.x * width;
  float m = mean ? mean[blockIdx.x] : 0.0f, s = rstd[blockIdx.x], sum_d = 0, sum_dx = 0;
  along_row<N>(x, row, width, [&](int64_t c, const float(&v)[N]) {
    float d[N], gain[N];
    load<N>(d, dy + row + c);
    load<N>(gain, g + c);
#pragma unroll
    for (int n = 0; n < N; n++) {
      sum_d += d[n] * gain[n];
      sum_dx += d[n] * gain[n] * (v[n] - m);
    }
  });
  float d_mean = mean ? block_sum(sum_d) / (float)width : 0.0f;
  float slope = block_sum(sum_dx) * s * s / (float)width;
  along_row<N>(x, row, width, [&](int64_t c, const float(&v)[N]) {
    float d[N], gain[N], to[N];
    load<N>(d, dy + row + c);
    load<N>(gain, g + c);
#pragma unroll
    for (int n = 0; n < N; n++) to[n] = s * (d[n] * gain[n] - d_mean - (v[n] - m) * slope);
    if (!ADD || dx) store<N>(dx + row + c, to);
    if (!ADD) return;
    float more[N];
    load<N>(more, other + row + c);
#pragma unroll
    for (int n = 0; n < N; n++) to[n] = plain_sum(kept<T>(to[n]), more[n]);
    store<N>(sum + row + c, to);
  });
}

/* Returns the input of a norm: an array, or the sum that an add call computes. */
auto input_of(const sl_call *call) {
  return [=](auto element) {
    using T = decltype(element);
    return array<T>{(const T *)call->in[0]};
  };
}

auto sum_of(const sl_call *add) {
  return [=](auto element) {
    using T = decltype(element);
    return sum_of_two<T>{(const T *)add->in[0], (const T *)add->in[1], (T *)add->out[0]};
  };
}

float eps_of(const sl_call *call) {
  return call->attrs->norm.eps > 0 ? call->attrs->norm.eps : 1e-5f;
}

/* Runs a forward norm on from(T()); mean and b are NULL for RMS norm. */
template <typename F>
void forward(const sl_call *call, void *stream, const void *b, void *mean, void *rstd, F from) {
  int64_t width = sl_type_last(&call->in_type[0]), rows = sl_type_rows(&call->in_type[0]);
  with_elements(call->in_type[0].dtype, [&](auto element) {
    using T = decltype(element);
    using X = decltype(from(element));
    with_packs<T>(width, [&](auto n) {
      constexpr int N = decltype(n)::value;
      launch(stream, grid_of(rows), threads_for(width / N), 0, norm<X, N>, from(T()),
             (const float *)call->in[1], (const float *)b, (T *)call->out[0], (float *)mean,
             (float *)rstd, width, eps_of(call));
    });
  });
}

template <bool ADD> void backward(const sl_call *call, void *stream, const void *mean,
                                  const void *rstd, const void *dy, const void *other, void *sum) {
  int64_t width = sl_type_last(&call->in_type[0]), rows = sl_type_rows(&call->in_type[0]);
  with_elements(call->in_type[0].dtype, [&](auto element) {
    using T = decltype(element);
    with_packs<T>(width, [&](auto n) {
      constexpr int N = decltype(n)::value;
      launch(stream, grid_of(rows), threads_for(width / N), 0, norm_b<T, N, ADD>,
             array<T>{(const T *)call->in[0]}, (const float *)call->in[1], (const float *)mean,
             (const float *)rstd, (const T *)dy, (T *)call->out[0], (const T *)other, (T *)sum,
             width);
    });
  });
}

/* ---- sums over rows ----------------------------------------------------------------
 *
 * Rows are cut into `partials` runs, enough to keep a GPU busy. A block takes one run of rows and
 * a warp's width of packs of columns. Its warps share the rows, and their sums are added in the
 * order of the warps. The sums of the runs, [partials, outputs, C] in the scratch, are added in the
 * same way. */

/* total number of runs over all columns */
constexpr int RUNS = 528, SHORTEST = 32, WARPS = BLOCK / WARP;

/* Returns the rows per partial sum, for rows of `width` elements in packs of N. */
int64_t rows_of_partial(int64_t rows, int64_t width, int N) {
  int64_t partials = chunks(RUNS, chunks(width, WARP * N)), even = chunks(rows, partials);
  return even > SHORTEST ? even : SHORTEST;
}

int64_t partials_of(int64_t rows, int64_t width, int N) {
  return chunks(rows, rows_of_partial(rows, width, N));
}

/* Sums runs of rows: output 0 of a norm is dg; the last output, except for RMS norm, is db. */
template <typename T, int N, bool GAIN, bool BIAS>
__global__ void sum_rows(const T *x, const float *mean, const float *rstd, const T *dy,
                         float *partial, int64_t rows, int64_t per, int64_t width) {
  constexpr int SUMS = GAIN + BIAS;
  __shared__ float of_warp[WARPS][SUMS][WARP * N];
  int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
  int64_t c = ((int64_t)blockIdx.x * WARP + lane) * N, begin = blockIdx.y * per;
  int64_t end = begin + per < rows ? begin + per : rows;
  float gain[N] = {}, bias[N] = {};
#pragma unroll 4
  for (int64_t r = begin + warp; c < width && r < end; r += WARPS) {
    float d[N], v[N];
    load<N>(d, dy + r * width + c);
    if (GAIN) load<N>(v, x + r * width + c);
    float m = GAIN && mean ? mean[r] : 0.0f, s = GAIN ? rstd[r] : 0.0f;
#pragma unroll
    for (int n = 0; n < N; n++) {
      if (GAIN) gain[n] += d[n] * (v[n] - m) * s;
      bias[n] += d[n];
    }
  }
#pragma unroll
  for (int n = 0; n < N; n++) {
    if (GAIN) of_warp[warp][0][lane * N + n] = gain[n];
    if (BIAS) of_warp[warp][SUMS - 1][lane * N + n] = bias[n];
  }
  __syncthreads();
  if (warp >= SUMS || c >= width) return;
  float total[N] = {};
  for (int w = 0; w < WARPS; w++)
#pragma unroll
    for (int n = 0; n < N; n++) total[n] += of_warp[w][warp][lane * N + n];
  store<N>(partial + (blockIdx.y * SUMS + warp) * width + c, total);
}

/* Destination of the sums of one output. */
struct total {
  float *out;
  bool add;
};

/* A block covers a warp's width of columns of one output. Its warps divide the runs among them, and
 * their sums are added in the order of the warps. */
__global__ void add_partials(const float *partial, int count, total first, total second,
                             int64_t width) {
  __shared__ float of_warp[WARPS][WARP];
  int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, per = (count + WARPS - 1) / WARPS;
  int64_t c = (int64_t)blockIdx.x * WARP + lane, stride = gridDim.y * width;
  const float *from = partial + blockIdx.y * width + c;
  total to = blockIdx.y ? second : first;
  int end = c >= width ? 0 : (warp + 1) * per < count ? (warp + 1) * per : count;
  float sum = 0;
#pragma unroll 8
  for (int p = warp * per; p < end; p++) sum += from[p * stride];
  of_warp[warp][lane] = sum;
  __syncthreads();
  if (warp || c >= width || !to.out) return;
  float all = 0;
#pragma unroll
  for (int w = 0; w < WARPS; w++) all += of_warp[w][lane];
  to.out[c] = to.add ? to.out[c] + all : all;
}

total total_of(const sl_call *call, int o) {
  return o < call->nout ? total{(float *)call->out[o], accumulates(call, o)} : total{};
}

template <bool GAIN, bool BIAS>
void sums(const sl_call *call, void *stream, const void *mean, const void *rstd, const void *dy) {
  int64_t width = sl_type_last(&call->in_type[0]), rows = sl_type_rows(&call->in_type[0]);
  with_elements(call->in_type[0].dtype, [&](auto element) {
    using T = decltype(element);
    with_packs<T>(width, [&](auto n) {
      constexpr int N = decltype(n)::value;
      int64_t per = rows_of_partial(rows, width, N), partials = chunks(rows, per);
      launch(stream, dim3((unsigned)chunks(width, WARP * N), (unsigned)partials), BLOCK, 0,
             sum_rows<T, N, GAIN, BIAS>, (const T *)call->in[0], (const float *)mean,
             (const float *)rstd, (const T *)dy, (float *)call->scratch, rows, per, width);
      launch(stream, dim3((unsigned)chunks(width, WARP), GAIN + BIAS), BLOCK, 0, add_partials,
             (const float *)call->scratch, (int)partials, total_of(call, 0), total_of(call, 1),
             width);
    });
  });
}

} // namespace

void sli_cuda_layernorm(const sl_call *call, void *stream) {
  forward(call, stream, call->in[2], call->out[1], call->out[2], input_of(call));
}

void sli_cuda_rmsnorm(const sl_call *call, void *stream) {
  forward(call, stream, NULL, NULL, call->out[1], input_of(call));
}

void sli_cuda_layernorm_b(const sl_call *call, void *stream) {
  backward<false>(call, stream, call->in[2], call->in[3], call->in[4], NULL, NULL);
}

void sli_cuda_rmsnorm_b(const sl_call *call, void *stream) {
  backward<false>(call, stream, NULL, call->in[2], call->in[3], NULL, NULL);
}

/* Norm fused with the add before or after it: calls[0], calls[1]. */

void sli_cuda_add_layernorm(const sli_cuda_fused *, const sl_call *calls, int, void *,
                            void *stream) {
  const sl_call *c = &calls[1];
  forward(c, stream, c->in[2], c->out[1], c->out[2], sum_of(&calls[0]));
}

void sli_cuda_add_rmsnorm(const sli_cuda_fused *, const sl_call *calls, int, void *, void *stream) {
  forward(&calls[1], stream, NULL, NULL, calls[1].out[1], sum_of(&calls[0]));
}

void sli_cuda_layernorm_b_add(const sli_cuda_fused *row, const sl_call *calls, int, void *,
                              void *stream) {
  const void *const *in = calls[0].in;
  backward<true>(&calls[0], stream, in[2], in[3], in[4], calls[1].in[1 - row->input],
                 calls[1].out[0]);
}

void sli_cuda_rmsnorm_b_add(const sli_cuda_fused *row, const sl_call *calls, int, void *,
                            void *stream) {
  const void *const *in = calls[0].in;
  backward<true>(&calls[0], stream, NULL, in[2], in[3], calls[1].in[1 - row->input],
                 calls[1].out[0]);
}

size_t sli_cuda_sums_scratch(const sl_call *call) {
  int64_t width = sl_type_last(&call->in_type[0]), rows = sl_type_rows(&call->in_type[0]),
          partials = 0;
  with_elements(call->in_type[0].dtype, [&](auto element) {
    with_packs<decltype(element)>(
        width, [&](auto n) { partials = partials_of(rows, width, decltype(n)::value); });
  });
  return (size_t)(partials * call->nout * width) * sizeof(float);
}

void sli_cuda_layernorm_w(const sl_call *call, void *stream) {
  sums<true, true>(call, stream, call->in[1], call->in[2], call->in[3]);
}

void sli_cuda_rmsnorm_w(const sl_call *call, void *stream) {
  sums<true, false>(call, stream, NULL, call->in[1], call->in[2]);
}

void sli_cuda_bias_w(const sl_call *call, void *stream) {
  sums<false, true>(call, stream, NULL, NULL, call->in[0]);
}
