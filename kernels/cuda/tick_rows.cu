/* SPDX-License-Identifier: Apache-2.0 */
/* Shares the rows of a served tick among devices. The host knows how many there are. */
#include "kernels/cuda/device.cuh"
#include "ops/layout.h"

namespace {

void move_rows(const void *from, void *to, int64_t bytes, void *stream) {
  if (bytes) cudaMemcpyAsync(to, from, (size_t)bytes, cudaMemcpyDefault, (cudaStream_t)stream);
}

} // namespace

void sli_cuda_part_rows(const sl_call *call, void *stream) {
  int64_t width = sli_row_bytes(&call->in_type[0]),
          rows = sl_call_rows(call, 0, call->in_type[0].dim[1]);
  int64_t begin = sli_rows_before(call->attrs, rows, 0),
          end = sli_rows_before(call->attrs, rows, 1);
  move_rows((const char *)call->in[0] + begin * width, call->out[0], (end - begin) * width, stream);
  sl_call_fill(call, 0, end - begin);
}

void sli_cuda_join_rows(const sl_call *call, void *stream) {
  int64_t width = sli_row_bytes(&call->out_type[0]), done = 0;
  for (int i = 0; i < call->nin; i++) {
    int64_t rows = sl_call_rows(call, i, call->in_type[i].dim[1]);
    move_rows(call->in[i], (char *)call->out[0] + done * width, rows * width, stream);
    done += rows;
  }
  sl_call_fill(call, 0, done);
}
