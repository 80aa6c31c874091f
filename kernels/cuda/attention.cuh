/* One causal attention on strided arrays, as rows see it. */
#ifndef SLUICE_CUDA_ATTENTION_CUH
#define SLUICE_CUDA_ATTENTION_CUH

#include "kernels/cuda/device.cuh"

namespace sli {

/* Query row i of a sequence attends to key rows 0 .. q0 + i, so `keys` is q0 + queries.
 * A row of q, o, dq and dout holds heads*dim elements (head h from h*dim on), a row of
 * k, v, dk and dv kv_heads*dim; strides are in elements. Absent gradients are NULL. */
template <typename T> struct attention {
  int64_t batch, queries, q0, keys, heads, kv_heads, dim;
  const T *q, *k, *v, *o, *dout;
  T *out, *dq, *dk, *dv;
  float *lse;   /* [batch, heads, queries] */
  float *delta; /* the same; backward only */
  int64_t q_row, q_batch, dq_row, dq_batch;
  int64_t kv_row, kv_batch; /* of k, v, dk and dv */
  int64_t o_row, o_batch;   /* of o, out and dout */
  bool add_kv;              /* add to dk and dv */
};

/* attention.cu */
template <typename T> void attend(const attention<T> &a, void *stream);
template <typename T> void attend_b(const attention<T> &a, void *stream);
/* Lets the kernels for heads of this size have the shared memory they need. */
sl_status prepare_attend(sl_dtype dtype, int64_t dim);

/* ---- tiles ------------------------------------------------ */

/* D: room for a head. A warp owns 16 rows of a tile. Rows in shared memory are 16 bytes
 * longer than they need be, so that a column's elements lie in different banks. */
template <typename T, int D> struct tile {
  static constexpr int rows = sizeof(T) == 4 && D == 256 ? 32 : 64;
  static constexpr int threads = rows / 16 * WARP;
  static constexpr int ld = D + wide<T>;
  static constexpr size_t bytes = sizeof(T) * rows * ld;
};

/* Brings `rows` rows of `dim` elements into a tile; the rest of it becomes zero. */
template <typename T, int D>
__device__ inline void load_tile(T *to, const T *from, int64_t row, int64_t rows, int64_t dim) {
  constexpr int N = wide<T>, PACKS = D / N;
  using packed = pack<T, N>;
  bool whole = dim % N == 0 && row % N == 0 && (uintptr_t)from % sizeof(packed) == 0;
  for (int i = (int)threadIdx.x; i < tile<T, D>::rows * PACKS; i += tile<T, D>::threads) {
    int r = i / PACKS, c = i % PACKS * N;
    packed p = {};
    if (r < rows && whole && c < dim) p = *reinterpret_cast<const packed *>(from + r * row + c);
    if (r < rows && !whole)
      for (int n = 0; n < N; n++)
        if (c + n < dim) p.v[n] = from[r * row + c + n];
    *reinterpret_cast<packed *>(to + r * tile<T, D>::ld + c) = p;
  }
}

/* Where this thread's elements of D number n lie in its warp's 16 rows. */
__device__ inline int element_row(int i) { return (int)(threadIdx.x % WARP / 4) + i / 2 * 8; }
__device__ inline int element_column(int n, int i) {
  return n * 8 + (int)(threadIdx.x % 4) * 2 + i % 2;
}

/* Calls f(count<D>()) with the room that a head of `dim` elements takes. */
template <typename F> auto with_room(int64_t dim, F f) {
  if (dim <= 64) return f(count<64>());
  if (dim <= 128) return f(count<128>());
  return f(count<256>());
}

} // namespace sli

#endif
