/* SPDX-License-Identifier: Apache-2.0 */
/* Grouped linear maps of experts: each row goes through the map of the expert that its id names.
 *
 * Rows are sorted by expert, then by place (sort.cuh), and cut into tiles of one expert's rows.
 * Blocks are the index into a table of tiles in the scratch. There are at most rows / TILE +
 * experts tiles. That many blocks are launched, and blocks without a tile exit immediately, so the
 * host need not know the experts' row counts. A block gathers its tile's rows during the product
 * and scatters the results back. For the gradient of weights, one block computes each part of each
 * expert's matrix, over all rows of the expert.
 *
 * A block computes 64 x 128 numbers of the result, a warp 32 x 32 of these, on the tensor cores
 * (mma.cuh). While it multiplies one stage of 32 of the inner dimension from shared memory, the
 * next stage is loaded into registers, where f32 weights for bf16 rows are rounded. Bands of 16
 * rows that a tile lacks are skipped, so an expert with few rows costs little more than reading its
 * weights. */
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/sort.cuh"

namespace {

using namespace sli;

constexpr int TILE = 64, COLUMNS = 128, DEPTH = 32;

/* ---- tiles of one expert's rows ------------------------------------------------ */

struct tile {
  int32_t expert, begin, count; /* range of the sorted rows; count 0: none */
};

/* Arrays in the scratch. */
struct groups {
  uint64_t *keys, *others; /* [rows] */
  float *shared;           /* [rows, K] gradients of rows that several ids share */
  tile *tiles;             /* [most] */
  /* [experts + 1] first row of each expert, and the number of tiles before it */
  int32_t *begins, *before;
  int64_t rows, experts, most;
};

int64_t most_tiles(int64_t rows, int64_t experts) { return rows / TILE + experts; }

size_t rounded(size_t bytes) { return (bytes + 63) / 64 * 64; }

/* Returns true if all ids of a token share one row of x. */
bool is_shared(const sl_type *x, const sl_type *ids) { return x->ndim == ids->ndim; }
bool is_summed(const sl_type *x, const sl_type *ids) {
  return is_shared(x, ids) && sl_type_last(ids) > 1;
}
int64_t ids_of_row(const sl_type *x, const sl_type *ids) {
  return is_shared(x, ids) ? sl_type_last(ids) : 1;
}

size_t groups_bytes(int64_t rows, int64_t experts) {
  return rounded((size_t)rows * 2 * sizeof(uint64_t)) +
         rounded((size_t)most_tiles(rows, experts) * sizeof(tile)) +
         rounded((size_t)(experts + 1) * 2 * sizeof(int32_t));
}

/* Returns the number of valid ids, if a valid length limits them; otherwise all. */
int64_t valid_ids(const sl_call *call) {
  const sl_type *ids = &call->in_type[1];
  int64_t rows = ids->dim[ids->ndim > 1 && ids->dim[0] == 1];
  return sl_type_elements(ids) / rows * sl_call_rows(call, 1, rows);
}

groups groups_of(const sl_call *call, const sl_type *w) {
  int64_t rows = valid_ids(call), experts = w->dim[0], all = sl_type_elements(&call->in_type[1]);
  char *at = (char *)call->scratch;
  groups g = {};
  g.rows = rows;
  g.experts = experts;
  g.most = most_tiles(rows, experts);
  g.keys = (uint64_t *)at;
  g.others = g.keys + rows;
  g.tiles = (tile *)(at + rounded((size_t)rows * 2 * sizeof(uint64_t)));
  g.begins = (int32_t *)((char *)g.tiles + rounded((size_t)g.most * sizeof(tile)));
  g.before = g.begins + experts + 1;
  g.shared = (float *)(at + groups_bytes(all, experts));
  return g;
}

__device__ inline int32_t tiles_for(int32_t rows) { return (rows + TILE - 1) / TILE; }

/* Returns the last expert with at most `t` tiles before it. */
__device__ inline int64_t expert_of_tile(const int32_t *before, int64_t experts, int32_t t) {
  int64_t low = 0, high = experts - 1;
  while (low < high) {
    int64_t middle = (low + high + 1) / 2;
    if (before[middle] <= t) low = middle;
    else high = middle - 1;
  }
  return low;
}

/* Runs in one block. */
__global__ void find_tiles(groups g) {
  for (int64_t e = threadIdx.x; e <= g.experts; e += BLOCK)
    g.begins[e] = (int32_t)bisect(g.keys, 0, g.rows, key_of(e, 0));
  __syncthreads();
  int32_t carry = 0;
  for (int64_t first = 0; first < g.experts; first += BLOCK) {
    int64_t e = first + threadIdx.x;
    int32_t own = e < g.experts ? tiles_for(g.begins[e + 1] - g.begins[e]) : 0;
    int32_t sum = sums_up_to(own)[threadIdx.x];
    if (e < g.experts) g.before[e] = carry + sum - own;
    if (e == g.experts - 1) g.before[g.experts] = carry + sum;
    __syncthreads();
    int64_t end = first + BLOCK < g.experts ? first + BLOCK - 1 : g.experts - 1;
    carry = g.before[end] + tiles_for(g.begins[end + 1] - g.begins[end]);
  }
  __syncthreads();
  for (int64_t t = threadIdx.x; t < g.most; t += BLOCK) {
    tile found = {0, 0, 0};
    if (t < g.before[g.experts]) {
      int64_t e = expert_of_tile(g.before, g.experts, (int32_t)t);
      int32_t begin = g.begins[e] + ((int32_t)t - g.before[e]) * TILE,
              rest = g.begins[e + 1] - begin;
      found = {(int32_t)e, begin, rest < TILE ? rest : TILE};
    }
    g.tiles[t] = found;
  }
}

groups sort_rows(const sl_call *call, const sl_type *w, void *stream) {
  groups g = groups_of(call, w);
  id_in_table expert = {call->attrs->place.first, g.experts};
  const uint64_t *keys =
      sort_places((const int32_t *)call->in[1], g.rows, g.keys, g.others, expert, stream);
  g.others = keys == g.keys ? g.others : g.keys;
  g.keys = (uint64_t *)keys;
  launch(stream, grid_of(1), BLOCK, 0, find_tiles, g);
  return g;
}

/* ---- from device memory to shared memory ----------------------------------------------------- */

/* ROWS x WIDTH elements, as T, of rows at any addresses, in flight in the registers of BLOCK
 * threads, an equal part in each. */
template <typename T, int ROWS, int WIDTH> struct stage {
  static constexpr int N = wide<T>, PACKS = WIDTH / N, MINE = ROWS * PACKS / BLOCK;
  /* rows are padded by 16 bytes, so that the same column of eight rows is in different banks */
  static constexpr int ld = WIDTH + N;
  static constexpr int elements = ROWS * ld;
  static_assert(ROWS * PACKS % BLOCK == 0, "every thread has as many");
  pack<T, N> mine[MINE];

  /* row(r): address of row r, or NULL if absent. Columns from `first` up to `width` are loaded.
   * `whole`: rows begin at multiples of 16 bytes and are a whole number of packs. */
  template <typename S, typename F>
  __device__ void fetch(F row, int64_t first, int64_t width, bool whole) {
#pragma unroll
    for (int i = 0; i < MINE; i++) {
      int at = i * BLOCK + (int)threadIdx.x;
      int64_t c = first + at % PACKS * N;
      const S *from = row(at / PACKS);
      float x[N] = {};
      if (from && c + N <= width && whole) load<N>(x, from + c);
      else
        for (int n = 0; n < N; n++)
          if (from && c + n < width) x[n] = to_float(from[c + n]);
#pragma unroll
      for (int n = 0; n < N; n++) assign(mine[i].v[n], x[n]);
    }
  }
  __device__ void put(T *to) const {
#pragma unroll
    for (int i = 0; i < MINE; i++) {
      int at = i * BLOCK + (int)threadIdx.x;
      *reinterpret_cast<pack<T, N> *>(to + at / PACKS * ld + at % PACKS * N) = mine[i];
    }
  }
};

template <typename S> __device__ inline bool is_whole(const S *array, int64_t width, int n) {
  return width % n == 0 && (uintptr_t)array % 16 == 0;
}

/* ---- products of a block ------------------------------------------------ */

/* bands and strips per warp; warps side by side */
constexpr int BANDS = 2, STRIPS = 4, ACROSS = COLUMNS / (STRIPS * 8);

struct sums {
  float of[BANDS][STRIPS][4];
};

__device__ inline int warp_row() { return (int)threadIdx.x / WARP / ACROSS * BANDS * 16; }
__device__ inline int warp_column() { return (int)threadIdx.x / WARP % ACROSS * STRIPS * 8; }

/* D += A B over `depth` of one stage. DOWN: A is [depth, TILE], otherwise [TILE, depth]; TURNED: B
 * is [COLUMNS, depth], otherwise [depth, COLUMNS]. Only `rows` rows and `columns` columns are
 * needed. */
template <typename T, bool DOWN, bool TURNED, int LDA, int LDB>
__device__ inline void multiply(sums &d, const T *a, const T *b, int64_t depth, int64_t rows,
                                int64_t columns) {
  int row = warp_row(), column = warp_column();
  if (row >= rows || column >= columns) return;
#pragma unroll
  for (int k = 0; k < DEPTH; k += mma<T>::depth) {
    if (k >= depth) return;
    typename mma<T>::a left[BANDS];
#pragma unroll
    for (int m = 0; m < BANDS; m++)
      left[m] = DOWN ? mma<T>::down(a + k * LDA + row + m * 16, LDA)
                     : mma<T>::rows(a + (row + m * 16) * LDA + k, LDA);
#pragma unroll
    for (int n = 0; n < STRIPS; n += 2) {
      typename mma<T>::b right[2];
      if (TURNED) mma<T>::columns(right, b + (column + n * 8) * LDB + k, LDB);
      else mma<T>::across(right, b + k * LDB + column + n * 8, LDB);
#pragma unroll
      for (int m = 0; m < BANDS; m++)
#pragma unroll
        for (int i = 0; i < 2; i++)
          if (row + m * 16 < rows) mma<T>::add(d.of[m][n + i], left[m], right[i]);
    }
  }
}

/* Calls f(row, column, sum) for this thread's numbers of the block's result. */
template <typename F> __device__ inline void each_sum(const sums &d, F f) {
#pragma unroll
  for (int m = 0; m < BANDS; m++)
#pragma unroll
    for (int n = 0; n < STRIPS; n++)
#pragma unroll
      for (int i = 0; i < 4; i++)
        f(warp_row() + m * 16 + lane_row() + i / 2 * 8, warp_column() + n * 8 + lane_pair() + i % 2,
          d.of[m][n][i]);
}

/* ---- rows times the map of their expert ------------------------------------------------ */

template <typename T, typename Y> struct rows_product {
  const T *x;     /* [.., inner] */
  const float *w; /* [experts, width, inner]; in the backward pass [experts, inner, width] */
  Y *y;           /* [rows, width] */
  int64_t each, inner, width;
};

template <typename T, bool BACK> struct rows_stages {
  using left = stage<T, TILE, DEPTH>;
  using right = stage<T, BACK ? DEPTH : COLUMNS, BACK ? COLUMNS : DEPTH>;
  static constexpr size_t bytes = (left::elements + right::elements) * sizeof(T);
};

/* Block order: all parts of a tile's columns are consecutive, because they read the same rows. */
template <typename T, typename Y, bool BACK>
__global__ void multiply_rows(groups g, rows_product<T, Y> p, int64_t parts) {
  using left = typename rows_stages<T, BACK>::left;
  using right = typename rows_stages<T, BACK>::right;
  SLI_SHARED(shared);
  T *a = (T *)shared, *b = a + left::elements;
  __shared__ int32_t places[TILE];
  tile t = g.tiles[blockIdx.x / parts];
  if (!t.count) return;
  int64_t column = blockIdx.x % parts * COLUMNS;
  const float *w = p.w + t.expert * p.inner * p.width;
  for (int r = (int)threadIdx.x; r < TILE; r += BLOCK)
    places[r] = r < t.count ? (int32_t)place_of(g.keys[t.begin + r]) : -1;
  __syncthreads();
  bool x_whole = is_whole(p.x, p.inner, left::N);
  bool w_whole = is_whole(w, BACK ? p.width : p.inner, right::N);
  auto row = [&](int r) { return places[r] < 0 ? nullptr : p.x + places[r] / p.each * p.inner; };
  sums d = {};
  left next_a;
  right next_b;
  auto fetch = [&](int64_t k) {
    next_a.template fetch<T>(row, k, p.inner, x_whole);
    if constexpr (BACK)
      next_b.template fetch<float>(
          [&](int r) { return k + r < p.inner ? w + (k + r) * p.width : nullptr; }, column, p.width,
          w_whole);
    else
      next_b.template fetch<float>(
          [&](int r) { return column + r < p.width ? w + (column + r) * p.inner : nullptr; }, k,
          p.inner, w_whole);
  };
  fetch(0);
  for (int64_t k = 0; k < p.inner; k += DEPTH) {
    next_a.put(a);
    next_b.put(b);
    __syncthreads();
    if (k + DEPTH < p.inner) fetch(k + DEPTH);
    multiply<T, false, !BACK, left::ld, right::ld>(d, a, b, p.inner - k, t.count, p.width - column);
    __syncthreads();
  }
  each_sum(d, [&](int r, int c, float sum) {
    if (r < t.count && column + c < p.width) assign(p.y[places[r] * p.width + column + c], sum);
  });
}

/* Clears rows whose ids name no expert of this device; they sort last. */
template <typename Y> __global__ void clear_others(groups g, Y *y, int64_t width) {
  int64_t i = g.begins[g.experts] + (int64_t)blockIdx.x;
  if (i >= g.rows) return;
  Y *row = y + place_of(g.keys[i]) * width;
  for (int64_t c = threadIdx.x; c < width; c += blockDim.x) assign(row[c], 0);
}

template <bool BACK, typename T, typename Y>
void multiply_all(const groups &g, const rows_product<T, Y> &p, void *stream) {
  if (!g.rows) return;
  int64_t parts = chunks(p.width, COLUMNS);
  launch(stream, grid_of(g.most * parts), BLOCK, rows_stages<T, BACK>::bytes,
         multiply_rows<T, Y, BACK>, g, p, parts);
  launch(stream, grid_of(g.rows), threads_for(p.width), 0, clear_others<Y>, g, p.y, p.width);
}

/* Sums the gradients of a token's ids, in order. */
template <typename T>
__global__ void add_shared(const float *of, T *dx, int64_t each, int64_t width) {
  const float *from = of + blockIdx.x * each * width;
  for (int64_t c = threadIdx.x; c < width; c += blockDim.x) {
    float sum = from[c];
    for (int64_t j = 1; j < each; j++) sum += from[j * width + c];
    assign(dx[blockIdx.x * width + c], sum);
  }
}

/* ---- weight gradients ----------------------------------------------------- */

template <typename T> struct weights_product {
  const T *dy, *x; /* [rows, height], [.., width] */
  float *dw;       /* [experts, height, width] */
  int64_t each, height, width;
  bool add;
};

template <typename T> struct weights_stages {
  using left = stage<T, DEPTH, TILE>;
  using right = stage<T, DEPTH, COLUMNS>;
  static constexpr size_t bytes = (left::elements + right::elements) * sizeof(T);
};

template <typename T>
__global__ void multiply_weights(groups g, weights_product<T> p, int64_t down, int64_t across) {
  using left = typename weights_stages<T>::left;
  using right = typename weights_stages<T>::right;
  SLI_SHARED(shared);
  T *a = (T *)shared, *b = a + left::elements;
  int64_t e = blockIdx.x / (down * across), row = blockIdx.x / across % down * TILE;
  int64_t column = blockIdx.x % across * COLUMNS;
  int32_t begin = g.begins[e], end = g.begins[e + 1];
  bool dy_whole = is_whole(p.dy, p.height, left::N), x_whole = is_whole(p.x, p.width, right::N);
  sums d = {};
  left next_a;
  right next_b;
  auto fetch = [&](int32_t at) {
    auto place = [&](int r) { return at + r < end ? place_of(g.keys[at + r]) : -1; };
    auto of_dy = [&](int r) { return place(r) < 0 ? nullptr : p.dy + place(r) * p.height; };
    auto of_x = [&](int r) { return place(r) < 0 ? nullptr : p.x + place(r) / p.each * p.width; };
    next_a.template fetch<T>(of_dy, row, p.height, dy_whole);
    next_b.template fetch<T>(of_x, column, p.width, x_whole);
  };
  if (begin < end) fetch(begin);
  for (int32_t at = begin; at < end; at += DEPTH) {
    next_a.put(a);
    next_b.put(b);
    __syncthreads();
    if (at + DEPTH < end) fetch(at + DEPTH);
    multiply<T, true, false, left::ld, right::ld>(d, a, b, end - at, p.height - row,
                                                  p.width - column);
    __syncthreads();
  }
  float *dw = p.dw + e * p.height * p.width;
  each_sum(d, [&](int r, int c, float sum) {
    if (row + r >= p.height || column + c >= p.width) return;
    float *to = dw + (row + r) * p.width + column + c;
    *to = p.add ? *to + sum : sum;
  });
}

} // namespace

