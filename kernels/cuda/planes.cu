/* SPDX-License-Identifier: Apache-2.0 */
/* Training of bit routers of experts in planes (ops/planes.h). */
#include "kernels/cuda/loaded.cuh"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/sort.cuh"
#include "ops/place.h"

namespace {

using namespace sli;

/* ---- values --------------------------------------------------------------------------------- */

constexpr int LANE_NUMBERS = SLI_PLANE_GROUP / WARP;

struct planes {
  const float *from;
  float *to;
  int64_t rows, k;
  int base, width;
};

__device__ inline float warp_most(float x) {
  for (int k = WARP / 2; k; k /= 2) x = fmaxf(x, __shfl_xor_sync(ALL, x, k));
  return x;
}

/* Numbers of the base's codes, from the least to the most of a group. */
__device__ inline void value_base(const float (&x)[LANE_NUMBERS], float least, float most, int base,
                                  float (&value)[LANE_NUMBERS]) {
  float top = (float)((1 << base) - 1);
  bool even = most == least;
  float s = even ? fabsf(most) : (most - least) / top;
  float z = even ? (float)(most < 0) : rintf(-least / s);
#pragma unroll
  for (int i = 0; i < LANE_NUMBERS; i++) {
    float q = s > 0 ? fminf(fmaxf(rintf(x[i] / s + z), 0), top) : 0;
    value[i] = (q - z) * s;
  }
}

/* A warp computes a group. A lane has every 32nd of its numbers. */
__global__ void value_groups(planes p) {
  int64_t each = sli_plane_groups(p.k);
  int64_t group = (int64_t)blockIdx.x * (BLOCK / WARP) + threadIdx.x / WARP;
  bool here = group < p.rows * each;
  if (!here) group = 0;
  int64_t begin = group % each * SLI_PLANE_GROUP, row = group / each * p.k + begin;
  int64_t left = p.k - begin, n = left < LANE_NUMBERS * WARP ? left : LANE_NUMBERS * WARP;
  int lane = (int)threadIdx.x % WARP;
  float x[LANE_NUMBERS], value[LANE_NUMBERS], first = p.from[row], least = first, most = first;
#pragma unroll
  for (int i = 0; i < LANE_NUMBERS; i++) {
    x[i] = lane + i * WARP < n ? p.from[row + lane + i * WARP] : first;
    least = fminf(least, x[i]);
    most = fmaxf(most, x[i]);
  }
  value_base(x, -warp_most(-least), warp_most(most), p.base, value);
  for (int plane = p.base; plane < p.width; plane++) {
    double sum = 0;
#pragma unroll
    for (int i = 0; i < LANE_NUMBERS; i++)
      if (lane + i * WARP < n) sum += fabsf(plain_sum(x[i], -value[i]));
    float s = (float)(warp_sum(sum) / (double)n);
#pragma unroll
    for (int i = 0; i < LANE_NUMBERS; i++) value[i] += plain_sum(x[i], -value[i]) >= 0 ? s : -s;
  }
#pragma unroll
  for (int i = 0; i < LANE_NUMBERS; i++)
    if (here && lane + i * WARP < n) p.to[row + lane + i * WARP] = value[i];
}

/* ---- choice --------------------------------------------------------------------------------- */

/* Rows of probabilities of widths, and the experts that limit them. */
struct choice {
  const float *p;
  const int32_t *ids;
  float *y;
  int64_t rows, widths, experts; /* experts: 0 without limits */
  int64_t capacity[SL_MAX_DIMS]; /* of each width, in SLI_BITS_ALL */
  const uint64_t *keys;          /* places, by falling p */
  uint8_t *chosen;               /* [rows] */
};

/* Orders places by falling p. */
struct falling {
  __device__ int64_t operator()(int32_t bits) const {
    uint32_t x = bits == INT32_MIN ? 0 : (uint32_t)bits; /* -0 is 0 */
    return (uint32_t) ~(x >> 31 ? ~x : x | 0x80000000u);
  }
};

/* Chooses the largest p of each row whose widths have no limit. */
__global__ void choose_alone(choice c) {
  int64_t r = (int64_t)blockIdx.x * BLOCK + threadIdx.x, best = 0;
  if (r >= c.rows || (c.ids[r] >= 0 && c.ids[r] < c.experts)) return;
  const float *p = c.p + r * c.widths;
  for (int64_t v = 1; v < c.widths; v++)
    if (p[v] > p[best]) best = v;
  c.y[r * c.widths + best] = 1;
}

/* A block takes the pairs of an expert in turn, from a tile of all pairs. */
__global__ void choose_limited(choice c) {
  __shared__ int64_t room[SL_MAX_DIMS];
  __shared__ int32_t places[BLOCK];
  int32_t expert = (int32_t)blockIdx.x;
  int mine = 0;
  for (int64_t r = threadIdx.x; r < c.rows; r += BLOCK) mine += c.ids[r] == expert;
  int64_t all = block_sum(mine), pairs = c.rows * c.widths;
  if (threadIdx.x < c.widths)
    room[threadIdx.x] = (all * c.capacity[threadIdx.x] + SLI_BITS_ALL - 1) / SLI_BITS_ALL;
  for (int64_t tile = 0; tile < pairs; tile += BLOCK) {
    int64_t i = tile + threadIdx.x, place = i < pairs ? place_of(c.keys[i]) : 0;
    bool own = i < pairs && c.ids[place / c.widths] == expert;
    __syncthreads(); /* the tile before has been taken */
    const int *before = sums_up_to((int)own);
    if (own) places[before[threadIdx.x] - 1] = (int32_t)place;
    int count = before[BLOCK - 1];
    __syncthreads();
    for (int n = 0; n < count && !threadIdx.x; n++) {
      int64_t row = places[n] / c.widths, v = places[n] % c.widths;
      if (c.chosen[row] || !room[v]) continue;
      room[v]--;
      c.chosen[row] = 1;
      c.y[places[n]] = 1;
    }
  }
}

} // namespace

