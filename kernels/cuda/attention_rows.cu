/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA attention ops on whole sequences and on pieces: views of separate and of packed tensors for
 * the kernels of attention_forward.cuh. ops/attention.c and ops/attention_piece.c describe the ops.
 */
#include "kernels/cuda/attention_views.cuh"

namespace {

using namespace sli;

/* ---- whole sequences ------------------------------------------------ */

template <typename T> attention<T> packed(const sl_call *call, const sl_type *o, int ids) {
  attention<T> a = sizes<T>(call, o, 0);
  a.mask.ids = (const int32_t *)sli_optional(call, ids);
  rows_of_q(a, call->in_type[0].dim[2]);
  a.kv_row = a.q_row;
  a.kv_batch = a.q_batch;
  a.q = (const T *)call->in[0];
  a.k = a.q + a.heads * a.dim;
  a.v = a.k + a.kv_heads * a.dim;
  return a;
}

template <typename T> void forward(const sl_call *call, attention<T> a, void *stream) {
  a.out = (T *)call->out[0];
  a.logs.lse = (float *)call->out[1];
  attend(a, stream);
}

/* ---- pieces ------------------------------------------------ */

/* Fills the record's strides, keys and values. `ids` covers the whole sequence. */
template <typename T>
attention<T> piece(const sl_call *call, const sl_type *o, const void *record, const void *ids) {
  attention<T> a = sizes<T>(call, o, call->tick.row);
  a.kv_row = 2 * a.kv_heads * a.dim;
  a.kv_batch = call->attrs->place.length * a.kv_row;
  a.mask = sli_mask_of(call->attrs, call->attrs->place.length, ids);
  a.k = (const T *)record;
  a.v = a.k + a.kv_heads * a.dim;
  return a;
}

/* Copies the piece's k or v into the record. */
template <typename T>
void keep(const attention<T> &a, const T *x, int64_t row, T *record, void *stream) {
  block<T> m = {x,          record + a.q0 * a.kv_row, row, a.queries * row, a.kv_row,
                a.kv_batch, a.kv_heads * a.dim};
  move_rows(m, a.queries, a.batch, stream);
}

/* Copies the piece's rows of the record to dk or dv. */
template <typename T>
void give(const attention<T> &a, const T *record, T *x, int64_t row, void *stream) {
  block<T> m = {record + a.q0 * a.kv_row, x, a.kv_row, a.kv_batch, row, a.queries * row,
                a.kv_heads * a.dim};
  move_rows(m, a.queries, a.batch, stream);
}

template <typename T> void piece_forward(const sl_call *call, void *stream) {
  const void *ids = call->nin > 3 ? keep_ids(call, stream) : NULL;
  attention<T> a = piece<T>(call, &call->out_type[0], call->out[2], ids);
  int64_t own = a.kv_heads * a.dim;
  T *record = (T *)call->out[2];
  rows_of_q(a, a.o_row);
  a.q = (const T *)call->in[0];
  keep(a, (const T *)call->in[1], own, record, stream);
  keep(a, (const T *)call->in[2], own, record + own, stream);
  forward(call, a, stream);
}

template <typename T> void packed_piece_forward(const sl_call *call, void *stream) {
  const void *ids = call->nin > 1 ? keep_ids(call, stream) : NULL;
  attention<T> a = piece<T>(call, &call->out_type[0], call->out[2], ids);
  int64_t own = a.kv_heads * a.dim, row = call->in_type[0].dim[2];
  T *record = (T *)call->out[2];
  rows_of_q(a, row);
  a.q = (const T *)call->in[0];
  const T *k = a.q + a.heads * a.dim;
  keep(a, k, row, record, stream);
  keep(a, k + own, row, record + own, stream);
  move_rows(block<T>{a.q, (T *)call->out[3], row, a.q_batch, a.o_row, a.o_batch, a.o_row},
            a.queries, a.batch, stream);
  forward(call, a, stream);
}

template <typename T> void piece_forward_again(const sl_call *call, void *stream) {
  int kv = call->nin > 4 ? 4 : 3;
  attention<T> a = piece<T>(call, &call->out_type[0], call->in[kv], sli_optional(call, kv + 1));
  rows_of_q(a, a.o_row);
  a.q = (const T *)call->in[0];
  forward(call, a, stream);
}

template <typename T> void packed_piece_forward_again(const sl_call *call, void *stream) {
  int kv = call->nin > 2 ? 2 : 1;
  attention<T> a = piece<T>(call, &call->out_type[0], call->in[kv], sli_optional(call, kv + 1));
  int64_t row = call->in_type[0].dim[2];
  rows_of_q(a, row);
  a.q = (const T *)call->in[0];
  move_rows(block<T>{a.q, (T *)call->out[3], row, a.q_batch, a.o_row, a.o_batch, a.o_row},
            a.queries, a.batch, stream);
  forward(call, a, stream);
}

/* in: q, kv, o, lse, do, [ids]. Rows of dq are dq_row apart, rows of dk and dv kv_row. */
template <typename T> void piece_backward(const sl_call *call, T *record, T *dq, int64_t dq_row,
                                          T *dk, T *dv, int64_t kv_row, void *stream) {
  attention<T> a = piece<T>(call, &call->in_type[2], call->in[1], sli_optional(call, 5));
  int64_t own = a.kv_heads * a.dim;
  rows_of_q(a, a.o_row);
  a.dq_row = dq_row;
  a.dq_batch = a.queries * dq_row;
  a.q = (const T *)call->in[0];
  backward_inputs(call, a, 2);
  a.dq = dq;
  a.dk = record;
  a.dv = record + own;
  a.adds.kv = a.keys < call->attrs->place.length;
  attend_b(a, stream);
  give(a, record, dk, kv_row, stream);
  give(a, record + own, dv, kv_row, stream);
}

} // namespace

