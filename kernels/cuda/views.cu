/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of the same elements into another shape or order. */
#include "kernels/cuda/device.cuh"
#include "ops/layout.h"

namespace {

using namespace sli;

void copy(const sl_call *call, void *stream) {
  if (call->in[0] == call->out[0]) return;
  cudaMemcpyAsync(call->out[0], call->in[0], sl_type_bytes(&call->out_type[0]), cudaMemcpyDefault,
                  (cudaStream_t)stream);
}

template <typename T> __global__ void permute(sli_permutation order, const T *x, T *y, int64_t n) {
  int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
  if (i < n) y[i] = x[sli_permutation_from(&order, i)];
}

template <typename T>
void permute_as(const sl_call *call, void *stream, const sli_permutation &order) {
  int64_t n = sl_type_elements(&call->out_type[0]);
  launch(stream, grid_of(chunks(n, BLOCK)), BLOCK, 0, permute<T>, order, (const T *)call->in[0],
         (T *)call->out[0], n);
}

void move_by(const sl_call *call, void *stream, const sli_permutation &order) {
  switch (sl_dtype_bytes(call->in_type[0].dtype)) {
  case 2: return permute_as<uint16_t>(call, stream, order);
  case 4: return permute_as<uint32_t>(call, stream, order);
  default: return permute_as<uint64_t>(call, stream, order);
  }
}

void permute_by(const sl_call *call, void *stream, bool back) {
  move_by(call, stream, sli_permutation_of(&call->in_type[0], call->attrs, back));
}

} // namespace

void sli_cuda_reshape(const sl_call *call, void *stream) { copy(call, stream); }
void sli_cuda_reshape_b(const sl_call *call, void *stream) { copy(call, stream); }
void sli_cuda_permute(const sl_call *call, void *stream) { permute_by(call, stream, false); }
void sli_cuda_permute_b(const sl_call *call, void *stream) { permute_by(call, stream, true); }
void sli_cuda_expand(const sl_call *call, void *stream) {
  move_by(call, stream, sli_expansion_of(&call->in_type[0], &call->out_type[0]));
}
