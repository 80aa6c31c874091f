/* SPDX-License-Identifier: Apache-2.0 */
/* Attention of a tick's rows over the pages of their sequences (the KV cache).
 *
 * A block attends for a run of adjacent rows of one sequence, and for the query heads of one KV
 * head, to a stretch of pages. Stretches are cut by position alone, and a second kernel joins their
 * sums in order. Each query's sums go page by page, so a row has the same bits alone, in any batch,
 * and in any chunk of a prompt. Hidden positions may hold anything: their values are never
 * added.
 *
 * Heads of a multiple of 16 numbers, at most 256, are multiplied by the tensor cores; other heads
 * and latents are not. */
#include "kernels/cuda/page_tiles.cuh"
#include "kernels/cuda/served.cuh"

#include "ops/attention_shape.h"

namespace {

using namespace sli;

constexpr int THREADS = 128, WARPS = THREADS / WARP, HALVES = THREADS / SL_PAGE;
constexpr int QUERIES = 16;          /* most queries of a block */
constexpr int STRETCHES = 32;        /* most stretches of a sequence */
constexpr int64_t STRETCH_PAGES = 4; /* least pages of a stretch */
constexpr int FORMS = 3;             /* forms of a query by chunk (attention_dual) */

struct attention {
  const sl_batch *batch;
  const float *q[FORMS], *k, *v, *sinks; /* row 0 of each; sinks [rows, heads] or NULL */
  int64_t q_row, kv_row, o_row;          /* row strides */
  int64_t heads, kv_heads, dim, values;  /* numbers of a key and of a value */
  page_layout layout;
  int64_t behind, shown; /* keys before the query in its mask; first keys in every mask */
  int64_t chunk;         /* positions per chunk; 0: q is for all keys */
  float scale, cap;      /* of the scores; cap 0: none */
  float *out;
  void *pages;
  int run;         /* rows of a run */
  int group;       /* query heads of a block */
  int64_t stretch; /* pages of a stretch */
  int stretches;   /* of the longest sequence */
  float *parts;    /* [rows, heads, stretches] x (top, total, sums[dim]) */
};

/* ---- pages ----------------------------------------------------------------------------------- */

__device__ inline int64_t page_at(const attention &a, int64_t row, int64_t position, int64_t kv) {
  return (page_of(a.batch, row, position) * a.kv_heads + kv) * a.layout.page;
}

/* Writes a row's key and value to its page, one block per row. */
template <typename P> __global__ void keep(attention a) {
  int64_t row = blockIdx.x, position = sl_batch_position(a.batch)[row], at = position % SL_PAGE;
  for (int64_t kv = 0; kv < a.kv_heads; kv++) {
    P *page = (P *)a.pages + page_at(a, row, position, kv);
    const float *k = a.k + row * a.kv_row + kv * a.dim, *v = a.v + row * a.kv_row + kv * a.dim;
    keep_key(a.layout, page, at, a.dim, [&](int64_t d) { return k[d]; });
    keep_value(a.layout, page, at, a.dim, [&](int64_t d) { return v[d]; });
  }
}

/* ---- runs ------------------------------------------------------------------------------------ */

/* Rows that a block attends for. */
struct run {
  int64_t row, position; /* the first */
  int rows;
};

/* Returns the run that begins at a row: rows of one sequence up to the next multiple of a.run
 * positions. If no run begins there, it has no rows. */
__device__ inline run run_at(const attention &a, int64_t row) {
  const int32_t *sequence = sl_batch_sequence_of(a.batch), *position = sl_batch_position(a.batch);
  run r = {row, position[row], 0};
  if (row && sequence[row - 1] == sequence[row] && r.position % a.run) return r;
  int most = a.run - (int)(r.position % a.run);
  while (r.rows < most && row + r.rows < a.batch->rows && sequence[row + r.rows] == sequence[row])
    r.rows++;
  return r;
}

/* ---- one page -------------------------------------------------------------------------------- */

/* The softmax of each query: its largest score, the sum of its weights, and the factor of earlier
 * sums after the last page. */
struct soft_rows {
  float *top, *total, *fade;
};

/* Numbers of a block's queries. */
struct queries : soft_rows {
  float *q, *sums;        /* [QUERIES][dim] */
  float (*p)[SL_PAGE];    /* scores, then weights of keys */
  float (*half)[SL_PAGE]; /* scores over the second half of the dims */
  int form[QUERIES];
};

__device__ inline queries lay_out(unsigned char *shared, const attention &a, int n) {
  float *at = (float *)shared;
  queries x;
  x.q = at, at += n * a.dim;
  x.sums = at, at += n * a.values;
  x.p = (float(*)[SL_PAGE])at, at += n * SL_PAGE;
  x.half = (float(*)[SL_PAGE])at, at += n * SL_PAGE;
  x.top = at, at += n;
  x.total = at, at += n;
  x.fade = at;
  return x;
}

size_t shared_bytes(const attention &a, int n) {
  return sizeof(float) * (size_t)n * (size_t)(a.dim + a.values + 2 * SL_PAGE + 3);
}

/* Computes the scores of N queries with a page's keys. Half of the threads take half of the dims
 * each. */
template <typename P, int N>
__device__ inline void score(const attention &a, const queries &x, int n, const P *page) {
  int key = (int)threadIdx.x % SL_PAGE, half = (int)threadIdx.x / SL_PAGE;
  int64_t middle = (a.dim + 1) / HALVES, end = half ? a.dim : middle;
  float s[N] = {};
  for (int64_t d = half ? middle : 0; d < end;) {
    int64_t block = d / SLI_PAGE_BLOCK, stop = (block + 1) * SLI_PAGE_BLOCK;
    float scale = key_scale(a.layout, page, key, block);
    for (; d < end && d < stop; d++) {
      float k = page_number(page[key * a.layout.key_row + d * a.layout.key_step]) * scale;
#pragma unroll
      for (int i = 0; i < N; i++) s[i] += x.q[(i < n ? i : 0) * a.dim + d] * k;
    }
  }
#pragma unroll
  for (int i = 0; i < N; i++)
    if (i < n) (half ? x.half : x.p)[i][key] = s[i];
}

/* Turns the scores of query i into weights and rescales its total. A warp does this; `position` is
 * the query's, `first` that of the page. score(key) is a score, weight(key, x) takes a weight. */
template <typename S, typename F>
__device__ inline void weigh(const attention &a, const soft_rows &x, int i, int64_t position,
                             int64_t first, S score, F weight) {
  constexpr int EACH = SL_PAGE / WARP;
  int lane = (int)threadIdx.x % WARP;
  float s[EACH], top = x.top[i], before = top, sum = 0;
  bool seen[EACH];
  for (int e = 0; e < EACH; e++) {
    int64_t key = first + lane + e * WARP;
    seen[e] = key <= position && (key >= position - a.behind || key < a.shown);
    s[e] = score(lane + e * WARP);
    if (a.cap > 0) s[e] = a.cap * tanhf(s[e] / a.cap);
    top = seen[e] && s[e] > top ? s[e] : top;
  }
#pragma unroll
  for (int k = WARP / 2; k; k /= 2) {
    float other = __shfl_xor_sync(ALL, top, k);
    top = other > top ? other : top;
  }
  for (int e = 0; e < EACH; e++) {
    s[e] = seen[e] ? expf(s[e] - top) : 0.0f;
    sum += s[e];
    weight(lane + e * WARP, s[e]);
  }
  sum = warp_sum(sum);
  __syncwarp(); /* all lanes have read the largest score */
  if (lane) return;
  float fade = expf(before - top);
  x.total[i] = x.total[i] * fade + sum;
  x.fade[i] = fade;
  x.top[i] = top;
}

/* Adds a page's values, weighted. Keys whose weight is 0 are left out. */
template <typename P, int N> __device__ inline void add_values(const attention &a, const queries &x,
                                                               int n, const P *page, int keys) {
  const P *values = page + a.layout.values;
  for (int64_t d = threadIdx.x; d < a.values; d += THREADS) {
    float sum[N];
#pragma unroll
    for (int i = 0; i < N; i++)
      sum[i] = x.sums[(i < n ? i : 0) * a.values + d] * x.fade[i < n ? i : 0];
    for (int j = 0; j < keys; j++) {
      float v = page_number(values[j * a.layout.value_row + d]);
      v *= value_scale(a.layout, page, j, d);
#pragma unroll
      for (int i = 0; i < N; i++) {
        float p = x.p[i < n ? i : 0][j];
        sum[i] = p == 0 ? sum[i] : sum[i] + p * v;
      }
    }
#pragma unroll
    for (int i = 0; i < N; i++)
      if (i < n) x.sums[i * a.values + d] = sum[i];
  }
}

/* Loads the forms of the queries for a page's keys, where they differ from the current ones.
 * put(i, d, x) takes a number of query i. */
template <typename F> __device__ inline void turn_forms(const attention &a, int *forms,
                                                        const run &r, int64_t head, int n,
                                                        int64_t page, F put) {
  for (int i = 0; i < n; i++) {
    int64_t position = r.position + i / a.group, between = 0;
    if (a.chunk) between = position / a.chunk - page / a.chunk;
    int form = between < 0 ? 0 : between < FORMS ? (int)between : FORMS - 1;
    if (form == forms[i]) continue;
    forms[i] = form;
    const float *q = a.q[form] + (r.row + i / a.group) * a.q_row + (head + i % a.group) * a.dim;
    for (int64_t d = threadIdx.x; d < a.dim; d += THREADS) put(i, (int)d, q[d] * a.scale);
  }
}

/* ---- a stretch of pages ---------------------------------------------------------------------- */

/* Returns true if a page has keys that a row of the run sees. */
__device__ inline bool sees_page(const attention &a, const run &r, int64_t first) {
  int64_t begin = r.position - a.behind;
  return first <= r.position + r.rows - 1 && (first + SL_PAGE > begin || first < a.shown);
}

/* Attends to the pages of a stretch that any of the run's rows sees. */
template <typename P, int N> __device__ inline void see_pages(const attention &a, queries *x,
                                                              const run &r, int64_t head, int n,
                                                              int64_t stretch) {
  int64_t kv = head / (a.heads / a.kv_heads);
  for (int64_t page = stretch * a.stretch; page < (stretch + 1) * a.stretch; page++) {
    int64_t first = page * SL_PAGE, left = r.position + r.rows - first;
    if (!sees_page(a, r, first)) continue;
    int keys = left < SL_PAGE ? (int)left : (int)SL_PAGE;
    const P *data = (const P *)a.pages + page_at(a, r.row, first, kv);
    turn_forms(a, x->form, r, head, n, first,
               [&](int i, int d, float q) { x->q[i * a.dim + d] = q; });
    __syncthreads();
    score<P, N>(a, *x, n, data);
    __syncthreads();
    for (int i = (int)threadIdx.x / WARP; i < n; i += WARPS)
      weigh(
          a, *x, i, r.position + i / a.group, first,
          [&](int key) { return x->p[i][key] + x->half[i][key]; },
          [&](int key, float weight) { x->p[i][key] = weight; });
    __syncthreads();
    add_values<P, N>(a, *x, n, data, keys);
  }
  __syncthreads();
}

/* Returns where the sums of query i over a stretch are. */
__device__ inline float *part_of(const attention &a, const run &r, int64_t head, int i,
                                 int64_t stretch) {
  int64_t row = r.row + i / a.group, h = head + i % a.group;
  return a.parts + ((row * a.heads + h) * a.stretches + stretch) * (a.values + 2);
}

/* Writes the sums of a stretch. */
__device__ inline void write_parts(const attention &a, const queries &x, const run &r, int64_t head,
                                   int n, int64_t stretch) {
  for (int i = 0; i < n; i++) {
    float *to = part_of(a, r, head, i, stretch);
    for (int64_t d = threadIdx.x; d < a.values; d += THREADS) to[2 + d] = x.sums[i * a.values + d];
    if (!threadIdx.x) to[0] = x.top[i], to[1] = x.total[i];
  }
}

/* Block (row, part of the query heads, stretch). */
template <typename P> __global__ void attend(attention a) {
  SLI_SHARED(shared);
  run r = run_at(a, blockIdx.x);
  int64_t head = (int64_t)blockIdx.y * a.group, stretch = blockIdx.z;
  if (!r.rows || stretch * a.stretch * SL_PAGE > r.position + r.rows - 1) return;
  int n = r.rows * a.group;
  queries x = lay_out(shared, a, n);
  for (int i = 0; i < n; i++) x.form[i] = -1;
  for (int64_t i = threadIdx.x; i < n * a.values; i += THREADS) x.sums[i] = 0;
  for (int i = (int)threadIdx.x; i < n; i += THREADS) x.top[i] = SLI_LOWEST, x.total[i] = 0;
  __syncthreads();
  if (n == 1) see_pages<P, 1>(a, &x, r, head, n, stretch);
  else if (n == 2) see_pages<P, 2>(a, &x, r, head, n, stretch);
  else if (n <= 4) see_pages<P, 4>(a, &x, r, head, n, stretch);
  else if (n <= 8) see_pages<P, 8>(a, &x, r, head, n, stretch);
  else see_pages<P, QUERIES>(a, &x, r, head, n, stretch);
  write_parts(a, x, r, head, n, stretch);
}

/* ---- a stretch on the tensor cores ----------------------------------------------------------- */

/* Shared memory of a block, for queries in tiles. */
template <typename P, int TILES> struct tiles_of_block {
  using T = typename tile_of_pages<P>::number;
  static constexpr int ROWS = TILES * TILE_QUERIES, PARTS = left_tile<T>::PARTS;
  T *keys, *values;                    /* [dim][SL_PAGE], [SL_PAGE][dim] */
  left_tile<T> q, weights;             /* [ROWS][dim], [ROWS][SL_PAGE] */
  float (*scores)[SL_PAGE + WARP / 8]; /* [ROWS] */
  soft_rows soft;

  static size_t bytes(int64_t dim) {
    int64_t tiles = dim * pitch_of<T>(SL_PAGE) + SL_PAGE * pitch_of<T>(dim) +
                    PARTS * ROWS * (pitch_of<T>(dim) + pitch_of<T>(SL_PAGE));
    return (size_t)tiles * sizeof(T) + sizeof(float) * ROWS * (SL_PAGE + WARP / 8 + 3);
  }
  __device__ tiles_of_block(unsigned char *shared, int dim)
      : keys((T *)shared),
        values(keys + dim * pitch_of<T>(SL_PAGE)),
        q(values + SL_PAGE * pitch_of<T>(dim), pitch_of<T>(dim), ROWS),
        weights(q.at + PARTS * ROWS * q.pitch, pitch_of<T>(SL_PAGE), ROWS),
        scores((float (*)[SL_PAGE + WARP / 8])(weights.at + PARTS * ROWS * weights.pitch)) {
    soft.top = (float *)(scores + ROWS);
    soft.total = soft.top + ROWS;
    soft.fade = soft.total + ROWS;
  }
};

/* Computes the scores of a page: a warp, those of its 16 keys. */
template <typename P, int TILES>
__device__ inline void score_tiles(const tiles_of_block<P, TILES> &x, int tiles, int dim) {
  using T = typename tile_of_pages<P>::number;
  int column = (int)threadIdx.x / WARP * 16;
  float s[TILES][2][4];
  multiply_tiles<T, TILES>(s, x.q, tiles, x.keys + column, pitch_of<T>(SL_PAGE), dim);
#pragma unroll
  for (int m = 0; m < TILES; m++)
#pragma unroll
    for (int i = 0; i < 8; i++)
      x.scores[m * TILE_QUERIES + lane_row() + i % 4 / 2 * 8]
              [column + i / 4 * 8 + lane_pair() + i % 2] = s[m][i / 4][i % 4];
}

/* Adds a page's values, weighted, to 16 columns of the sums. */
template <typename P, int TILES> __device__ inline void add_tiles(const tiles_of_block<P, TILES> &x,
                                                                  int tiles, int column, int dim,
                                                                  float (&sum)[TILES][2][4]) {
  using T = typename tile_of_pages<P>::number;
  float s[TILES][2][4];
  multiply_tiles<T, TILES>(s, x.weights, tiles, x.values + column, pitch_of<T>(dim), SL_PAGE);
#pragma unroll
  for (int m = 0; m < TILES; m++)
#pragma unroll
    for (int i = 0; i < 8; i++) {
      float fade = x.soft.fade[m * TILE_QUERIES + lane_row() + i % 4 / 2 * 8];
      sum[m][i / 4][i % 4] = fmaf(sum[m][i / 4][i % 4], fade, s[m][i / 4][i % 4]);
    }
}

/* Block (row, part of the query heads, stretch), like attend(). A warp has EACH times 16 columns of
 * the sums. */
template <typename P, int TILES, int EACH> __global__ void __launch_bounds__(THREADS)
    attend_tiles(attention a) {
  SLI_SHARED(shared);
  run r = run_at(a, blockIdx.x);
  int64_t head = (int64_t)blockIdx.y * a.group, stretch = blockIdx.z;
  if (!r.rows || stretch * a.stretch * SL_PAGE > r.position + r.rows - 1) return;
  int n = r.rows * a.group, tiles = (n + TILE_QUERIES - 1) / TILE_QUERIES, dim = (int)a.dim;
  int warp = (int)threadIdx.x / WARP;
  tiles_of_block<P, TILES> x(shared, dim);
  int forms[TILES * TILE_QUERIES];
  float sums[EACH][TILES][2][4] = {};
  for (int i = 0; i < n; i++) forms[i] = -1;
  for (int i = (int)threadIdx.x; i < TILES * TILE_QUERIES; i += THREADS)
    x.soft.top[i] = SLI_LOWEST, x.soft.total[i] = 0, x.soft.fade[i] = 0;
  for (int64_t page = stretch * a.stretch; page < (stretch + 1) * a.stretch; page++) {
    int64_t first = page * SL_PAGE, left = r.position + r.rows - first;
    if (!sees_page(a, r, first)) continue;
    __syncthreads(); /* the last page has been used */
    copy_page(a.layout,
              (const P *)a.pages + page_at(a, r.row, first, head / (a.heads / a.kv_heads)), dim,
              left < SL_PAGE ? (int)left : (int)SL_PAGE, x.keys, x.values);
    turn_forms(a, forms, r, head, n, first, [&](int i, int d, float q) { x.q.put(i, d, q); });
    wait_for_copies();
    __syncthreads();
    score_tiles<P, TILES>(x, tiles, dim);
    __syncthreads();
    for (int i = warp; i < n; i += WARPS)
      weigh(
          a, x.soft, i, r.position + i / a.group, first, [&](int key) { return x.scores[i][key]; },
          [&](int key, float weight) { x.weights.put(i, key, weight); });
    __syncthreads();
#pragma unroll
    for (int e = 0; e < EACH; e++)
      if ((e * WARPS + warp) * 16 < dim)
        add_tiles<P, TILES>(x, tiles, (e * WARPS + warp) * 16, dim, sums[e]);
  }
#pragma unroll
  for (int e = 0; e < EACH; e++)
#pragma unroll
    for (int m = 0; m < TILES; m++)
#pragma unroll
      for (int i = 0; i < 8; i++) {
        int q = m * TILE_QUERIES + lane_row() + i % 4 / 2 * 8;
        int column = (e * WARPS + warp) * 16 + i / 4 * 8 + lane_pair() + i % 2;
        if (q < n && column < dim)
          part_of(a, r, head, q, stretch)[2 + column] = sums[e][m][i / 4][i % 4];
      }
  for (int i = (int)threadIdx.x; i < n; i += THREADS) {
    float *to = part_of(a, r, head, i, stretch);
    to[0] = x.soft.top[i], to[1] = x.soft.total[i];
  }
}

/* ---- joining --------------------------------------------------------------------------------- */

/* Joins the stretches of a row's head in order, one block per row and head. */
__global__ void join_stretches(attention a) {
  int64_t row = blockIdx.x, head = blockIdx.y, position = sl_batch_position(a.batch)[row];
  int64_t count = position / SL_PAGE / a.stretch + 1;
  const float *from = a.parts + (row * a.heads + head) * a.stretches * (a.values + 2);
  sli_soft all = {SLI_LOWEST, 0};
  for (int64_t s = 0; s < count; s++)
    all = sli_soft_join(all, {from[s * (a.values + 2)], from[s * (a.values + 2) + 1]});
  float sunk = a.sinks ? a.sinks[row * a.heads + head] : 0.0f;
  float by = 1 / all.total;
  if (a.sinks) by *= sli_sigmoid(all.top + logf(all.total) - sunk);
  for (int64_t d = threadIdx.x; d < a.values; d += THREADS) {
    float sum = 0;
    for (int64_t s = 0; s < count; s++) {
      const float *part = from + s * (a.values + 2);
      if (part[1] != 0) sum += part[2 + d] * expf(part[0] - all.top);
    }
    a.out[row * a.o_row + head * a.values + d] = sum * by;
  }
}

/* ---- launching ------------------------------------------------------------------------------- */

/* Returns the pages of a stretch: the same for all sequences of a graph. */
int64_t stretch_pages(const sl_attrs *attrs) {
  int64_t pages = chunks(attrs->place.length > 0 ? attrs->place.length : 1, SL_PAGE);
  int64_t most = chunks(pages, STRETCHES);
  return most > STRETCH_PAGES ? most : STRETCH_PAGES;
}

int stretches_of(const sl_attrs *attrs) {
  int64_t pages = chunks(attrs->place.length > 0 ? attrs->place.length : 1, SL_PAGE);
  return (int)chunks(pages, stretch_pages(attrs));
}

constexpr size_t SHARED_BYTES = 99 << 10; /* of a block, on every device */

/* Sets the query heads of a block, a divisor of those of a KV head, and the rows of a run, for
 * blocks of `most` queries. */
void set_queries(attention *a, int most) {
  int64_t each = a->heads / a->kv_heads;
  a->group = (int)(each < most ? each : most);
  while (each % a->group) a->group--;
  a->run = most / a->group;
}

void launch_stretches(const attention &a, int64_t rows, size_t shared, void (*kernel)(attention),
                      void *stream) {
  allow(kernel, shared);
  launch(stream, dim3((unsigned)rows, (unsigned)(a.heads / a.group), (unsigned)a.stretches),
         THREADS, shared, kernel, a);
  launch(stream, dim3((unsigned)rows, (unsigned)a.heads), THREADS, 0, join_stretches, a);
}

/* Attends to pages, which have the rows' keys and values already. */
template <typename P> void attend_pages(attention a, int64_t rows, void *stream) {
  int most = QUERIES;
  while (most > 1 && shared_bytes(a, most) > SHARED_BYTES) most /= 2;
  set_queries(&a, most);
  launch_stretches(a, rows, shared_bytes(a, a.run * a.group), attend<P>, stream);
}

template <typename P, int TILES> void attend_tile_pages(attention a, int64_t rows, void *stream) {
  size_t shared = tiles_of_block<P, TILES>::bytes(a.dim);
  set_queries(&a, TILES * TILE_QUERIES);
  void (*kernel)(attention) = attend_tiles<P, TILES, 4>;
  if (a.dim <= 64) kernel = attend_tiles<P, TILES, 1>;
  else if (a.dim <= 128) kernel = attend_tiles<P, TILES, 2>;
  launch_stretches(a, rows, shared, kernel, stream);
}

/* Attends to pages of heads. Prompts have blocks of more queries, as far as they fit. */
template <typename P> void attend_heads(const attention &a, int64_t rows, void *stream) {
  bool whole = a.dim % 16 == 0 && a.dim <= 256;
  if (!whole || tiles_of_block<P, 1>::bytes(a.dim) > SHARED_BYTES) attend_pages<P>(a, rows, stream);
  else if (rows > SL_PAGE && tiles_of_block<P, 2>::bytes(a.dim) <= SHARED_BYTES)
    attend_tile_pages<P, 2>(a, rows, stream);
  else attend_tile_pages<P, 1>(a, rows, stream);
}

/* Sets what all kinds of pages share. */
void set_up(const sl_call *call, attention *a) {
  const sl_attrs *attrs = call->attrs;
  a->batch = batch_of(call);
  a->heads = attrs->attention.heads;
  a->behind = attrs->attention.window > 0 ? attrs->attention.window - 1 : INT32_MAX;
  a->shown = attrs->attention.shown;
  a->cap = attrs->attention.cap;
  a->stretch = stretch_pages(attrs);
  a->stretches = stretches_of(attrs);
  a->parts = (float *)call->scratch;
}

/* Attends with a's queries, keys and values. */
void attend_all(const sl_call *call, attention a, void *stream) {
  const sl_attrs *attrs = call->attrs;
  int64_t rows = served_rows(call);
  a.kv_heads = sli_kv_heads(attrs);
  a.o_row = call->out_type[0].dim[2];
  a.dim = a.values = a.o_row / attrs->attention.heads;
  a.scale = sli_attention_scale(attrs, a.dim);
  a.out = (float *)call->out[0];
  a.pages = call->out[2];
  set_up(call, &a);
  if (!rows) return;
  with_pages(sli_pages_storage(attrs), [&](auto number) {
    using P = decltype(number);
    a.layout = layout_of_heads<P>(a.dim);
    launch(stream, grid_of(rows), THREADS, 0, keep<P>, a);
    attend_heads<P>(a, rows, stream);
  });
}

attention attention_of(const sl_call *call) {
  attention a = {};
  a.q[0] = (const float *)call->in[0];
  a.k = (const float *)call->in[1];
  a.v = (const float *)call->in[2];
  a.q_row = call->in_type[0].dim[2];
  a.kv_row = call->in_type[1].dim[2];
  return a;
}

} // namespace

