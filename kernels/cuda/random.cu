/* SPDX-License-Identifier: Apache-2.0 */
/* Counter-based random numbers: each thread draws the numbers of its element. */
#include "base/philox.h"
#include "kernels/cuda/device.cuh"
#include "ops/layout.h"

namespace {

using namespace sli;

/* Positions of a call's elements, and the seed of its numbers. */
struct drawing {
  sl_region region;
  int64_t dim[SL_MAX_DIMS];
  int64_t row, before; /* start of the piece; elements of earlier microbatches */
  uint64_t key;
  int64_t step;
  bool whole;
};

drawing drawing_of(const sl_call *call) {
  drawing d = {};
  const sl_type *type = &call->out_type[0];
  int64_t n = sl_type_elements(type);
  d.whole = !call->attrs->region;
  if (!d.whole) {
    d.region = *call->attrs->region;
    n = 1;
    for (int i = 0; i < d.region.ndim; i++) n *= d.region.whole[i];
  }
  for (int i = 0; i < type->ndim; i++) d.dim[i] = type->dim[i];
  d.row = call->tick.row;
  d.before = call->tick.microbatch * n;
  d.key = sli_random_key(call->attrs);
  d.step = call->tick.step;
  return d;
}

/* Draws the words of the element's block; returns the index of its own word. */
__device__ inline int draw(const drawing &d, int64_t element, uint32_t words[4]) {
  int64_t run, at = d.before;
  at += d.whole ? element : sli_region_index(&d.region, d.dim, d.row, element, &run);
  uint64_t block = (uint64_t)at / 4;
  words[0] = (uint32_t)block;
  words[1] = (uint32_t)(block >> 32);
  words[2] = (uint32_t)d.step;
  words[3] = (uint32_t)((uint64_t)d.step >> 32);
  sli_philox(words, d.key);
  return (int)(at % 4);
}

__device__ inline float fraction(uint32_t word) { return (float)(word >> 8) * 0x1p-24f; }

template <typename T>
__global__ void drop(drawing d, const T *x, T *y, uint32_t below, float scale, int64_t n) {
  int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
  if (i >= n) return;
  uint32_t words[4];
  int own = draw(d, i, words);
  float to[1], from[1];
  load<1>(from, x + i);
  to[0] = words[own] < below ? 0.0f : from[0] * scale;
  store<1>(y + i, to);
}

__global__ void uniform(drawing d, float *y, float low, float high, int64_t n) {
  int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
  if (i >= n) return;
  uint32_t words[4];
  int own = draw(d, i, words);
  y[i] = low + (high - low) * fraction(words[own]);
}

__global__ void normal(drawing d, float *y, float mean, float deviation, int64_t n) {
  int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
  if (i >= n) return;
  uint32_t words[4];
  int own = draw(d, i, words), pair = own & ~1;
  float radius = sqrtf(-2.0f * logf(1.0f - fraction(words[pair])));
  float angle = 6.2831853071795865f * fraction(words[pair + 1]);
  y[i] = mean + deviation * radius * (own & 1 ? sinf(angle) : cosf(angle));
}

dim3 blocks_of(int64_t n) { return grid_of(chunks(n, BLOCK)); }

} // namespace

void sli_cuda_dropout(const sl_call *call, void *stream) {
  int64_t n = sl_type_elements(&call->out_type[0]);
  uint32_t below = (uint32_t)((double)call->attrs->distribution.dropped * 0x1p32);
  float scale = 1 / (1 - call->attrs->distribution.dropped);
  with_elements(call->in_type[0].dtype, [&](auto element) {
    using T = decltype(element);
    launch(stream, blocks_of(n), BLOCK, 0, drop<T>, drawing_of(call), (const T *)call->in[0],
           (T *)call->out[0], below, scale, n);
  });
}

void sli_cuda_uniform(const sl_call *call, void *stream) {
  int64_t n = sl_type_elements(&call->out_type[0]);
  launch(stream, blocks_of(n), BLOCK, 0, uniform, drawing_of(call), (float *)call->out[0],
         call->attrs->distribution.low, call->attrs->distribution.high, n);
}

void sli_cuda_normal(const sl_call *call, void *stream) {
  int64_t n = sl_type_elements(&call->out_type[0]);
  launch(stream, blocks_of(n), BLOCK, 0, normal, drawing_of(call), (float *)call->out[0],
         call->attrs->distribution.mean, call->attrs->distribution.deviation, n);
}
