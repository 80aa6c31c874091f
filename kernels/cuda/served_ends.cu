/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of a tick whose logits are needed. */
#include "kernels/cuda/served.cuh"

namespace {

using namespace sli;

/* One block per pick. */
template <int N>
__global__ void pick_rows(const int32_t *picks, const float *x, float *y, int64_t width) {
  int64_t i = blockIdx.x, row = picks[i];
  for (int64_t c = (int64_t)threadIdx.x * N; c < width; c += (int64_t)blockDim.x * N)
    write_pack(y + i * width + c, read_pack<N>(x + row * width + c));
}

} // namespace

void sli_cuda_pick(const sl_call *call, void *stream) {
  int64_t width = sl_type_last(&call->in_type[1]),
          count = sl_call_rows(call, 0, call->in_type[0].dim[0]);
  if (!count) return;
  with_packs<float>(width, [&](auto n) {
    constexpr int N = decltype(n)::value;
    launch(stream, grid_of(count), threads_for(width / N), 0, pick_rows<N>,
           (const int32_t *)call->in[0], (const float *)call->in[1], (float *)call->out[0], width);
  });
}
