/* SPDX-License-Identifier: Apache-2.0 */
/* Helpers of the attention ops: views of a call's arrays for the kernels, and copies of rows
 * between arrays. */
#ifndef SLUICE_CUDA_ATTENTION_VIEWS_CUH
#define SLUICE_CUDA_ATTENTION_VIEWS_CUH

#include "kernels/cuda/attention.cuh"

namespace sli {

inline int64_t kv_heads(const sl_call *call) {
  return call->attrs->attention.kv_heads > 0 ? call->attrs->attention.kv_heads
                                             : call->attrs->attention.heads;
}

/* Fills the sizes of a call on whole sequences or on a piece, with o [B, n, Hq*D]. */
template <typename T> attention<T> sizes(const sl_call *call, const sl_type *o, int64_t q0) {
  attention<T> a = {};
  a.batch = o->dim[0];
  a.queries = a.logs.row = o->dim[1];
  a.q0 = q0;
  a.keys = q0 + a.queries;
  a.heads = call->attrs->attention.heads;
  a.kv_heads = kv_heads(call);
  a.dim = o->dim[2] / a.heads;
  a.mask = sli_mask_of(call->attrs, a.keys, NULL);
  a.o_row = o->dim[2];
  a.o_batch = a.queries * a.o_row;
  a.root =
      call->attrs->attention.scale != 0 ? 1 / call->attrs->attention.scale : sqrtf((float)a.dim);
  return a;
}

template <typename T> void rows_of_q(attention<T> &a, int64_t row) {
  a.q_row = a.dq_row = row;
  a.q_batch = a.dq_batch = a.queries * row;
}

/* Fills an attention on separate tensors. `ids` is the input with the ids. */
template <typename T> attention<T> separate(const sl_call *call, int ids) {
  attention<T> a = sizes<T>(call, &call->in_type[0], 0);
  a.mask.ids = (const int32_t *)sli_optional(call, ids);
  rows_of_q(a, call->in_type[0].dim[2]);
  a.kv_row = call->in_type[1].dim[2];
  a.kv_batch = a.queries * a.kv_row;
  a.q = (const T *)call->in[0];
  a.k = (const T *)call->in[1];
  a.v = (const T *)call->in[2];
  return a;
}

/* Sets o, lse and do from inputs i, i + 1 and i + 2. */
template <typename T> void backward_inputs(const sl_call *call, attention<T> &a, int i) {
  a.o = (const T *)call->in[i];
  a.logs.lse = (float *)call->in[i + 1];
  a.dout = (const T *)call->in[i + 2];
  a.logs.delta = (float *)call->scratch;
}

/* Restricts an attention to a run of its queries. */
template <typename T> attention<T> of_run(attention<T> a, sli_query_run run) {
  int64_t q = run.row * a.q_row, o = run.row * a.o_row;
  a.queries = run.rows;
  a.q0 = run.at;
  a.q += q;
  a.o = a.o ? a.o + o : NULL;
  a.dout = a.dout ? a.dout + o : NULL;
  a.out = a.out ? a.out + o : NULL;
  a.dq = a.dq ? a.dq + run.row * a.dq_row : NULL;
  a.logs.lse = a.logs.lse ? a.logs.lse + run.row : NULL;
  a.logs.delta = a.logs.delta ? a.logs.delta + run.row : NULL;
  a.comes.seen = a.comes.seen ? a.comes.seen + run.row : NULL;
  return a;
}

/* Calls f(run, is_first) for each run of the call's queries. */
template <typename T, typename F> void each_run(const sl_call *call, const attention<T> &a, F f) {
  sli_query_run runs[SLI_QUERY_RUNS];
  int count = sli_query_runs(call, a.queries, runs);
  for (int i = 0; i < count; i++) f(of_run(a, runs[i]), i == 0);
}

/* A copy of rows of `width` elements, in `batch` sequences. Strides are in elements. */
template <typename T> struct block {
  const T *from;
  T *to;
  int64_t from_row, from_batch, to_row, to_batch, width;
};

template <typename T, int N> __global__ void move(block<T> m) {
  const T *from = m.from + blockIdx.y * m.from_batch + blockIdx.x * m.from_row;
  T *to = m.to + blockIdx.y * m.to_batch + blockIdx.x * m.to_row;
  for (int64_t c = (int64_t)threadIdx.x * N; c < m.width; c += (int64_t)blockDim.x * N)
    write_pack(to + c, read_pack<N>(from + c));
}

/* Returns true if all rows begin at pack boundaries. */
template <typename T> bool is_aligned(const block<T> &m) {
  int64_t together = m.from_row | m.from_batch | m.to_row | m.to_batch | m.width;
  return together % wide<T> == 0 && ((uintptr_t)m.from | (uintptr_t)m.to) % 16 == 0;
}

template <typename T> void move_rows(const block<T> &m, int64_t rows, int64_t batch, void *stream) {
  if (!m.to) return;
  dim3 grid((unsigned)rows, (unsigned)batch);
  if (is_aligned(m)) launch(stream, grid, threads_for(m.width / wide<T>), 0, move<T, wide<T>>, m);
  else launch(stream, grid, threads_for(m.width), 0, move<T, 1>, m);
}

/* Copies the piece's ids, the call's last input, into their record, the last output. */
inline const void *keep_ids(const sl_call *call, void *stream) {
  int64_t n = call->in_type[call->nin - 1].dim[1], length = call->attrs->place.length;
  block<int32_t> m = {(const int32_t *)call->in[call->nin - 1],
                      (int32_t *)call->out[call->nout - 1] + call->tick.row,
                      n,
                      n,
                      length,
                      length,
                      n};
  dim3 grid(1, (unsigned)call->in_type[0].dim[0]);
  launch(stream, grid, threads_for(n), 0, move<int32_t, 1>, m);
  return call->out[call->nout - 1];
}

} // namespace sli

#endif