size_t sli_cuda_grouped_scratch(const sl_call *call) {
  const sl_type *ids = &call->in_type[1],
                *w = &call->in_type[call->op == &sl_op_grouped_linear_w ? 3 : 2];
  size_t bytes = groups_bytes(sl_type_elements(ids), w->dim[0]);
  if (call->op != &sl_op_grouped_linear_b || !is_summed(&call->in_type[3], ids)) return bytes;
  return bytes + (size_t)(sl_type_elements(ids) * w->dim[2]) * sizeof(float);
}

void sli_cuda_grouped_linear(const sl_call *call, void *stream) {
  const sl_type *x = &call->in_type[0], *w = &call->in_type[2];
  groups g = sort_rows(call, w, stream);
  with_elements(x->dtype, [&](auto element) {
    using T = decltype(element);
    rows_product<T, T> p = {(const T *)call->in[0],
                            (const float *)call->in[2],
                            (T *)call->out[0],
                            ids_of_row(x, &call->in_type[1]),
                            w->dim[2],
                            w->dim[1]};
    multiply_all<false>(g, p, stream);
  });
}

void sli_cuda_grouped_linear_b(const sl_call *call, void *stream) {
  const sl_type *w = &call->in_type[2], *x = &call->in_type[3], *ids = &call->in_type[1];
  int64_t each = ids_of_row(x, ids), inner = w->dim[1], width = w->dim[2];
  groups g = sort_rows(call, w, stream);
  with_elements(call->in_type[0].dtype, [&](auto element) {
    using T = decltype(element);
    const T *dy = (const T *)call->in[0];
    const float *maps = (const float *)call->in[2];
    T *dx = (T *)call->out[0];
    if (!is_summed(x, ids))
      return multiply_all<true>(g, rows_product<T, T>{dy, maps, dx, 1, inner, width}, stream);
    multiply_all<true>(g, rows_product<T, float>{dy, maps, g.shared, 1, inner, width}, stream);
    if (g.rows)
      launch(stream, grid_of(g.rows / each), threads_for(width), 0, add_shared<T>,
             (const float *)g.shared, dx, each, width);
  });
}

void sli_cuda_grouped_linear_w(const sl_call *call, void *stream) {
  const sl_type *x = &call->in_type[0], *dw = &call->out_type[0];
  groups g = sort_rows(call, dw, stream);
  with_elements(x->dtype, [&](auto element) {
    using T = decltype(element);
    weights_product<T> p = {(const T *)call->in[2],
                            (const T *)call->in[0],
                            (float *)call->out[0],
                            ids_of_row(x, &call->in_type[1]),
                            dw->dim[1],
                            dw->dim[2],
                            accumulates(call, 0)};
    int64_t down = chunks(p.height, TILE), across = chunks(p.width, COLUMNS);
    launch(stream, grid_of(g.experts * down * across), BLOCK, weights_stages<T>::bytes,
           multiply_weights<T>, g, p, down, across);
  });
}
