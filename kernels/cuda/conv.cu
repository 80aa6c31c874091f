/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions, as products whose operands are gathered from the images on the fly. A block
 * computes a tile of the product, each thread 4 by 4 numbers of it; one slice of each operand at a
 * time is in shared memory. The weight's gradient sums over all positions of all images, which are
 * cut into runs. Each run stores a separate product in the scratch, and these are added in
 * order. */
#include "kernels/cuda/device.cuh"
#include "ops/layout.h"

namespace {

using namespace sli;

/* sli_window in ints; an image's positions fit an int. Channels and outputs are those of one
 * group. */
struct window {
  int images, channels, outputs, groups, in_h, in_w, out_h, out_w, size_h, size_w;
  int stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w;

  __host__ __device__ int in() const { return in_h * in_w; }
  __host__ __device__ int out() const { return out_h * out_w; }
  __host__ __device__ int kernel() const { return size_h * size_w; }
  __host__ __device__ int taps() const { return channels * kernel(); }
};

window window_of(const sl_attrs *attrs, const sl_type *x, const sl_type *w) {
  sli_window s = sli_window_of(attrs, x, w);
  window to = {};
  to.images = (int)s.images, to.groups = (int)s.groups;
  to.channels = (int)(s.channels / s.groups), to.outputs = (int)(w->dim[0] / s.groups);
  to.in_h = (int)s.in[0], to.in_w = (int)s.in[1];
  to.out_h = (int)s.out[0], to.out_w = (int)s.out[1];
  to.size_h = (int)s.size[0], to.size_w = (int)s.size[1];
  to.stride_h = (int)s.stride[0], to.stride_w = (int)s.stride[1];
  to.pad_h = (int)s.pad[0], to.pad_w = (int)s.pad[1];
  to.dilation_h = (int)s.dilation[0], to.dilation_w = (int)s.dilation[1];
  return to;
}

/* Index of a number: channel (or output) of the group, and position in an image. */
struct place {
  int c, h, w;
};

__device__ inline place tap_of(const window &s, int k) {
  return {k / s.kernel(), k % s.kernel() / s.size_w, k % s.size_w};
}

/* Return an output position as image, line and column, and the input under a tap, 0 outside the
 * image. */
__device__ inline place position_of(int out_h, int out_w, int p) {
  return {p / (out_h * out_w), p % (out_h * out_w) / out_w, p % out_w};
}

template <typename T> __device__ inline float met(const window &s, const T *x, int group,
                                                  const place &at, const place &tap) {
  int h = at.h * s.stride_h - s.pad_h + tap.h * s.dilation_h;
  int w = at.w * s.stride_w - s.pad_w + tap.w * s.dilation_w;
  if (h < 0 || h >= s.in_h || w < 0 || w >= s.in_w) return 0;
  int64_t plane = ((int64_t)at.c * s.groups + group) * s.channels + tap.c;
  return to_float(x[plane * s.in() + h * s.in_w + w]);
}

/* y[o, position] = sum over taps of w[o, tap] x[position, tap] */
template <typename T> struct forward {
  window s;
  const T *x;
  const float *w, *bias;
  T *y;
  using column = place;
  int rows() const { return s.outputs; }
  int columns() const { return s.images * s.out(); }
  __host__ __device__ int depth() const { return s.taps(); }
  __device__ column column_of(int n) const { return position_of(s.out_h, s.out_w, n); }
  __device__ float left(int g, int m, int k) const {
    return w[((int64_t)g * s.outputs + m) * s.taps() + k];
  }
  __device__ float right(int g, int k, const column &at) const {
    return met(s, x, g, at, tap_of(s, k));
  }
  __device__ void put(int g, int m, int, const column &at, int, float sum) const {
    int o = g * s.outputs + m;
    int64_t plane = (int64_t)at.c * s.groups * s.outputs + o;
    assign(y[plane * s.out() + at.h * s.out_w + at.w], sum + (bias ? bias[o] : 0));
  }
};

/* dx[c, position] = sum over outputs and taps of w[o, c, tap] dy[o, output position under the
 * tap] */
template <typename T> struct backward {
  window s;
  const T *dy;
  const float *w;
  T *dx;
  using column = place;
  int rows() const { return s.channels; }
  int columns() const { return s.images * s.in(); }
  __host__ __device__ int depth() const { return s.outputs * s.kernel(); }
  __device__ column column_of(int n) const { return position_of(s.in_h, s.in_w, n); }
  __device__ float left(int g, int m, int k) const {
    int o = g * s.outputs + k / s.kernel();
    return w[(int64_t)o * s.taps() + m * s.kernel() + k % s.kernel()];
  }
  __device__ float right(int g, int k, const column &at) const {
    place tap = tap_of(s, k);
    int h = at.h + s.pad_h - tap.h * s.dilation_h, w = at.w + s.pad_w - tap.w * s.dilation_w;
    if (h < 0 || w < 0 || h % s.stride_h || w % s.stride_w) return 0;
    h /= s.stride_h, w /= s.stride_w;
    if (h >= s.out_h || w >= s.out_w) return 0;
    int64_t plane = ((int64_t)at.c * s.groups + g) * s.outputs + tap.c;
    return to_float(dy[plane * s.out() + h * s.out_w + w]);
  }
  __device__ void put(int g, int m, int, const column &at, int, float sum) const {
    int64_t plane = ((int64_t)at.c * s.groups + g) * s.channels + m;
    assign(dx[plane * s.in() + at.h * s.in_w + at.w], sum);
  }
};

/* dw[o, tap] = sum over positions of dy[o, position] x[position, tap] */
template <typename T> struct weight {
  window s;
  const T *x, *dy;
  float *partial; /* [runs][dw] */
  using column = place;
  int rows() const { return s.outputs; }
  int columns() const { return s.taps(); }
  __host__ __device__ int depth() const { return s.images * s.out(); }
  __device__ column column_of(int n) const { return tap_of(s, n); }
  __device__ float left(int g, int m, int k) const {
    int64_t plane = ((int64_t)(k / s.out()) * s.groups + g) * s.outputs + m;
    return to_float(dy[plane * s.out() + k % s.out()]);
  }
  __device__ float right(int g, int k, const column &tap) const {
    return met(s, x, g, position_of(s.out_h, s.out_w, k), tap);
  }
  __device__ void put(int g, int m, int n, const column &, int run, float sum) const {
    int64_t all = (int64_t)s.groups * s.outputs * s.taps();
    partial[run * all + ((int64_t)g * s.outputs + m) * s.taps() + n] = sum;
  }
};

/* ---- a product ------------------------------------------------ */

constexpr int TILE = 64, SLICE = 16, EACH = 4, LOADS = TILE * SLICE / BLOCK;

/* Loads slice k.. of both operands into shared memory; each thread stays in one row and one
 * column. */
template <typename P>
__device__ inline void read_slice(const P &p, int g, int m, int n, const typename P::column &at,
                                  int k, int end, int rows, int columns, float (&a)[SLICE][TILE],
                                  float (&b)[SLICE][TILE]) {
  int of = threadIdx.x % TILE;
#pragma unroll
  for (int i = 0; i < LOADS; i++) {
    int d = threadIdx.x / TILE + i * (BLOCK / TILE);
    a[d][of] = m < rows && k + d < end ? p.left(g, m, k + d) : 0;
    b[d][of] = n < columns && k + d < end ? p.right(g, k + d, at) : 0;
  }
}

__device__ inline void multiply(const float (&a)[SLICE][TILE], const float (&b)[SLICE][TILE],
                                float (&sum)[EACH][EACH]) {
  int m = threadIdx.x / (TILE / EACH) * EACH, n = threadIdx.x % (TILE / EACH) * EACH;
  for (int d = 0; d < SLICE; d++)
#pragma unroll
    for (int i = 0; i < EACH; i++)
#pragma unroll
      for (int j = 0; j < EACH; j++) sum[i][j] += a[d][m + i] * b[d][n + j];
}

/* blockIdx.x: tile, columns first; y: group; z: run of depths. */
template <typename P> __global__ void product(P p, int rows, int columns, int depth, int per) {
  __shared__ float a[SLICE][TILE], b[SLICE][TILE];
  int across = (columns + TILE - 1) / TILE, g = blockIdx.y, run = blockIdx.z;
  int m = (int)blockIdx.x / across * TILE, n = (int)blockIdx.x % across * TILE;
  int of = threadIdx.x % TILE, begin = run * per;
  int end = depth - begin < per ? depth : begin + per;
  typename P::column at = p.column_of(n + of < columns ? n + of : 0);
  float sum[EACH][EACH] = {};
  for (int k = begin; k < end; k += SLICE) {
    __syncthreads(); /* the previous slice has been read */
    read_slice(p, g, m + of, n + of, at, k, end, rows, columns, a, b);
    __syncthreads();
    multiply(a, b, sum);
  }
  m += (int)threadIdx.x / (TILE / EACH) * EACH, n += (int)threadIdx.x % (TILE / EACH) * EACH;
  for (int j = 0; j < EACH && n + j < columns; j++) {
    at = p.column_of(n + j);
    for (int i = 0; i < EACH && m + i < rows; i++) p.put(g, m + i, n + j, at, run, sum[i][j]);
  }
}

template <typename P> void run_product(const P &p, void *stream, int per) {
  int rows = p.rows(), columns = p.columns(), depth = p.depth();
  dim3 grid((unsigned)(chunks(rows, TILE) * chunks(columns, TILE)), (unsigned)p.s.groups,
            (unsigned)chunks(depth, per));
  launch(stream, grid, BLOCK, 0, product<P>, p, rows, columns, depth, per);
}

/* ---- the weight's gradient ------------------------------------------------ */

constexpr int64_t RUNS = 64, SHORTEST = 512; /* runs, and minimum positions per run */

int64_t run_length(int64_t positions) {
  int64_t even = chunks(positions, RUNS);
  return even > SHORTEST ? even : SHORTEST;
}

__global__ void add_runs(const float *partial, int64_t runs, float *dw, bool add, int64_t n) {
  int64_t at = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
  if (at >= n) return;
  float sum = partial[at];
  for (int64_t r = 1; r < runs; r++) sum += partial[r * n + at];
  dw[at] = add ? dw[at] + sum : sum;
}

int64_t positions_of(const sl_call *call) {
  const sl_type *dy = &call->in_type[1];
  return sl_type_elements(dy) / dy->dim[1];
}

/* ---- the bias's ------------------------------------------------ */

/* One block per channel. */
template <typename T> __global__ void sum_channel(const T *dy, float *db, bool add, int64_t images,
                                                  int64_t channels, int64_t positions) {
  float sum = 0;
  for (int64_t n = 0; n < images; n++)
    for (int64_t p = threadIdx.x; p < positions; p += blockDim.x)
      sum += to_float(dy[(n * channels + blockIdx.x) * positions + p]);
  sum = block_sum(sum);
  if (threadIdx.x == 0) db[blockIdx.x] = add ? db[blockIdx.x] + sum : sum;
}

} // namespace

