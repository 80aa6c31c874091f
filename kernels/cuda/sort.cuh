/* SPDX-License-Identifier: Apache-2.0 */
/* Places of an array of ids, sorted by a number derived from each id; equal ids keep their order.
 *
 * A key has the number in its upper and the place in its lower half, so all keys differ and any
 * sort is stable. Each block sorts a tile. Sorted runs are then merged in pairs: every key finds
 * its place in the other run by bisection. Work and order follow from the ids alone. */
#ifndef SLUICE_CUDA_SORT_CUH
#define SLUICE_CUDA_SORT_CUH

#include "kernels/cuda/device.cuh"

namespace sli {

constexpr int SORT_TILE = 2048;

__device__ inline uint64_t key_of(int64_t number, int64_t place) {
  return (uint64_t)number << 32 | (uint64_t)place;
}
__device__ inline int64_t number_of(uint64_t key) { return (int64_t)(key >> 32); }
__device__ inline int64_t place_of(uint64_t key) { return (int64_t)(uint32_t)key; }

/* Returns the index of the first of the sorted keys[begin, end) that is not below `key`. */
__device__ inline int64_t bisect(const uint64_t *keys, int64_t begin, int64_t end, uint64_t key) {
  while (begin < end) {
    int64_t middle = (begin + end) / 2;
    if (keys[middle] < key) begin = middle + 1;
    else end = middle;
  }
  return begin;
}

/* Returns the place of key i after runs are merged in pairs. keys[0, count) hold sorted runs of
 * `run` keys; the last run may be shorter. */
__device__ inline int64_t merged_place(const uint64_t *keys, int64_t count, int64_t i,
                                       int64_t run) {
  int64_t own = i / run * run, pair = own / (2 * run) * (2 * run);
  int64_t other = own == pair ? own + run : pair, end = other + run;
  if (other >= count) return i;
  int64_t found = bisect(keys, other, end < count ? end : count, keys[i]);
  return pair + (i - own) + (found - other);
}

/* Builds the keys of all places and sorts them tile by tile. */
template <typename F>
__global__ void sort_tiles(const int32_t *ids, uint64_t *keys, int64_t count, F number) {
  __shared__ uint64_t shared[2][SORT_TILE];
  int64_t begin = (int64_t)blockIdx.x * SORT_TILE;
  int64_t here = count - begin < SORT_TILE ? count - begin : SORT_TILE;
  uint64_t *from = shared[0], *to = shared[1];
  for (int64_t i = threadIdx.x; i < here; i += BLOCK)
    from[i] = key_of(number(ids[begin + i]), begin + i);
  for (int64_t run = 1; run < here; run *= 2) {
    __syncthreads();
    for (int64_t i = threadIdx.x; i < here; i += BLOCK)
      to[merged_place(from, here, i, run)] = from[i];
    uint64_t *free = from;
    from = to;
    to = free;
  }
  __syncthreads();
  for (int64_t i = threadIdx.x; i < here; i += BLOCK) keys[begin + i] = from[i];
}

template <typename K> __global__ void merge_runs(const K *from, K *to, int64_t count, int64_t run) {
  int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
  if (i < count) to[merged_place(from, count, i, run)] = from[i];
}

/* Maps an id to its row in a part of a table that starts at `first`; ids outside the part sort
 * last. */
struct id_in_table {
  int64_t first, rows;
  __device__ int64_t operator()(int32_t id) const {
    int64_t row = id - first;
    return row >= 0 && row < rows ? row : rows;
  }
};

/* Returns the sorted keys of `count` places, in one of the two arrays of `count` keys. */
template <typename F> const uint64_t *sort_places(const int32_t *ids, int64_t count, uint64_t *keys,
                                                  uint64_t *others, F number, void *stream) {
  uint64_t *from = keys, *to = others;
  if (!count) return from;
  launch(stream, grid_of(chunks(count, SORT_TILE)), BLOCK, 0, sort_tiles<F>, ids, from, count,
         number);
  for (int64_t run = SORT_TILE; run < count; run *= 2) {
    launch(stream, grid_of(chunks(count, BLOCK)), BLOCK, 0, merge_runs<uint64_t>,
           (const uint64_t *)from, to, count, run);
    uint64_t *free = from;
    from = to;
    to = free;
  }
  return from;
}

} // namespace sli

#endif
