/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA attention ops for sequences whose positions are sharded over devices: in steps, chunk by
 * chunk, and for a share of a piece's queries. ops/attention_step.c and ops/attention_share.c
 * describe them. Each run of queries is one attention for the kernels of attention_forward.cuh. */
#include "kernels/cuda/attention_views.cuh"

namespace {

using namespace sli;

/* ---- chunk by chunk ------------------------------------------------ */

enum { IDS = 2, STEP_O, STEP_LSE };
enum { BACK_O = 2, BACK_IDS = 5, BACK_DQ }; /* BACK_O: o, lse and do */

const sli_spans *spans_of(const sl_call *call) { return (const sli_spans *)call->attrs->user; }

/* Initialises output o, which is at `to`, with the state that the previous step left. */
void begin(const sl_call *call, int i, int o, void *to, void *stream) {
  const void *from = sli_optional(call, i);
  size_t bytes = sl_type_bytes(&call->out_type[o]);
  if (from == to) return;
  if (from) cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, (cudaStream_t)stream);
  else cudaMemsetAsync(to, 0, bytes, (cudaStream_t)stream);
}

/* Fills an attention of all queries of the call to the keys of a span. */
attention<float> chunk(const sl_call *call, const sli_span *s, const void *ids) {
  attention<float> a = sizes<float>(call, &call->in_type[0], 0);
  rows_of_q(a, a.o_row);
  a.keys = s->keys;
  a.kv_row = 2 * a.kv_heads * a.dim;
  a.kv_batch = call->in_type[1].dim[1] * a.kv_row;
  a.mask = sli_mask_of(call->attrs, spans_of(call)->length, ids);
  if (ids) a.mask.ids += s->at_key;
  a.q = (const float *)call->in[0];
  a.k = (const float *)call->in[1] + s->key * a.kv_row;
  a.v = a.k + a.kv_row / 2;
  return a;
}

sli_query_run run_of(const sli_span *s) { return {s->query, s->queries, s->at_query - s->at_key}; }

/* ---- a share of a piece's queries ------------------------------------------------ */

enum { SHARE_KV = 5, SHARE_IDS };

/* Fills an attention of all queries of the call to the m positions of its piece. */
template <typename T>
attention<T> share(const sl_call *call, int64_t m, const void *record, const void *ids) {
  attention<T> a = sizes<T>(call, &call->in_type[0], call->tick.row);
  rows_of_q(a, a.o_row);
  a.keys = call->tick.row + m;
  a.kv_row = 2 * a.kv_heads * a.dim;
  a.kv_batch = call->attrs->place.length * a.kv_row;
  a.mask = sli_mask_of(call->attrs, call->attrs->place.length, ids);
  a.q = (const T *)call->in[0];
  a.k = (const T *)record;
  a.v = a.k + a.kv_row / 2;
  return a;
}

template <typename T>
void share_forward(const sl_call *call, const void *record, const void *ids, void *stream) {
  attention<T> a = share<T>(call, call->in_type[1].dim[1], record, ids);
  a.out = (T *)call->out[0];
  a.logs.lse = (float *)call->out[1];
  each_run(call, a, [&](const attention<T> &run, bool) { attend(run, stream); });
}

template <typename T> void share_backward(const sl_call *call, void *stream) {
  int64_t m = call->in_type[SHARE_KV].dim[1];
  attention<T> a = share<T>(call, m, call->in[1], sli_optional(call, SHARE_IDS));
  T *record = (T *)call->out[2];
  backward_inputs(call, a, 2);
  a.dq = (T *)call->out[0];
  a.dk = record;
  a.dv = record + a.kv_row / 2;
  each_run(call, a, [&](attention<T> run, bool first) {
    run.adds.kv = !first || a.keys < call->attrs->place.length;
    attend_b(run, stream);
  });
  move_rows(block<T>{record + call->tick.row * a.kv_row, (T *)call->out[1], a.kv_row, a.kv_batch,
                     a.kv_row, m * a.kv_row, a.kv_row},
            m, a.batch, stream);
}

template <typename T> void keep_keys(const sl_call *call, void *stream) {
  const sl_type *kv = &call->in_type[1];
  int64_t m = kv->dim[1], row = kv->dim[2];
  move_rows(block<T>{(const T *)call->in[1], (T *)call->out[2] + call->tick.row * row, row, m * row,
                     row, call->attrs->place.length * row, row},
            m, kv->dim[0], stream);
}

} // namespace

void sli_cuda_attention_step(const sl_call *call, void *stream) {
  const sli_spans *s = spans_of(call);
  float *lse = call->out[1] ? (float *)call->out[1] : (float *)call->scratch;
  begin(call, STEP_O, 0, call->out[0], stream);
  begin(call, STEP_LSE, 1, lse, stream);
  for (int i = 0; i < s->n; i++) {
    attention<float> a = chunk(call, &s->items[i], sli_optional(call, IDS));
    a.out = (float *)call->out[0];
    a.logs.lse = lse;
    a.adds.out = !s->items[i].fresh;
    attend(of_run(a, run_of(&s->items[i])), stream);
  }
}

void sli_cuda_attention_step_b(const sl_call *call, void *stream) {
  const sli_spans *s = spans_of(call);
  begin(call, BACK_DQ, 0, call->out[0], stream);
  if (call->out[1])
    cudaMemsetAsync(call->out[1], 0, sl_type_bytes(&call->out_type[1]), (cudaStream_t)stream);
  for (int i = 0; i < s->n; i++) {
    attention<float> a = chunk(call, &s->items[i], sli_optional(call, BACK_IDS));
    backward_inputs(call, a, BACK_O);
    a.dq = (float *)call->out[0];
    a.dk = call->out[1] ? (float *)call->out[1] + s->items[i].key * a.kv_row : NULL;
    a.dv = a.dk ? a.dk + a.kv_row / 2 : NULL;
    a.adds.dq = a.adds.kv = true;
    attend_b(of_run(a, run_of(&s->items[i])), stream);
  }
}

/* Scratch for the lse, which the last step need not output. */
size_t sli_cuda_attention_step_scratch(const sl_call *call) {
  return sl_type_bytes(&call->out_type[1]);
}

void sli_cuda_attention_share(const sl_call *call, void *stream) {
  const void *ids = call->nin > 2 ? keep_ids(call, stream) : NULL;
  with_elements(call->in_type[0].dtype, [&](auto element) {
    using T = decltype(element);
    keep_keys<T>(call, stream);
    share_forward<T>(call, call->out[2], ids, stream);
  });
}

void sli_cuda_attention_share_again(const sl_call *call, void *stream) {
  int record = call->nin > 3 ? 3 : 2;
  with_elements(call->in_type[0].dtype, [&](auto element) {
    share_forward<decltype(element)>(call, call->in[record], sli_optional(call, record + 1),
                                     stream);
  });
}

void sli_cuda_attention_share_b(const sl_call *call, void *stream) {
  with_elements(call->in_type[0].dtype,
                [&](auto element) { share_backward<decltype(element)>(call, stream); });
}
