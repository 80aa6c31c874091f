/* Attention by tiles, never holding more than a tile of scores, after Dao, arXiv
 * 2307.08691.
 *
 * A block has a tile of queries of one head; its warps own 16 rows each and never need
 * each other's. It goes through the tiles of keys and values up to its last query:
 * scores S = Q K^T come out of the tensor cores in registers, the softmax runs on them
 * in place (Milakov & Gimelshein, arXiv 1805.02867; a row lies in four lanes), and they
 * go back in as the left operand of O += P V. Heads are padded with zeros to 64, 128 or
 * 256. Powers are taken of 2, so scores are scaled by log2 e besides. */
#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/mma.cuh"

namespace {

using namespace sli;

constexpr float LOG2_E = 1.4426950408889634f, LN_2 = 0.6931471805599453f;

/* Over the four lanes that share a row. */
__device__ inline float row_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(ALL, x, 1));
  return fmaxf(x, __shfl_xor_sync(ALL, x, 2));
}

__device__ inline float row_sum(float x) {
  x += __shfl_xor_sync(ALL, x, 1);
  return x + __shfl_xor_sync(ALL, x, 2);
}

/* S[16, rows] = A[16, D] B[rows, D]^T, both in shared memory. */
template <typename T, int D, int COLUMNS>
__device__ inline void scores(float (&s)[COLUMNS][4], const T *a, const T *b) {
  constexpr int LD = tile<T, D>::ld, DEPTH = mma<T>::depth;
#pragma unroll
  for (int n = 0; n < COLUMNS; n++)
#pragma unroll
    for (int i = 0; i < 4; i++) s[n][i] = 0;
#pragma unroll 2
  for (int k = 0; k < D; k += DEPTH) {
    auto left = mma<T>::rows(a + k, LD);
#pragma unroll
    for (int n = 0; n < COLUMNS; n++)
      mma<T>::add(s[n], left, mma<T>::columns(b + n * 8 * LD + k, LD));
  }
}

/* O[16, 8 COLUMNS] += P[16, rows] B[rows, 8 COLUMNS], P in registers. */
template <typename T, int D, int COLUMNS, int ROWS>
__device__ inline void gather(float (&o)[COLUMNS][4], const float (&p)[ROWS][4], const T *b) {
  constexpr int LD = tile<T, D>::ld, DEPTH = mma<T>::depth;
#pragma unroll
  for (int k = 0; k < ROWS * 8; k += DEPTH) {
    auto left = mma<T>::from(&p[k / 8]);
#pragma unroll
    for (int n = 0; n < COLUMNS; n++)
      mma<T>::add(o[n], left, mma<T>::across(b + k * LD + n * 8, LD));
  }
}

/* ---- forward ------------------------------------------------ */

/* Scores to probabilities relative to the new maximum, in powers of 2. Returns what
 * earlier ones have to be multiplied with. */
template <int COLUMNS>
__device__ inline void soften(float (&s)[COLUMNS][4], float (&top)[2], float (&total)[2],
                              float (&fade)[2]) {
#pragma unroll
  for (int half = 0; half < 2; half++) {
    float m = top[half], sum = 0;
#pragma unroll
    for (int n = 0; n < COLUMNS; n++)
      m = fmaxf(m, fmaxf(s[n][2 * half], s[n][2 * half + 1]));
    m = row_max(m);
#pragma unroll
    for (int n = 0; n < COLUMNS; n++)
#pragma unroll
      for (int i = 2 * half; i < 2 * half + 2; i++) {
        s[n][i] = exp2f(s[n][i] - m);
        sum += s[n][i];
      }
    fade[half] = exp2f(top[half] - m);
    total[half] = total[half] * fade[half] + sum; /* of this lane's columns */
    top[half] = m;
  }
}

