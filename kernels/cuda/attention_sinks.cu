/* SPDX-License-Identifier: Apache-2.0 */
/* Attention with sinks: plain attention, followed by scaling of the rows. For a row with l = log
 * sum e^s and sink t, the result is that without the sink times 1 / (1 + e^(t - l)), and the lse is
 * log(e^l + e^t). With both, the backward pass of plain attention gives the gradients of q, k and
 * v; the gradient of a sink is -e^(t - lse) dO . O. */
#include "kernels/cuda/device.cuh"
#include "ops/attention_piece.h"

namespace {

using namespace sli;

enum { SINKS = 3 }; /* their input in forward calls, and their gradient's output */

/* A call without its sinks and their gradient. */
struct plain_call {
  const void *in[8];
  void *out[5];
  sl_type in_type[8], out_type[5];
  sl_call call;
};

/* Leaves out an input and, if it is not negative, an output. */
void leave_out(const sl_call *call, int input, int output, plain_call *to) {
  to->call = *call;
  to->call.nin = to->call.nout = 0;
  for (int i = 0; i < call->nin; i++) {
    if (i == input) continue;
    to->in[to->call.nin] = call->in ? call->in[i] : nullptr;
    to->in_type[to->call.nin++] = call->in_type[i];
  }
  for (int o = 0; o < call->nout; o++) {
    if (o == output) continue;
    to->out[to->call.nout] = call->out ? call->out[o] : nullptr;
    to->out_type[to->call.nout++] = call->out_type[o];
  }
  to->call.in = to->in;
  to->call.in_type = to->in_type;
  to->call.out = to->out;
  to->call.out_type = to->out_type;
}

/* Rows of heads: o [rows, heads, dim], sinks [rows, heads], lse [batch, heads, length]. */
struct sink_rows {
  int64_t heads, dim, length;
  const float *sinks;
  __device__ int64_t lse_at(int64_t row, int64_t h) const {
    return (row / length * heads + h) * length + row % length;
  }
};

sink_rows rows_of(const sl_call *call, int sinks) {
  const sl_type *q = &call->in_type[0];
  return {call->attrs->attention.heads, q->dim[2] / call->attrs->attention.heads, q->dim[1],
          (const float *)call->in[sinks]};
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

int64_t sinks_of(const sl_call *call, int sinks) { return sl_type_elements(&call->in_type[sinks]); }
dim3 warps_for(int64_t count) { return grid_of(chunks(count, BLOCK / WARP)); }

typedef void kernel(const sl_call *call, void *stream);

/* Attends, then scales the rows. */
void forward(const sl_call *call, kernel *attend, void *stream) {
  plain_call plain;
  int64_t count = sinks_of(call, SINKS);
  float *o = (float *)call->scratch, *lse = o + sl_type_elements(&call->in_type[0]);
  leave_out(call, SINKS, -1, &plain);
  plain.out[0] = o;
  plain.out[1] = lse;
  attend(&plain.call, stream);
  launch(stream, warps_for(count), BLOCK, 0, scale_rows, rows_of(call, SINKS), (const float *)o,
         (float *)call->out[0], (const float *)lse, (float *)call->out[1], count);
}

/* Computes the gradients of plain attention, then those of the sinks; `o`: the input o, which lse
 * and do follow. */
void backward(const sl_call *call, kernel *attend_b, int sinks, int o, void *stream) {
  plain_call plain;
  int64_t count = sinks_of(call, sinks);
  bool any = false;
  leave_out(call, sinks, SINKS, &plain);
  for (int i = 0; i < plain.call.nout; i++) any |= plain.out[i] != nullptr;
  if (any) attend_b(&plain.call, stream);
  if (call->out[SINKS])
    launch(stream, warps_for(count), BLOCK, 0, differentiate_sinks, rows_of(call, sinks),
           (const float *)call->in[o], (const float *)call->in[o + 1],
           (const float *)call->in[o + 2], (float *)call->out[SINKS], count);
}

} // namespace

/* Space for the plain result and its lse. */
size_t sli_cuda_attention_sinks_scratch(const sl_call *call) {
  return sl_type_bytes(&call->in_type[0]) + sizeof(float) * (size_t)sinks_of(call, SINKS);
}

void sli_cuda_attention_sinks(const sl_call *call, void *stream) {
  forward(call, sli_cuda_attention, stream);
}

void sli_cuda_attention_sinks_piece(const sl_call *call, void *stream) {
  forward(call, sli_cuda_attention_piece, stream);
}

void sli_cuda_attention_sinks_piece_again(const sl_call *call, void *stream) {
  forward(call, sli_cuda_attention_piece_again, stream);
}

void sli_cuda_attention_sinks_b(const sl_call *call, void *stream) {
  backward(call, sli_cuda_attention_b, SINKS, 4, stream);
}

void sli_cuda_attention_sinks_piece_b(const sl_call *call, void *stream) {
  backward(call, sli_cuda_attention_piece_b, SLI_PIECE_MORE, SLI_PIECE_O, stream);
}
