/* SPDX-License-Identifier: Apache-2.0 */
/* Sums of squares: of a difference, and of gradients in parts. Each chunk stores a partial sum in
 * the scratch, in double, and one block adds them in order. For a run of calls, each of the two
 * steps handles all sums together. */
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/fuse.h"

namespace {

using namespace sli;

/* Runs in one block. */
__device__ inline void sum_partials(const double *partial, int64_t count, double divisor,
                                    double *to) {
  double total = 0;
  for (int64_t i = threadIdx.x; i < count; i += BLOCK) total += partial[i];
  total = block_sum(total);
  if (!threadIdx.x) *to = total / divisor;
}

__global__ void sum_one(const double *partial, int64_t count, double divisor, double *to) {
  sum_partials(partial, count, divisor, to);
}

constexpr int64_t CHUNK = 16384;

int64_t chunks_of(const sl_call *call) {
  return chunks(sl_type_elements(&call->in_type[0]), CHUNK);
}

struct sum_of_parts {
  template <int N, typename T>
  __device__ static void take(float (&g)[N], const parts &p, int64_t at) {
    add_up<N, T>(g, p, at);
  }
};

struct difference {
  template <int N, typename T>
  __device__ static void take(float (&g)[N], const parts &p, int64_t at) {
    float t[N];
    load<N>(g, (const T *)p.of[0] + at);
    load<N>(t, (const T *)p.of[1] + at);
#pragma unroll
    for (int n = 0; n < N; n++) g[n] -= t[n];
  }
};

struct segment {
  int64_t n;
  double *to;
  unsigned first_block; /* a block per chunk */
  unsigned short first_part, nparts;
};

using gradients = run<segment, 100, 200>;
static_assert(sizeof(gradients) + 2 * sizeof(void *) <= PARAMETER_BYTES, "too many parameters");
static_assert(200 >= SLI_CUDA_PARTS, "one gradient fits");

/* Sums the squares of chunks of V's input, a block per chunk. */
template <typename V, typename T>
__global__ void squares(const __grid_constant__ gradients run, double *partial) {
  constexpr int N = wide<T>;
  const segment &s = run.of_block(blockIdx.x);
  parts p = run.parts_of(s);
  int64_t begin = (int64_t)(blockIdx.x - s.first_block) * CHUNK;
  int64_t end = begin + CHUNK < s.n ? begin + CHUNK : s.n;
  double total = 0;
  for (int64_t at = begin + (int64_t)threadIdx.x * N; at < end; at += BLOCK * N) {
    if (at + N <= end) {
      float g[N];
      V::template take<N, T>(g, p, at);
#pragma unroll
      for (int k = 0; k < N; k++) total += (double)g[k] * (double)g[k];
    } else {
      for (int64_t k = at; k < end; k++) {
        float g[1];
        V::template take<1, T>(g, p, k);
        total += (double)g[0] * (double)g[0];
      }
    }
  }
  total = block_sum(total);
  if (!threadIdx.x) partial[blockIdx.x] = total;
}

/* A block per segment. */
__global__ void sum_run(const __grid_constant__ gradients run, const double *partial,
                        double divisor) {
  const segment &s = run.segments[blockIdx.x];
  bool last = (int)blockIdx.x + 1 == run.count;
  unsigned end = last ? run.blocks : run.segments[blockIdx.x + 1].first_block;
  sum_partials(partial + s.first_block, (int64_t)(end - s.first_block), divisor, s.to);
}

bool add_gradient(gradients *run, const sl_call *call) {
  segment *s = run->add(call->nin, call->in, chunks_of(call));
  if (!s) return false;
  s->n = sl_type_elements(&call->in_type[0]);
  s->to = (double *)call->out[0];
  return true;
}

/* Sums as many of the calls as fit, all of one type; returns their number. */
template <typename V>
int sum_squares(const sl_call *calls, int ncalls, void *stream, double divisor) {
  gradients run = {};
  sl_dtype dtype = calls[0].in_type[0].dtype;
  double *partial = (double *)calls[0].scratch;
  int taken = 0;
  while (taken < ncalls && calls[taken].in_type[0].dtype == dtype &&
         add_gradient(&run, &calls[taken]))
    taken++;
  with_elements(dtype, [&](auto element) {
    using T = decltype(element);
    launch(stream, grid_of(run.blocks), BLOCK, 0, squares<V, T>, run, partial);
  });
  launch(stream, grid_of(run.count), BLOCK, 0, sum_run, run, (const double *)partial, divisor);
  return taken;
}

} // namespace

namespace sli {

void sum_all(void *stream, const void *partial, int64_t count, double divisor, void *to) {
  launch(stream, dim3(1), BLOCK, 0, sum_one, (const double *)partial, count, divisor, (double *)to);
}

} // namespace sli

size_t sli_cuda_chunks_scratch(const sl_call *call) {
  return (size_t)chunks_of(call) * sizeof(double);
}

size_t sli_cuda_sumsq_run_scratch(const sl_call *calls, int ncalls) {
  size_t bytes = 0;
  for (int i = 0; i < ncalls; i++) bytes += sli_cuda_chunks_scratch(&calls[i]);
  return bytes;
}

void sli_cuda_mse(const sl_call *call, void *stream) {
  sum_squares<difference>(call, 1, stream, (double)sl_type_elements(&call->in_type[0]));
}

void sli_cuda_sumsq_run(const sli_cuda_fused *, const sl_call *calls, int ncalls, void *,
                        void *stream) {
  for (int at = 0; at < ncalls;)
    at += sum_squares<sum_of_parts>(calls + at, ncalls - at, stream, 1);
}

void sli_cuda_sumsq(const sl_call *call, void *stream) {
  sum_squares<sum_of_parts>(call, 1, stream, 1);
}
