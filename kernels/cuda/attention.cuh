/* One attention on strided arrays, as rows see it. */
#ifndef SLUICE_CUDA_ATTENTION_CUH
#define SLUICE_CUDA_ATTENTION_CUH

#include "kernels/cuda/device.cuh"
#include "ops/sight.h"

namespace sli {

/* Which piece of keys and values a call has, of those up to its queries' own, is known to the device
 * alone: `turn`, unless it is the first. k and v are those of that piece, dk and dv of all. */
struct sweep {
  const int32_t *starts; /* [pieces + 1] */
  const float *turn;
  bool first;
  int own, longest;      /* the queries' piece; the most rows that one has */
  float *seen;           /* [batch, heads, 4, logs.row], see attention.cu */
  int64_t dkv_batch;
};

/* Numbers that each query has one of for each head, [batch, heads, row]: the logarithm of its softmax's sum, and
 * backward its row's dO . O. */
struct query_logs {
  float *lse, *delta;
  int64_t row;
};

/* What goes on from a call before: dk and dv are added to, dq is, and out goes on with lse (f32 only). */
struct addition {
  bool kv, dq, out;
};

/* Query row i of a sequence stands at position q0 + i and attends to the key rows that it sees. A
 * row of q, o, dq and dout holds heads*dim elements (head h from h*dim on), a row of
 * k, v, dk and dv kv_heads*dim; strides are in elements. Absent gradients are NULL. */
template <typename T> struct attention {
  int64_t batch, queries, q0, keys, heads, kv_heads, dim;
  const T *q, *k, *v, *o, *dout;
  T *out, *dq, *dk, *dv;
  query_logs logs;
  int64_t q_row, q_batch, dq_row, dq_batch;
  int64_t kv_row, kv_batch; /* of k, v, dk and dv */
  int64_t o_row, o_batch;   /* of o, out and dout */
  sli_sight sight;
  sweep comes;              /* keys that come piece by piece; else all zeros */
  addition adds;
  float root;               /* scores are divided by it */
};

/* attention.cu and attention_b.cu */
template <typename T> void attend(const attention<T> &a, void *stream);
template <typename T> void attend_b(const attention<T> &a, void *stream);
/* The same where keys come piece by piece, of f32. */
void attend_sweep(const attention<float> &a, void *stream);
void attend_sweep_b(const attention<float> &a, void *stream);
/* Let the kernels for heads of this size have the shared memory they need: all of them; those of
 * attend_b() alone. */
sl_status prepare_attend(sl_dtype dtype, int64_t dim);
sl_status prepare_attend_b(sl_dtype dtype, int64_t dim);

/* Calls f(count<D>()) with the room that a head of `dim` elements takes. */
template <typename F> auto with_room(int64_t dim, F f) {
  if (dim <= 64) return f(count<64>());
  if (dim <= 128) return f(count<128>());
  return f(count<256>());
}

/* Calls f(count<IDS>()) with whether there are ids. */
template <typename T, typename F> auto with_ids(const attention<T> &a, F f) {
  if (a.sight.ids) return f(count<1>());
  return f(count<0>());
}

} // namespace sli

#endif
