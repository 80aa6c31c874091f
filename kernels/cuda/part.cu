/* SPDX-License-Identifier: Apache-2.0 */
/* Parts and sums of tensors. One runtime copy per range takes a part out of the whole, or puts it
 * there. */
#include "kernels/cuda/device.cuh"
#include "ops/layout.h"

namespace {

using namespace sli;

/* Copies a part out of the whole, or into it: one range of all rows at a time. */
void move(const sli_cut &cut, const char *from, char *to, bool put, cudaStream_t stream) {
  size_t whole = (size_t)cut.whole, part = (size_t)cut.part, at = 0;
  for (int r = 0; r < cut.nranges; at += (size_t)cut.count[r++]) {
    size_t begin = (size_t)cut.begin[r], count = (size_t)cut.count[r];
    if (!count) continue;
    const char *source = from + (put ? at : begin);
    char *target = to + (put ? begin : at);
    if (cut.rows == 1) cudaMemcpyAsync(target, source, count, cudaMemcpyDefault, stream);
    else
      cudaMemcpy2DAsync(target, put ? whole : part, source, put ? part : whole, count,
                        (size_t)cut.rows, cudaMemcpyDefault, stream);
  }
}

/* Limit on the pitch of a copy of rows. */
constexpr int64_t PITCH = INT32_MAX;

sl_status want_pitch(const sl_type *whole, const sl_part *part) {
  sli_cut cut = sli_part_cut(whole, part);
  if (cut.rows == 1 || cut.whole <= PITCH) return SL_OK;
  return sl_fail(SL_E_UNSUPPORTED, "a GPU can take parts of rows of at most %lld bytes, not %lld",
                 (long long)PITCH, (long long)cut.whole);
}

/* ---- sums ------------------------------------------------ */

constexpr int SUMMANDS = 64;

struct summands {
  const void *of[SUMMANDS];
  int count;
};

template <int N> struct numbers { float v[N]; };

template <int N> __device__ inline void add_to(numbers<N> &sum, const numbers<N> &more) {
#pragma unroll
  for (int n = 0; n < N; n++) sum.v[n] = more.v[n] + sum.v[n];
}

/* Adds summands by a binary tree over their numbers, as CPUs do. get(k) returns number k. */
template <int N, typename F> __device__ inline numbers<N> sum_by_tree(int count, F get) {
  constexpr int LEVELS = 6; /* levels for SUMMANDS */
  numbers<N> slot[LEVELS], sum = get(0);
  for (int k = 1; k < count; k++) {
    int level = 0;
    for (int left = k - 1; left & 1; left >>= 1) add_to(sum, slot[level++]);
    slot[level] = sum;
    sum = get(k);
  }
  for (int left = count - 1, level = 0; left; left >>= 1, level++)
    if (left & 1) add_to(sum, slot[level]);
  return sum;
}

template <typename T, int N>
__device__ inline void sum_pack(const summands &x, T *y, bool add, int64_t at) {
  numbers<N> sum = sum_by_tree<N>(x.count, [&](int k) {
    numbers<N> one;
    load<N>(one.v, (const T *)x.of[k] + at);
    return one;
  });
  if (add) {
    numbers<N> before;
    load<N>(before.v, y + at);
    add_to(sum, before);
  }
  store<N>(y + at, sum.v);
}

template <typename T> __global__ void sum_arrays(summands x, T *y, bool add, int64_t n) {
  constexpr int N = wide<T>;
  int64_t at = ((int64_t)blockIdx.x * BLOCK + threadIdx.x) * N;
  if (at + N <= n) sum_pack<T, N>(x, y, add, at);
  else
    for (; at < n; at++) sum_pack<T, 1>(x, y, add, at);
}

__global__ void sum_doubles(summands x, double *y, bool add, int64_t n) {
  int64_t at = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
  if (at >= n) return;
  double sum = ((const double *)x.of[0])[at];
  for (int k = 1; k < x.count; k++) sum += ((const double *)x.of[k])[at];
  y[at] = add ? y[at] + sum : sum;
}

/* One range of a part, in elements: `width` of each row, at `begin` in the whole's row. */
struct range {
  int64_t whole, part, begin, at, width;
};

/* Convert an element to the type of the sums. */
__device__ inline double widen(double x) { return x; }
template <typename T> __device__ inline float widen(T x) { return to_float(x); }
using sli::assign;
__device__ inline void assign(double &to, double x) { to = x; }

/* Returns the sum of an element: doubles in order, other types by a tree. */
template <typename T> __device__ inline auto sum_range_of(const summands &x, int64_t from) {
  if constexpr (sizeof(T) == sizeof(double)) {
    double sum = ((const double *)x.of[0])[from];
    for (int k = 1; k < x.count; k++) sum += ((const double *)x.of[k])[from];
    return sum;
  } else
    return sum_by_tree<1>(x.count,
                          [&](int k) { return numbers<1>{{widen(((const T *)x.of[k])[from])}}; })
        .v[0];
}

template <typename T> __global__ void sum_range(summands x, T *y, bool add, range r, int64_t n) {
  int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x, row = i / r.width, e = i % r.width;
  if (i >= n) return;
  int64_t from = row * r.whole + r.begin + e;
  T *to = y + row * r.part + r.at + e;
  auto sum = sum_range_of<T>(x, from);
  assign(*to, add ? widen(*to) + sum : sum);
}

template <typename T> void sum_ranges(const sl_call *call, const summands &x, void *stream) {
  sli_cut cut = sli_part_cut(&call->in_type[0], (const sl_part *)call->attrs->user);
  int64_t size = (int64_t)sizeof(T), at = 0;
  for (int r = 0; r < cut.nranges; at += cut.count[r++]) {
    int64_t n = cut.rows * cut.count[r] / size;
    range of = {cut.whole / size, cut.part / size, cut.begin[r] / size, at / size,
                cut.count[r] / size};
    if (n)
      launch(stream, grid_of(chunks(n, BLOCK)), BLOCK, 0, sum_range<T>, x, (T *)call->out[0],
             accumulates(call, 0), of, n);
  }
}

summands summands_of(const sl_call *call) {
  summands x = {};
  x.count = call->nin;
  for (int i = 0; i < call->nin; i++) x.of[i] = call->in[i];
  return x;
}

} // namespace