/* ---- latents ---------------------------------------------------------------------------------
 *
 * Pages are [SL_PAGE][rank + rope], latents and rotated keys; all heads share them. A query is
 * mapped into the latent space first, and the sums are mapped to its values at last. A head has
 * nope + values rows of w [heads (nope + values), rank]. */

namespace {

struct latents {
  const float *q, *c, *k, *w;
  float *latent, *sums, *out; /* [rows, heads, rank + rope], [rows, heads, rank], the result */
  int64_t nope, rope, rank, values;
  float scale;
  const int32_t
      *chosen; /* [rows, count] positions that a row sees, then -1; NULL: all earlier ones */
  int64_t count;
};

/* Writes a row's latent and rotated key to its page, one block per row. */
template <typename P> __global__ void keep_latent(attention a, latents l) {
  int64_t row = blockIdx.x, position = sl_batch_position(a.batch)[row];
  P *page = (P *)a.pages + page_at(a, row, position, 0);
  keep_key(a.layout, page, position % SL_PAGE, a.dim, [&](int64_t d) {
    return d < l.rank ? l.c[row * l.rank + d] : l.k[row * l.rope + d - l.rank];
  });
}

/* Block (row, head). */
__global__ void map_query(attention a, latents l) {
  int64_t row = blockIdx.x, h = blockIdx.y, at = row * a.heads + h;
  const float *q = l.q + at * (l.nope + l.rope), *w = l.w + h * (l.nope + l.values) * l.rank;
  float *to = l.latent + at * a.dim;
  for (int64_t r = threadIdx.x; r < l.rank; r += blockDim.x) {
    float sum = 0;
    for (int64_t d = 0; d < l.nope; d++) sum += q[d] * l.scale * w[d * l.rank + r];
    to[r] = sum;
  }
  for (int64_t d = threadIdx.x; d < l.rope; d += blockDim.x)
    to[l.rank + d] = q[l.nope + d] * l.scale;
}

/* Block (row, head): attends to a list. A thread scores a latent of each tile, and sums numbers. */
template <typename P> __global__ void attend_listed(attention a, latents l) {
  __shared__ float p[THREADS];
  int64_t row = blockIdx.x, at = row * a.heads + blockIdx.y;
  const float *q = l.latent + at * a.dim;
  const int32_t *list = l.chosen + row * l.count;
  float *sums = l.sums + at * l.rank, top = -INFINITY, total = 0;
  for (int64_t r = threadIdx.x; r < l.rank; r += THREADS) sums[r] = 0;
  for (int64_t j0 = 0; j0 < l.count && list[j0] >= 0; j0 += THREADS) {
    int64_t j = j0 + threadIdx.x;
    bool sees = j < l.count && list[j] >= 0;
    const P *page = (const P *)a.pages + (sees ? page_at(a, row, list[j], 0) : 0);
    float s = sees ? 0.0f : -INFINITY;
    for (int64_t d = 0, key = sees ? list[j] % SL_PAGE : 0; sees && d < a.dim; d++)
      s += q[d] * page_number(page[key * a.layout.key_row + d]) *
           key_scale(a.layout, page, key, d / SLI_PAGE_BLOCK);
    __syncthreads();
    p[threadIdx.x] = s;
    __syncthreads();
    float most = top, more = 0;
    int m = 0;
    for (; m < THREADS && p[m] > -INFINITY; m++) most = fmaxf(most, p[m]);
    float fade = expf(top - most);
    for (int i = 0; i < m; i++) more += expf(p[i] - most);
    total = total * fade + more;
    top = most;
    for (int64_t r = threadIdx.x; r < l.rank; r += THREADS) {
      float sum = sums[r] * fade;
      for (int i = 0; i < m; i++) {
        int64_t key = list[j0 + i] % SL_PAGE;
        const P *from = (const P *)a.pages + page_at(a, row, list[j0 + i], 0);
        sum += expf(p[i] - top) * page_number(from[key * a.layout.key_row + r]) *
               key_scale(a.layout, from, key, r / SLI_PAGE_BLOCK);
      }
      sums[r] = sum;
    }
  }
  for (int64_t r = threadIdx.x; r < l.rank; r += THREADS) sums[r] /= total;
}

/* Block (row, head): a warp computes a number. */
__global__ void map_values(attention a, latents l) {
  int64_t at = blockIdx.x * a.heads + blockIdx.y;
  const float *sums = l.sums + at * l.rank;
  const float *w = l.w + (blockIdx.y * (l.nope + l.values) + l.nope) * l.rank;
  for (int64_t d = threadIdx.x / WARP; d < l.values; d += WARPS) {
    float sum = 0;
    for (int64_t r = threadIdx.x % WARP; r < l.rank; r += WARP) sum += sums[r] * w[d * l.rank + r];
    sum = warp_sum(sum);
    if (threadIdx.x % WARP == 0) l.out[at * l.values + d] = sum;
  }
}

template <typename P>
void attend_latents(attention a, const latents &l, int64_t rows, void *stream) {
  dim3 heads((unsigned)rows, (unsigned)a.heads);
  a.layout = layout_of_latents<P>(a.dim);
  launch(stream, grid_of(rows), THREADS, 0, keep_latent<P>, a, l);
  launch(stream, heads, THREADS, 0, map_query, a, l);
  if (l.chosen) launch(stream, heads, THREADS, 0, attend_listed<P>, a, l);
  else attend_pages<P>(a, rows, stream);
  launch(stream, heads, THREADS, 0, map_values, a, l);
}

int64_t heads_of(const sl_call *call) {
  return sl_type_rows(&call->in_type[0]) * call->attrs->attention.heads;
}

} // namespace

