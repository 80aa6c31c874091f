/* SPDX-License-Identifier: Apache-2.0 */
/* Attention with sinks: plain attention, followed by scaling of the rows. For a row with l = log
 * sum e^s and sink t, the result is that without the sink times 1 / (1 + e^(t - l)), and the lse is
 * log(e^l + e^t). With both, the backward pass of plain attention gives the gradients of q, k and
 * v; the gradient of a sink is -e^(t - lse) dO . O. */
#include "kernels/cuda/device.cuh"

namespace {

using namespace sli;

/* A call without its input 3, the sinks. */
struct plain_call {
  const void *in[8];
  void *out[3];
  sl_type in_type[8];
  sl_call call;
};

void leave_out_sinks(const sl_call *call, plain_call *to) {
  to->call = *call;
  for (int i = 0, n = 0; i < call->nin; i++) {
    if (i == 3) continue;
    to->in[n] = call->in ? call->in[i] : nullptr;
    to->in_type[n++] = call->in_type[i];
  }
  for (int o = 0; o < 3 && o < call->nout; o++) to->out[o] = call->out ? call->out[o] : nullptr;
  to->call.nin--;
  to->call.in = to->in;
  to->call.in_type = to->in_type;
  to->call.out = to->out;
}

/* Rows of heads: o [rows, heads, dim], sinks [rows, heads], lse [batch, heads, length]. */
struct sink_rows {
  int64_t heads, dim, length;
  const float *sinks;
  __device__ int64_t lse_at(int64_t row, int64_t h) const {
    return (row / length * heads + h) * length + row % length;
  }
};

sink_rows rows_of(const sl_call *call) {
  const sl_type *q = &call->in_type[0];
  return {call->attrs->heads, q->dim[2] / call->attrs->heads, q->dim[1],
          (const float *)call->in[3]};
}

/* One warp per row and head. Results that are not needed are NULL. */
__global__ void scale_rows(sink_rows s, const float *from, float *o, const float *l, float *lse,
                           int64_t count) {
  int64_t i = (int64_t)blockIdx.x * (BLOCK / WARP) + threadIdx.x / WARP;
  if (i >= count) return;
  int64_t at = s.lse_at(i / s.heads, i % s.heads);
  float sink = s.sinks[i], before = l[at], part = sli_sigmoid(before - sink);
  for (int64_t d = threadIdx.x % WARP; o && d < s.dim; d += WARP)
    o[i * s.dim + d] = from[i * s.dim + d] * part;
  float top = before > sink ? before : sink;
  if (lse && threadIdx.x % WARP == 0) lse[at] = top + logf(expf(before - top) + expf(sink - top));
}

__global__ void differentiate_sinks(sink_rows s, const float *o, const float *lse, const float *d_o,
                                    float *dsinks, int64_t count) {
  int64_t i = (int64_t)blockIdx.x * (BLOCK / WARP) + threadIdx.x / WARP;
  float product = 0;
  if (i < count)
    for (int64_t d = threadIdx.x % WARP; d < s.dim; d += WARP)
      product += o[i * s.dim + d] * d_o[i * s.dim + d];
  product = warp_sum(product);
  if (i < count && threadIdx.x % WARP == 0)
    dsinks[i] = -expf(s.sinks[i] - lse[s.lse_at(i / s.heads, i % s.heads)]) * product;
}

int64_t sinks_of(const sl_call *call) { return sl_type_elements(&call->in_type[3]); }
dim3 warps_for(int64_t count) { return grid_of(chunks(count, BLOCK / WARP)); }

} // namespace

/* Space for the plain result and its lse. */
size_t sli_cuda_attention_sinks_scratch(const sl_call *call) {
  return sl_type_bytes(&call->in_type[0]) + sizeof(float) * (size_t)sinks_of(call);
}

void sli_cuda_attention_sinks(const sl_call *call, void *stream) {
  plain_call plain;
  float *o = (float *)call->scratch, *lse = o + sl_type_elements(&call->in_type[0]);
  leave_out_sinks(call, &plain);
  plain.out[0] = o;
  plain.out[1] = lse;
  sli_cuda_attention(&plain.call, stream);
  launch(stream, warps_for(sinks_of(call)), BLOCK, 0, scale_rows, rows_of(call), (const float *)o,
         (float *)call->out[0], (const float *)lse, (float *)call->out[1], sinks_of(call));
}

size_t sli_cuda_attention_sinks_b_scratch(const sl_call *call) {
  plain_call plain;
  leave_out_sinks(call, &plain);
  return sli_cuda_attention_b_scratch(&plain.call);
}

void sli_cuda_attention_sinks_b(const sl_call *call, void *stream) {
  plain_call plain;
  leave_out_sinks(call, &plain);
  if (plain.out[0] || plain.out[1] || plain.out[2]) sli_cuda_attention_b(&plain.call, stream);
  if (call->out[3])
    launch(stream, warps_for(sinks_of(call)), BLOCK, 0, differentiate_sinks, rows_of(call),
           (const float *)call->in[4], (const float *)call->in[5], (const float *)call->in[6],
           (float *)call->out[3], sinks_of(call));
}

sl_status sli_cuda_attention_sinks_prepare(const sl_call *call, void **state) {
  plain_call plain;
  leave_out_sinks(call, &plain);
  return sli_cuda_attention_prepare(&plain.call, state);
}