sl_status sli_cuda_slice_prepare(const sl_call *call, void **state) {
  *state = NULL;
  return want_pitch(&call->in_type[0], (const sl_part *)call->attrs->user);
}

void sli_cuda_slice(const sl_call *call, void *stream) {
  sli_cut cut = sli_part_cut(&call->in_type[0], (const sl_part *)call->attrs->user);
  move(cut, (const char *)call->in[0], (char *)call->out[0], false, (cudaStream_t)stream);
}

sl_status sli_cuda_slice_b_prepare(const sl_call *call, void **state) {
  *state = NULL;
  return want_pitch(&call->out_type[0], (const sl_part *)call->attrs->user);
}

void sli_cuda_slice_b(const sl_call *call, void *stream) {
  sli_cut cut = sli_part_cut(&call->out_type[0], (const sl_part *)call->attrs->user);
  cudaMemsetAsync(call->out[0], 0, sl_type_bytes(&call->out_type[0]), (cudaStream_t)stream);
  move(cut, (const char *)call->in[0], (char *)call->out[0], true, (cudaStream_t)stream);
}

sl_status sli_cuda_join_prepare(const sl_call *call, void **state) {
  *state = NULL;
  return want_pitch(&call->out_type[0], ((const sl_joint *)call->attrs->user)->parts);
}

void sli_cuda_join(const sl_call *call, void *stream) {
  const sl_joint *joint = (const sl_joint *)call->attrs->user;
  for (int p = 0; p < call->nin; p++)
    move(sli_part_cut(&call->out_type[0], &joint->parts[p]), (const char *)call->in[p],
         (char *)call->out[0], true, (cudaStream_t)stream);
}

/* Returns the dim of attrs.along.axes, along which arrays are joined or cut. */
static int concat_dim(const sl_call *call) { return __builtin_ctz(call->attrs->along.axes); }

static sl_status concat_pitch(const sl_type *whole, const sl_type *types, int dim, void **state) {
  sl_part part = sli_concat_part(types, 0, dim);
  *state = NULL;
  return want_pitch(whole, &part);
}

sl_status sli_cuda_concat_prepare(const sl_call *call, void **state) {
  return concat_pitch(call->out_type, call->in_type, concat_dim(call), state);
}

void sli_cuda_concat(const sl_call *call, void *stream) {
  for (int i = 0; i < call->nin; i++) {
    sl_part part = sli_concat_part(call->in_type, i, concat_dim(call));
    move(sli_part_cut(&call->out_type[0], &part), (const char *)call->in[i], (char *)call->out[0],
         true, (cudaStream_t)stream);
  }
}

sl_status sli_cuda_concat_b_prepare(const sl_call *call, void **state) {
  return concat_pitch(call->in_type, call->out_type, concat_dim(call), state);
}

void sli_cuda_split(const sl_call *call, void *stream) { sli_cuda_concat_b(call, stream); }

void sli_cuda_concat_b(const sl_call *call, void *stream) {
  for (int o = 0; o < call->nout; o++) {
    sl_part part = sli_concat_part(call->out_type, o, concat_dim(call));
    if (call->out[o])
      move(sli_part_cut(&call->in_type[0], &part), (const char *)call->in[0], (char *)call->out[o],
           false, (cudaStream_t)stream);
  }
}

sl_status sli_cuda_sum_prepare(const sl_call *call, void **state) {
  *state = NULL;
  if (call->nin <= SUMMANDS) return SL_OK;
  return sl_fail(SL_E_UNSUPPORTED, "a GPU can add at most %d arrays, not %d", SUMMANDS, call->nin);
}

void sli_cuda_sum(const sl_call *call, void *stream) {
  int64_t n = sl_type_elements(&call->in_type[0]);
  bool add = accumulates(call, 0);
  summands x = summands_of(call);
  if (call->in_type[0].dtype == SL_F64)
    return launch(stream, grid_of(chunks(n, BLOCK)), BLOCK, 0, sum_doubles, x,
                  (double *)call->out[0], add, n);
  with_elements(call->in_type[0].dtype, [&](auto element) {
    using T = decltype(element);
    launch(stream, grid_of(chunks(n, BLOCK * wide<T>)), BLOCK, 0, sum_arrays<T>, x,
           (T *)call->out[0], add, n);
  });
}

void sli_cuda_sum_part(const sl_call *call, void *stream) {
  summands x = summands_of(call);
  if (call->in_type[0].dtype == SL_F64) return sum_ranges<double>(call, x, stream);
  with_elements(call->in_type[0].dtype,
                [&](auto element) { sum_ranges<decltype(element)>(call, x, stream); });
}
