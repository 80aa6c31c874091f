/* SPDX-License-Identifier: Apache-2.0 */
/* Elements gathered by index along a dim, and scatter-add. Scatter-add of whole rows works like the
 * gradient of a table; otherwise one thread per line adds in the order of the index. bf16 outputs
 * are first summed in f32. */
#include "ops/bag.h"
#include "kernels/cuda/device.cuh"
#include "ops/indexing.h"

namespace {

using namespace sli;

dim3 blocks_of(int64_t n) { return grid_of(chunks(n, BLOCK)); }

__device__ inline void move(int32_t &to, int32_t from) { to = from; }
template <typename X, typename Y> __device__ inline void move(Y &to, X from) {
  assign(to, to_float(from));
}
template <typename Y> __device__ inline void put_other(Y &to, float x) { assign(to, x); }
__device__ inline void put_other(int32_t &to, float) { to = -1; }

/* ---- gather ------------------------------------------------ */

template <typename X, typename Y> __global__ void take(sli_indexing by, const int32_t *index,
                                                       const X *x, Y *y, float other, int64_t n) {
  int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
  if (i >= n) return;
  int64_t id = index[sli_permutation_from(&by.index, i)] - by.first;
  int64_t outer = i / (by.inner * by.m), c = i % by.inner;
  if (id >= 0 && id < by.n) move(y[i], x[(outer * by.n + id) * by.inner + c]);
  else put_other(y[i], other);
}

/* One block per row. */
template <typename X, typename Y>
__global__ void take_rows(sli_indexing by, const int32_t *index, const X *x, Y *y, float other) {
  int64_t row = blockIdx.x, outer = row / by.m;
  int64_t id = index[sli_permutation_from(&by.index, row * by.inner)] - by.first;
  bool there = id >= 0 && id < by.n;
  const X *from = x + (outer * by.n + (there ? id : 0)) * by.inner;
  for (int64_t c = threadIdx.x; c < by.inner; c += blockDim.x)
    if (there) move(y[row * by.inner + c], from[c]);
    else put_other(y[row * by.inner + c], other);
}

template <typename X, typename Y> void gather_as(const sl_call *call, void *stream) {
  sli_indexing by = sli_indexing_of(call->attrs, &call->in_type[0], &call->in_type[1]);
  const int32_t *index = (const int32_t *)call->in[1];
  int64_t n = sl_type_elements(&call->out_type[0]);
  float other = call->attrs->place.partial ? 0.0f : NAN;
  if (by.rows && by.inner >= WARP)
    launch(stream, grid_of(n / by.inner), threads_for(by.inner), 0, take_rows<X, Y>, by, index,
           (const X *)call->in[0], (Y *)call->out[0], other);
  else
    launch(stream, blocks_of(n), BLOCK, 0, take<X, Y>, by, index, (const X *)call->in[0],
           (Y *)call->out[0], other, n);
}

/* ---- sums ------------------------------------------------ */

/* Arguments of a scatter-add. */
struct adding {
  sli_indexing by;
  const int32_t *index;
  const void *src;
  sl_dtype dtype; /* type of src */
  float *sums;    /* [outer, n, inner] */
  bool shows;     /* an index out of range sets its line to NaN */
};

/* One thread per line. */
template <typename T> __global__ void add_lines(adding a, int64_t n) {
  const sli_indexing &by = a.by;
  int64_t line = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
  if (line >= n) return;
  int64_t outer = line / by.inner, c = line % by.inner;
  float *sums = a.sums + outer * by.n * by.inner + c;
  for (int64_t k = 0; k < by.m; k++) {
    int64_t at = (outer * by.m + k) * by.inner + c;
    int64_t id = a.index[sli_permutation_from(&by.index, at)] - by.first;
    if (id >= 0 && id < by.n) sums[id * by.inner] += to_float(((const T *)a.src)[at]);
    else if (a.shows) sums[0] = NAN;
  }
}

/* Sets lines with an index out of range to NaN, for whole rows. */
__global__ void show_others(adding a) {
  int64_t k = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
  if (k >= a.by.m) return;
  int64_t id = a.index[k] - a.by.first;
  for (int64_t c = 0; (id < 0 || id >= a.by.n) && c < a.by.inner; c++) a.sums[c] = NAN;
}

template <typename T> __global__ void copy_to(const T *x, float *y, int64_t n) {
  int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
  if (i < n) y[i] = to_float(x[i]);
}

/* Returns true if the scatter-add has the form of a table's gradient. */
bool is_table(const sli_indexing &by, const sl_type *index) {
  return by.outer == 1 && by.rows && sl_type_elements(index) == by.m;
}

/* The equivalent table gradient call: ids [m] and rows [m, inner] are added to a table [n,
 * inner]. */
struct table_call {
  sl_type in_type[2], out_type;
  const void *in[2];
  void *out;
  sl_attrs attrs;
  sl_call call;
};

void table_call_make(table_call *t, const sl_op *op, int64_t ids, int64_t vocab, int64_t width,
                     sl_dtype dtype) {
  *t = table_call{};
  t->in_type[0] = {SL_I32, 1, {ids}};
  t->in_type[1] = {dtype, 2, {ids, width}};
  t->out_type = {SL_F32, 2, {vocab, width}};
  t->call.op = op;
  t->call.attrs = &t->attrs;
  t->call.nin = 2;
  t->call.nout = 1;
  t->call.in_type = t->in_type;
  t->call.out_type = &t->out_type;
  t->call.in = t->in;
  t->call.out = &t->out;
  t->call.accumulate = 1;
}

size_t whole_blocks(size_t bytes) { return (bytes + 255) / 256 * 256; }

size_t table_scratch(const sl_call *call, const sli_indexing &by, const sl_type *index,
                     sl_dtype dtype) {
  table_call t;
  if (!is_table(by, index)) return 0;
  table_call_make(&t, call->op, by.m, by.n, by.inner, dtype);
  return whole_blocks(sli_cuda_embedding_w_scratch(&t.call));
}

void add_rows(const sl_call *call, const adding &a, void *stream) {
  table_call t;
  table_call_make(&t, call->op, a.by.m, a.by.n, a.by.inner, a.dtype);
  t.attrs.place.first = a.by.first;
  t.in[0] = a.index;
  t.in[1] = a.src;
  t.out = a.sums;
  t.call.scratch = call->scratch;
  sli_cuda_embedding_w(&t.call, stream);
  if (a.shows) launch(stream, blocks_of(a.by.m), BLOCK, 0, show_others, a);
}

void add_all(const sl_call *call, const adding &a, const sl_type *index, void *stream) {
  if (is_table(a.by, index)) return add_rows(call, a, stream);
  int64_t n = a.by.outer * a.by.inner;
  with_elements(a.dtype, [&](auto element) {
    launch(stream, blocks_of(n), BLOCK, 0, add_lines<decltype(element)>, a, n);
  });
}

/* Initialises sums with `base`, or zeros if it is NULL, and adds. If the output is not f32, the
 * sums are in the scratch, after `own` bytes with another use. */
void sum_up(const sl_call *call, adding a, const sl_type *index, const void *base, sl_dtype of_base,
            size_t own, void *stream) {
  int64_t n = sl_type_elements(&call->out_type[0]);
  bool narrow = call->out_type[0].dtype == SL_BF16;
  a.sums = narrow ? (float *)((char *)call->scratch + own) : (float *)call->out[0];
  if (!base) cudaMemsetAsync(a.sums, 0, (size_t)n * sizeof(float), (cudaStream_t)stream);
  else if (base != a.sums)
    with_elements(of_base, [&](auto element) {
      using T = decltype(element);
      launch(stream, blocks_of(n), BLOCK, 0, copy_to<T>, (const T *)base, a.sums, n);
    });
  add_all(call, a, index, stream);
  if (narrow) sli_cuda_round(a.sums, call->out[0], n, 0, stream);
}

sli_indexing back_indexing(const sl_call *call) {
  return sli_indexing_of(call->attrs, &call->out_type[0], &call->in_type[0]);
}

sli_indexing scatter_indexing(const sl_call *call) {
  return sli_indexing_of(call->attrs, &call->out_type[0], &call->in_type[1]);
}

size_t sums_bytes(const sl_call *call) {
  bool narrow = call->out_type[0].dtype == SL_BF16;
  return narrow ? (size_t)sl_type_elements(&call->out_type[0]) * sizeof(float) : 0;
}

size_t back_scratch(const sl_call *call) {
  return table_scratch(call, back_indexing(call), &call->in_type[0], call->in_type[1].dtype);
}

size_t scatter_scratch(const sl_call *call) {
  return table_scratch(call, scatter_indexing(call), &call->in_type[1], call->in_type[0].dtype);
}

/* ---- bags ------------------------------------------------ */

struct bags {
  const int32_t *ids;
  sl_bag bag;
  int64_t most, first, vocab, width;
  bool partial;
};

bags bags_of(const sl_call *call, int table) {
  const sl_bag *bag = (const sl_bag *)call->attrs->user;
  return bags{(const int32_t *)call->in[0],    bag ? *bag : sl_bag{},
              sl_type_last(&call->in_type[0]), call->attrs->place.first,
              call->in_type[table].dim[0],     call->in_type[table].dim[1],
              call->attrs->place.partial};
}

const float *weights_of(const sl_call *call, int i) {
  return call->nin > i ? (const float *)call->in[i] : nullptr;
}

/* One block per bag. */
template <typename T>
__global__ void fill_bags(bags b, const float *table, const float *weights, T *y) {
  int64_t row = blockIdx.x, begin = row * b.most;
  float share = (float)sli_bag_share(&b.bag, b.ids + begin, b.most);
  for (int64_t c = threadIdx.x; c < b.width; c += blockDim.x) {
    float sum = 0;
    for (int64_t l = begin; l < begin + b.most; l++) {
      int64_t id = b.ids[l] - b.first;
      if (sli_bag_pads(&b.bag, b.ids[l])) continue;
      if (id >= 0 && id < b.vocab)
        sum += share * (weights ? weights[l] : 1.0f) * table[id * b.width + c];
      else if (!b.partial && !c) sum = NAN;
    }
    assign(y[row * b.width + c], sum);
  }
}

/* Writes the gradient for each id of each bag, and the ids except padding. */
template <typename T>
__global__ void spread_bags(bags b, const T *dy, const float *weights, int32_t *ids, float *rows) {
  int64_t l = blockIdx.x, row = l / b.most;
  float by = (float)sli_bag_share(&b.bag, b.ids + row * b.most, b.most);
  if (weights) by *= weights[l];
  int64_t id = b.ids[l] - b.first;
  bool counts = id >= 0 && id < b.vocab && !sli_bag_pads(&b.bag, b.ids[l]);
  if (!threadIdx.x) ids[l] = counts ? (int32_t)id : -1;
  for (int64_t c = threadIdx.x; c < b.width; c += blockDim.x)
    rows[l * b.width + c] = by * to_float(dy[row * b.width + c]);
}

/* One warp per id. */
template <typename T>
__global__ void bag_weights(bags b, const T *dy, const float *table, float *dweights) {
  int64_t l = blockIdx.x, row = l / b.most, id = b.ids[l] - b.first;
  bool counts = id >= 0 && id < b.vocab && !sli_bag_pads(&b.bag, b.ids[l]);
  float sum = 0;
  for (int64_t c = threadIdx.x; c < b.width && counts; c += WARP)
    sum += to_float(dy[row * b.width + c]) * table[id * b.width + c];
  sum = warp_sum(sum);
  if (!threadIdx.x) dweights[l] = sum;
}

/* Scratch: that of the table's gradient, then ids and rows. */
struct bag_room {
  size_t ids, rows, all;
};

bag_room bag_room_of(const sl_call *call, table_call *t) {
  int64_t n = sl_type_elements(&call->in_type[0]), width = call->out_type[0].dim[1];
  table_call_make(t, call->op, n, call->out_type[0].dim[0], width, SL_F32);
  bag_room room = {whole_blocks(sli_cuda_embedding_w_scratch(&t->call)), 0, 0};
  room.rows = room.ids + whole_blocks((size_t)n * sizeof(int32_t));
  room.all = room.rows + (size_t)(n * width) * sizeof(float);
  return room;
}

} // namespace