sl_status sli_cuda_conv_prepare(const sl_call *call, void **state) {
  *state = NULL;
  for (int i = 0; i < call->nin; i++)
    if (call->in_type[i].ndim >= 0 && sl_type_elements(&call->in_type[i]) > INT32_MAX)
      return sl_fail(SL_E_UNSUPPORTED, "a GPU can convolve arrays of at most %d elements",
                     INT32_MAX);
  if (sl_type_elements(&call->out_type[0]) > INT32_MAX)
    return sl_fail(SL_E_UNSUPPORTED, "a convolution on a GPU can make at most %d elements",
                   INT32_MAX);
  return SL_OK;
}

void sli_cuda_conv(const sl_call *call, void *stream) {
  window s = window_of(call->attrs, &call->in_type[0], &call->in_type[1]);
  with_elements(call->in_type[0].dtype, [&](auto element) {
    using T = decltype(element);
    const float *bias = call->nin > 2 ? (const float *)call->in[2] : NULL;
    run_product(
        forward<T>{s, (const T *)call->in[0], (const float *)call->in[1], bias, (T *)call->out[0]},
        stream, s.taps());
  });
}

void sli_cuda_conv_b(const sl_call *call, void *stream) {
  window s = window_of(call->attrs, &call->in_type[2], &call->in_type[1]);
  with_elements(call->in_type[0].dtype, [&](auto element) {
    using T = decltype(element);
    run_product(
        backward<T>{s, (const T *)call->in[0], (const float *)call->in[1], (T *)call->out[0]},
        stream, s.outputs * s.kernel());
  });
}

