/* Attention by tiles, never holding more than a tile of scores, after Dao, arXiv
 * 2307.08691.
 *
 * A block has a tile of queries of one head and goes through the tiles of keys and values up
 * to its last query: scores S = Q K^T come out of the tensor cores in registers, the softmax
 * runs on them in place (Milakov & Gimelshein, arXiv 1805.02867; a row lies in four lanes),
 * and they go back in as the left operand of O += P V. Powers are taken of 2, so scores are
 * scaled by log2 e besides. Only tiles that an edge of what is in sight crosses are masked, and a
 * warp leaves out those that none of its queries sees. */
#include "kernels/cuda/attention_tiles.cuh"

namespace {

using namespace sli;

/* Sizes follow from what registers and shared memory hold; an A100 has 163 KiB of it. */
template <typename T, int D> struct cut : tiling<T, D, 4, 1, 32> {};
template <> struct cut<bf16, 64> : tiling<bf16, 64, 4, 2, 64> {};
template <> struct cut<bf16, 128> : tiling<bf16, 128, 4, 2, 32> {};
template <> struct cut<float, 256> : tiling<float, 256, 2, 1, 16> {};

/* Over the four lanes that share a row. */
__device__ inline float row_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(ALL, x, 1));
  return fmaxf(x, __shfl_xor_sync(ALL, x, 2));
}

__device__ inline float row_sum(float x) {
  x += __shfl_xor_sync(ALL, x, 1);
  return x + __shfl_xor_sync(ALL, x, 2);
}

/* What a band has found out so far; of its rows' two halves in this lane. */
struct softmax {
  float top[2], total[2]; /* the largest score, unscaled; the sum of this lane's columns */
};

/* Scores to probabilities relative to the new maximum, in powers of 2. Multiplies what earlier
 * ones gave with what they have become. */