void sli_cuda_gather(const sl_call *call, void *stream) {
  if (call->in_type[0].dtype == SL_I32) return gather_as<int32_t, int32_t>(call, stream);
  with_elements(call->in_type[0].dtype, [&](auto x) {
    with_elements(call->out_type[0].dtype,
                  [&](auto y) { gather_as<decltype(x), decltype(y)>(call, stream); });
  });
}

size_t sli_cuda_gather_b_scratch(const sl_call *call) {
  return back_scratch(call) + sums_bytes(call);
}

void sli_cuda_gather_b(const sl_call *call, void *stream) {
  adding a = {back_indexing(call),
              (const int32_t *)call->in[0],
              call->in[1],
              call->in_type[1].dtype,
              nullptr,
              false};
  const void *base = accumulates(call, 0) ? call->out[0] : nullptr;
  sum_up(call, a, &call->in_type[0], base, call->out_type[0].dtype, back_scratch(call), stream);
}

size_t sli_cuda_scatter_add_scratch(const sl_call *call) {
  return scatter_scratch(call) + sums_bytes(call);
}

void sli_cuda_scatter_add(const sl_call *call, void *stream) {
  adding a = {scatter_indexing(call),
              (const int32_t *)call->in[1],
              call->in[0],
              call->in_type[0].dtype,
              nullptr,
              !call->attrs->place.partial};
  const void *base = call->nin > 2 ? call->in[2] : nullptr;
  sum_up(call, a, &call->in_type[1], base, base ? call->in_type[2].dtype : SL_F32,
         scatter_scratch(call), stream);
}

