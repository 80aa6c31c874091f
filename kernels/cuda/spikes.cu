/* SPDX-License-Identifier: Apache-2.0 */
/* Rows rounded to spikes, and weights rounded to int8 (ops/spikes.c). */
#include "kernels/cuda/device.cuh"
#include "ops/spikes.h"

namespace {

using namespace sli;

/* Rounds to the nearest integer, ties to even; 0 has no sign. */
__device__ inline float nearest(float x) { return rintf(x) + 0.0f; }

/* One block per row. */
__global__ void fire(const float *x, float *y, float *counts, int64_t width, float k) {
  const float *row = x + blockIdx.x * width;
  float sum = 0;
  for (int64_t c = threadIdx.x; c < width; c += BLOCK) sum += fabsf(row[c]);
  float at = block_sum(sum) / (float)width / k;
  at = at < SLI_SPIKE_LEAST ? SLI_SPIKE_LEAST : at > SLI_SPIKE_MOST ? SLI_SPIKE_MOST : at;
  int64_t spikes = 0, bits = 0;
  for (int64_t c = threadIdx.x; c < width; c += BLOCK) {
    float s = nearest(row[c] / at);
    int size = (int)fminf(fabsf(s), 0x1p30f);
    spikes += size > 0;
    bits += __popc((unsigned)size);
    if (y) y[blockIdx.x * width + c] = s * at;
  }
  spikes = block_sum(spikes);
  bits = block_sum(bits);
  if (!counts || threadIdx.x) return;
  float *to = counts + (int64_t)blockIdx.x * SLI_SPIKE_COUNTS;
  to[0] = (float)(width - spikes);
  to[1] = (float)bits;
  to[2] = (float)width;
}

/* One warp per group of numbers that share a scale. */
__global__ void round_groups(const float *w, float *y, int64_t width, int64_t groups,
                             int64_t each) {
  int64_t g = (int64_t)blockIdx.x * (BLOCK / WARP) + threadIdx.x / WARP;
  bool here = g < groups;
  int64_t from = here ? g / each * width + g % each * SLI_INT8_GROUP : 0;
  int64_t left = width - (here ? g % each : 0) * SLI_INT8_GROUP;
  int64_t n = left < SLI_INT8_GROUP ? left : (int64_t)SLI_INT8_GROUP;
  float most = 0;
  for (int64_t c = threadIdx.x % WARP; here && c < n; c += WARP)
    most = fmaxf(most, fabsf(w[from + c]));
#pragma unroll
  for (int k = WARP / 2; k; k /= 2) most = fmaxf(most, __shfl_xor_sync(ALL, most, k));
  float scale = most / SLI_INT8_MOST, by = scale > 0 ? scale : 1;
  for (int64_t c = threadIdx.x % WARP; here && c < n; c += WARP)
    y[from + c] = nearest(w[from + c] / by) * scale;
}

} // namespace

void sli_cuda_spikes(const sl_call *call, void *stream) {
  const sl_type *x = &call->in_type[0];
  float k = call->attrs->spikes.k > 0 ? call->attrs->spikes.k : SLI_SPIKE_K;
  launch(stream, grid_of(sl_type_rows(x)), BLOCK, 0, fire, (const float *)call->in[0],
         (float *)call->out[0], (float *)call->out[1], sl_type_last(x), k);
}

void sli_cuda_quantize(const sl_call *call, void *stream) {
  const sl_type *w = &call->in_type[0];
  int64_t width = sl_type_last(w), each = chunks(width, SLI_INT8_GROUP);
  int64_t groups = sl_type_rows(w) * each;
  launch(stream, grid_of(chunks(groups, BLOCK / WARP)), BLOCK, 0, round_groups,
         (const float *)call->in[0], (float *)call->out[0], width, groups, each);
}
