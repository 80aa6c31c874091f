/* Rows looked up in a table, and the gradient of the table.
 *
 * The gradient of a table's row is the sum of what comes back for all places of the batch
 * that hold its id, in their order. So the places are sorted by id first. Their keys, the id
 * above and the place below, all differ, so that any way to sort is stable: blocks sort a
 * tile each, then sorted runs are merged in pairs, every key looking for its place in the
 * other run by bisection. Then a block adds up the places of one id, or of a stretch of them
 * where an id has many: then what the stretches give waits in the scratch and is
 * added in order. Work and order follow from the ids alone. */
#include "kernels/cuda/device.cuh"

namespace {

using namespace sli;

template <typename T, int N>
__global__ void embed(const int32_t *ids, const float *table, T *y, int64_t first, int64_t vocab,
                      int64_t width, float other) {
  int64_t r = blockIdx.x, id = ids[r] - first;
  for (int64_t c = (int64_t)threadIdx.x * N; c < width; c += (int64_t)blockDim.x * N) {
    float x[N];
    if (id >= 0 && id < vocab) load<N>(x, table + id * width + c);
    else
      for (int n = 0; n < N; n++) x[n] = other;
    store<N>(y + r * width + c, x);
  }
}

/* ---- sorting ------------------------------------------------ */

constexpr int TILE = 2048;

__device__ inline uint64_t key_of(int64_t id, int64_t place) {
  return (uint64_t)id << 32 | (uint64_t)place;
}
__device__ inline int64_t id_of(uint64_t key) { return (int64_t)(key >> 32); }
__device__ inline int64_t place_of(uint64_t key) { return (int64_t)(uint32_t)key; }

/* The first of keys[begin, end), which are sorted, that is not below `key`. */
__device__ inline int64_t bisect(const uint64_t *keys, int64_t begin, int64_t end, uint64_t key) {
  while (begin < end) {
    int64_t middle = (begin + end) / 2;
    if (keys[middle] < key) begin = middle + 1;
    else end = middle;
  }
  return begin;
}

/* keys[0, count) hold sorted runs of `run` keys, the last one may be shorter: where key i
 * goes when each two are merged. */
__device__ inline int64_t merged_place(const uint64_t *keys, int64_t count, int64_t i,
                                       int64_t run) {
  int64_t own = i / run * run, pair = own / (2 * run) * (2 * run);
  int64_t other = own == pair ? own + run : pair, end = other + run;
  if (other >= count) return i;
  int64_t found = bisect(keys, other, end < count ? end : count, keys[i]);
  return pair + (i - own) + (found - other);
}

/* Sorts tiles of the keys of all places; ids that are not in the table come last. */
__global__ void sort_tiles(const int32_t *ids, uint64_t *keys, int64_t rows, int64_t first,
                           int64_t vocab) {
  __shared__ uint64_t shared[2][TILE];
  int64_t begin = (int64_t)blockIdx.x * TILE, count = rows - begin < TILE ? rows - begin : TILE;
  uint64_t *from = shared[0], *to = shared[1];
  for (int64_t i = threadIdx.x; i < count; i += BLOCK) {
    int64_t id = ids[begin + i] - first;
    from[i] = key_of(id >= 0 && id < vocab ? id : vocab, begin + i);
  }
  for (int64_t run = 1; run < count; run *= 2) {
    __syncthreads();
    for (int64_t i = threadIdx.x; i < count; i += BLOCK)
      to[merged_place(from, count, i, run)] = from[i];
    uint64_t *free = from;
    from = to;
    to = free;
  }
  __syncthreads();
  for (int64_t i = threadIdx.x; i < count; i += BLOCK) keys[begin + i] = from[i];
}

__global__ void merge_runs(const uint64_t *from, uint64_t *to, int64_t rows, int64_t run) {
  int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
  if (i < rows) to[merged_place(from, rows, i, run)] = from[i];
}

/* ---- sums ------------------------------------------------
 *
 * A stretch has STRETCH places of one id, the last one of an id up to twice as many less one.
 * So the beginnings of stretches are that far apart wherever an id has more than one, and
 * stretch number begin / STRETCH has a place in the scratch to itself. */

constexpr int STRETCH = 64;

struct stretch {
  int32_t places; /* 0: none begins here */
  int32_t of;     /* so many that the id has, at the id's first, else 0 */
};

__global__ void find_stretches(const uint64_t *keys, stretch *found, int64_t rows, int64_t vocab) {
  int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
  if (i >= rows) return;
  int64_t id = id_of(keys[i]);
  int64_t begin = bisect(keys, 0, i, key_of(id, 0)), end = bisect(keys, i, rows, key_of(id + 1, 0));
  int64_t count = (end - begin) / STRETCH, at = i - begin;
  if (!count) count = 1;
  bool begins = id < vocab && at % STRETCH == 0 && at / STRETCH < count;
  bool last = at / STRETCH == count - 1;
  found[i].places = !begins ? 0 : (int32_t)(last ? end - i : STRETCH);
  found[i].of = begins && !at ? (int32_t)count : 0;
}

/* sum += the rows of dy at `count` places, in order. */
template <int N, typename T>
__device__ inline void add_places(float (&sum)[N], const uint64_t *keys, int count, const T *dy,
                                  int64_t width) {
#pragma unroll 4
  for (int i = 0; i < count; i++) {
    float d[N];
    load<N>(d, dy + place_of(keys[i]) * width);
#pragma unroll
    for (int n = 0; n < N; n++) sum[n] += d[n];
  }
}

/* Block i has the stretch that begins at key i, if one does. An id's only one is added to
 * the table at once. */
template <typename T, int N>
__global__ void sum_stretches(const uint64_t *keys, const stretch *found, const T *dy,
                              float *dtable, float *partial, int64_t width) {
  int64_t i = blockIdx.x;
  stretch s = found[i];
  if (!s.places) return;
  bool only = s.of == 1;
  float *to = only ? dtable + id_of(keys[i]) * width : partial + i / STRETCH * width;
  for (int64_t c = (int64_t)threadIdx.x * N; c < width; c += (int64_t)blockDim.x * N) {
    float sum[N] = {};
    if (only) load<N>(sum, to + c);
    add_places<N>(sum, keys + i, s.places, dy + c, width);
    store<N>(to + c, sum);
  }
}

/* Block i adds to the table what the stretches gave of the id that begins at key i. */
template <int N>
__global__ void join_stretches(const uint64_t *keys, const stretch *found, const float *partial,
                               float *dtable, int64_t width) {
  int64_t i = blockIdx.x;
  int count = found[i].of;
  if (count < 2) return;
  float *to = dtable + id_of(keys[i]) * width;
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

/* Of all but the partial sums, which are read in packs. */
size_t sorting_bytes(int64_t rows) {
  return ((size_t)rows * (2 * sizeof(uint64_t) + sizeof(stretch)) + 63) / 64 * 64;
}

room rooms_of(const sl_call *call) {
  int64_t rows = sl_type_elements(&call->in_type[0]);
  uint64_t *keys = (uint64_t *)call->scratch;
  return {keys, keys + rows, (float *)((char *)keys + sorting_bytes(rows)),
          (stretch *)(keys + 2 * rows)};
}

/* Returns the sorted keys, one of the two arrays. */
const uint64_t *sort_places(const sl_call *call, const room &r, void *stream) {
  int64_t rows = sl_type_elements(&call->in_type[0]);
  uint64_t *from = r.keys, *to = r.others;
  launch(stream, grid_of(chunks(rows, TILE)), BLOCK, 0, sort_tiles, (const int32_t *)call->in[0],
         from, rows, call->attrs->first, call->out_type[0].dim[0]);
  for (int64_t run = TILE; run < rows; run *= 2) {
    launch(stream, grid_of(chunks(rows, BLOCK)), BLOCK, 0, merge_runs, from, to, rows, run);
    uint64_t *free = from;
    from = to;
    to = free;
  }
  return from;
}

} // namespace

void sli_cuda_embedding(const sl_call *call, void *stream) {
  int64_t vocab = call->in_type[1].dim[0], width = call->in_type[1].dim[1];
  float other = call->attrs->partial ? 0.0f : NAN;
  with_elements(call->out_type[0].dtype, [&](auto element) {
    using T = decltype(element);
    with_packs<T>(width, [&](auto n) {
      constexpr int N = decltype(n)::value;
      launch(stream, grid_of(sl_type_elements(&call->in_type[0])), threads_for(width / N), 0,
             embed<T, N>, (const int32_t *)call->in[0], (const float *)call->in[1],
             (T *)call->out[0], call->attrs->first, vocab, width, other);
    });
  });
}

size_t sli_cuda_embedding_w_scratch(const sl_call *call) {
  int64_t rows = sl_type_elements(&call->in_type[0]), width = call->out_type[0].dim[1];
  return sorting_bytes(rows) + (size_t)(chunks(rows, STRETCH) * width) * sizeof(float);
}

void sli_cuda_embedding_w(const sl_call *call, void *stream) {
  int64_t vocab = call->out_type[0].dim[0], width = call->out_type[0].dim[1];
  int64_t rows = sl_type_elements(&call->in_type[0]);
  float *dtable = (float *)call->out[0];
  room r = rooms_of(call);
  if (!accumulates(call, 0))
    cudaMemsetAsync(dtable, 0, sl_type_bytes(&call->out_type[0]), (cudaStream_t)stream);
  const uint64_t *keys = sort_places(call, r, stream);
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