template <typename T, int D>
__global__ void __launch_bounds__(tile<T, D>::threads) forward(attention<T> a) {
  constexpr int ROWS = tile<T, D>::rows, LD = tile<T, D>::ld;
  SLI_SHARED(shared);
  T *q = (T *)shared, *k = q + ROWS * LD, *v = k + ROWS * LD;
  int warp_row = (int)threadIdx.x / WARP * 16;
  int64_t i0 = (int64_t)(gridDim.x - 1 - blockIdx.x) * ROWS; /* the longest first */
  int64_t h = blockIdx.y, b = blockIdx.z, first = a.q0 + i0;
  int64_t nq = a.queries - i0 < ROWS ? a.queries - i0 : ROWS, limit = first + nq;
  int64_t kv = b * a.kv_batch + h / (a.heads / a.kv_heads) * a.dim;
  float scale = LOG2_E / sqrtf((float)a.dim);
  float o[D / 8][4] = {}, s[ROWS / 8][4], top[2] = {SLI_LOWEST, SLI_LOWEST}, total[2] = {}, fade[2];

  load_tile<T, D>(q, a.q + b * a.q_batch + i0 * a.q_row + h * a.dim, a.q_row, nq, a.dim);
  for (int64_t k0 = 0; k0 < limit; k0 += ROWS) {
    __syncthreads(); /* the last tiles have been read */
    load_tile<T, D>(k, a.k + kv + k0 * a.kv_row, a.kv_row, limit - k0, a.dim);
    load_tile<T, D>(v, a.v + kv + k0 * a.kv_row, a.kv_row, limit - k0, a.dim);
    __syncthreads();
    scores<T, D>(s, q + warp_row * LD, k);
#pragma unroll
    for (int n = 0; n < ROWS / 8; n++)
#pragma unroll
      for (int i = 0; i < 4; i++) {
        bool later = k0 + element_column(n, i) > first + warp_row + element_row(i);
        s[n][i] = later ? -INFINITY : s[n][i] * scale;
      }
    soften(s, top, total, fade);
#pragma unroll
    for (int n = 0; n < D / 8; n++)
#pragma unroll
      for (int i = 0; i < 4; i++) o[n][i] *= fade[i / 2];
    gather<T, D>(o, s, v);
  }
#pragma unroll
  for (int half = 0; half < 2; half++) {
    int64_t r = warp_row + element_row(2 * half);
    float sum = row_sum(total[half]);
    if (r >= nq) continue;
    if (a.lse && threadIdx.x % 4 == 0)
      a.lse[(b * a.heads + h) * a.queries + i0 + r] = top[half] * LN_2 + logf(sum);
    if (!a.out) continue;
    T *row = a.out + b * a.o_batch + (i0 + r) * a.o_row + h * a.dim;
#pragma unroll
    for (int n = 0; n < D / 8; n++)
#pragma unroll
      for (int i = 2 * half; i < 2 * half + 2; i++)
        if (element_column(n, i) < a.dim)
          assign(row[element_column(n, i)], o[n][i] / sum);
  }
}

/* ---- backward --------------------------------------------------------------------------
 *
 * P comes back as e^(S - lse); with dP = dO V^T, delta = the row's dO . O and
 * dS = P (dP - delta) scale,
 *
 *   dV = P^T dO   dK = dS^T Q   dQ = dS K
 *
 * The first two are sums over queries and the last over keys, so there are two kernels:
 * one has a block for each tile of keys, which goes through the queries that see it (of
 * all query heads that share the key head, in order), the other one for each tile of
 * queries, which goes through the keys. Both make S and dP anew: seven products instead
 * of five, and nothing is ever added to by two blocks. */

/* One warp a row of o. */
template <typename T> __global__ void dot_rows(attention<T> a) {
  int64_t row = ((int64_t)blockIdx.x * BLOCK + threadIdx.x) / WARP;
  if (row >= a.batch * a.heads * a.queries) return;
  int64_t i = row % a.queries, h = row / a.queries % a.heads, b = row / a.queries / a.heads;
  int64_t at = b * a.o_batch + i * a.o_row + h * a.dim;
  float total = 0;
  for (int64_t d = threadIdx.x % WARP; d < a.dim; d += WARP)
    total += to_float(a.o[at + d]) * to_float(a.dout[at + d]);
  total = warp_sum(total);
  if (threadIdx.x % WARP == 0) a.delta[row] = total;
}

/* s becomes P, dp becomes dS. seen(n, i): the query of that element sees the key. */
template <int COLUMNS, typename S, typename R>
__device__ inline void score_gradients(float (&s)[COLUMNS][4], float (&dp)[COLUMNS][4],
                                       float scale, S seen, R row) {
#pragma unroll
  for (int n = 0; n < COLUMNS; n++)
#pragma unroll
    for (int i = 0; i < 4; i++) {
      float lse, delta;
      row(n, i, lse, delta);
      float p = seen(n, i) ? exp2f(s[n][i] * (scale * LOG2_E) - lse * LOG2_E) : 0.0f;
      s[n][i] = p;
      dp[n][i] = p * (dp[n][i] - delta) * scale;
    }
}

/* Writes one warp's rows r0 .. r0+15 of a gradient, as far as they are below `rows`. */
template <int COLUMNS, typename T>
__device__ inline void write_rows(T *to, int64_t row, int64_t r0, int64_t rows, int64_t c0,
                                  int64_t dim, bool add, const float (&x)[COLUMNS][4]) {
#pragma unroll
  for (int n = 0; n < COLUMNS; n++)
#pragma unroll
    for (int i = 0; i < 4; i++) {
      int64_t r = r0 + element_row(i), c = c0 + element_column(n, i);
      if (r >= rows || c >= dim) continue;
      T *at = to + r * row + c;
      assign(*at, add ? to_float(*at) + x[n][i] : x[n][i]);
    }
}

