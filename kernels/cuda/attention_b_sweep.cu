/* SPDX-License-Identifier: Apache-2.0 */
/* Backward pass of attention in f32 whose keys arrive piece by piece (attention_backward.cuh). */
#include "kernels/cuda/attention_backward.cuh"

namespace sli {

void attend_sweep_b(const attention<float> &a, void *stream) { launch_backward<true>(a, stream); }
cudaError_t allow_attend_sweep_b(int64_t dim) { return allow_all<float, true>(dim); }

} // namespace sli
