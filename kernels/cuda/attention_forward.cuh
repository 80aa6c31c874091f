/* SPDX-License-Identifier: Apache-2.0 */
/* Attention by tiles, which never holds more than one tile of scores, after Dao, arXiv 2307.08691.
 *
 * A block has a tile of queries of one head and proceeds through the tiles of keys and values,
 * backwards from that of its last query. The tensor cores leave the scores S = Q K^T in registers.
 * The softmax runs on them in place (Milakov & Gimelshein, arXiv 1805.02867; a row is spread over
 * four lanes). They are then the left operand of O += P V. Powers are of base 2, so scores are also
 * scaled by log2 e. Only tiles that an edge of the attention mask crosses are masked; a warp skips
 * tiles that none of its queries attends to. */
#ifndef SLUICE_CUDA_ATTENTION_FORWARD_CUH
#define SLUICE_CUDA_ATTENTION_FORWARD_CUH

#include "kernels/cuda/attention_products.cuh"
#include "kernels/cuda/attention_tiles.cuh"

namespace {

using namespace sli;

/* Tile sizes, chosen to fit registers and shared memory; an A100 has 163 KiB of it. */
template <typename T, int D> struct cut : tiling<T, D, 4, 1, 32> {};
template <> struct cut<bf16, 64> : tiling<bf16, 64, 4, 2, 64> {};
template <> struct cut<bf16, 128> : tiling<bf16, 128, 4, 2, 32> {};
template <> struct cut<float, 256> : tiling<float, 256, 2, 1, 16> {};

/* Tile sizes for warpgroups. */
template <int D> struct group_cut;
template <> struct group_cut<64> : group_tiling<64, 128, 3> {};
template <> struct group_cut<128> : group_tiling<128, 64, 2> {};

/* Returns the maximum over the four lanes that share a row. */
__device__ inline float row_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(ALL, x, 1));
  return fmaxf(x, __shfl_xor_sync(ALL, x, 2));
}

__device__ inline float row_sum(float x) {
  x += __shfl_xor_sync(ALL, x, 1);
  return x + __shfl_xor_sync(ALL, x, 2);
}

/* Running softmax of a band, for this lane's two rows of it. */
struct softmax {
  float top[2], total[2]; /* largest score, unscaled; sum of this lane's columns */
};

/* Turns scores into probabilities relative to the new maximum, in powers of 2, and rescales the
 * earlier sums. */
template <int COLUMNS, int WIDTH> __device__ inline void soften(float (&s)[COLUMNS][4],
                                                                softmax &seen, float (&o)[WIDTH][4],
                                                                float scale) {
#pragma unroll
  for (int half = 0; half < 2; half++) {
    float m = seen.top[half], sum = 0;
#pragma unroll
    for (int n = 0; n < COLUMNS; n++) m = fmaxf(m, fmaxf(s[n][2 * half], s[n][2 * half + 1]));
    m = row_max(m);
    float shift = m == SLI_LOWEST ? 0 : m * scale; /* no keys so far: all scores are masked */
#pragma unroll
    for (int n = 0; n < COLUMNS; n++)
#pragma unroll
      for (int i = 2 * half; i < 2 * half + 2; i++) {
        s[n][i] = power_of_2(s[n][i] * scale - shift);
        sum += s[n][i];
      }
    float fade = power_of_2((seen.top[half] - m) * scale);
    seen.total[half] = seen.total[half] * fade + sum;
    seen.top[half] = m;
#pragma unroll
    for (int n = 0; n < WIDTH; n++)
#pragma unroll
      for (int i = 2 * half; i < 2 * half + 2; i++) o[n][i] *= fade;
  }
}

/* Writes the output rows of a band that starts at row `band` of its warp. A query without keys gets
 * zeros. */