/* Heads of 256 are too wide for one block's registers: then two blocks share a tile of
 * keys, each with half of the columns of its dK and dV. */
template <typename T, int D>
__global__ void __launch_bounds__(tile<T, D>::threads) backward_kv(attention<T> a) {
  constexpr int ROWS = tile<T, D>::rows, LD = tile<T, D>::ld, PART = D > 128 ? 128 : D;
  SLI_SHARED(shared);
  T *k = (T *)shared, *v = k + ROWS * LD, *q = v + ROWS * LD, *dout = q + ROWS * LD;
  float *lse = (float *)(dout + ROWS * LD), *delta = lse + ROWS;
  int warp_row = (int)threadIdx.x / WARP * 16;
  int64_t k0 = (int64_t)blockIdx.x / (D / PART) * ROWS, c0 = blockIdx.x % (D / PART) * PART;
  int64_t group = a.heads / a.kv_heads, b = blockIdx.z;
  int64_t kv = b * a.kv_batch + blockIdx.y * a.dim;
  float scale = 1.0f / sqrtf((float)a.dim);
  float dk[PART / 8][4] = {}, dv[PART / 8][4] = {}, s[ROWS / 8][4], dp[ROWS / 8][4];

  load_tile<T, D>(k, a.k + kv + k0 * a.kv_row, a.kv_row, a.keys - k0, a.dim);
  load_tile<T, D>(v, a.v + kv + k0 * a.kv_row, a.kv_row, a.keys - k0, a.dim);
  int64_t begin = k0 > a.q0 ? (k0 - a.q0) / ROWS * ROWS : 0; /* earlier ones see none of it */
  for (int64_t h = blockIdx.y * group; h < (int64_t)(blockIdx.y + 1) * group; h++)
    for (int64_t i0 = begin; i0 < a.queries; i0 += ROWS) {
      int64_t nq = a.queries - i0 < ROWS ? a.queries - i0 : ROWS, first = a.q0 + i0;
      int64_t at = (b * a.heads + h) * a.queries + i0;
      __syncthreads(); /* the last tiles have been read */
      load_tile<T, D>(q, a.q + b * a.q_batch + i0 * a.q_row + h * a.dim, a.q_row, nq, a.dim);
      load_tile<T, D>(dout, a.dout + b * a.o_batch + i0 * a.o_row + h * a.dim, a.o_row, nq, a.dim);
      for (int i = (int)threadIdx.x; i < ROWS; i += tile<T, D>::threads) {
        lse[i] = i < nq ? a.lse[at + i] : 0;
        delta[i] = i < nq ? a.delta[at + i] : 0;
      }
      __syncthreads();
      scores<T, D>(s, k + warp_row * LD, q); /* transposed: keys by queries */
      scores<T, D>(dp, v + warp_row * LD, dout);
      score_gradients(
          s, dp, scale,
          [&](int n, int i) {
            int column = element_column(n, i);
            return column < nq && k0 + warp_row + element_row(i) <= first + column;
          },
          [&](int n, int i, float &l, float &d) {
            l = lse[element_column(n, i)];
            d = delta[element_column(n, i)];
          });
      gather<T, D>(dv, s, dout + c0);
      gather<T, D>(dk, dp, q + c0);
    }
  int64_t to = kv + k0 * a.kv_row;
  if (a.dk) write_rows(a.dk + to, a.kv_row, warp_row, a.keys - k0, c0, a.dim, a.add_kv, dk);
  if (a.dv) write_rows(a.dv + to, a.kv_row, warp_row, a.keys - k0, c0, a.dim, a.add_kv, dv);
}

