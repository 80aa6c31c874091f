/* SPDX-License-Identifier: Apache-2.0 */
/* Products and tables of served graphs. Weights stay in their storage format and are unpacked in
 * registers. A row has the same bits alone and in any batch: its sums are split by columns of the
 * weights alone, over the lanes and warps of a block, and are joined in order. */
#include "kernels/cuda/served.cuh"
#include "kernels/cuda/sort.cuh"
#include "kernels/cuda/stored.cuh"

namespace {

using namespace sli;

constexpr int WARPS = BLOCK / WARP, PARTS = WARPS * QUADS;
constexpr int MOST_ROWS = 8; /* rows of x that share a reading of the weights */

struct product {
  stored w;
  const float *x, *bias;
  float *y;
  int64_t rows;
  bool packed; /* rows of x begin at multiples of 16 bytes */
  /* experts: places of rows, sorted by expert; NULL: one matrix for all rows */
  const uint64_t *keys;
  int64_t experts, each; /* each: places that share a row of x */
};

/* Rows of a block, and its matrix. */
struct rows_of_block {
  const void *weights;
  int64_t first, count; /* rows, or sorted places */
};

/* Returns the rows of a block of up to `most`: those of one expert, counted from its first. */
template <typename W> __device__ inline rows_of_block block_rows(const product &p, int64_t most) {
  int64_t at = blockIdx.y;
  if (!p.keys) {
    int64_t first = at * most, rest = p.rows - first;
    return {p.w.data, first, rest < most ? rest : most};
  }
  int64_t expert = number_of(p.keys[at]), begin = bisect(p.keys, 0, at, key_of(expert, 0));
  if (expert >= p.experts || (at - begin) % most) return {nullptr, at, 0};
  int64_t end = at;
  while (end < p.rows && end < at + most && number_of(p.keys[end]) == expert) end++;
  return {(const char *)p.w.data + expert * p.w.n * p.w.k * W::BYTES, at, end - at};
}

__device__ inline int64_t row_of_y(const product &p, int64_t i) {
  return p.keys ? place_of(p.keys[i]) : i;
}

/* Reads four numbers of a row of x from column c on. */
__device__ inline void read_four(const product &p, const float *row, int64_t c, float (&to)[4]) {
  if (p.packed && c + 4 <= p.w.k) load<4>(to, row + c);
  else
    for (int e = 0; e < 4; e++) to[e] = c + e < p.w.k ? row[c + e] : 0.0f;
}

/* Adds the products of a span. */
template <typename W, int R>
__device__ inline void add_span(const product &p, const stored &matrix, const rows_of_block &rows,
                                int64_t column, int64_t span, float (&sum)[R][LANE_ROWS]) {
  float w[LANE_ROWS][W::E];
  W::read(matrix, column, span, w);
#pragma unroll
  for (int r = 0; r < R; r++) {
    int64_t row = row_of_y(p, rows.first + (r < rows.count ? r : 0)) / p.each;
#pragma unroll
    for (int q = 0; q < W::E / 4; q++) {
      float x[4];
      read_four(p, p.x + row * p.w.k, W::column(span, q), x);
#pragma unroll
      for (int l = 0; l < LANE_ROWS; l++)
#pragma unroll
        for (int e = 0; e < 4; e++) sum[r][l] += w[l][4 * q + e] * x[e];
    }
  }
}

/* A block computes GROUP columns of y for R rows. Lanes of a warp take parts of each span, warps
 * take spans in turn; their sums are added in this order. */
template <typename W, int R> __global__ void multiply(product p) {
  SLI_SHARED(shared);
  float(*parts)[R][GROUP] = (float(*)[R][GROUP])shared;
  rows_of_block rows = block_rows<W>(p, R);
  if (!rows.count) return;
  stored matrix = {rows.weights, p.w.n, p.w.k, p.w.packed};
  int64_t column = (int64_t)blockIdx.x * GROUP;
  int warp = (int)threadIdx.x / WARP, lane_row = first_row_of_lane();
  float sum[R][LANE_ROWS] = {};
  for (int64_t span = warp; span * W::SPAN < p.w.k; span += WARPS)
    add_span<W, R>(p, matrix, rows, column, span, sum);
#pragma unroll
  for (int r = 0; r < R; r++)
#pragma unroll
    for (int l = 0; l < LANE_ROWS; l++)
      parts[warp * QUADS + quad_of_lane()][r][lane_row + l] = sum[r][l];
  __syncthreads();
  for (int i = (int)threadIdx.x; i < R * GROUP; i += BLOCK) {
    int64_t r = i / GROUP, c = column + i % GROUP;
    if (r >= rows.count || c >= p.w.n) continue;
    float total = parts[0][r][i % GROUP];
    for (int k = 1; k < PARTS; k++) total += parts[k][r][i % GROUP];
    p.y[row_of_y(p, rows.first + r) * p.w.n + c] = p.bias ? total + p.bias[c] : total;
  }
}

template <typename W, int R> void multiply_rows(const product &p, void *stream) {
  int64_t blocks = p.keys ? p.rows : chunks(p.rows, R);
  launch(stream, dim3((unsigned)chunks(p.w.n, GROUP), (unsigned)blocks), BLOCK,
         sizeof(float) * PARTS * R * GROUP, multiply<W, R>, p);
}

template <typename W> void multiply_all(const product &p, void *stream) {
  if (p.rows == 1) multiply_rows<W, 1>(p, stream);
  else if (p.rows == 2) multiply_rows<W, 2>(p, stream);
  else if (p.rows <= 4) multiply_rows<W, 4>(p, stream);
  else multiply_rows<W, MOST_ROWS>(p, stream);
}

/* Clears the rows of places without an expert. */
__global__ void clear_rows(product p, const int32_t *ids) {
  int64_t i = blockIdx.x;
  if (ids[i] >= 0 && ids[i] < p.experts) return;
  for (int64_t c = threadIdx.x; c < p.w.n; c += blockDim.x) p.y[i * p.w.n + c] = 0;
}

/* Returns the number of valid ids. */
int64_t valid_ids(const sl_call *call) {
  const sl_type *ids = &call->in_type[1];
  int64_t rows = ids->dim[ids->ndim > 1 && ids->dim[0] == 1];
  return sl_type_elements(ids) / rows * sl_call_rows(call, 1, rows);
}

/* ---- tables ---------------------------------------------------------------------------------- */

struct table {
  stored w;
  const int32_t *ids;
  float *y;
  int64_t first;
  float other; /* numbers of ids outside the table */
};

/* One block per id. */
__global__ void look_up(table t, sl_storage storage) {
  int64_t i = blockIdx.x, id = t.ids[i] - t.first;
  bool here = id >= 0 && id < t.w.n;
  for (int64_t c = threadIdx.x; c < t.w.k; c += blockDim.x)
    t.y[i * t.w.k + c] = here ? stored_number(storage, t.w, id, c) : t.other;
}

} // namespace

