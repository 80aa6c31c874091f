/* SPDX-License-Identifier: Apache-2.0 */
/* Rows looked up in a table, and the gradient of the table.
 *
 * The gradient of a table row is the sum over all places of the batch that hold its id, in their
 * order. The places are first sorted by id (sort.cuh). A block then adds the places of one id. An
 * id with many places is cut into stretches, whose sums are kept in the scratch and added in order.
 * Work and order follow from the ids alone. */
#include "kernels/cuda/sort.cuh"

namespace {

using namespace sli;

template <typename T, int N> __global__ void embed(const int32_t *ids, const float *table, T *y,
                                                   int64_t first, int64_t vocab, int64_t width,
                                                   float other) {
  int64_t r = blockIdx.x, id = ids[r] - first;
  for (int64_t c = (int64_t)threadIdx.x * N; c < width; c += (int64_t)blockDim.x * N) {
    float x[N];
    if (id >= 0 && id < vocab) load<N>(x, table + id * width + c);
    else
      for (int n = 0; n < N; n++) x[n] = other;
    store<N>(y + r * width + c, x);
  }
}

/* ---- sums ------------------------------------------------
 *
 * A stretch has STRETCH places of one id; the last stretch of an id has up to 2 * STRETCH - 1.
 * If an id has several stretches, they therefore begin at least STRETCH places apart. Their sums
 * are kept at index begin / STRETCH of the scratch, which is thus unique. */

constexpr int STRETCH = 64;

struct stretch {
  int32_t places; /* 0: no stretch begins here */
  int32_t of;     /* number of the id's stretches, stored at its first; otherwise 0 */
};

__global__ void find_stretches(const uint64_t *keys, stretch *found, int64_t rows, int64_t vocab) {
  int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
  if (i >= rows) return;
  int64_t id = number_of(keys[i]);
  int64_t begin = bisect(keys, 0, i, key_of(id, 0)), end = bisect(keys, i, rows, key_of(id + 1, 0));
  int64_t count = (end - begin) / STRETCH, at = i - begin;
  if (!count) count = 1;
  bool begins = id < vocab && at % STRETCH == 0 && at / STRETCH < count;
  bool last = at / STRETCH == count - 1;
  found[i].places = !begins ? 0 : (int32_t)(last ? end - i : STRETCH);
  found[i].of = begins && !at ? (int32_t)count : 0;
}

/* Adds the rows of dy at `count` places, in order. */
template <int N, typename T> __device__ inline void add_places(float (&sum)[N],
                                                               const uint64_t *keys, int count,
                                                               const T *dy, int64_t width) {
#pragma unroll 4
  for (int i = 0; i < count; i++) {
    float d[N];
    load<N>(d, dy + place_of(keys[i]) * width);
#pragma unroll
    for (int n = 0; n < N; n++) sum[n] += d[n];
  }
}

/* Block i sums the stretch that begins at key i, if there is one. If it is the id's only stretch,
 * the sum is added to the table directly. */
template <typename T, int N>
__global__ void sum_stretches(const uint64_t *keys, const stretch *found, const T *dy,
                              float *dtable, float *partial, int64_t width) {
  int64_t i = blockIdx.x;
  stretch s = found[i];
  if (!s.places) return;
  bool only = s.of == 1;
  float *to = only ? dtable + number_of(keys[i]) * width : partial + i / STRETCH * width;
  for (int64_t c = (int64_t)threadIdx.x * N; c < width; c += (int64_t)blockDim.x * N) {
    float sum[N] = {};
    if (only) load<N>(sum, to + c);
    add_places<N>(sum, keys + i, s.places, dy + c, width);
    store<N>(to + c, sum);
  }
}

/* Block i adds the sums of all stretches of the id that begins at key i to the table. */
template <int N> __global__ void join_stretches(const uint64_t *keys, const stretch *found,
                                                const float *partial, float *dtable,
                                                int64_t width) {
  int64_t i = blockIdx.x;
  int count = found[i].of;
  if (count < 2) return;
  float *to = dtable + number_of(keys[i]) * width;
  for (int64_t c = (int64_t)threadIdx.x * N; c < width; c += (int64_t)blockDim.x * N) {
    float sum[N], d[N];
    load<N>(sum, to + c);
#pragma unroll 4
    for (int k = 0; k < count; k++) {
      load<N>(d, partial + (i / STRETCH + k) * width + c);
#pragma unroll
      for (int n = 0; n < N; n++) sum[n] += d[n];
    }
    store<N>(to + c, sum);
  }
}

/* ---- the scratch ------------------------------------------------ */

struct room {
  uint64_t *keys, *others; /* [rows] */
  float *partial;          /* [rows / STRETCH, rounded up; width] */
  stretch *found;          /* [rows] */
};

/* Returns the bytes of all arrays before the partial sums, which are read in packs. */
size_t room_bytes(int64_t rows) {
  return ((size_t)rows * (2 * sizeof(uint64_t) + sizeof(stretch)) + 63) / 64 * 64;
}

room rooms_of(const sl_call *call) {
  int64_t rows = sl_type_elements(&call->in_type[0]);
  uint64_t *keys = (uint64_t *)call->scratch;
  return {keys, keys + rows, (float *)((char *)keys + room_bytes(rows)),
          (stretch *)(keys + 2 * rows)};
}

} // namespace

