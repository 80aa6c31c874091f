/* SPDX-License-Identifier: Apache-2.0 */
/* Tiles of the attention kernels (products of tiles: attention_products.cuh).
 *
 * A block owns one tile, of queries of one head (or of keys), which stays. The tiles of the other
 * kind pass: while the block computes with one, the next is copied into the other of two buffers. A
 * warp owns bands of 16 rows of the block's tile and never needs another warp's. Passing tiles are
 * read from shared memory once for all bands of a warp, so two bands halve that traffic if the
 * registers suffice.
 *
 * Heads are padded with zeros to D: 64, 128 or 256. Rows in shared memory are padded by 16 bytes,
 * so that the same column of eight rows is in different banks.
 *
 * On GPUs with warpgroups, the four warps of a block multiply together (warpgroup.cuh): the block
 * then has a tile of 64 rows, and each warp a band of it. The kernels are the same; a cut gives the
 * layout of tiles and selects warps or warpgroups. */
#ifndef SLUICE_CUDA_ATTENTION_TILES_CUH
#define SLUICE_CUDA_ATTENTION_TILES_CUH

#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/copies.cuh"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/warpgroup.cuh"

namespace sli {

constexpr float LN_2 = 0.6931471805599453f;

__device__ inline int least(int a, int b) { return a < b ? a : b; }

/* ---- tiles ------------------------------------------------ */

/* Cut of a kernel: threads per block, the minimum number of `blocks` resident per multiprocessor,
 * rows of tiles. Warps skip tiles that none of their `unit` rows attends to. */
template <typename T, int D, int WARPS, int BANDS, int PASSING> struct tiling {
  using element = T;
  static constexpr bool together = false;
  static constexpr int threads = WARPS * WARP, blocks = 1, bands = BANDS, width = D;
  static constexpr int own = WARPS * BANDS * 16; /* rows of the block's tile */
  static constexpr int passing = PASSING;        /* rows of passing tiles */
  static constexpr int unit = BANDS * 16;
  static constexpr int ld = D + wide<T>, pitch = ld;
  static constexpr int own_tile = own * ld, passing_tile = PASSING * ld; /* in elements */
  template <int ROWS> __device__ static int place(int r, int c) { return r * ld + c; }
};

/* Tiles for warpgroups: 64 columns of all rows, then the next 64. */
template <int D, int PASSING, int BLOCKS> struct group_tiling {
  using element = bf16;
  static constexpr bool together = true;
  static constexpr int threads = GROUP_THREADS, blocks = BLOCKS, bands = 1, width = D;
  static constexpr int own = GROUP_ROWS, passing = PASSING, unit = GROUP_ROWS;
  /* row pitch, valid between rows that are a multiple of eight apart */
  static constexpr int pitch = TILE_WIDTH;
  static constexpr int own_tile = own * D, passing_tile = PASSING * D;
  template <int ROWS> __device__ static int place(int r, int c) {
    return c / TILE_WIDTH * ROWS * TILE_WIDTH + in_tile(r, c % TILE_WIDTH);
  }
};

/* Traversal of a tile by a block: each thread has a pack of every STEP-th row. */
template <int ROWS, typename C, typename T> struct tile_walk {
  static constexpr int N = wide<T>, PACKS = C::width / N, STEP = C::threads / PACKS;
  static_assert(C::threads % PACKS == 0 && ROWS % STEP == 0, "a thread stays in its column");
  T *to;
  const T *first, *from;
  int64_t step;
  int row, column;

  __device__ tile_walk(T *tile, const T *rows, int64_t row_size) : first(rows) {
    row = (int)threadIdx.x / PACKS, column = (int)threadIdx.x % PACKS * N;
    to = tile + C::template place<ROWS>(row, column);
    from = first + row * row_size + column;
    step = row_size * STEP;
  }
};

/* Copies asynchronously; rows must begin at multiples of 16 bytes. */
template <int ROWS, typename C, typename T>
__device__ inline void copy_tile(tile_walk<ROWS, C, T> w, int rows, int64_t dim) {
  constexpr int STEP = w.STEP;
  if (rows >= ROWS && dim == C::width) {
#pragma unroll
    for (int r = 0; r < ROWS; r += STEP, w.from += w.step)
      copy_async<16>(w.to + r * C::pitch, w.from);
    return;
  }
#pragma unroll
  for (int r = 0; r < ROWS; r += STEP, w.from += w.step) {
    bool there = w.row + r < rows && w.column < dim;
    copy_async<16>(w.to + r * C::pitch, there ? w.from : w.first, there);
  }
}

template <int ROWS, typename C, typename T>
__device__ inline void fill_tile(tile_walk<ROWS, C, T> w, int rows, int64_t dim) {
#pragma unroll 1
  for (int r = 0; r < ROWS; r += w.STEP, w.from += w.step) {
    pack<T, w.N> p = {};
    for (int n = 0; n < w.N; n++)
      if (w.row + r < rows && w.column + n < dim) p.v[n] = w.from[n];
    *reinterpret_cast<pack<T, w.N> *>(w.to + r * C::pitch) = p;
  }
}

/* Loads ROWS rows of `dim` elements into a tile; `rows` rows exist, and the remaining rows become
 * zero. */
template <int ROWS, typename C, typename T>
__device__ inline void load_tile(T *to, const T *from, int64_t row, int rows, int64_t dim) {
  constexpr int N = wide<T>;
  tile_walk<ROWS, C, T> w(to, from, row);
  if (C::together || (dim % N == 0 && row % N == 0 && (uintptr_t)from % 16 == 0))
    copy_tile(w, rows, dim);
  else fill_tile(w, rows, dim);
}

/* Loads two tiles that pass together, keys and values or queries and gradients, from `x` and `y`.
 * In shared memory the second is two tiles after the first. Commits the group of copies. */
template <typename C, typename T>
__device__ inline void load_passing(T *to, const T *x, int64_t x_row, const T *y, int64_t y_row,
                                    int rows, int64_t dim) {
  load_tile<C::passing, C>(to, x, x_row, rows, dim);
  load_tile<C::passing, C>(to + 2 * C::passing_tile, y, y_row, rows, dim);
  commit_copies();
}

/* Return the row and column, within a band, of this thread's elements of D number n. */
__device__ inline int element_row(int i) { return lane_row() + i / 2 * 8; }
__device__ inline int element_column(int n, int i) { return n * 8 + lane_pair() + i % 2; }

/* Returns the warp's first row in its block's tile. */
template <typename C> __device__ inline int own_row() {
  return (int)threadIdx.x / WARP * C::bands * 16;
}

/* Returns the first row of the unit in which tiles are skipped or used. */
template <typename C> __device__ inline int unit_row(int warp_row) {
  return warp_row / C::unit * C::unit;
}

/* Waits for this thread's copies and for the block. Afterwards all threads see the data, and all
 * have read the previous tile. */
template <typename C> __device__ inline void arrive() {
  wait_for_copies();
  if constexpr (C::together) show_tiles();
  __syncthreads();
}

/* ---- keys that arrive piece by piece ---------------------------------------------- */

/* The piece of keys of this call, and its rows. */
struct came {
  int piece, from, to;
};

template <typename T> __device__ inline came what_came(const attention<T> &a) {
  const sweep &s = a.comes;
  int j = s.first ? 0 : (int)*s.turn;
  return {j, s.starts[j], s.starts[j + 1]};
}

/* ---- attention mask -------------------------------------------------- */

/* Masks columns beyond `to` for the band's first row, one more for each next row, and beyond
 * `last`, except in rows before `kept`. */
template <int COLUMNS>
__device__ inline void mask(float (&s)[COLUMNS][4], int to, int last, int kept = INT32_MIN) {
#pragma unroll
  for (int n = 0; n < COLUMNS; n++)
#pragma unroll
    for (int i = 0; i < 4; i++)
      if (element_column(n, i) > least(to + element_row(i), last) && element_row(i) >= kept)
        s[n][i] = -INFINITY;
}

/* Masks columns before `from` for the band's first row, one more for each next row, except those
 * before `kept`. */
template <int COLUMNS>
__device__ inline void mask_before(float (&s)[COLUMNS][4], int from, int kept = INT32_MIN) {
#pragma unroll
  for (int n = 0; n < COLUMNS; n++)
#pragma unroll
    for (int i = 0; i < 4; i++)
      if (element_column(n, i) < from + element_row(i) && element_column(n, i) >= kept)
        s[n][i] = -INFINITY;
}

/* Ids of a warp's rows in this lane, and the smallest and largest non-negative id of all its
 * rows. */
template <int BANDS> struct row_ids { int of[BANDS][2], low, high; };

__device__ inline void widen(int &low, int &high, int id) {
  if (id < 0) return;
  low = id < low ? id : low;
  high = id > high ? id : high;
}

/* Extends low and high over all lanes. */
__device__ inline void widen_all(int &low, int &high) {
#pragma unroll
  for (int k = WARP / 2; k; k /= 2) {
    int l = __shfl_xor_sync(ALL, low, k), h = __shfl_xor_sync(ALL, high, k);
    low = l < low ? l : low;
    high = h > high ? h : high;
  }
}

/* Reads the ids of the warp's rows from r0 on; rows below `rows` exist. */
template <int BANDS>
__device__ inline void read_ids(row_ids<BANDS> &own, const int32_t *ids, int r0, int rows) {
  own.low = INT32_MAX, own.high = -1;
#pragma unroll
  for (int m = 0; m < 2 * BANDS; m++) {
    int r = r0 + m / 2 * 16 + element_row(m % 2 * 2);
    own.of[m / 2][m % 2] = r < rows ? ids[r] : -1;
    widen(own.low, own.high, own.of[m / 2][m % 2]);
  }
  widen_all(own.low, own.high);
}

/* Returns true if a row may attend to a column of this tile, which has `columns` columns. */
template <int COLUMNS, int BANDS>
__device__ inline bool meets(const row_ids<BANDS> &own, const int32_t *ids, int columns) {
  int low = INT32_MAX, high = -1;
  for (int c = (int)threadIdx.x % WARP; c < least(COLUMNS, columns); c += WARP)
    widen(low, high, ids[c]);
  widen_all(low, high);
  return low <= own.high && own.low <= high;
}

/* Masks columns whose id differs from the row's, or is negative. */
template <int COLUMNS> __device__ inline void mask_others(float (&s)[COLUMNS][4],
                                                          const int (&own)[2], const int32_t *ids,
                                                          int columns) {
#pragma unroll
  for (int n = 0; n < COLUMNS; n++)
#pragma unroll
    for (int i = 0; i < 2; i++) {
      int c = element_column(n, i), id = c < columns ? ids[c] : -1;
      if (id < 0 || id != own[0]) s[n][i] = -INFINITY;
      if (id < 0 || id != own[1]) s[n][i + 2] = -INFINITY;
    }
}

/* ---- cap on scores ------------------------------------------------------------- */

/* Caps scores before they are scaled. */
template <int COLUMNS> __device__ inline void cap_scores(float (&s)[COLUMNS][4], float cap) {
#pragma unroll
  for (int n = 0; n < COLUMNS; n++)
#pragma unroll
    for (int i = 0; i < 4; i++) s[n][i] = cap * tanhf(s[n][i] / cap);
}

/* Caps scores, and multiplies the distance of dP from delta, to which dS is proportional, by the
 * derivative of the cap. delta(n, i) is that of an element's query. */
template <int COLUMNS, typename F> __device__ inline void cap_gradients(float (&s)[COLUMNS][4],
                                                                        float (&dp)[COLUMNS][4],
                                                                        float cap, F delta) {
#pragma unroll
  for (int n = 0; n < COLUMNS; n++)
#pragma unroll
    for (int i = 0; i < 4; i++) {
      float t = tanhf(s[n][i] / cap), d = delta(n, i);
      s[n][i] = cap * t;
      dp[n][i] = d + (dp[n][i] - d) * (1 - t * t);
    }
}

/* ---- keys of a tile of queries ------------------------------------------------- */

/* Keys that pass a tile of queries: those inside the mask, [begin, limit), with `begin` a multiple
 * of KEYS, and those before `front` (EXTRAS), another multiple, for keys before `shown`. `first`:
 * position of the first query. */
struct seen_keys {
  int first, begin, limit, behind, ahead, shown, front;
  const int32_t *ids; /* ids of the sequence's keys */
};

template <int KEYS, typename T>
__device__ inline seen_keys see_keys(const attention<T> &a, int i0, int queries) {
  seen_keys t;
  t.first = (int)a.q0 + i0;
  t.behind = (int)a.mask.behind, t.ahead = (int)a.mask.ahead;
  t.begin = t.first > t.behind ? (t.first - t.behind) / KEYS * KEYS : 0;
  t.limit = least(t.first + queries + t.ahead, (int)a.keys);
  t.shown = (int)a.mask.shown;
  t.front = least((t.shown + KEYS - 1) / KEYS * KEYS, t.begin);
  t.ids = a.mask.ids ? a.mask.ids + blockIdx.z * a.mask.ids_row : NULL;
  return t;
}

/* Restricts the keys to those of the piece, in tiles from its first key on. */
template <int KEYS> __device__ inline void keep_to(seen_keys &t, const came &c) {
  t.begin = t.begin > c.from ? c.from + (t.begin - c.from) / KEYS * KEYS : c.from;
  t.limit = least(t.limit, c.to);
}

/* Returns true if none of the warp's queries, which are ROWS queries from row `warp_row` of the
 * tile on, attends to the keys from k0 on. */
template <int ROWS, int KEYS, bool EXTRAS>
__device__ inline bool all_hidden(const seen_keys &t, int warp_row, int k0) {
  int ahead = t.first + warp_row - k0;
  if (ahead + t.ahead + ROWS <= 0) return true;
  return ahead - t.behind >= KEYS && !(EXTRAS && k0 < t.shown);
}

/* Returns true if the tile of keys from k0 on passes. */
template <bool EXTRAS> __device__ inline bool passes(const seen_keys &t, int k0) {
  return (k0 >= t.begin || (EXTRAS && k0 >= 0 && k0 < t.front)) && k0 < t.limit;
}

/* Masks the scores of a band of queries and the tile of keys from k0 on. row0: the band's first row
 * in its tile; own: the ids of its rows, if there are ids. */
template <int KEYS, bool EXTRAS, int COLUMNS>
__device__ inline void mask_keys(float (&s)[COLUMNS][4], const seen_keys &t, int row0, int k0,
                                 const int (&own)[2]) {
  int ahead = t.first + row0 - k0, last = t.limit - 1 - k0;
  if (least(ahead + t.ahead, last + 1) < KEYS) mask(s, ahead + t.ahead, last);
  if (ahead + 15 > t.behind) mask_before(s, ahead - t.behind, EXTRAS ? t.shown - k0 : INT32_MIN);
  if constexpr (EXTRAS)
    if (t.ids) mask_others(s, own, t.ids + k0, last + 1);
}

/* ---- queries that keys pass ------------------------------------------------ */

/* A block's tile of queries: its sequence and head, its first query and their number, the keys that
 * pass it, and the offset of the sequence's first key. */
struct query_tile {
  int64_t b, h, i0, kv;
  int queries, warp_row;
  seen_keys keys;
  came has;            /* piece of keys, if they arrive piece by piece */
  const int32_t *list; /* blocks of keys */
  int listed, place;   /* number of listed blocks, 0: all; place in the list of the current one */
};

/* Reads the list of blocks of the tile's queries, all of one block. */
template <typename T> __device__ inline void read_list(const attention<T> &a, query_tile &t) {
  t.list = a.chosen.list(t.b * a.heads + t.h, t.i0 / SLI_KEY_TILE);
  t.listed = 1;
  while (t.listed < a.chosen.width && t.list[t.listed] >= 0 &&
         t.list[t.listed] < t.list[t.listed - 1])
    t.listed++;
}

/* Opens the block's tile of queries. The longest tiles come first. */
template <typename C, bool EXTRAS, bool SWEEP, typename T>
__device__ inline query_tile open_queries(attention<T> &a) {
  query_tile t = {};
  t.i0 = (int64_t)(gridDim.x - 1 - blockIdx.x) * C::own;
  t.h = blockIdx.y, t.b = blockIdx.z;
  t.queries = (int)(a.queries - t.i0 < C::own ? a.queries - t.i0 : C::own);
  t.warp_row = own_row<C>();
  t.keys = see_keys<C::passing>(a, (int)t.i0, t.queries);
  if constexpr (SWEEP) {
    t.has = what_came(a);
    keep_to<C::passing>(t.keys, t.has);
    a.kv_batch = (t.has.to - t.has.from) * a.kv_row;
  }
  if constexpr (EXTRAS && !SWEEP)
    if (a.chosen.lists) read_list(a, t);
  t.kv = t.b * a.kv_batch + t.h / (a.heads / a.kv_heads) * a.dim - t.has.from * a.kv_row;
  return t;
}

/* Returns the tile's rows of an array whose rows hold all heads. */
template <typename T>
__device__ inline T *rows_of(const query_tile &t, T *x, int64_t batch, int64_t row, int64_t dim) {
  return x + t.b * batch + t.i0 * row + t.h * dim;
}

/* Returns the index of the tile's first query in arrays with one number per query. */
template <typename T>
__device__ inline int64_t first_of(const query_tile &t, const attention<T> &a) {
  return (t.b * a.heads + t.h) * a.logs.row + t.i0;
}

/* Copies the tile of keys from k0 on, and their values. */
template <typename C, typename T>
__device__ inline void bring_keys(const attention<T> &a, const query_tile &t, int k0, T *to) {
  int64_t at = t.kv + k0 * a.kv_row;
  load_passing<C>(to, a.k + at, a.kv_row, a.v + at, a.kv_row, t.keys.limit - k0, a.dim);
}

/* Waits until a tile is available and the previous one has been read, then starts to copy the next
 * one, from key k1 on. */
template <typename C, bool EXTRAS, typename T>
__device__ inline void pass_keys(const attention<T> &a, const query_tile &t, int k1, T *next) {
  arrive<C>();
  if (passes<EXTRAS>(t.keys, k1)) bring_keys<C>(a, t, k1, next);
}

/* Returns the first key of the last tile; that of the first tile if there is none. */
template <int KEYS> __device__ inline int last_keys(const seen_keys &t) {
  return t.begin + (t.limit > t.begin ? (t.limit - 1 - t.begin) / KEYS * KEYS : 0);
}

/* Returns the first key of the first tile. */
template <bool EXTRAS> __device__ inline int first_keys(const query_tile &t) {
  if (t.listed) return t.list[t.listed - 1] * SLI_KEY_TILE;
  return EXTRAS && t.keys.front ? 0 : t.keys.begin;
}

/* Returns the first key of the tile after that at k0, `step` keys away, beyond the keys that do not
 * pass, or in the next listed block; -1 after the last listed one. */
template <bool EXTRAS> __device__ inline int next_keys(query_tile &t, int k0, int step) {
  int next = k0 + step;
  if (!EXTRAS || next < 0) return next;
  if (!t.listed && next >= t.keys.front && next < t.keys.begin)
    return step < 0 ? t.keys.front + step : t.keys.begin;
  if (!t.listed || next / SLI_KEY_TILE == k0 / SLI_KEY_TILE) return next;
  t.place += step < 0 ? 1 : -1;
  if (t.place < 0 || t.place == t.listed) return -1;
  return t.list[t.place] * SLI_KEY_TILE + (step < 0 ? SLI_KEY_TILE + step : 0);
}

/* Returns true if any of the warp's queries attends to one of the keys. */
template <typename C, bool EXTRAS>
__device__ inline bool any_seen(const query_tile &t, const row_ids<C::bands> &own, int k0) {
  if (all_hidden<C::unit, C::passing, EXTRAS>(t.keys, unit_row<C>(t.warp_row), k0)) return false;
  if constexpr (EXTRAS)
    if (t.keys.ids) return meets<C::passing>(own, t.keys.ids + k0, t.keys.limit - k0);
  return true;
}

template <int COLUMNS> __device__ inline void multiply(float (&x)[COLUMNS][4], float factor) {
#pragma unroll
  for (int n = 0; n < COLUMNS; n++)
#pragma unroll
    for (int i = 0; i < 4; i++) x[n][i] *= factor;
}

/* ---- output ------------------------------------------------- */

/* Writes two adjacent elements of a row, as long as they are within `dim`; in one access if all
 * rows begin at even elements. */
template <typename T>
__device__ inline void put_pair(T *row, int64_t dim, int c, bool add, float x, float y) {
  if (dim % 2 == 0 && c < dim) {
    float pair[2] = {x, y}, old[2];
    if (add) {
      load<2>(old, row + c);
      pair[0] += old[0], pair[1] += old[1];
    }
    store<2>(row + c, pair);
    return;
  }
  if (c < dim) assign(row[c], add ? to_float(row[c]) + x : x);
  if (c + 1 < dim) assign(row[c + 1], add ? to_float(row[c + 1]) + y : y);
}

/* Writes those of a band's rows that are below `rows`, from column c0 on. */
template <int COLUMNS, typename T>
__device__ inline void write_band(T *to, int64_t row, int r0, int rows, int c0, int64_t dim,
                                  bool add, const float (&x)[COLUMNS][4]) {
#pragma unroll
  for (int half = 0; half < 2; half++) {
    int r = r0 + element_row(2 * half);
    if (r >= rows) continue;
#pragma unroll
    for (int n = 0; n < COLUMNS; n++)
      put_pair(to + r * row, dim, c0 + element_column(n, 0), add, x[n][2 * half],
               x[n][2 * half + 1]);
  }
}

/* Reads rows of a band that accumulate from call to call, as write_band() left them. */
template <int COLUMNS> __device__ inline void read_band(const float *from, int64_t row, int r0,
                                                        int rows, int64_t dim,
                                                        float (&x)[COLUMNS][4]) {
#pragma unroll
  for (int n = 0; n < COLUMNS; n++)
#pragma unroll
    for (int i = 0; i < 4; i++) {
      int r = r0 + element_row(i), c = element_column(n, i);
      if (r < rows && c < dim) x[n][i] = from[r * row + c];
    }
}

/* Types and widths that have warpgroup kernels, and the calls that use them: heads that fill a
 * tile's width, rows at multiples of 16 bytes, and no extras. */
template <typename T, int D> constexpr bool is_for_groups = sizeof(T) == sizeof(bf16) && D <= 128;
template <int D, typename T> inline bool can_group(const attention<T> &a) {
  constexpr int N = wide<T>;
  int64_t rows = a.q_row | a.q_batch | a.kv_row | a.kv_batch | a.o_row | a.o_batch;
  uintptr_t places = (uintptr_t)a.q | (uintptr_t)a.k | (uintptr_t)a.v | (uintptr_t)a.dout;
  return a.dim == D && rows % N == 0 && places % (N * sizeof(T)) == 0 && !has_extras(a) &&
         has_warpgroups();
}

/* Tells the compiler what can_group() has checked. */
template <typename C, typename T> __device__ inline void keep_to_cut(attention<T> &a) {
  if constexpr (C::together) a.dim = C::width;
}

} // namespace sli

#endif
