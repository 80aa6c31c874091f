/* Sums of squares: of a difference, of a gradient in parts. A chunk's share waits in the
 * scratch, in double, and one block adds them all up in order. */
#include "kernels/cuda/device.cuh"

namespace {

using namespace sli;

/* One block. */
__global__ void sum_partials(const double *partial, int64_t count, double divisor, double *to) {
  double total = 0;
  for (int64_t i = threadIdx.x; i < count; i += BLOCK) total += partial[i];
  total = block_sum(total);
  if (!threadIdx.x) *to = total / divisor;
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

/* The sum of squares of chunk blockIdx.x of what V takes. */
template <typename V, typename T>
__global__ void squares(parts p, double *partial, int64_t n) {
  constexpr int N = wide<T>;
  int64_t begin = (int64_t)blockIdx.x * CHUNK;
  int64_t end = begin + CHUNK < n ? begin + CHUNK : n;
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

template <typename V> void sum_squares(const sl_call *call, void *stream, double divisor) {
  int64_t n = sl_type_elements(&call->in_type[0]);
  parts p = {};
  p.count = call->nin;
  for (int i = 0; i < call->nin; i++) p.of[i] = call->in[i];
  with_elements(call->in_type[0].dtype, [&](auto element) {
    using T = decltype(element);
    launch(stream, grid_of(chunks_of(call)), BLOCK, 0, squares<V, T>, p, (double *)call->scratch,
           n);
  });
  sum_all(stream, call->scratch, chunks_of(call), divisor, call->out[0]);
}

} // namespace

namespace sli {

void sum_all(void *stream, const void *partial, int64_t count, double divisor, void *to) {
  launch(stream, dim3(1), BLOCK, 0, sum_partials, (const double *)partial, count, divisor,
         (double *)to);
}

} // namespace sli

size_t sli_cuda_chunks_scratch(const sl_call *call) {
  return (size_t)chunks_of(call) * sizeof(double);
}

void sli_cuda_mse(const sl_call *call, void *stream) {
  sum_squares<difference>(call, stream, (double)sl_type_elements(&call->in_type[0]));
}

void sli_cuda_sumsq(const sl_call *call, void *stream) {
  sum_squares<sum_of_parts>(call, stream, 1);
}