template <int WIDTH, typename T>
__device__ inline void finish(const attention<T> &a, const query_tile &t, int band,
                              const softmax &seen, float (&o)[WIDTH][4], float scale) {
#pragma unroll
  for (int half = 0; half < 2; half++) {
    int r = t.warp_row + band + element_row(2 * half);
    float sum = row_sum(seen.total[half]), inverse = sum == 0 ? 0 : 1 / sum;
    if (a.logs.lse && threadIdx.x % 4 == 0 && r < t.queries)
      a.logs.lse[first_of(t, a) + r] = sum == 0 ? 0 : seen.top[half] * (scale * LN_2) + logf(sum);
#pragma unroll
    for (int n = 0; n < WIDTH; n++)
#pragma unroll
      for (int i = 2 * half; i < 2 * half + 2; i++) o[n][i] *= inverse;
  }
  if (a.out)
    write_band(rows_of(t, a.out, a.o_batch, a.o_row, a.dim), a.o_row, t.warp_row + band, t.queries,
               0, a.dim, false, o);
}

/* Visits a band's state between calls: the largest scores are in lse, the sums of each of the four
 * lanes that share a row in `seen`, and the undivided outputs in out. */
template <int WIDTH, typename F>
__device__ inline void each_kept(const attention<float> &a, const query_tile &t, int band,
                                 softmax &seen, float (&o)[WIDTH][4], F f) {
#pragma unroll
  for (int half = 0; half < 2; half++) {
    int r = t.warp_row + band + element_row(2 * half);
    if (r >= t.queries) continue;
    int64_t row = (t.b * a.heads + t.h) * a.logs.row;
    float *lanes = a.comes.seen + 4 * row + (int)threadIdx.x % 4 * a.logs.row;
    f(a.logs.lse[row + t.i0 + r], seen.top[half], threadIdx.x % 4 == 0);
    f(lanes[t.i0 + r], seen.total[half], true);
    float *to = rows_of(t, a.out, a.o_batch, a.o_row, a.dim) + r * a.o_row;
#pragma unroll
    for (int n = 0; n < WIDTH; n++)
#pragma unroll
      for (int i = 0; i < 2; i++) {
        int c = element_column(n, i);
        if (c < a.dim) f(to[c], o[n][2 * half + i], true);
      }
  }
}

/* Restores a band's state after earlier steps, which count as one key with score lse and value out,
 * in the sum of the first of the four lanes. */
template <int WIDTH> __device__ inline void resume(const attention<float> &a, const query_tile &t,
                                                   int band, softmax &seen, float (&o)[WIDTH][4]) {
#pragma unroll
  for (int half = 0; half < 2; half++) {
    int r = t.warp_row + band + element_row(2 * half);
    if (r >= t.queries) continue;
    seen.top[half] = a.logs.lse[first_of(t, a) + r] * a.root;
    seen.total[half] = threadIdx.x % 4 == 0;
  }
  read_band(rows_of(t, a.out, a.o_batch, a.o_row, a.dim), a.o_row, t.warp_row + band, t.queries,
            a.dim, o);
}