void sli_cuda_embedding(const sl_call *call, void *stream) {
  int64_t vocab = call->in_type[1].dim[0], width = call->in_type[1].dim[1];
  float other = call->attrs->place.partial ? 0.0f : NAN;
  with_elements(call->out_type[0].dtype, [&](auto element) {
    using T = decltype(element);
    with_packs<T>(width, [&](auto n) {
      constexpr int N = decltype(n)::value;
      launch(stream, grid_of(sl_type_elements(&call->in_type[0])), threads_for(width / N), 0,
             embed<T, N>, (const int32_t *)call->in[0], (const float *)call->in[1],
             (T *)call->out[0], call->attrs->place.first, vocab, width, other);
    });
  });
}

size_t sli_cuda_embedding_w_scratch(const sl_call *call) {
  int64_t rows = sl_type_elements(&call->in_type[0]), width = call->out_type[0].dim[1];
  return room_bytes(rows) + (size_t)(chunks(rows, STRETCH) * width) * sizeof(float);
}

void sli_cuda_embedding_w(const sl_call *call, void *stream) {
  int64_t vocab = call->out_type[0].dim[0], width = call->out_type[0].dim[1];
  int64_t rows = sl_type_elements(&call->in_type[0]);
  float *dtable = (float *)call->out[0];
  room r = rooms_of(call);
  if (!accumulates(call, 0))
    cudaMemsetAsync(dtable, 0, sl_type_bytes(&call->out_type[0]), (cudaStream_t)stream);
  id_in_table name = {call->attrs->place.first, vocab};
  const uint64_t *keys =
      sort_places((const int32_t *)call->in[0], rows, r.keys, r.others, name, stream);
  launch(stream, grid_of(chunks(rows, BLOCK)), BLOCK, 0, find_stretches, keys, r.found, rows,
         vocab);
  with_elements(call->in_type[1].dtype, [&](auto element) {
    using T = decltype(element);
    with_packs<T>(width, [&](auto n) {
      constexpr int N = decltype(n)::value;
      launch(stream, grid_of(rows), threads_for(width / N), 0, sum_stretches<T, N>, keys,
             (const stretch *)r.found, (const T *)call->in[1], dtable, r.partial, width);
      launch(stream, grid_of(rows), threads_for(width / N), 0, join_stretches<N>, keys,
             (const stretch *)r.found, (const float *)r.partial, dtable, width);
    });
  });
}
