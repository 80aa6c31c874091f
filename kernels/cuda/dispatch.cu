/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA kernels that dispatch (route) rows to the devices of their experts and collect the results;
 * ops/dispatch.c describes the order of rows.
 *
 * Sorting the ids (sort.cuh), either by whether they name the device's experts or by the part that
 * has their rows, gives the selected ids and their order. Only the device knows their number.
 * Blocks are launched for the full capacity, those past the number exit immediately, and the number
 * is written where the host reads it (lengths.h). */
#include "kernels/cuda/sort.cuh"

namespace {

using namespace sli;

constexpr int PARTS = 128; /* maximum parts of returned rows */

const sl_dispatch *dispatch_of(const sl_call *call) {
  return (const sl_dispatch *)call->attrs->user;
}

int64_t room_of(const sl_type *t) { return sl_type_elements(t) / sl_type_last(t); }

int64_t rows_of(const sl_call *call, int i) {
  return sl_call_rows(call, i, room_of(&call->in_type[i]));
}

size_t sorting_bytes(const sl_type *ids) {
  return (size_t)sl_type_elements(ids) * 2 * sizeof(uint64_t);
}

/* Maps ids of experts first .. first + count to 0, so that they sort first, and other ids to 1. */
struct is_other {
  int64_t first, count;
  __device__ int64_t operator()(int32_t id) const { return id < first || id >= first + count; }
};

/* Returns the places of input i's ids, those of the route's experts first. */
const uint64_t *sort_ids(const sl_call *call, int i, void *stream) {
  const sl_dispatch *r = dispatch_of(call);
  int64_t count = sl_type_elements(&call->in_type[i]);
  uint64_t *keys = (uint64_t *)call->scratch;
  is_other other = {r->first, r->count};
  return sort_places((const int32_t *)call->in[i], count, keys, keys + count, other, stream);
}

/* One thread: counts the ids of the experts, up to `most`. */
__global__ void count_chosen(const uint64_t *keys, int64_t count, int64_t most, int32_t *rows) {
  int64_t n = bisect(keys, 0, count, key_of(1, 0));
  if (!threadIdx.x) *rows = (int32_t)(n < most ? n : most);
}

void fill(const sl_call *call, const uint64_t *keys, int64_t count, int64_t most, void *stream) {
  if (call->out_rows)
    launch(stream, grid_of(1), WARP, 0, count_chosen, keys, count, most, call->out_rows);
}

template <int N, typename T> __device__ inline void copy_row(T *to, const T *from, int64_t width) {
  for (int64_t c = (int64_t)threadIdx.x * N; c < width; c += (int64_t)blockDim.x * N)
    write_pack(to + c, read_pack<N>(from + c));
}

/* ---- forward ---------------------------------------------- */

template <typename T, int N>
__global__ void take_rows(const uint64_t *keys, const T *x, T *out, int64_t each, int64_t width) {
  uint64_t key = keys[blockIdx.x];
  if (number_of(key)) return;
  copy_row<N>(out + blockIdx.x * width, x + place_of(key) / each * width, width);
}

__global__ void take_ids(const uint64_t *keys, const int32_t *ids, int32_t *out, int64_t count) {
  int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
  if (i < count && !number_of(keys[i])) out[i] = ids[place_of(keys[i])];
}

/* ---- backward -------------------------------------------- */

struct range {
  int32_t begin, count;
};

/* One thread: finds the rows of the ids at places begin .. end, among `have` rows, one per chosen
 * id. */
__global__ void find_range(const uint64_t *keys, int64_t count, int64_t begin, int64_t end,
                           int64_t have, int64_t room, range *found, int32_t *rows) {
  int64_t from = bisect(keys, 0, count, key_of(0, begin)),
          to = bisect(keys, 0, count, key_of(0, end));
  from = from < have ? from : have;
  to = to < have ? to : have;
  int64_t n = to - from < room ? to - from : room;
  if (threadIdx.x) return;
  *found = {(int32_t)from, (int32_t)n};
  if (rows) *rows = (int32_t)n;
}

template <typename T, int N>
__global__ void take_range(const range *r, const T *y, T *out, int64_t width) {
  if ((int64_t)blockIdx.x >= r->count) return;
  copy_row<N>(out + blockIdx.x * width, y + (r->begin + (int64_t)blockIdx.x) * width, width);
}

/* Maps an id to the part that has its expert, of parts that shard `experts`. */
struct part_of_id {
  int64_t experts, parts;
  __device__ int64_t operator()(int32_t id) const {
    if (id < 0 || id >= experts) return parts;
    int64_t part = id * parts / experts;
    while ((part + 1) * experts / parts <= id) part++;
    while (part * experts / parts > id) part--;
    return part;
  }
};

struct came {
  const void *part[PARTS];
  int32_t rows[PARTS];
};

/* Location of an id's row; a negative part means that it is absent. */
struct origin {
  int32_t part, row;
};

__global__ void find_origins(const uint64_t *keys, int64_t count, int parts, came c, origin *from) {
  int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
  if (i >= count) return;
  int64_t part = number_of(keys[i]), row = i - bisect(keys, 0, i, key_of(part, 0));
  bool there = part < parts && row < c.rows[part];
  from[place_of(keys[i])] = {there ? (int32_t)part : -1, (int32_t)row};
}

/* Sums `each` rows, in order. */
template <typename T, int N>
__global__ void put_back(const origin *from, came p, T *out, int64_t each, int64_t width) {
  from += blockIdx.x * each;
  for (int64_t c = (int64_t)threadIdx.x * N; c < width; c += (int64_t)blockDim.x * N) {
    float sum[N] = {};
    bool any = false;
    for (int64_t j = 0; j < each; j++) {
      float x[N];
      if (from[j].part < 0) continue;
      load<N>(x, (const T *)p.part[from[j].part] + from[j].row * width + c);
#pragma unroll
      for (int n = 0; n < N; n++) sum[n] = any ? sum[n] + x[n] : x[n];
      any = true;
    }
    store<N>(out + blockIdx.x * width + c, sum);
  }
}

/* Calls f(T(), count<N>()) for rows of this type. */
template <typename F> void with_rows(const sl_type *type, F f) {
  with_elements(type->dtype, [&](auto element) {
    with_packs<decltype(element)>(sl_type_last(type), [&](auto n) { f(element, n); });
  });
}

} // namespace