template <typename T, int D>
__global__ void __launch_bounds__(tile<T, D>::threads) backward_q(attention<T> a) {
  constexpr int ROWS = tile<T, D>::rows, LD = tile<T, D>::ld;
  SLI_SHARED(shared);
  T *q = (T *)shared, *dout = q + ROWS * LD, *k = dout + ROWS * LD, *v = k + ROWS * LD;
  int warp_row = (int)threadIdx.x / WARP * 16;
  int64_t i0 = (int64_t)(gridDim.x - 1 - blockIdx.x) * ROWS; /* the longest first */
  int64_t h = blockIdx.y, b = blockIdx.z, first = a.q0 + i0;
  int64_t nq = a.queries - i0 < ROWS ? a.queries - i0 : ROWS, limit = first + nq;
  int64_t kv = b * a.kv_batch + h / (a.heads / a.kv_heads) * a.dim;
  float scale = 1.0f / sqrtf((float)a.dim), lse[2] = {}, delta[2] = {};
  float dq[D / 8][4] = {}, s[ROWS / 8][4], dp[ROWS / 8][4];

  load_tile<T, D>(q, a.q + b * a.q_batch + i0 * a.q_row + h * a.dim, a.q_row, nq, a.dim);
  load_tile<T, D>(dout, a.dout + b * a.o_batch + i0 * a.o_row + h * a.dim, a.o_row, nq, a.dim);
#pragma unroll
  for (int half = 0; half < 2; half++) {
    int64_t r = warp_row + element_row(2 * half), at = (b * a.heads + h) * a.queries + i0 + r;
    if (r < nq) lse[half] = a.lse[at], delta[half] = a.delta[at];
  }
  for (int64_t k0 = 0; k0 < limit; k0 += ROWS) {
    __syncthreads(); /* the last tiles have been read */
    load_tile<T, D>(k, a.k + kv + k0 * a.kv_row, a.kv_row, limit - k0, a.dim);
    load_tile<T, D>(v, a.v + kv + k0 * a.kv_row, a.kv_row, limit - k0, a.dim);
    __syncthreads();
    scores<T, D>(s, q + warp_row * LD, k);
    scores<T, D>(dp, dout + warp_row * LD, v);
    score_gradients(
        s, dp, scale,
        [&](int n, int i) {
          int64_t r = warp_row + element_row(i);
          return r < nq && k0 + element_column(n, i) <= first + r;
        },
        [&](int, int i, float &l, float &d) { l = lse[i / 2], d = delta[i / 2]; });
    gather<T, D>(dq, dp, k);
  }
  T *to = a.dq + b * a.dq_batch + i0 * a.dq_row + h * a.dim;
  write_rows(to, a.dq_row, warp_row, nq, 0, a.dim, false, dq);
}

/* ---- launching ------------------------------------------------ */

template <typename T, int D> constexpr size_t forward_bytes = 3 * tile<T, D>::bytes;
template <typename T, int D>
constexpr size_t backward_bytes = 4 * tile<T, D>::bytes + 2 * sizeof(float) * tile<T, D>::rows;

template <typename... P> cudaError_t allow(void (*kernel)(P...), size_t bytes) {
  return cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              (int)bytes);
}

template <typename T> cudaError_t allow_all(int64_t dim) {
  return with_room(dim, [](auto room) {
    constexpr int D = decltype(room)::value;
    cudaError_t error = allow(forward<T, D>, forward_bytes<T, D>);
    if (!error) error = allow(backward_kv<T, D>, backward_bytes<T, D>);
    if (!error) error = allow(backward_q<T, D>, backward_bytes<T, D>);
    return error;
  });
}

} // namespace

namespace sli {

template <typename T> void attend(const attention<T> &a, void *stream) {
  with_room(a.dim, [&](auto room) {
    constexpr int D = decltype(room)::value;
    dim3 grid((unsigned)chunks(a.queries, tile<T, D>::rows), (unsigned)a.heads, (unsigned)a.batch);
    launch(stream, grid, tile<T, D>::threads, forward_bytes<T, D>, forward<T, D>, a);
  });
}

template <typename T> void attend_b(const attention<T> &a, void *stream) {
  launch(stream, grid_of(chunks(a.batch * a.heads * a.queries, BLOCK / WARP)), BLOCK, 0,
         dot_rows<T>, a);
  with_room(a.dim, [&](auto room) {
    constexpr int D = decltype(room)::value, ROWS = tile<T, D>::rows;
    dim3 by_key((unsigned)(chunks(a.keys, ROWS) * (D > 128 ? D / 128 : 1)), (unsigned)a.kv_heads,
                (unsigned)a.batch);
    dim3 by_query((unsigned)chunks(a.queries, ROWS), (unsigned)a.heads, (unsigned)a.batch);
    if (a.dk || a.dv)
      launch(stream, by_key, tile<T, D>::threads, backward_bytes<T, D>, backward_kv<T, D>, a);
    if (a.dq)
      launch(stream, by_query, tile<T, D>::threads, backward_bytes<T, D>, backward_q<T, D>, a);
  });
}

template void attend(const attention<float> &, void *);
template void attend(const attention<bf16> &, void *);
template void attend_b(const attention<float> &, void *);
template void attend_b(const attention<bf16> &, void *);

sl_status prepare_attend(sl_dtype dtype, int64_t dim) {
  cudaError_t error = dtype == SL_BF16 ? allow_all<bf16>(dim) : allow_all<float>(dim);
  if (!error) return SL_OK;
  return sl_fail(SL_E_DEVICE, "attention with heads of %lld: %s", (long long)dim,
                 cudaGetErrorString(error));
}

} // namespace sli
