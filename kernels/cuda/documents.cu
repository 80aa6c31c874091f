/* SPDX-License-Identifier: Apache-2.0 */
/* Numbering of the documents in a row of tokens (kernels/cpu/documents.c), one warp per row. */
#include "kernels/cuda/device.cuh"

namespace {

using namespace sli;

/* Number of documents that have ended, and the start of the current one. */
struct progress {
  int count, begin;
};

__global__ void tell(const int32_t *tokens, int64_t n, int row, int end, progress *record,
                     int32_t *ids, int32_t *positions) {
  int lane = (int)threadIdx.x;
  int64_t first = blockIdx.x * n;
  progress p = {0, 0};
  if (record && row) p = record[blockIdx.x];
  for (int64_t t0 = 0; t0 < n; t0 += WARP) {
    int64_t t = t0 + lane;
    unsigned ends = __ballot_sync(ALL, t < n && tokens[first + t] == end);
    unsigned before = ends & ((1u << lane) - 1);
    int at = row + (int)t, begin = before ? at - lane + WARP - __clz((int)before) : p.begin;
    if (t < n && ids) ids[first + t] = p.count + __popc(before);
    if (t < n && positions) positions[first + t] = at - begin;
    p.count += __popc(ends);
    if (ends) p.begin = row + (int)t0 + WARP - __clz((int)ends);
  }
  if (record && !lane) record[blockIdx.x] = p;
}

} // namespace

void sli_cuda_documents(const sl_call *call, void *stream) {
  const sl_type *type = &call->in_type[0];
  progress *record = call->nout > 2 ? (progress *)call->out[2] : NULL;
  launch(stream, grid_of(type->dim[0]), WARP, 0, tell, (const int32_t *)call->in[0], type->dim[1],
         (int)call->tick.row, call->attrs->tokens.end, record, (int32_t *)call->out[0],
         (int32_t *)call->out[1]);
}

void sli_cuda_documents_piece(const sl_call *call, void *stream) {
  sli_cuda_documents(call, stream);
}
