/* SPDX-License-Identifier: Apache-2.0 */
/* Backward pass of attention in f32 (attention_backward.cuh). */
#include "kernels/cuda/attention_backward.cuh"

namespace sli {

template void attend_b(const attention<float> &, void *);
cudaError_t allow_attend_b_f32(int64_t dim) { return allow_all<float, false>(dim); }

} // namespace sli