void sli_cuda_plane_values(const sl_call *call, void *stream) {
  const sl_type *w = &call->in_type[0];
  planes p = {(const float *)call->in[0],
              (float *)call->out[0],
              sl_type_rows(w),
              sl_type_last(w),
              (int)call->attrs->planes.base,
              (int)call->attrs->planes.width};
  int64_t groups = p.rows * ((p.k + SLI_PLANE_GROUP - 1) / SLI_PLANE_GROUP);
  if (groups) launch(stream, grid_of(chunks(groups, BLOCK / WARP)), BLOCK, 0, value_groups, p);
}

size_t sli_cuda_bit_choice_scratch(const sl_call *call) {
  int64_t places = sl_type_elements(&call->in_type[0]);
  int64_t widths = sl_type_last(&call->in_type[0]);
  return call->attrs->experts.ncapacities
             ? (size_t)(2 * places) * sizeof(uint64_t) + (size_t)(places / widths)
             : 0;
}

void sli_cuda_bit_choice(const sl_call *call, void *stream) {
  const sl_type *p = &call->in_type[0];
  int64_t pairs = sl_type_elements(p);
  choice c = {};
  c.p = (const float *)call->in[0];
  c.ids = (const int32_t *)call->in[1];
  c.y = (float *)call->out[0];
  c.widths = sl_type_last(p);
  c.rows = pairs / c.widths;
  if (!pairs) return;
  cudaMemsetAsync(c.y, 0, sl_type_bytes(&call->out_type[0]), (cudaStream_t)stream);
  if (call->attrs->experts.ncapacities) c.experts = call->attrs->experts.count;
  launch(stream, grid_of(chunks(c.rows, BLOCK)), BLOCK, 0, choose_alone, c);
  if (!c.experts) return;
  for (int v = 0; v < call->attrs->experts.ncapacities; v++)
    c.capacity[v] = call->attrs->experts.capacity[v];
  uint64_t *keys = (uint64_t *)call->scratch;
  c.keys = sort_places((const int32_t *)call->in[0], pairs, keys, keys + pairs, falling(), stream);
  c.chosen = (uint8_t *)(keys + 2 * pairs);
  cudaMemsetAsync(c.chosen, 0, (size_t)c.rows, (cudaStream_t)stream);
  launch(stream, grid_of(c.experts), BLOCK, 0, choose_limited, c);
}