size_t sli_cuda_conv_w_scratch(const sl_call *call) {
  int64_t runs = chunks(positions_of(call), run_length(positions_of(call)));
  return (size_t)runs * sl_type_bytes(&call->out_type[0]);
}

void sli_cuda_conv_w(const sl_call *call, void *stream) {
  window s = window_of(call->attrs, &call->in_type[0], &call->in_type[2]);
  int64_t per = run_length(positions_of(call)), n = sl_type_elements(&call->out_type[0]);
  with_elements(call->in_type[0].dtype, [&](auto element) {
    using T = decltype(element);
    run_product(
        weight<T>{s, (const T *)call->in[0], (const T *)call->in[1], (float *)call->scratch},
        stream, (int)per);
  });
  launch(stream, grid_of(chunks(n, BLOCK)), BLOCK, 0, add_runs, (const float *)call->scratch,
         chunks(positions_of(call), per), (float *)call->out[0], accumulates(call, 0), n);
}

void sli_cuda_channel_sum(const sl_call *call, void *stream) {
  const sl_type *dy = &call->in_type[0];
  int64_t positions = sl_type_elements(dy) / (dy->dim[0] * dy->dim[1]);
  with_elements(dy->dtype, [&](auto element) {
    using T = decltype(element);
    launch(stream, grid_of(dy->dim[1]), threads_for(positions), 0, sum_channel<T>,
           (const T *)call->in[0], (float *)call->out[0], accumulates(call, 0), dy->dim[0],
           dy->dim[1], positions);
  });
}
