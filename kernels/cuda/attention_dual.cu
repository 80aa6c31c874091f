/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA kernels of dual-chunk attention (ops/attention_dual.c): for each chunk of queries, plain
 * attention to its own chunk of keys, to the previous chunk, and to all chunks before that, each
 * with its form of the queries. The results continue from one to the next as in a ring. */
#include "kernels/cuda/attention_views.cuh"

namespace {

using namespace sli;

enum { FORMS = 3, NEXT = 3, BACK_O = 5 }; /* inputs: q, k, v, next, far, [o, lse, do] */

/* Calls f(a, form) for each chunk of queries and each form of them that has keys. `a` is the
 * attention of all queries, with the arrays of the first form. */
template <typename F> void each_form(const sl_call *call, const attention<float> &a, F f) {
  int64_t chunk = call->attrs->attention.chunk;
  for (int64_t at = 0; at < a.queries; at += chunk) {
    const int64_t ends[FORMS] = {at < a.queries - chunk ? at + chunk : a.queries, at, at - chunk};
    const int64_t begins[FORMS] = {at, at - chunk, 0};
    for (int form = 0; form < FORMS && begins[form] >= 0 && ends[form] > begins[form]; form++) {
      attention<float> x = a;
      int64_t key = begins[form] * a.kv_row;
      x.q = (const float *)call->in[form ? NEXT + form - 1 : 0];
      x.k += key, x.v += key;
      x.dk = x.dk ? x.dk + key : NULL, x.dv = x.dv ? x.dv + key : NULL;
      x.keys = ends[form] - begins[form];
      f(of_run(x, {at, ends[0] - at, at - begins[form]}), form);
    }
  }
}

void zero(const sl_call *call, int o, void *stream) {
  if (call->out[o])
    cudaMemsetAsync(call->out[o], 0, sl_type_bytes(&call->out_type[o]), (cudaStream_t)stream);
}

} // namespace

/* Space for the results, which continue whether or not they are outputs. */
size_t sli_cuda_attention_dual_scratch(const sl_call *call) {
  return sl_type_bytes(&call->out_type[0]) + sl_type_bytes(&call->out_type[1]);
}

void sli_cuda_attention_dual(const sl_call *call, void *stream) {
  attention<float> a = separate<float>(call, call->nin);
  float *spare = (float *)call->scratch;
  a.out = call->out[0] ? (float *)call->out[0] : spare;
  a.logs.lse = call->out[1] ? (float *)call->out[1] : spare + sl_type_elements(&call->out_type[0]);
  each_form(call, a, [&](attention<float> x, int form) {
    x.adds.out = form > 0;
    attend(x, stream);
  });
}

/* out: dq, dk, dv, dnext, dfar. The first chunks have no keys for some forms. */
void sli_cuda_attention_dual_b(const sl_call *call, void *stream) {
  attention<float> a = separate<float>(call, call->nin);
  backward_inputs(call, a, BACK_O);
  a.dk = (float *)call->out[1];
  a.dv = (float *)call->out[2];
  a.adds.kv = true;
  for (int o = 1; o < call->nout; o++) zero(call, o, stream);
  each_form(call, a, [&](attention<float> x, int form) {
    float *dq = (float *)call->out[form ? NEXT + form - 1 : 0];
    x.dq = dq ? dq + (x.o - a.o) : NULL;
    attend_b(x, stream);
  });
}
