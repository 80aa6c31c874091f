/* Constants: brought to the device once, copied where they are read. */
#include <sluice/cuda.h>

#include "kernels/cuda/device.cuh"

sl_status sli_cuda_constant_prepare(const sl_call *call, void **state) {
  const sl_constant *constant = (const sl_constant *)call->attrs->user;
  size_t bytes = sl_type_bytes(&constant->type);
  void *values = NULL;
  if (cudaMalloc(&values, bytes))
    return sl_fail(SL_E_MEMORY, "no memory for a constant of %zu bytes", bytes);
  sl_status status = sl_cuda_copy(values, constant->values, bytes);
  if (status) cudaFree(values);
  else *state = values;
  return status;
}

void sli_cuda_constant_release(void *state) { cudaFree(state); }

void sli_cuda_constant(const sl_call *call, void *stream) {
  cudaMemcpyAsync(call->out[0], call->state, sl_type_bytes(&call->out_type[0]), cudaMemcpyDefault,
                  (cudaStream_t)stream);
}