size_t sli_cuda_attention_latent_served_scratch(const sl_call *call) {
  int64_t rank = call->in_type[1].dim[2], width = rank + call->in_type[2].dim[2];
  int64_t parts = stretches_of(call->attrs) * (rank + 2);
  return sizeof(float) * (size_t)(heads_of(call) * (parts + width + rank));
}

void sli_cuda_attention_latent_served(const sl_call *call, void *stream) {
  const sl_attrs *attrs = call->attrs;
  int64_t rope = call->in_type[2].dim[2], rank = call->in_type[1].dim[2], rows = served_rows(call);
  int64_t query = call->in_type[0].dim[2] / attrs->attention.heads, nope = query - rope;
  attention a = {};
  a.kv_heads = 1;
  a.dim = rank + rope;
  a.values = rank;
  a.scale = 1;
  a.pages = call->out[1];
  a.q_row = attrs->attention.heads * a.dim;
  a.o_row = attrs->attention.heads * rank;
  set_up(call, &a);
  latents l = {(const float *)call->in[0],
               (const float *)call->in[1],
               (const float *)call->in[2],
               (const float *)call->in[3],
               nullptr,
               nullptr,
               (float *)call->out[0],
               nope,
               rope,
               rank,
               call->in_type[3].dim[0] / attrs->attention.heads - nope,
               sli_attention_scale(attrs, query),
               (const int32_t *)call->in[4],
               call->in[4] ? call->in_type[4].dim[2] : 0};
  l.latent = a.parts + heads_of(call) * a.stretches * (rank + 2);
  l.sums = l.latent + heads_of(call) * a.dim;
  a.q[0] = l.latent;
  a.out = l.sums;
  if (!rows) return;
  with_pages(sli_pages_storage(attrs),
             [&](auto number) { attend_latents<decltype(number)>(a, l, rows, stream); });
}

