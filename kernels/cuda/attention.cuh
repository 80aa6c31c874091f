/* SPDX-License-Identifier: Apache-2.0 */
/* One attention on strided arrays: the interface of the attention kernels. */
#ifndef SLUICE_CUDA_ATTENTION_CUH
#define SLUICE_CUDA_ATTENTION_CUH

#include "kernels/cuda/device.cuh"
#include "ops/attention_shape.h"
#include "ops/mask.h"

namespace sli {

/* Attention to one piece of keys and values, among those up to the queries' own piece. Only the
 * device knows the number of the piece: `turn` holds it, except for the first. k and v belong to
 * that piece, dk and dv to all pieces. */
struct sweep {
  const int32_t *starts; /* [pieces + 1] */
  const float *turn;
  bool first;
  int own, longest; /* the queries' piece; the maximum rows of a piece */
  float *seen;      /* [batch, heads, 4, logs.row], see attention_forward.cuh */
  int64_t dkv_batch;
};

/* Numbers per query and head, [batch, heads, row]: lse, and in the backward pass delta, the row's
 * dO . O. */
struct query_logs {
  float *lse, *delta;
  int64_t row;
};

/* Outputs that continue from an earlier call. With kv and dq, these gradients add to the existing
 * ones; with out, out continues with lse (f32 only). */
struct addition {
  bool kv, dq, out;
};

/* Lists of the blocks of SLI_KEY_TILE keys that a block of queries attends to, of all sequences and
 * heads: the own block, then others in descending order. A list ends where its numbers stop
 * descending. f32 only. */
struct chosen_blocks {
  const int32_t *lists; /* [batch, heads, blocks, width]; NULL: all keys */
  int64_t blocks, width;

  __device__ const int32_t *list(int64_t row, int64_t block) const {
    return lists + (row * blocks + block) * width;
  }
};

/* Query row i of a sequence is at position q0 + i and attends to the key rows inside its mask. A
 * row of q, o, dq and dout holds heads*dim elements (head h starts at h*dim), a row of k, v, dk and
 * dv kv_heads*dim. Strides are in elements. Absent gradients are NULL. */
template <typename T> struct attention {
  int64_t batch, queries, q0, keys, heads, kv_heads, dim;
  const T *q, *k, *v, *o, *dout;
  T *out, *dq, *dk, *dv;
  query_logs logs;
  int64_t q_row, q_batch, dq_row, dq_batch;
  int64_t kv_row, kv_batch; /* strides of k, v, dk and dv */
  int64_t o_row, o_batch;   /* strides of o, out and dout */
  sli_mask mask;
  sweep comes; /* keys that arrive piece by piece; otherwise all zeros */
  chosen_blocks chosen;
  addition adds;
  float root; /* divisor of the scores */
};

/* attention_forward.cuh and attention_backward.cuh */
template <typename T> void attend(const attention<T> &a, void *stream);
template <typename T> void attend_b(const attention<T> &a, void *stream);
/* Attention whose keys arrive piece by piece, in f32. */
void attend_sweep(const attention<float> &a, void *stream);
void attend_sweep_b(const attention<float> &a, void *stream);
/* Allow the kernels for heads of this size the shared memory they need: all kernels, or only those
 * of attend_b(). */
sl_status prepare_attend(sl_dtype dtype, int64_t dim);
sl_status prepare_attend_b(sl_dtype dtype, int64_t dim);
/* Parts of these that stand in other files: f32, and keys that arrive piece by piece. */
cudaError_t allow_attend_f32(int64_t dim);
cudaError_t allow_attend_b_f32(int64_t dim);
cudaError_t allow_attend_sweep(int64_t dim);
cudaError_t allow_attend_sweep_b(int64_t dim);

constexpr int MOST_DIM = 256; /* most numbers of a head */

/* Calls f(count<D>()) with the padded width of a head of `dim` elements. */
template <typename F> auto with_room(int64_t dim, F f) {
  if (dim <= 64) return f(count<64>());
  if (dim <= 128) return f(count<128>());
  return f(count<MOST_DIM>());
}

/* Kernels with EXTRAS read what few calls have: ids, a cap on scores, first keys that all see,
 * lists of blocks. */
template <typename T> bool has_extras(const attention<T> &a) {
  return a.mask.ids || a.mask.cap > 0 || a.mask.shown > 0 || a.chosen.lists;
}

/* Calls f(count<EXTRAS>()). */
template <typename T, typename F> auto with_extras(const attention<T> &a, F f) {
  if (has_extras(a)) return f(count<1>());
  return f(count<0>());
}

} // namespace sli

#endif