size_t sli_cuda_dispatch_scratch(const sl_call *call) { return sorting_bytes(&call->in_type[1]); }
size_t sli_cuda_own_ids_scratch(const sl_call *call) { return sorting_bytes(&call->in_type[0]); }
size_t sli_cuda_give_back_scratch(const sl_call *call) {
  return sorting_bytes(&call->in_type[1]) + sizeof(range);
}
size_t sli_cuda_restore_scratch(const sl_call *call) {
  const sl_type *ids = &call->in_type[0];
  return sorting_bytes(ids) + (size_t)sl_type_elements(ids) * sizeof(origin);
}

sl_status sli_cuda_restore_prepare(const sl_call *call, void **state) {
  *state = NULL;
  if (call->nin <= PARTS + 1) return SL_OK;
  return sl_fail(SL_E_UNSUPPORTED, "a GPU can receive rows from at most %d devices, not %d", PARTS,
                 call->nin - 1);
}

void sli_cuda_dispatch(const sl_call *call, void *stream) {
  const sl_type *out = &call->out_type[0];
  int64_t count = sl_type_elements(&call->in_type[1]), room = room_of(out),
          width = sl_type_last(out);
  int64_t each = count / room_of(&call->in_type[0]), most = count < room ? count : room;
  const uint64_t *keys = sort_ids(call, 1, stream);
  fill(call, keys, count, room, stream);
  with_rows(out, [&](auto element, auto n) {
    using T = decltype(element);
    constexpr int N = decltype(n)::value;
    launch(stream, grid_of(most), threads_for(width / N), 0, take_rows<T, N>, keys,
           (const T *)call->in[0], (T *)call->out[0], each, width);
  });
}

/* Concatenates rows; the number of rows of each source is known at launch. */
void sli_cuda_collect(const sl_call *call, void *stream) {
  const sl_type *out = &call->out_type[0];
  size_t row = sl_type_bytes(out) / (size_t)room_of(out);
  int64_t n = 0;
  for (int p = 0; p < call->nin; p++) {
    int64_t rows = rows_of(call, p), rest = room_of(out) - n;
    if (rows > rest) rows = rest;
    if (rows)
      cudaMemcpyAsync((char *)call->out[0] + (size_t)n * row, call->in[p], (size_t)rows * row,
                      cudaMemcpyDefault, (cudaStream_t)stream);
    n += rows;
  }
  sl_call_fill(call, 0, n);
}

/* If more rows are counted than the output can hold, the run ends (sl_op.crowded). */
void sli_cuda_own_ids(const sl_call *call, void *stream) {
  int64_t count = sl_type_elements(&call->in_type[0]), room = sl_type_elements(&call->out_type[0]);
  int64_t most = count < room ? count : room;
  const uint64_t *keys = sort_ids(call, 0, stream);
  fill(call, keys, count, count, stream);
  launch(stream, grid_of(chunks(most, BLOCK)), BLOCK, 0, take_ids, keys,
         (const int32_t *)call->in[0], (int32_t *)call->out[0], most);
}

void sli_cuda_give_back(const sl_call *call, void *stream) {
  const sl_dispatch *r = dispatch_of(call);
  const sl_type *out = &call->out_type[0];
  int64_t count = sl_type_elements(&call->in_type[1]), width = sl_type_last(out);
  range *found = (range *)((char *)call->scratch + sorting_bytes(&call->in_type[1]));
  const uint64_t *keys = sort_ids(call, 1, stream);
  launch(stream, grid_of(1), WARP, 0, find_range, keys, count, r->begin, r->end, rows_of(call, 0),
         room_of(out), found, call->out_rows);
  with_rows(out, [&](auto element, auto n) {
    using T = decltype(element);
    constexpr int N = decltype(n)::value;
    launch(stream, grid_of(room_of(out)), threads_for(width / N), 0, take_range<T, N>,
           (const range *)found, (const T *)call->in[0], (T *)call->out[0], width);
  });
}

void sli_cuda_restore(const sl_call *call, void *stream) {
  const sl_type *out = &call->out_type[0];
  int64_t count = sl_type_elements(&call->in_type[0]), rows = room_of(out),
          width = sl_type_last(out);
  int parts = call->nin - 1;
  uint64_t *keys = (uint64_t *)call->scratch;
  origin *from = (origin *)(keys + 2 * count);
  came c = {};
  for (int p = 0; p < parts; p++)
    c.part[p] = call->in[p + 1], c.rows[p] = (int32_t)rows_of(call, p + 1);
  part_of_id part = {dispatch_of(call)->count, parts};
  const uint64_t *sorted =
      sort_places((const int32_t *)call->in[0], count, keys, keys + count, part, stream);
  launch(stream, grid_of(chunks(count, BLOCK)), BLOCK, 0, find_origins, sorted, count, parts, c,
         from);
  with_rows(out, [&](auto element, auto n) {
    using T = decltype(element);
    constexpr int N = decltype(n)::value;
    launch(stream, grid_of(rows), threads_for(width / N), 0, put_back<T, N>, (const origin *)from,
           c, (T *)call->out[0], count / rows, width);
  });
}
