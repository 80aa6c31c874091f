/* SPDX-License-Identifier: Apache-2.0 */
/* Backward pass of attention (see attention_forward.cuh).
 *
 * P is recomputed as e^(S - lse). With dP = dO V^T, delta = the row's dO . O and dS = P (dP -
 * delta), scaled at the end as S was,
 *
 *   dV = P^T dO   dK = dS^T Q   dQ = dS K
 *
 * The first two are sums over queries, the last one over keys, so there are two kernels. One has a
 * block per tile of keys, which proceeds through the queries that attend to it (of all query heads
 * that share the KV head, in order). The other has a block per tile of queries, which proceeds
 * through the keys. Both recompute S and dP: seven products instead of five, but no two blocks add
 * to the same number. */
#ifndef SLUICE_CUDA_ATTENTION_BACKWARD_CUH
#define SLUICE_CUDA_ATTENTION_BACKWARD_CUH

#include "kernels/cuda/attention_products.cuh"
#include "kernels/cuda/attention_tiles.cuh"

namespace {

using namespace sli;

/* Tile sizes, chosen to fit registers and shared memory; an A100 has 163 KiB of it. */
template <typename T, int D> struct cut : tiling<T, D, 4, 1, 32> {};
template <> struct cut<bf16, 64> : tiling<bf16, 64, 4, 2, 32> {};
template <> struct cut<float, 256> : tiling<float, 256, 2, 1, 16> {};

/* Tile sizes for warpgroups. */
template <int D> struct group_cut : group_tiling<D, 64, D == 64 ? 3 : 2> {};

/* Computes delta with LANES threads per row of o, in packs of N. */
template <int LANES, int N, typename T> __global__ void dot_rows(attention<T> a) {
  int64_t row = ((int64_t)blockIdx.x * BLOCK + threadIdx.x) / LANES;
  int64_t h = row % a.heads, i = row / a.heads % a.queries, b = row / a.heads / a.queries;
  int64_t at = b * a.o_batch + i * a.o_row + h * a.dim;
  float total = 0;
  bool there = b < a.batch;
  for (int64_t d = threadIdx.x % LANES * N; there && d < a.dim; d += LANES * N) {
    float x[N], y[N];
    load<N>(x, a.o + at + d);
    load<N>(y, a.dout + at + d);
#pragma unroll
    for (int n = 0; n < N; n++) total += x[n] * y[n];
  }
  total = warp_sum<LANES>(total);
  if (there && threadIdx.x % LANES == 0) a.logs.delta[(b * a.heads + h) * a.logs.row + i] = total;
}

/* ---- gradients of keys and values -------------------------------------- */

/* Turns transposed scores, keys by queries, into P. The lse of each column's query is in shared
 * memory. */
template <int COLUMNS>
__device__ inline void powers_by_key(float (&s)[COLUMNS][4], float scale, const float *lse) {
#pragma unroll
  for (int n = 0; n < COLUMNS; n++) {
    float l[2];
    load<2>(l, lse + element_column(n, 0));
#pragma unroll
    for (int i = 0; i < 4; i++) s[n][i] = power_of_2(s[n][i] * scale - l[i % 2] * LOG2_E);
  }
}

/* Turns dP into dS. */
template <int COLUMNS> __device__ inline void gradients_by_key(float (&dp)[COLUMNS][4],
                                                               const float (&p)[COLUMNS][4],
                                                               const float *delta) {
#pragma unroll
  for (int n = 0; n < COLUMNS; n++) {
    float d[2];
    load<2>(d, delta + element_column(n, 0));
#pragma unroll
    for (int i = 0; i < 4; i++) dp[n][i] = p[n][i] * (dp[n][i] - d[i % 2]);
  }
}

/* Queries that pass a tile of keys: those that attend to it, [begin, limit), with `begin` a
 * multiple of ROWS. `first`: distance from the first query to the tile's first key; `kept`: number
 * of the tile's keys that all later queries see (EXTRAS). */
struct seeing_queries {
  int first, begin, limit, behind, ahead, kept;
  const int32_t *ids; /* ids of the sequence's queries */
};

template <int ROWS, typename T>
__device__ inline seeing_queries see_queries(const attention<T> &a, int k0, int keys) {
  seeing_queries t;
  t.first = k0 - (int)a.q0;
  t.behind = (int)a.mask.behind, t.ahead = (int)a.mask.ahead;
  t.begin = t.first > t.ahead ? (t.first - t.ahead) / ROWS * ROWS : 0;
  t.kept = (int)a.mask.shown - k0;
  t.limit = t.kept > 0 ? (int)a.queries : least(t.first + keys + t.behind, (int)a.queries);
  t.ids = a.mask.ids ? a.mask.ids + blockIdx.z * a.mask.ids_row + a.q0 : NULL;
  return t;
}

/* Returns true if no query from i0 on attends to any of the warp's keys, which are KEYS keys from
 * row `warp_row` of the tile on. */
template <int KEYS, int ROWS, bool EXTRAS>
__device__ inline bool all_unseen(const seeing_queries &t, int warp_row, int i0) {
  int ahead = t.first + warp_row - i0;
  if (ahead - t.ahead >= ROWS) return true;
  return ahead + t.behind + KEYS <= 0 && !(EXTRAS && warp_row < t.kept);
}

/* Masks the scores of a band of keys and the tile of queries from i0 on. */
template <int ROWS, bool EXTRAS, int COLUMNS>
__device__ inline void mask_queries(float (&s)[COLUMNS][4], const seeing_queries &t, int row0,
                                    int i0, const int (&own)[2]) {
  int ahead = t.first + row0 - i0;
  if (ahead + 15 > t.ahead) mask_before(s, ahead - t.ahead);
  if (ahead + t.behind < ROWS - 1)
    mask(s, ahead + t.behind, ROWS, EXTRAS ? t.kept - row0 : INT32_MIN);
  if constexpr (EXTRAS)
    if (t.ids) mask_others(s, own, t.ids + i0, t.limit - i0);
}

/* A passing tile of queries: its head and its first query. With lists of blocks: the bits of those
 * of WARP blocks of queries, from `first` on, whose list has the tile of keys. */
struct passing {
  int head, i0, first;
  unsigned bits;
};

/* Returns true if a list of blocks, in descending order, has a block. */
__device__ inline bool is_listed(const int32_t *list, int64_t width, int block) {
  int64_t low = 0, high = width - 1;
  while (low < high) {
    int64_t middle = (low + high) / 2;
    if (list[middle] <= block) high = middle;
    else low = middle + 1;
  }
  return list[low] == block;
}

/* Moves on to the next tile of queries, from p on, whose list has a block of keys. Heads end before
 * `end`. */
template <typename T> __device__ inline void find_listed(const attention<T> &a,
                                                         const seeing_queries &t, passing *p,
                                                         int block, int end) {
  while (p->head < end) {
    int own = p->i0 / SLI_KEY_TILE, query = own + (int)threadIdx.x % WARP;
    if (own >= p->first + WARP) {
      p->first = own;
      bool there = query < a.chosen.blocks;
      const int32_t *list = a.chosen.list(blockIdx.z * a.heads + p->head, there ? query : own);
      p->bits = __ballot_sync(ALL, there && is_listed(list, a.chosen.width, block));
    }
    unsigned rest = p->bits >> (own - p->first);
    int skipped = rest ? __ffs((int)rest) - 1 : p->first + WARP - own;
    if (!skipped) return;
    p->i0 = (own + skipped) * SLI_KEY_TILE;
    if (p->i0 >= t.limit) *p = {p->head + 1, t.begin, -WARP, 0};
  }
}

/* Loads a tile of queries with its lse and delta. Their values after the last query do not matter,
 * because those rows are zeros. */
template <typename C, typename T>
__device__ inline void load_queries(const attention<T> &a, passing p, T *q, float *lse) {
  int64_t b = blockIdx.z, at = (b * a.heads + p.head) * a.logs.row + p.i0;
  int i = (int)threadIdx.x, nq = (int)a.queries - p.i0;
  if (i < C::passing) {
    copy_async<4>(lse + i, a.logs.lse + at + (i < nq ? i : 0), i < nq);
    copy_async<4>(lse + 2 * C::passing + i, a.logs.delta + at + (i < nq ? i : 0), i < nq);
  }
  load_passing<C>(q, a.q + b * a.q_batch + p.i0 * a.q_row + p.head * a.dim, a.q_row,
                  a.dout + b * a.o_batch + p.i0 * a.o_row + p.head * a.dim, a.o_row, nq, a.dim);
}

/* Computes dK and dV of a tile of keys. Heads of 256 are too wide for one block's registers: two
 * blocks then share a tile of keys, and each computes half of the columns of its dK and dV. */
template <typename C, bool EXTRAS, bool SWEEP, typename T>
__global__ void __launch_bounds__(C::threads, C::blocks) backward_kv(attention<T> a) {
  constexpr int BANDS = C::bands, ROWS = C::passing, D = C::width, PART = D > 128 ? 128 : D;
  SLI_SHARED(shared);
  keep_to_cut<C>(a);
  T *k = (T *)shared, *v = k + C::own_tile, *q = v + C::own_tile, *dout = q + 2 * C::passing_tile;
  float *lse = (float *)(dout + 2 * C::passing_tile), *delta = lse + 2 * ROWS;
  int warp_row = own_row<C>(), c0 = (int)(blockIdx.x % (D / PART)) * PART;
  int k0 = (int)blockIdx.x / (D / PART) * C::own, keys = (int)a.keys - k0;
  int64_t kv = blockIdx.z * a.kv_batch + blockIdx.y * a.dim + k0 * a.kv_row, dkv = kv;
  if constexpr (SWEEP) { /* k0 counts from the start of the piece */
    came c = what_came(a);
    if (c.from + k0 >= c.to) return;
    a.kv_batch = (c.to - c.from) * a.kv_row;
    kv = blockIdx.z * a.kv_batch + blockIdx.y * a.dim + k0 * a.kv_row;
    k0 += c.from;
    keys = c.to - k0;
    dkv = blockIdx.z * a.comes.dkv_batch + blockIdx.y * a.dim + k0 * a.kv_row;
  }
  int group = (int)(a.heads / a.kv_heads), end = ((int)blockIdx.y + 1) * group;
  seeing_queries t = see_queries<ROWS>(a, k0, least(keys, C::own));
  row_ids<BANDS> own = {};
  float scale = 1 / a.root;
  float dk[BANDS][PART / 8][4] = {}, dv[BANDS][PART / 8][4] = {};

  load_tile<C::own, C>(k, a.k + kv, a.kv_row, keys, a.dim);
  load_tile<C::own, C>(v, a.v + kv, a.kv_row, keys, a.dim);
  passing now = {t.begin < t.limit ? end - group : end, t.begin, -WARP, 0};
  if (EXTRAS && a.chosen.lists) find_listed(a, t, &now, k0 / SLI_KEY_TILE, end);
  if (now.head < end) load_queries<C>(a, now, q, lse);
  if constexpr (EXTRAS)
    if (t.ids) read_ids(own, t.ids + t.first, warp_row, keys);
  for (int buffer = 0; now.head < end; buffer ^= 1) {
    arrive<C>();
    passing next = {now.head, now.i0 + ROWS, now.first, now.bits};
    if (next.i0 >= t.limit) next = {now.head + 1, t.begin, -WARP, 0};
    if (EXTRAS && a.chosen.lists) find_listed(a, t, &next, k0 / SLI_KEY_TILE, end);
    if (next.head < end)
      load_queries<C>(a, next, q + (buffer ^ 1) * C::passing_tile, lse + (buffer ^ 1) * ROWS);
    int i0 = now.i0;
    now = next;
    if (all_unseen<C::unit, ROWS, EXTRAS>(t, unit_row<C>(warp_row), i0)) continue;
    if constexpr (EXTRAS)
      if (t.ids && !meets<ROWS>(own, t.ids + i0, t.limit - i0)) continue;
    float s[BANDS][ROWS / 8][4], dp[BANDS][ROWS / 8][4];
    const T *q_now = q + buffer * C::passing_tile, *dout_now = dout + buffer * C::passing_tile;
    scores<C>(s, k, warp_row, q_now); /* transposed: keys by queries */
    scores<C>(dp, v, warp_row, dout_now);
    settle<C, 1>(s);
#pragma unroll
    for (int m = 0; m < BANDS; m++) {
      if (EXTRAS && a.mask.cap > 0)
        cap_gradients(s[m], dp[m], a.mask.cap * a.root,
                      [&](int n, int i) { return delta[buffer * ROWS + element_column(n, i)]; });
      mask_queries<ROWS, EXTRAS>(s[m], t, warp_row + 16 * m, i0, own.of[m]);
      powers_by_key(s[m], scale * LOG2_E, lse + buffer * ROWS);
    }
    settle<C, 0>(dp);
#pragma unroll
    for (int m = 0; m < BANDS; m++) gradients_by_key(dp[m], s[m], delta + buffer * ROWS);
    gather<C>(dv, s, dout_now, c0);
    gather<C>(dk, dp, q_now, c0);
    settle<C, 0>(dv);
    settle<C, 0>(dk);
  }
#pragma unroll
  for (int m = 0; m < BANDS; m++) {
    int r = warp_row + 16 * m;
    multiply(dk[m], scale);
    if (a.dk) write_band(a.dk + dkv, a.kv_row, r, keys, c0, a.dim, a.adds.kv, dk[m]);
    if (a.dv) write_band(a.dv + dkv, a.kv_row, r, keys, c0, a.dim, a.adds.kv, dv[m]);
  }
}

/* ---- gradients of queries -------------------------------------- */

/* Turns scores, queries by keys, into P. lse, in powers of 2, covers the band's rows in this
 * lane. */
template <int COLUMNS>
__device__ inline void powers_by_query(float (&s)[COLUMNS][4], float scale, const float (&lse)[2]) {
#pragma unroll
  for (int n = 0; n < COLUMNS; n++)
#pragma unroll
    for (int i = 0; i < 4; i++) s[n][i] = power_of_2(s[n][i] * scale - lse[i / 2]);
}

/* Turns dP into dS. */
template <int COLUMNS> __device__ inline void gradients_by_query(float (&dp)[COLUMNS][4],
                                                                 const float (&p)[COLUMNS][4],
                                                                 const float (&delta)[2]) {
#pragma unroll
  for (int n = 0; n < COLUMNS; n++)
#pragma unroll
    for (int i = 0; i < 4; i++) dp[n][i] = p[n][i] * (dp[n][i] - delta[i / 2]);
}

template <typename C, bool EXTRAS, bool SWEEP, typename T>
__global__ void __launch_bounds__(C::threads, C::blocks) backward_q(attention<T> a) {
  constexpr int BANDS = C::bands, KEYS = C::passing, D = C::width;
  SLI_SHARED(shared);
  keep_to_cut<C>(a);
  T *q = (T *)shared, *dout = q + C::own_tile, *k = dout + C::own_tile;
  T *v = k + 2 * C::passing_tile;
  query_tile t = open_queries<C, EXTRAS, SWEEP>(a);
  int buffer = 0;
  T *to = rows_of(t, a.dq, a.dq_batch, a.dq_row, a.dim);
  float scale = 1 / a.root, lse[BANDS][2] = {}, delta[BANDS][2] = {};
  float dq[BANDS][D / 8][4] = {};
  row_ids<BANDS> own = {};

  load_tile<C::own, C>(q, rows_of(t, a.q, a.q_batch, a.q_row, a.dim), a.q_row, t.queries, a.dim);
  load_tile<C::own, C>(dout, rows_of(t, a.dout, a.o_batch, a.o_row, a.dim), a.o_row, t.queries,
                       a.dim);
  int first = first_keys<EXTRAS>(t);
  t.place = t.listed - 1;
  bring_keys<C>(a, t, first, k);
  if constexpr (EXTRAS)
    if (t.keys.ids) read_ids(own, t.keys.ids + t.keys.first, t.warp_row, t.queries);
#pragma unroll
  for (int m = 0; m < 2 * BANDS; m++) {
    int r = t.warp_row + m / 2 * 16 + element_row(m % 2 * 2);
    int64_t at = first_of(t, a) + r;
    if (r < t.queries)
      lse[m / 2][m % 2] = a.logs.lse[at] * LOG2_E, delta[m / 2][m % 2] = a.logs.delta[at];
  }
  if constexpr (SWEEP)
    for (int m = 0; m < BANDS && t.has.piece; m++)
      read_band(to, a.dq_row, t.warp_row + 16 * m, t.queries, a.dim, dq[m]);
  for (int k0 = first, next; passes<EXTRAS>(t.keys, k0); k0 = next, buffer ^= C::passing_tile) {
    next = next_keys<EXTRAS>(t, k0, KEYS);
    pass_keys<C, EXTRAS>(a, t, next, k + (buffer ^ C::passing_tile));
    if (!any_seen<C, EXTRAS>(t, own, k0)) continue;
    float s[BANDS][KEYS / 8][4], dp[BANDS][KEYS / 8][4];
    scores<C>(s, q, t.warp_row, k + buffer);
    scores<C>(dp, dout, t.warp_row, v + buffer);
    settle<C, 1>(s);
#pragma unroll
    for (int m = 0; m < BANDS; m++) {
      if (EXTRAS && a.mask.cap > 0)
        cap_gradients(s[m], dp[m], a.mask.cap * a.root,
                      [&](int, int i) { return delta[m][i / 2]; });
      mask_keys<KEYS, EXTRAS>(s[m], t.keys, t.warp_row + 16 * m, k0, own.of[m]);
      powers_by_query(s[m], scale * LOG2_E, lse[m]);
    }
    settle<C, 0>(dp);
#pragma unroll
    for (int m = 0; m < BANDS; m++) gradients_by_query(dp[m], s[m], delta[m]);
    gather<C>(dq, dp, k + buffer);
    settle<C, 0>(dq);
  }
  bool whole = !SWEEP || t.has.piece == a.comes.own;
#pragma unroll
  for (int m = 0; m < BANDS; m++) {
    if (whole) multiply(dq[m], scale);
    write_band(to, a.dq_row, t.warp_row + 16 * m, t.queries, 0, a.dim, a.adds.dq, dq[m]);
  }
}

/* ---- launching ------------------------------------------------ */

template <int LANES, int N, typename T> void launch_dots_of(const attention<T> &a, void *stream) {
  int64_t rows = a.batch * a.heads * a.queries;
  launch(stream, grid_of(chunks(rows, BLOCK / LANES)), BLOCK, 0, dot_rows<LANES, N, T>, a);
}

template <typename T> void launch_dots(const attention<T> &a, void *stream) {
  constexpr int N = wide<T>;
  uintptr_t places = (uintptr_t)a.o | (uintptr_t)a.dout;
  bool packs = (a.dim | a.o_row | a.o_batch) % N == 0 && places % (N * sizeof(T)) == 0;
  if (packs && a.dim <= 8 * N) launch_dots_of<8, N>(a, stream);
  else if (packs) launch_dots_of<16, N>(a, stream);
  else launch_dots_of<WARP, 1>(a, stream);
}

template <typename C> constexpr size_t shared_bytes = sizeof(typename C::element) *
                                                          (2 * C::own_tile + 4 * C::passing_tile) +
                                                      4 * sizeof(float) * C::passing;

template <typename C, bool EXTRAS, bool SWEEP> cudaError_t allow_one() {
  using T = typename C::element;
  cudaError_t error = allow(backward_kv<C, EXTRAS, SWEEP, T>, shared_bytes<C>);
  return error ? error : allow(backward_q<C, EXTRAS, SWEEP, T>, shared_bytes<C>);
}

template <typename T, bool SWEEP> cudaError_t allow_all(int64_t dim) {
  return with_room(dim, [](auto room) {
    constexpr int D = decltype(room)::value;
    cudaError_t error = cudaSuccess;
    if constexpr (is_for_groups<T, D>) error = allow_one<group_cut<D>, false, SWEEP>();
    if (!error) error = allow_one<cut<T, D>, false, SWEEP>();
    return error ? error : allow_one<cut<T, D>, true, SWEEP>();
  });
}

template <typename C, bool EXTRAS, bool SWEEP, typename T>
void launch_both(const attention<T> &a, void *stream) {
  constexpr int PARTS = C::width > 128 ? C::width / 128 : 1;
  dim3 by_key((unsigned)(chunks(SWEEP ? a.comes.longest : a.keys, C::own) * PARTS),
              (unsigned)a.kv_heads, (unsigned)a.batch);
  dim3 by_query((unsigned)chunks(a.queries, C::own), (unsigned)a.heads, (unsigned)a.batch);
  if (a.dk || a.dv)
    launch(stream, by_key, C::threads, shared_bytes<C>, backward_kv<C, EXTRAS, SWEEP, T>, a);
  if (a.dq)
    launch(stream, by_query, C::threads, shared_bytes<C>, backward_q<C, EXTRAS, SWEEP, T>, a);
}

} // namespace

namespace sli {

template <bool SWEEP, typename T> void launch_backward(const attention<T> &a, void *stream) {
  launch_dots(a, stream);
  with_room(a.dim, [&](auto room) {
    constexpr int D = decltype(room)::value;
    if constexpr (is_for_groups<T, D> && !SWEEP)
      if (can_group<D>(a)) return launch_both<group_cut<D>, false, SWEEP>(a, stream);
    with_extras(
        a, [&](auto extras) { launch_both<cut<T, D>, decltype(extras)::value, SWEEP>(a, stream); });
  });
}

template <typename T> void attend_b(const attention<T> &a, void *stream) {
  launch_backward<false>(a, stream);
}

} // namespace sli

#endif
