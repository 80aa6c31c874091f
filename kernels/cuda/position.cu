/* SPDX-License-Identifier: Apache-2.0 */
/* Position embeddings, their gradient, and rotary positions. */
#include <stdlib.h>

#include <sluice/cuda.h>

#include "kernels/cuda/served.cuh"
#include "ops/layout.h"

namespace {

using namespace sli;

/* Positions of rows: in turn, and from row `later` of a sequence on shifted by `shift`, or in
 * served graphs those of the batch. */
struct positions {
  int64_t first, length, later, shift;
  const sl_batch *batch;
  __device__ int64_t of_row(int64_t r) const {
    if (batch) return sl_batch_position(batch)[r];
    int64_t t = r % length;
    return first + t + (t >= later ? shift : 0);
  }
  /* Returns the row of a sequence with this position, or -1. */
  __device__ int64_t row_at(int64_t position) const {
    int64_t t = position - first, moved = t - shift;
    if (t >= 0 && t < later) return t;
    return moved >= later && moved < length ? moved : -1;
  }
};

/* ---- positions ------------------------------------------------ */

/* One block per row of x [B, T, C]. */
template <typename T, int N>
__global__ void add_position(const T *x, const float *table, T *y, positions at, int64_t width) {
  int64_t r = blockIdx.x;
  for (int64_t c = (int64_t)threadIdx.x * N; c < width; c += (int64_t)blockDim.x * N) {
    float v[N], t[N];
    load<N>(v, x + r * width + c);
    load<N>(t, table + at.of_row(r) * width + c);
#pragma unroll
    for (int n = 0; n < N; n++) v[n] += t[n];
    store<N>(y + r * width + c, v);
  }
}

/* One block per row of the table: sums over the batch, in order. */
template <typename T, int N> __global__ void sum_position(const T *dy, float *dtable, bool add,
                                                          int64_t batch, positions at,
                                                          int64_t width) {
  int64_t t = at.row_at(blockIdx.x);
  bool here = t >= 0;
  if (add && !here) return;
  for (int64_t c = (int64_t)threadIdx.x * N; c < width; c += (int64_t)blockDim.x * N) {
    float sum[N] = {}, d[N];
    if (add) load<N>(sum, dtable + blockIdx.x * width + c);
    for (int64_t b = 0; here && b < batch; b++) {
      load<N>(d, dy + (b * at.length + t) * width + c);
#pragma unroll
      for (int n = 0; n < N; n++) sum[n] += d[n];
    }
    store<N>(dtable + blockIdx.x * width + c, sum);
  }
}

/* ---- rotary ------------------------------------------------ */

/* cos and sin of position t, pair j, in device memory. */
struct angles {
  int64_t pairs;
  float *cos, *sin; /* [positions, pairs] */
};

/* One block per row of x [B, T, H*D]: rotates the pairs in the first numbers of each head. The rest
 * stay unchanged. */
template <typename T, int N> __global__ void turn(const T *x, T *y, angles a, positions by,
                                                  int64_t width, int64_t head, float direction) {
  int64_t r = blockIdx.x, at = by.of_row(r) * a.pairs, rest = head - 2 * a.pairs;
  for (int64_t i = (int64_t)threadIdx.x * N; x != y && rest && i < width / head * rest;
       i += (int64_t)blockDim.x * N) {
    int64_t from = r * width + i / rest * head + 2 * a.pairs + i % rest;
    float u[N];
    load<N>(u, x + from);
    store<N>(y + from, u);
  }
  for (int64_t i = (int64_t)threadIdx.x * N; i < width / head * a.pairs;
       i += (int64_t)blockDim.x * N) {
    int64_t j = i % a.pairs, left = r * width + i / a.pairs * head + j;
    float c[N], s[N], u[N], v[N], u2[N], v2[N];
    load<N>(c, a.cos + at + j);
    load<N>(s, a.sin + at + j);
    load<N>(u, x + left);
    load<N>(v, x + left + a.pairs);
#pragma unroll
    for (int n = 0; n < N; n++) {
      u2[n] = u[n] * c[n] - v[n] * direction * s[n];
      v2[n] = v[n] * c[n] + u[n] * direction * s[n];
    }
    store<N>(y + left, u2);
    store<N>(y + left + a.pairs, v2);
  }
}

void turn_rows(const sl_call *call, int64_t rows, positions at, float direction, void *stream) {
  const sl_type *x = &call->in_type[0];
  const angles *a = (const angles *)call->state;
  if (!rows) return;
  with_elements(x->dtype, [&](auto element) {
    using T = decltype(element);
    int64_t head = x->dim[2] / call->attrs->rotary.heads;
    /* packs are a power of two, which divides both numbers if it divides their bitwise or */
    with_packs<T>(a->pairs | head, [&](auto n) {
      constexpr int N = decltype(n)::value;
      launch(stream, grid_of(rows), threads_for(x->dim[2] / 2 / N), 0, turn<T, N>,
             (const T *)call->in[0], (T *)call->out[0], *a, at, x->dim[2], head, direction);
    });
  });
}

positions positions_of(const sl_call *call) {
  const sl_attrs *attrs = call->attrs;
  int64_t length = call->in_type[0].dim[1];
  int64_t later = attrs->place.run ? attrs->place.run : length;
  return {first_position(call), length, later, attrs->place.skip, nullptr};
}

void turn_all(const sl_call *call, void *stream, float direction) {
  turn_rows(call, sl_type_rows(&call->in_type[0]), positions_of(call), direction, stream);
}

void add_positions(const sl_call *call, int64_t rows, positions at, void *stream) {
  const sl_type *x = &call->in_type[0];
  int64_t width = x->dim[2];
  if (!rows) return;
  with_elements(x->dtype, [&](auto element) {
    using T = decltype(element);
    with_packs<T>(width, [&](auto n) {
      constexpr int N = decltype(n)::value;
      launch(stream, grid_of(rows), threads_for(width / N), 0, add_position<T, N>,
             (const T *)call->in[0], (const float *)call->in[1], (T *)call->out[0], at, width);
    });
  });
}

} // namespace

