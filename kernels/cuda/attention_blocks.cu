/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA kernels of attention to selected blocks of keys, and of their selection
 * (ops/attention_blocks.c). The kernels of attention_forward.cuh walk the lists. */
#include "kernels/cuda/attention_views.cuh"
#include "kernels/cuda/loss.cuh"

#ifdef __CUDACC__
#define inline __host__ __device__ inline
#include "ops/attention_blocks.h"
#undef inline
#else
#include "ops/attention_blocks.h"
#endif

namespace {

using namespace sli;

attention<float> blocks_view(const sl_call *call) {
  attention<float> a = separate<float>(call, call->nin);
  a.chosen = {(const int32_t *)call->in[3], call->in_type[3].dim[2], call->in_type[3].dim[3]};
  return a;
}

/* ---- estimates of a head --------------------------------------------------------------------- */

enum { LAST = SLI_BLOCK, ENDS = 2 }; /* most last queries; blocks that they are in */

/* Numbers of each head, one after another: the softmax's logarithms of the last queries, their mass
 * by distance and by block (of queries of the last block, of the one before), the fraction by
 * distance in blocks, the mass that the lists of the last blocks cover, and means of the blocks. */
struct choice {
  const float *q, *k; /* of all queries and keys */
  int64_t heads, group, dim, q_row, k_row, length, blocks, width;
  int64_t last, first; /* number of the last queries, and position of the first of them */
  float scale;
  sl_attrs attrs;
  float *room;
  int32_t *lists;
  float *recall;