template <int COLUMNS, int WIDTH>
__device__ inline void soften(float (&s)[COLUMNS][4], softmax &seen, float (&o)[WIDTH][4],
                              float scale) {
#pragma unroll
  for (int half = 0; half < 2; half++) {
    float m = seen.top[half], sum = 0;
#pragma unroll
    for (int n = 0; n < COLUMNS; n++)
      m = fmaxf(m, fmaxf(s[n][2 * half], s[n][2 * half + 1]));
    m = row_max(m);
    float shift = m == SLI_LOWEST ? 0 : m * scale; /* nothing seen so far: all scores are hidden */
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

/* The sums of a band become its rows of the output; a query that sees nothing gets zeros. */
template <int WIDTH, typename T>
__device__ inline void finish(const attention<T> &a, int64_t i0, int r0, int nq,
                              const softmax &seen, float (&o)[WIDTH][4], float scale) {
  int64_t h = blockIdx.y, b = blockIdx.z;
#pragma unroll
  for (int half = 0; half < 2; half++) {
    int r = r0 + element_row(2 * half);
    float sum = row_sum(seen.total[half]), inverse = sum == 0 ? 0 : 1 / sum;
    if (a.lse && threadIdx.x % 4 == 0 && r < nq)
      a.lse[(b * a.heads + h) * a.queries + i0 + r] =
          sum == 0 ? 0 : seen.top[half] * (scale * LN_2) + logf(sum);
#pragma unroll
    for (int n = 0; n < WIDTH; n++)
#pragma unroll
      for (int i = 2 * half; i < 2 * half + 2; i++) o[n][i] *= inverse;
  }
  if (a.out)
    write_band(a.out + b * a.o_batch + i0 * a.o_row + h * a.dim, a.o_row, r0, nq, 0, a.dim, false,
               o);
}

/* What a band has found out in the calls before: its largest scores are in lse, the sums of each of the
 * four lanes that share a row in `seen`, what they gathered in out, not yet divided. */
template <int WIDTH, typename F>
__device__ inline void each_kept(const attention<float> &a, int64_t i0, int r0, int nq,
                                 softmax &seen, float (&o)[WIDTH][4], F f) {
  int64_t h = blockIdx.y, b = blockIdx.z;
#pragma unroll
  for (int half = 0; half < 2; half++) {
    int r = r0 + element_row(2 * half);
    if (r >= nq) continue;
    int64_t row = (b * a.heads + h) * a.queries;
    float *lanes = a.comes.seen + 4 * row + (int)threadIdx.x % 4 * a.queries;
    f(a.lse[row + i0 + r], seen.top[half], threadIdx.x % 4 == 0);
    f(lanes[i0 + r], seen.total[half], true);
    float *to = a.out + b * a.o_batch + (i0 + r) * a.o_row + h * a.dim;
#pragma unroll
    for (int n = 0; n < WIDTH; n++)
#pragma unroll
      for (int i = 0; i < 2; i++) {
        int c = element_column(n, i);
        if (c < a.dim) f(to[c], o[n][2 * half + i], true);
      }
  }
}

template <typename T, int D, bool IDS, bool SWEEP>
__global__ void __launch_bounds__(cut<T, D>::threads) forward(attention<T> a) {
  using C = cut<T, D>;
  constexpr int BANDS = C::bands, KEYS = C::passing, LD = C::ld;
  SLI_SHARED(shared);
  T *q = (T *)shared, *k = q + C::own_tile, *v = k + 2 * C::passing_tile;
  int warp_row = own_row<C>(), buffer = 0;
  int64_t i0 = (int64_t)(gridDim.x - 1 - blockIdx.x) * C::own; /* the longest first */
  int64_t h = blockIdx.y, b = blockIdx.z;
  int nq = (int)(a.queries - i0 < C::own ? a.queries - i0 : C::own);
  seen_keys t = see_keys<KEYS>(a, (int)i0, nq);
  came c = {};
  if constexpr (SWEEP) {
    c = what_came(a);
    keep_to<KEYS>(t, c);
    a.kv_batch = (c.to - c.from) * a.kv_row;
  }
  int64_t kv = b * a.kv_batch + h / (a.heads / a.kv_heads) * a.dim - c.from * a.kv_row;
  int64_t at = kv + t.begin * a.kv_row;
  float scale = LOG2_E / a.root, o[BANDS][D / 8][4] = {};
  softmax seen[BANDS];
  row_ids<BANDS> own;
#pragma unroll
  for (int m = 0; m < BANDS; m++) seen[m] = {{SLI_LOWEST, SLI_LOWEST}, {0, 0}};
  if constexpr (SWEEP)
    for (int m = 0; m < BANDS && c.piece; m++)
      each_kept(a, i0, warp_row + 16 * m, nq, seen[m], o[m],
                [](float &kept, float &x, bool) { x = kept; });

  load_tile<C::own, C>(q, a.q + b * a.q_batch + i0 * a.q_row + h * a.dim, a.q_row, nq, a.dim);
  load_passing<C>(k, a.k + at, a.kv_row, a.v + at, a.kv_row, t.limit - t.begin, a.dim);
  if constexpr (IDS) read_ids(own, t.ids + t.first, warp_row, nq);
  for (int k0 = t.begin; k0 < t.limit; k0 += KEYS, buffer ^= C::passing_tile) {
    wait_for_copies();
    __syncthreads(); /* this tile is there for all, and the one before has been read */
    int next = k0 + KEYS;
    at = kv + next * a.kv_row;
    if (next < t.limit)
      load_passing<C>(k + (buffer ^ C::passing_tile), a.k + at, a.kv_row, a.v + at, a.kv_row,
                      t.limit - next, a.dim);
    if (all_hidden<16 * BANDS, KEYS>(t, warp_row, k0)) continue;
    if constexpr (IDS)
      if (!meets<KEYS>(own, t.ids + k0, t.limit - k0)) continue;
    float s[BANDS][KEYS / 8][4];
    scores<LD>(s, q + warp_row * LD, k + buffer);
#pragma unroll
    for (int m = 0; m < BANDS; m++) {
      mask_keys<KEYS, IDS>(s[m], t, warp_row + 16 * m, k0, own.of[m]);
      soften(s[m], seen[m], o[m], scale);
    }
    gather<LD>(o, s, v + buffer);
  }
  if constexpr (SWEEP)
    if (c.piece < a.comes.own) {
      for (int m = 0; m < BANDS; m++)
        each_kept(a, i0, warp_row + 16 * m, nq, seen[m], o[m],
                  [](float &kept, float &x, bool mine) { if (mine) kept = x; });
      return;
    }
#pragma unroll
  for (int m = 0; m < BANDS; m++) finish(a, i0, warp_row + 16 * m, nq, seen[m], o[m], scale);
}

/* ---- launching ------------------------------------------------ */

template <typename T, int D>
constexpr size_t shared_bytes = sizeof(T) * (cut<T, D>::own_tile + 4 * cut<T, D>::passing_tile);

template <typename T> cudaError_t allow_all(int64_t dim) {
  return with_room(dim, [](auto room) {
    constexpr int D = decltype(room)::value;
    cudaError_t error = allow(forward<T, D, false, false>, shared_bytes<T, D>);
    return error ? error : allow(forward<T, D, true, false>, shared_bytes<T, D>);
  });
}

cudaError_t allow_sweep(int64_t dim) {
  return with_room(dim, [](auto room) {
    constexpr int D = decltype(room)::value;
    cudaError_t error = allow(forward<float, D, false, true>, shared_bytes<float, D>);
    return error ? error : allow(forward<float, D, true, true>, shared_bytes<float, D>);
  });
}

template <bool SWEEP, typename T> void launch_forward(const attention<T> &a, void *stream) {
  with_room(a.dim, [&](auto room) {
    constexpr int D = decltype(room)::value;
    using C = cut<T, D>;
    dim3 grid((unsigned)chunks(a.queries, C::own), (unsigned)a.heads, (unsigned)a.batch);
    with_ids(a, [&](auto ids) {
      launch(stream, grid, C::threads, shared_bytes<T, D>,
             forward<T, D, decltype(ids)::value, SWEEP>, a);
    });
  });
}

} // namespace

namespace sli {

template <typename T> void attend(const attention<T> &a, void *stream) {
  launch_forward<false>(a, stream);
}

void attend_sweep(const attention<float> &a, void *stream) { launch_forward<true>(a, stream); }

template void attend(const attention<float> &, void *);
template void attend(const attention<bf16> &, void *);

sl_status prepare_attend(sl_dtype dtype, int64_t dim) {
  cudaError_t error = dtype == SL_BF16 ? allow_all<bf16>(dim) : allow_all<float>(dim);
  if (!error && dtype == SL_F32) error = allow_sweep(dim);
  if (!error) return prepare_attend_b(dtype, dim);
  return sl_fail(SL_E_DEVICE, "attention with heads of %lld: %s", (long long)dim,
                 cudaGetErrorString(error));
}

} // namespace sli
