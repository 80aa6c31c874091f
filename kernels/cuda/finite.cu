/* SPDX-License-Identifier: Apache-2.0 */
/* Checks of arrays: the first non-finite element, per block on the device and then over the blocks
 * on the host, and copies to the host. */
#include "kernels/cuda/device.cuh"
#include "kernels/finite.h"

bool sli_cuda_fetch(void *to, const void *from, size_t bytes, void *stream) {
  return !cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, (cudaStream_t)stream) &&
         !cudaStreamSynchronize((cudaStream_t)stream);
}

namespace {

using namespace sli;

constexpr int BLOCKS = SLI_CUDA_FINITE_BLOCKS;
constexpr int64_t NONE = INT64_MAX;

SLI_HD inline double number(double x) { return x; }
SLI_HD inline double number(float x) { return x; }
SLI_HD inline double number(bf16 x) { return sli_bf16_to_float(x.bits); }

/* Searches a block's part, a contiguous range that its threads scan side by side. */
template <typename T>
__global__ void first_not_finite(const T *x, int64_t n, int64_t share, int64_t *found) {
  __shared__ int64_t places[BLOCK];
  int64_t begin = (int64_t)blockIdx.x * share, end = begin + share < n ? begin + share : n;
  int64_t at = begin + threadIdx.x;
  while (at < end && isfinite(number(x[at]))) at += BLOCK;
  places[threadIdx.x] = at < end ? at : NONE;
  __syncthreads();
  if (threadIdx.x) return;
  int64_t first = NONE;
  for (int t = 0; t < BLOCK; t++) first = places[t] < first ? places[t] : first;
  found[blockIdx.x] = first;
}

template <typename T>
int64_t search(const T *x, int64_t n, void *scratch, void *stream, double *value) {
  int64_t found[BLOCKS], first = NONE;
  launch(stream, grid_of(BLOCKS), BLOCK, 0, first_not_finite<T>, x, n, chunks(n, BLOCKS),
         (int64_t *)scratch);
  if (!sli_cuda_fetch(found, scratch, sizeof found, stream)) return -1;
  for (int64_t at : found) first = at < first ? at : first;
  T element;
  if (first == NONE || !sli_cuda_fetch(&element, x + first, sizeof element, stream)) return -1;
  *value = number(element);
  return first;
}

} // namespace

int64_t sli_cuda_first_not_finite(const sl_type *type, const void *data, void *scratch,
                                  void *stream, double *value) {
  int64_t n = sl_type_elements(type), first = -1;
  if (type->dtype == SL_F64) return search((const double *)data, n, scratch, stream, value);
  if (type->dtype == SL_F32 || type->dtype == SL_BF16)
    with_elements(type->dtype, [&](auto element) {
      first = search((const decltype(element) *)data, n, scratch, stream, value);
    });
  return first;
}