void sli_cuda_linear_served(const sl_call *call, void *stream) {
  bool turned = call->attrs->transposed;
  int64_t k = sl_type_last(&call->in_type[0]), n = sl_type_last(&call->out_type[0]);
  product p = {{call->in[1], n, k, false},
               (const float *)call->in[0],
               (const float *)call->in[2],
               (float *)call->out[0],
               served_rows(call),
               k % 4 == 0,
               nullptr,
               1,
               1};
  if (!p.rows) return;
  if (turned) return multiply_all<stored_columns>(p, stream);
  with_stored(sli_storage_of(&call->in_type[1], k), [&](auto reader) {
    using W = decltype(reader);
    p.w.packed = k % W::E == 0;
    multiply_all<W>(p, stream);
  });
}

size_t sli_cuda_grouped_linear_served_scratch(const sl_call *call) {
  return (size_t)sl_type_elements(&call->in_type[1]) * 2 * sizeof(uint64_t);
}

void sli_cuda_grouped_linear_served(const sl_call *call, void *stream) {
  const sl_type *x = &call->in_type[0], *ids_type = &call->in_type[1], *w = &call->in_type[2];
  const int32_t *ids = (const int32_t *)call->in[1];
  int64_t rows = valid_ids(call);
  uint64_t *keys = (uint64_t *)call->scratch;
  if (!rows) return;
  id_in_table expert = {call->attrs->first, w->dim[0]};
  product p = {{call->in[2], w->dim[1], w->dim[2], false},
               (const float *)call->in[0],
               nullptr,
               (float *)call->out[0],
               rows,
               w->dim[2] % 4 == 0,
               sort_places(ids, rows, keys, keys + rows, expert, stream),
               w->dim[0],
               x->ndim == ids_type->ndim ? sl_type_last(ids_type) : 1};
  launch(stream, grid_of(rows), threads_for(p.w.n), 0, clear_rows, p, ids);
  with_elements(w->dtype, [&](auto element) {
    using W = stored_rows<decltype(element), 16 / sizeof(element)>;
    p.w.packed = p.w.k % W::E == 0;
    multiply_rows<W, MOST_ROWS>(p, stream);
  });
}

void sli_cuda_embedding_served(const sl_call *call, void *stream) {
  const sl_type *ids = &call->in_type[0];
  int64_t tokens = ids->dim[0] * ids->dim[1], width = sl_type_last(&call->out_type[0]);
  int64_t rows = sl_call_rows(call, 0, tokens) * (sl_type_elements(ids) / tokens);
  table t = {{call->in[1], call->in_type[1].dim[0], width, false},
             (const int32_t *)call->in[0],
             (float *)call->out[0],
             call->attrs->first,
             call->attrs->partial ? -0.0f : NAN};
  if (rows)
    launch(stream, grid_of(rows), threads_for(width), 0, look_up, t,
           sli_storage_of(&call->in_type[1], width));
}
