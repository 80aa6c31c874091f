/* SPDX-License-Identifier: Apache-2.0 */
/* Helpers of the kernels of served graphs. Their last input is the batch, in device memory. The
 * host knows only how many rows a tick has (sl_call_rows). */
#ifndef SLUICE_CUDA_SERVED_CUH
#define SLUICE_CUDA_SERVED_CUH

#include "kernels/cuda/batch.cuh"
#include "kernels/cuda/device.cuh"

namespace sli {

inline const sl_batch *batch_of(const sl_call *call) {
  return (const sl_batch *)call->in[call->nin - 1];
}

/* Returns the number of valid rows of input 0. */
inline int64_t served_rows(const sl_call *call) {
  return sl_call_rows(call, 0, sl_type_rows(&call->in_type[0]));
}

/* Returns the number of valid ids. */
inline int64_t valid_ids(const sl_call *call) {
  const sl_type *ids = &call->in_type[1];
  int64_t rows = ids->dim[ids->ndim > 1 && ids->dim[0] == 1];
  return sl_type_elements(ids) / rows * sl_call_rows(call, 1, rows);
}

/* Returns the page of a row's position, or of an earlier one, in its sequence. */
__device__ inline int64_t page_of(const sl_batch *batch, int64_t row, int64_t position) {
  return sl_batch_table(batch, sl_batch_sequence_of(batch)[row])[position / SL_PAGE];
}

} // namespace sli

#endif