void sli_cuda_position(const sl_call *call, void *stream) {
  add_positions(call, sl_type_rows(&call->in_type[0]), positions_of(call), stream);
}

void sli_cuda_position_served(const sl_call *call, void *stream) {
  add_positions(call, served_rows(call), {0, 0, 0, 0, batch_of(call)}, stream);
}

void sli_cuda_position_w(const sl_call *call, void *stream) {
  const sl_type *dy = &call->in_type[0];
  int64_t width = dy->dim[2];
  with_elements(dy->dtype, [&](auto element) {
    using T = decltype(element);
    with_packs<T>(width, [&](auto n) {
      constexpr int N = decltype(n)::value;
      launch(stream, grid_of(call->out_type[0].dim[0]), threads_for(width / N), 0,
             sum_position<T, N>, (const T *)call->in[0], (float *)call->out[0],
             accumulates(call, 0), dy->dim[0], positions_of(call), width);
    });
  });
}

/* ---- tables of angles ------------------------------------------------ */

namespace {

/* Fills cosines[count, pairs] and the sines after them; returns false if memory runs out. */
bool fill_angles(const sl_attrs *attrs, int64_t count, int64_t pairs, float *cosines) {
  double *frequency = (double *)malloc((size_t)pairs * sizeof *frequency);
  if (!frequency) return false;
  double scale = sli_rope_frequencies(attrs, pairs, frequency);
  float *sines = cosines + count * pairs;
  for (int64_t p = 0; p < count; p++) {
    double at = (double)sli_rope_position(attrs, p), by = scale * sli_rope_sharpness(attrs, p);
    for (int64_t j = 0; j < pairs; j++) {
      cosines[p * pairs + j] = (float)(by * cos(at * frequency[j]));
      sines[p * pairs + j] = (float)(by * sin(at * frequency[j]));
    }
  }
  free(frequency);
  return true;
}

} // namespace

void sli_cuda_rotary_release(void *state) {
  angles *a = (angles *)state;
  if (a) cudaFree(a->cos);
  free(a);
}

sl_status sli_cuda_rotary_prepare(const sl_call *call, void **state) {
  const sl_type *x = &call->in_type[0];
  int64_t length = call->attrs->place.length ? call->attrs->place.length : x->dim[1];
  int64_t rows = call->attrs->place.first + call->attrs->place.skip + length;
  int64_t pairs = sli_rotary_turned(call->attrs, x->dim[2] / call->attrs->rotary.heads) / 2;
  size_t count = (size_t)(rows * pairs), bytes = 2 * count * sizeof(float);
  angles *a = (angles *)malloc(sizeof *a);
  float *host = (float *)malloc(bytes);
  if (!a || !host || !fill_angles(call->attrs, rows, pairs, host) ||
      cudaMalloc((void **)&a->cos, bytes)) {
    free(a);
    free(host);
    return sl_fail(SL_E_MEMORY, "out of memory for a table of %zu angles", count);
  }
  a->sin = a->cos + count;
  a->pairs = pairs;
  sl_status status = sl_cuda_copy(a->cos, host, bytes);
  free(host);
  if (status) sli_cuda_rotary_release(a);
  else *state = a;
  return status;
}

void sli_cuda_rotary(const sl_call *call, void *stream) { turn_all(call, stream, 1); }
void sli_cuda_rotary_served(const sl_call *call, void *stream) {
  turn_rows(call, served_rows(call), {0, 0, 0, 0, batch_of(call)}, 1, stream);
}
void sli_cuda_rotary_b(const sl_call *call, void *stream) { turn_all(call, stream, -1); }
