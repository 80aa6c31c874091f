/* SPDX-License-Identifier: Apache-2.0 */
/* Attention by tiles in f32 (attention_forward.cuh), whole or with keys that arrive piece by piece.
 * Apart from bf16, since both take minutes to compile. */
#include "kernels/cuda/attention_forward.cuh"

namespace sli {

template void attend(const attention<float> &, void *);
cudaError_t allow_attend_f32(int64_t dim) { return allow_all<float>(dim); }

void attend_sweep(const attention<float> &a, void *stream) { launch_forward<true>(a, stream); }
cudaError_t allow_attend_sweep(int64_t dim) {
  return with_room(dim,
                   [](auto room) { return allow_both<cut<float, decltype(room)::value>, true>(); });
}

} // namespace sli