void sli_cuda_attention(const sl_call *call, void *stream) {
  with_elements(call->in_type[0].dtype,
                [&](auto element) { forward(call, separate<decltype(element)>(call, 3), stream); });
}

void sli_cuda_attention_packed(const sl_call *call, void *stream) {
  with_elements(call->in_type[0].dtype, [&](auto element) {
    forward(call, packed<decltype(element)>(call, &call->out_type[0], 1), stream);
  });
}

/* Scratch for one number per query and head. */
size_t sli_cuda_attention_b_scratch(const sl_call *call) {
  const sl_type *q = &call->in_type[0];
  return (size_t)(q->dim[0] * q->dim[1] * call->attrs->attention.heads) * sizeof(float);
}

void sli_cuda_attention_b(const sl_call *call, void *stream) {
  with_elements(call->in_type[0].dtype, [&](auto element) {
    using T = decltype(element);
    attention<T> a = separate<T>(call, 6);
    backward_inputs(call, a, 3);
    a.dq = (T *)call->out[0];
    a.dk = (T *)call->out[1];
    a.dv = (T *)call->out[2];
    attend_b(a, stream);
  });
}

void sli_cuda_attention_packed_b(const sl_call *call, void *stream) {
  with_elements(call->in_type[0].dtype, [&](auto element) {
    using T = decltype(element);
    attention<T> a = packed<T>(call, &call->in_type[1], 4);
    backward_inputs(call, a, 1);
    a.dq = (T *)call->out[0];
    a.dk = a.dq + a.heads * a.dim;
    a.dv = a.dk + a.kv_heads * a.dim;
    attend_b(a, stream);
  });
}

void sli_cuda_attention_piece(const sl_call *call, void *stream) {
  with_elements(call->in_type[0].dtype,
                [&](auto element) { piece_forward<decltype(element)>(call, stream); });
}

void sli_cuda_attention_packed_piece(const sl_call *call, void *stream) {
  with_elements(call->in_type[0].dtype,
                [&](auto element) { packed_piece_forward<decltype(element)>(call, stream); });
}

void sli_cuda_attention_piece_again(const sl_call *call, void *stream) {
  with_elements(call->in_type[0].dtype,
                [&](auto element) { piece_forward_again<decltype(element)>(call, stream); });
}

void sli_cuda_attention_packed_piece_again(const sl_call *call, void *stream) {
  with_elements(call->in_type[0].dtype,
                [&](auto element) { packed_piece_forward_again<decltype(element)>(call, stream); });
}

void sli_cuda_attention_piece_b(const sl_call *call, void *stream) {
  with_elements(call->in_type[0].dtype, [&](auto element) {
    using T = decltype(element);
    piece_backward<T>(call, (T *)call->out[3], (T *)call->out[0], call->in_type[0].dim[2],
                      (T *)call->out[1], (T *)call->out[2], call->out_type[1].dim[2], stream);
  });
}

void sli_cuda_attention_packed_piece_b(const sl_call *call, void *stream) {
  with_elements(call->in_type[0].dtype, [&](auto element) {
    using T = decltype(element);
    int64_t row = call->out_type[0].dim[2], queries = call->in_type[0].dim[2];
    T *dq = (T *)call->out[0], *dk = dq ? dq + queries : NULL;
    T *dv = dq ? dk + (row - queries) / 2 : NULL;
    piece_backward<T>(call, (T *)call->out[1], dq, row, dk, dv, row, stream);
  });
}

sl_status sli_cuda_attention_prepare(const sl_call *call, void **state) {
  *state = NULL;
  return prepare_attend(call->in_type[0].dtype,
                        call->in_type[0].dim[2] / call->attrs->attention.heads);
}

sl_status sli_cuda_attention_packed_prepare(const sl_call *call, void **state) {
  *state = NULL;
  return prepare_attend(
      call->in_type[0].dtype,
      call->in_type[0].dim[2] / (call->attrs->attention.heads + 2 * kv_heads(call)));
}
