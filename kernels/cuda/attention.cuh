/* One attention on strided arrays, as rows see it. */
#ifndef SLUICE_CUDA_ATTENTION_CUH
#define SLUICE_CUDA_ATTENTION_CUH

#include "kernels/cuda/device.cuh"

namespace sli {

/* Query row i of a sequence attends to key rows 0 .. q0 + i, as far as there are: where q0 is
 * the last key, to all. A row of q, o, dq and dout holds heads*dim elements (head h from h*dim on), a row of
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
  float root;               /* scores are divided by it */
};

/* attention.cu and attention_b.cu */
template <typename T> void attend(const attention<T> &a, void *stream);
template <typename T> void attend_b(const attention<T> &a, void *stream);
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

} // namespace sli

#endif
