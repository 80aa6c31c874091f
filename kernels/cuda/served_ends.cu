/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of a tick: begin copies its tokens, pick the rows whose logits are needed. Both report their
 * number, which only the batch in device memory holds. */
#include "kernels/cuda/served.cuh"

namespace {

using namespace sli;

__global__ void begin_rows(const sl_batch *batch, const int32_t *tokens, int32_t *to,
                           int32_t *count) {
  int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
  if (i < batch->rows) to[i] = tokens[i];
  if (!i && count) *count = batch->rows;
}

/* One block per pick. */
template <int N> __global__ void pick_rows(const sl_batch *batch, const float *x, float *y,
                                           int64_t width, int32_t *count) {
  int64_t i = blockIdx.x;
  if (!i && !threadIdx.x && count) *count = batch->picks;
  if (i >= batch->picks) return;
  int64_t row = sl_batch_pick(batch)[i];
  for (int64_t c = (int64_t)threadIdx.x * N; c < width; c += (int64_t)blockDim.x * N)
    write_pack(y + i * width + c, read_pack<N>(x + row * width + c));
}

} // namespace

void sli_cuda_begin(const sl_call *call, void *stream) {
  launch(stream, grid_of(chunks(sl_type_elements(&call->in_type[0]), BLOCK)), BLOCK, 0, begin_rows,
         batch_of(call), (const int32_t *)call->in[0], (int32_t *)call->out[0], call->out_rows);
}

void sli_cuda_pick(const sl_call *call, void *stream) {
  int64_t width = sl_type_last(&call->in_type[0]);
  with_packs<float>(width, [&](auto n) {
    constexpr int N = decltype(n)::value;
    launch(stream, grid_of(call->out_type[0].dim[1]), threads_for(width / N), 0, pick_rows<N>,
           batch_of(call), (const float *)call->in[0], (float *)call->out[0], width,
           call->out_rows);
  });
}