size_t sli_cuda_attention_served_scratch(const sl_call *call) {
  const sl_type *o = &call->out_type[0];
  int64_t heads = sl_type_rows(o) * call->attrs->attention.heads;
  int64_t dim = o->dim[2] / call->attrs->attention.heads;
  return sizeof(float) * (size_t)(heads * stretches_of(call->attrs) * (dim + 2));
}

void sli_cuda_attention_served(const sl_call *call, void *stream) {
  attend_all(call, attention_of(call), stream);
}

void sli_cuda_attention_packed_served(const sl_call *call, void *stream) {
  int64_t q = call->out_type[0].dim[2], row = call->in_type[0].dim[2];
  attention a = {};
  a.q[0] = (const float *)call->in[0];
  a.k = a.q[0] + q;
  a.v = a.k + (row - q) / 2;
  a.q_row = a.kv_row = row;
  attend_all(call, a, stream);
}

void sli_cuda_attention_sinks_served(const sl_call *call, void *stream) {
  attention a = attention_of(call);
  a.sinks = (const float *)call->in[3];
  attend_all(call, a, stream);
}

void sli_cuda_attention_dual_served(const sl_call *call, void *stream) {
  attention a = attention_of(call);
  a.q[1] = (const float *)call->in[3];
  a.q[2] = (const float *)call->in[4];
  a.chunk = call->attrs->attention.chunk;
  attend_all(call, a, stream);
}
