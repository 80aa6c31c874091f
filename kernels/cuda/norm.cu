/* Layer norm and RMS norm by rows, one block each, and the sums over rows of their
 * weights' gradients and of a bias's. Weights, means and reciprocal deviations are
 * float whatever the type of the data. */
#include "kernels/cuda/device.cuh"

namespace {

using namespace sli;

/* Calls f(c, x) for this thread's share of a row. */
template <int N, typename T, typename F>
__device__ inline void along_row(const T *row, int64_t width, F f) {
  for (int64_t c = (int64_t)threadIdx.x * N; c < width; c += (int64_t)blockDim.x * N) {
    float x[N];
    load<N>(x, row + c);
    f(c, x);
  }
}

/* Sum over a row of (x - shift)^2. */
template <int N, typename T>
__device__ inline float row_squares(const T *row, int64_t width, float shift) {
  float total = 0;
  along_row<N>(row, width, [&](int64_t, const float(&x)[N]) {
#pragma unroll
    for (int n = 0; n < N; n++) total += (x[n] - shift) * (x[n] - shift);
  });
  return block_sum(total);
}

template <int N, typename T> __device__ inline float row_sum(const T *row, int64_t width) {
  float total = 0;
  along_row<N>(row, width, [&](int64_t, const float(&x)[N]) {
#pragma unroll
    for (int n = 0; n < N; n++) total += x[n];
  });
  return block_sum(total);
}

/* x [R, C], g [C], b [C] or NULL for RMS norm -> y [R, C], mean [R], rstd [R]. */
template <typename T, int N>
__global__ void norm(const T *x, const float *g, const float *b, T *y, float *mean, float *rstd,
                     int64_t width, float eps) {
  const T *xr = x + blockIdx.x * width;
  float m = b ? row_sum<N>(xr, width) / (float)width : 0.0f;
  float s = 1.0f / sqrtf(row_squares<N>(xr, width, m) / (float)width + eps);
  if (y)
    along_row<N>(xr, width, [&](int64_t c, const float(&v)[N]) {
      float gain[N], bias[N] = {}, to[N];
      load<N>(gain, g + c);
      if (b) load<N>(bias, b + c);
#pragma unroll
      for (int n = 0; n < N; n++) to[n] = (v[n] - m) * s * gain[n] + bias[n];
      store<N>(y + blockIdx.x * width + c, to);
    });
  if (threadIdx.x) return;
  if (mean) mean[blockIdx.x] = m;
  if (rstd) rstd[blockIdx.x] = s;
}

/* With d = dy g and z = (x - mean) rstd: dx = rstd (d - mean(d) - z mean(d z)), where
 * RMS norm has neither of the means of x and d. */
template <typename T, int N>
__global__ void norm_b(const T *x, const float *g, const float *mean, const float *rstd,
                       const T *dy, T *dx, int64_t width) {
  int64_t row = blockIdx.x * width;
  float m = mean ? mean[blockIdx.x] : 0.0f, s = rstd[blockIdx.x], sum_d = 0, sum_dx = 0;
  along_row<N>(x + row, width, [&](int64_t c, const float(&v)[N]) {
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
  along_row<N>(x + row, width, [&](int64_t c, const float(&v)[N]) {
    float d[N], gain[N], to[N];
    load<N>(d, dy + row + c);
    load<N>(gain, g + c);
#pragma unroll
    for (int n = 0; n < N; n++) to[n] = s * (d[n] * gain[n] - d_mean - (v[n] - m) * slope);
    store<N>(dx + row + c, to);
  });
}

float eps_of(const sl_call *call) { return call->attrs->eps > 0 ? call->attrs->eps : 1e-5f; }

/* Forward; mean NULL and b NULL for RMS norm. */
void forward(const sl_call *call, void *stream, const void *b, void *mean, void *rstd) {
  int64_t width = sl_type_last(&call->in_type[0]), rows = sl_type_rows(&call->in_type[0]);
  with_elements(call->in_type[0].dtype, [&](auto element) {
    using T = decltype(element);
    with_packs<T>(width, [&](auto n) {
      constexpr int N = decltype(n)::value;
      launch(stream, grid_of(rows), threads_for(width / N), 0, norm<T, N>,
             (const T *)call->in[0], (const float *)call->in[1], (const float *)b,
             (T *)call->out[0], (float *)mean, (float *)rstd, width, eps_of(call));
    });
  });
}

void backward(const sl_call *call, void *stream, const void *mean, const void *rstd,
              const void *dy) {
  int64_t width = sl_type_last(&call->in_type[0]), rows = sl_type_rows(&call->in_type[0]);
  with_elements(call->in_type[0].dtype, [&](auto element) {
    using T = decltype(element);
    with_packs<T>(width, [&](auto n) {
      constexpr int N = decltype(n)::value;
      launch(stream, grid_of(rows), threads_for(width / N), 0, norm_b<T, N>,
             (const T *)call->in[0], (const float *)call->in[1], (const float *)mean,
             (const float *)rstd, (const T *)dy, (T *)call->out[0], width);
    });
  });
}

/* ---- sums over rows ----------------------------------------------------------------
 *
 * Rows are cut into `partials` runs. A block takes one run of rows and a warp's width
 * of packs of columns; its warps share the rows, and their sums meet in the order of
 * the warps. What the runs leave, [partials, outputs, C] in the scratch, is added in
 * their order. */

constexpr int PARTIALS = 64, SHORTEST = 32, WARPS = BLOCK / WARP;

int64_t rows_of_partial(int64_t rows) {
  int64_t even = chunks(rows, PARTIALS);
  return even > SHORTEST ? even : SHORTEST;
}

int64_t partials_of(int64_t rows) { return chunks(rows, rows_of_partial(rows)); }

/* Output 0 of a norm is dg, the last output of all but RMS norm is db. */
template <typename T, int N, bool GAIN, bool BIAS>
__global__ void sum_rows(const T *x, const float *mean, const float *rstd, const T *dy,
                         float *partial, int64_t rows, int64_t per, int64_t width) {
  constexpr int SUMS = GAIN + BIAS;
  __shared__ float of_warp[WARPS][SUMS][WARP * N];
  int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
  int64_t c = ((int64_t)blockIdx.x * WARP + lane) * N, begin = blockIdx.y * per;
  int64_t end = begin + per < rows ? begin + per : rows;
  float gain[N] = {}, bias[N] = {};
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

__global__ void add_partials(const float *partial, int64_t count, int64_t stride, float *out,
                             bool add, int64_t width) {
  int64_t c = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
  if (c >= width) return;
  float total = 0;
  for (int64_t p = 0; p < count; p++) total += partial[p * stride + c];
  out[c] = add ? out[c] + total : total;
}

template <bool GAIN, bool BIAS>
void sums(const sl_call *call, void *stream, const void *mean, const void *rstd,
          const void *dy) {
  int64_t width = sl_type_last(&call->in_type[0]), rows = sl_type_rows(&call->in_type[0]);
  int64_t per = rows_of_partial(rows), partials = partials_of(rows);
  with_elements(call->in_type[0].dtype, [&](auto element) {
    using T = decltype(element);
    with_packs<T>(width, [&](auto n) {
      constexpr int N = decltype(n)::value;
      launch(stream, dim3((unsigned)chunks(width, WARP * N), (unsigned)partials), BLOCK, 0,
             sum_rows<T, N, GAIN, BIAS>, (const T *)call->in[0], (const float *)mean,
             (const float *)rstd, (const T *)dy, (float *)call->scratch, rows, per, width);
    });
  });
  for (int o = 0; o < call->nout; o++)
    if (call->out[o])
      launch(stream, grid_of(chunks(width, BLOCK)), BLOCK, 0, add_partials,
             (const float *)call->scratch + o * width, partials, (GAIN + BIAS) * width,
             (float *)call->out[o], accumulates(call, o), width);
}

} // namespace

void sli_cuda_layernorm(const sl_call *call, void *stream) {
  forward(call, stream, call->in[2], call->out[1], call->out[2]);
}

void sli_cuda_rmsnorm(const sl_call *call, void *stream) {
  forward(call, stream, NULL, NULL, call->out[1]);
}

void sli_cuda_layernorm_b(const sl_call *call, void *stream) {
  backward(call, stream, call->in[2], call->in[3], call->in[4]);
}

void sli_cuda_rmsnorm_b(const sl_call *call, void *stream) {
  backward(call, stream, NULL, call->in[2], call->in[3]);
}

size_t sli_cuda_sums_scratch(const sl_call *call) {
  size_t width = (size_t)sl_type_last(&call->in_type[0]);
  return (size_t)partials_of(sl_type_rows(&call->in_type[0])) * call->nout * width * sizeof(float);
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