  __host__ __device__ int64_t each() const {
    return LAST + length + (ENDS + 1) * blocks + ENDS + 2 * blocks * dim;
  }
  __device__ float *lse(int64_t head) const { return room + head * each(); }
  __device__ float *slash(int64_t head) const { return lse(head) + LAST; }
  __device__ float *column(int64_t head, int end) const {
    return slash(head) + length + end * blocks;
  }
  __device__ float *near(int64_t head) const { return column(head, ENDS); }
  __device__ float *mass(int64_t head) const { return near(head) + blocks; }
  __device__ float *means(int64_t head, bool keys) const {
    return mass(head) + ENDS + keys * blocks * dim;
  }
  __device__ const float *query(int64_t head, int64_t position) const {
    return q + (head / heads * length + position) * q_row + head % heads * dim;
  }
  __device__ const float *key(int64_t head, int64_t position) const {
    return k + (head / heads * length + position) * k_row + head % heads / group * dim;
  }
};

__device__ inline float dot(const float *x, const float *y, int64_t dim) {
  float sum = 0;
  for (int64_t d = 0; d < dim; d++) sum += x[d] * y[d];
  return sum;
}

/* Block (last query, head). */
__global__ void sum_softmax(choice c) {
  int64_t head = blockIdx.y, position = c.first + blockIdx.x;
  sli_soft s = {SLI_LOWEST, 0};
  for (int64_t j = threadIdx.x; j <= position; j += BLOCK)
    s = sli_soft_join(s, {dot(c.query(head, position), c.key(head, j), c.dim) * c.scale, 1});
  s = block_join(s);
  if (!threadIdx.x) c.lse(head)[blockIdx.x] = s.top + logf(s.total);
}

/* Returns the weight that last query `row` gives to key j. */
__device__ inline float weight_of(const choice &c, int64_t head, int64_t row, int64_t j) {
  int64_t position = c.first + row;
  if (j < 0 || j > position) return 0;
  return expf(dot(c.query(head, position), c.key(head, j), c.dim) * c.scale - c.lse(head)[row]);
}

/* Block (block of keys, head), with a thread per key. */
__global__ void sum_columns(choice c) {
  int64_t head = blockIdx.y, j = (int64_t)blockIdx.x * SLI_BLOCK + threadIdx.x;
  float sum[ENDS] = {};
  for (int64_t row = 0; row < c.last; row++)
    sum[(c.first + row) / SLI_BLOCK < c.blocks - 1] += weight_of(c, head, row, j);
  for (int end = 0; end < ENDS; end++) {
    float all = block_sum(sum[end]);
    if (!threadIdx.x) c.column(head, end)[blockIdx.x] = all;
  }
}

/* Block (64 distances, head), with a thread per distance. */
__global__ void sum_distances(choice c) {
  int64_t head = blockIdx.y, d = (int64_t)blockIdx.x * SLI_BLOCK + threadIdx.x;
  float sum = 0;
  for (int64_t row = 0; row < c.last; row++) sum += weight_of(c, head, row, c.first + row - d);
  if (d < c.length) c.slash(head)[d] = sum;
}

/* A thread per distance in blocks. Distance d crosses 64 - |d - 64 g| rows of the blocks that are g
 * apart. */
__global__ void sum_near(choice c) {
  int64_t head = blockIdx.y, g = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
  float sum = 0;
  if (g >= c.blocks) return;
  for (int64_t far = 1 - SLI_BLOCK; far < SLI_BLOCK; far++) {
    int64_t d = g * SLI_BLOCK + far, rows = SLI_BLOCK - (far < 0 ? -far : far);
    if (d >= 0 && d < c.length) sum += c.slash(head)[d] * (float)rows;
  }
  c.near(head)[g] = sum / (float)(SLI_BLOCK * c.last);
}

/* Block (block of positions, head, 0: queries, 1: keys). */
__global__ void average(choice c) {
  int64_t head = blockIdx.y, at = (int64_t)blockIdx.x * SLI_BLOCK;
  int64_t rows = c.length - at < SLI_BLOCK ? c.length - at : (int64_t)SLI_BLOCK;
  for (int64_t d = threadIdx.x; d < c.dim; d += blockDim.x) {
    float sum = 0;
    for (int64_t r = 0; r < rows; r++)
      sum += (blockIdx.z ? c.key(head, at + r) : c.query(head, at + r))[d];
    c.means(head, blockIdx.z)[blockIdx.x * c.dim + d] = sum / (float)rows;
  }
}

/* ---- lists ----------------------------------------------------------------------------------- */

/* Fills the estimates of the blocks up to the query block itself, which are not negative. */
__device__ inline void estimate(const choice &c, int64_t head, int64_t own, float *to) {
  const float *query = c.means(head, false) + own * c.dim;
  sli_soft s = {SLI_LOWEST, 0};
  for (int64_t n = threadIdx.x; n <= own; n += BLOCK) {
    to[n] = c.scale * dot(query, c.means(head, true) + n * c.dim, c.dim);
    s = sli_soft_join(s, {to[n], 1});
  }
  s = block_join(s);
  for (int64_t n = threadIdx.x; n <= own; n += BLOCK) {
    float mean = expf(to[n] - s.top) / s.total;
    float column = (c.column(head, 0)[n] + c.column(head, 1)[n]) / (float)c.last;
    to[n] = fmaxf(mean, fmaxf(column, c.near(head)[own - n]));
  }
  __syncthreads();
}

/* Returns the rank of an estimate: floats that are not negative rank as their bits. */
__device__ inline int rank_of(float x) {
  int bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

/* Returns the number of blocks between the first and the query block that rank at least
 * `bound`. */
__device__ inline int count_from(const float *estimates, int64_t own, int bound) {
  int count = 0;
  for (int64_t n = 1 + threadIdx.x; n < own; n += BLOCK) count += rank_of(estimates[n]) >= bound;
  return block_sum(count);
}

/* Returns the largest rank that `count` blocks reach. */
__device__ inline int bound_of(const float *estimates, int64_t own, int count) {
  int bound = 0;
  for (int bit = 1 << 30; bit; bit >>= 1)
    if (count_from(estimates, own, bound | bit) >= count) bound |= bit;
  return bound;
}

/* Block (block of queries, head): writes its list, nearer blocks first among equal ones. */
__global__ void choose(choice c) {
  SLI_SHARED(shared);
  float *estimates = (float *)shared;
  int64_t own = blockIdx.x, head = blockIdx.y, count = sli_blocks_chosen(&c.attrs, own);
  int32_t *list = c.lists ? c.lists + (head * c.blocks + own) * c.width : NULL;
  int bound = 0, ties = (int)own, end = own < c.blocks - 1, chosen = 0, tied = 0;
  float mass = 0;
  if (count <= own) {
    estimate(c, head, own, estimates);
    int others = (int)count - 2;
    bound = bound_of(estimates, own, others);
    ties = others ? others - count_from(estimates, own, bound + 1) : 0;
  }
  for (int64_t n = own - threadIdx.x, from = own; from >= 0; n -= BLOCK, from -= BLOCK) {
    bool ends = n == own || n == 0, between = n > 0 && n < own;
    int rank = between && count <= own ? rank_of(estimates[n]) : bound;
    const int *up_to = sums_up_to((int)(between && rank == bound));
    int place = tied + up_to[threadIdx.x];
    tied += up_to[BLOCK - 1];
    __syncthreads();
    bool taken = ends || (between && (rank > bound || (rank == bound && place <= ties)));
    up_to = sums_up_to((int)taken);
    place = chosen + up_to[threadIdx.x] - 1;
    chosen += up_to[BLOCK - 1];
    __syncthreads();
    if (taken && list) list[place] = (int32_t)n;
    if (taken && own >= c.blocks - ENDS) mass += c.column(head, end)[n];
  }
  for (int64_t i = chosen + threadIdx.x; list && i < c.width; i += BLOCK) list[i] = -1;
  mass = block_sum(mass);
  if (!threadIdx.x && own >= c.blocks - ENDS) c.mass(head)[end] = mass;
}

/* A thread per head. */
__global__ void sum_recall(choice c, int64_t count) {
  int64_t head = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
  if (head >= count) return;
  float mass = c.mass(head)[0] + (c.blocks > 1 ? c.mass(head)[1] : 0.0f);
  c.recall[head] = mass / (float)c.last;
}

/* Fills the sizes, which are known before the arrays. */
choice sizes_of_choice(const sl_call *call) {
  const sl_type *q = &call->in_type[0];
  choice c = {};
  c.heads = call->attrs->attention.heads;
  c.group = c.heads / kv_heads(call);
  c.dim = q->dim[2] / c.heads;
  c.q_row = q->dim[2];
  c.k_row = call->in_type[1].dim[2];
  c.length = q->dim[1];
  c.blocks = call->out_type[0].dim[2];
  c.width = call->out_type[0].dim[3];
  c.last = c.length < LAST ? c.length : (int64_t)LAST;
  c.first = c.length - c.last;
  c.scale = sli_attention_scale(call->attrs, c.dim);
  c.attrs = *call->attrs;
  return c;
}

int64_t heads_of(const sl_call *call) {
  return call->in_type[0].dim[0] * call->attrs->attention.heads;
}

size_t shared_bytes(const choice &c) { return sizeof(float) * (size_t)c.blocks; }

} // namespace

void sli_cuda_attention_blocks(const sl_call *call, void *stream) {
  attention<float> a = blocks_view(call);
  a.out = (float *)call->out[0];
  a.logs.lse = (float *)call->out[1];
  attend(a, stream);
}

void sli_cuda_attention_blocks_b(const sl_call *call, void *stream) {
  attention<float> a = blocks_view(call);
  backward_inputs(call, a, 4);
  a.dq = (float *)call->out[0];
  a.dk = (float *)call->out[1];
  a.dv = (float *)call->out[2];
  attend_b(a, stream);
}

size_t sli_cuda_choose_blocks_scratch(const sl_call *call) {
  return sizeof(float) * (size_t)(heads_of(call) * sizes_of_choice(call).each());
}

sl_status sli_cuda_choose_blocks_prepare(const sl_call *call, void **state) {
  choice c = sizes_of_choice(call);
  *state = NULL;
  if (!allow(choose, shared_bytes(c))) return SL_OK;
  return sl_fail(SL_E_UNSUPPORTED, "a GPU cannot choose among %lld blocks of keys",
                 (long long)c.blocks);
}

void sli_cuda_choose_blocks(const sl_call *call, void *stream) {
  choice c = sizes_of_choice(call);
  c.q = (const float *)call->in[0];
  c.k = (const float *)call->in[1];
  c.room = (float *)call->scratch;
  c.lists = (int32_t *)call->out[0];
  c.recall = (float *)call->out[1];
  unsigned heads = (unsigned)heads_of(call), blocks = (unsigned)c.blocks;
  launch(stream, dim3((unsigned)c.last, heads), BLOCK, 0, sum_softmax, c);
  launch(stream, dim3(blocks, heads), SLI_BLOCK, 0, sum_columns, c);
  launch(stream, dim3(blocks, heads), SLI_BLOCK, 0, sum_distances, c);
  launch(stream, dim3((unsigned)chunks(c.blocks, BLOCK), heads), BLOCK, 0, sum_near, c);
  launch(stream, dim3(blocks, heads, 2), threads_for(c.dim), 0, average, c);
  launch(stream, dim3(blocks, heads), BLOCK, shared_bytes(c), choose, c);
  if (c.recall)
    launch(stream, grid_of(chunks(heads, BLOCK)), BLOCK, 0, sum_recall, c, (int64_t)heads);
}