void sli_cuda_embedding_bag(const sl_call *call, void *stream) {
  bags b = bags_of(call, 1);
  with_elements(call->out_type[0].dtype, [&](auto element) {
    using T = decltype(element);
    launch(stream, grid_of(sl_type_rows(&call->in_type[0])), threads_for(b.width), 0, fill_bags<T>,
           b, (const float *)call->in[1], weights_of(call, 2), (T *)call->out[0]);
  });
}

size_t sli_cuda_embedding_bag_w_scratch(const sl_call *call) {
  table_call t;
  return bag_room_of(call, &t).all;
}

void sli_cuda_embedding_bag_w(const sl_call *call, void *stream) {
  bags b = bags_of(call, 2);
  table_call t;
  bag_room room = bag_room_of(call, &t);
  int32_t *ids = (int32_t *)((char *)call->scratch + room.ids);
  float *rows = (float *)((char *)call->scratch + room.rows);
  with_elements(call->in_type[1].dtype, [&](auto element) {
    using T = decltype(element);
    launch(stream, grid_of(sl_type_elements(&call->in_type[0])), threads_for(b.width), 0,
           spread_bags<T>, b, (const T *)call->in[1], weights_of(call, 3), ids, rows);
  });
  t.in[0] = ids;
  t.in[1] = rows;
  t.out = call->out[0];
  t.call.scratch = call->scratch;
  t.call.accumulate = accumulates(call, 0);
  sli_cuda_embedding_w(&t.call, stream);
}

void sli_cuda_embedding_bag_b(const sl_call *call, void *stream) {
  bags b = bags_of(call, 2);
  with_elements(call->in_type[1].dtype, [&](auto element) {
    using T = decltype(element);
    launch(stream, grid_of(sl_type_elements(&call->in_type[0])), WARP, 0, bag_weights<T>, b,
           (const T *)call->in[1], (const float *)call->in[2], (float *)call->out[0]);
  });
}