template <typename C, bool EXTRAS, bool SWEEP, typename T>
__global__ void __launch_bounds__(C::threads, C::blocks) forward(attention<T> a) {
  constexpr int BANDS = C::bands, KEYS = C::passing, D = C::width;
  SLI_SHARED(shared);
  keep_to_cut<C>(a);
  T *q = (T *)shared, *k = q + C::own_tile, *v = k + 2 * C::passing_tile;
  query_tile t = open_queries<C, EXTRAS, SWEEP>(a);
  int buffer = 0;
  float scale = LOG2_E / a.root, o[BANDS][D / 8][4] = {};
  softmax seen[BANDS];
  row_ids<BANDS> own = {};
#pragma unroll
  for (int m = 0; m < BANDS; m++) seen[m] = {{SLI_LOWEST, SLI_LOWEST}, {0, 0}};
  if constexpr (SWEEP)
    for (int m = 0; m < BANDS && t.has.piece < a.comes.own; m++)
      each_kept(a, t, 16 * m, seen[m], o[m], [](float &kept, float &x, bool) { x = kept; });
  if constexpr (!SWEEP && sizeof(T) == sizeof(float))
    for (int m = 0; m < BANDS && a.adds.out; m++) resume(a, t, 16 * m, seen[m], o[m]);

  load_tile<C::own, C>(q, rows_of(t, a.q, a.q_batch, a.q_row, a.dim), a.q_row, t.queries, a.dim);
  int last = last_keys<KEYS>(t.keys);
  bring_keys<C>(a, t, last, k);
  if constexpr (EXTRAS)
    if (t.keys.ids) read_ids(own, t.keys.ids + t.keys.first, t.warp_row, t.queries);
  for (int k0 = last, next; passes<EXTRAS>(t.keys, k0); k0 = next, buffer ^= C::passing_tile) {
    next = next_keys<EXTRAS>(t, k0, -KEYS);
    pass_keys<C, EXTRAS>(a, t, next, k + (buffer ^ C::passing_tile));
    if (!any_seen<C, EXTRAS>(t, own, k0)) continue;
    float s[BANDS][KEYS / 8][4];
    scores<C>(s, q, t.warp_row, k + buffer);
    settle<C, 0>(s);
#pragma unroll
    for (int m = 0; m < BANDS; m++) {
      if (EXTRAS && a.mask.cap > 0) cap_scores(s[m], a.mask.cap * a.root);
      mask_keys<KEYS, EXTRAS>(s[m], t.keys, t.warp_row + 16 * m, k0, own.of[m]);
      soften(s[m], seen[m], o[m], scale);
    }
    gather<C>(o, s, v + buffer);
    settle<C, 0>(o);
  }
  if constexpr (SWEEP)
    if (t.has.piece) {
      for (int m = 0; m < BANDS; m++)
        each_kept(a, t, 16 * m, seen[m], o[m], [](float &kept, float &x, bool mine) {
          if (mine) kept = x;
        });
      return;
    }
#pragma unroll
  for (int m = 0; m < BANDS; m++) finish(a, t, 16 * m, seen[m], o[m], scale);
}

/* ---- launching ------------------------------------------------ */

template <typename C>
constexpr size_t shared_bytes = sizeof(typename C::element) * (C::own_tile + 4 * C::passing_tile);

template <typename C, bool EXTRAS, bool SWEEP> cudaError_t allow_one() {
  return allow(forward<C, EXTRAS, SWEEP, typename C::element>, shared_bytes<C>);
}

template <typename C, bool SWEEP> cudaError_t allow_both() {
  cudaError_t error = allow_one<C, false, SWEEP>();
  return error ? error : allow_one<C, true, SWEEP>();
}

template <typename T> cudaError_t allow_all(int64_t dim) {
  return with_room(dim, [](auto room) {
    constexpr int D = decltype(room)::value;
    if constexpr (is_for_groups<T, D>) {
      cudaError_t error = allow_one<group_cut<D>, false, false>();
      if (error) return error;
    }
    return allow_both<cut<T, D>, false>();
  });
}

template <typename C, bool EXTRAS, bool SWEEP, typename T>
void launch_one(const attention<T> &a, void *stream) {
  dim3 grid((unsigned)chunks(a.queries, C::own), (unsigned)a.heads, (unsigned)a.batch);
  launch(stream, grid, C::threads, shared_bytes<C>, forward<C, EXTRAS, SWEEP, T>, a);
}

template <bool SWEEP, typename T> void launch_forward(const attention<T> &a, void *stream) {
  with_room(a.dim, [&](auto room) {
    constexpr int D = decltype(room)::value;
    if constexpr (is_for_groups<T, D> && !SWEEP)
      if (can_group<D>(a)) return launch_one<group_cut<D>, false, SWEEP>(a, stream);
    with_extras(
        a, [&](auto extras) { launch_one<cut<T, D>, decltype(extras)::value, SWEEP>(a, stream); });
  });
}

} // namespace

namespace sli {

template <typename T> void attend(const attention<T> &a, void *stream) {
  launch_forward<false>(a, stream);
}

} // namespace sli

#endif
