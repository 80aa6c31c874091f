/* SPDX-License-Identifier: Apache-2.0 */
/* Copies between each pair of GPUs: right bytes, seconds of a small copy, bytes per second of a
 * large one. Prints lines `from>to.bytes<TAB>figure<TAB>unit`.
 *
 *   gpu_bench_peers */
#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <sluice/cuda.h>

#include "tests/support/test.h"

enum { SMALL = 4096, LARGE = 256 << 20, ROUNDS = 20 };

#define MUST(call)                                               \
  do {                                                           \
    cudaError_t error_ = (call);                                 \
    CHECK(!error_, "%s: %s", #call, cudaGetErrorString(error_)); \
  } while (0)

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Returns the seconds of a copy: the fastest of some. */
static double copy_seconds(cudaStream_t stream, void *to, const void *from, size_t bytes) {
  double best = 1e9;
  for (int i = 0; i < ROUNDS; i++) {
    double begin = now();
    MUST(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream));
    MUST(cudaStreamSynchronize(stream));
    double seconds = now() - begin;
    best = seconds < best ? seconds : best;
  }
  return best;
}

static void check_bytes(void *to, void *from, size_t bytes, int seed) {
  unsigned char *want = malloc(bytes), *got = malloc(bytes);
  for (size_t i = 0; i < bytes; i++) want[i] = (unsigned char)(i * 131 + i / 251 + (size_t)seed);
  CHECK(!sl_cuda_copy(from, want, bytes), "%s", sl_detail());
  MUST(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, cudaStreamLegacy));
  MUST(cudaDeviceSynchronize());
  CHECK(!sl_cuda_copy(got, to, bytes), "%s", sl_detail());
  CHECK(!memcmp(want, got, bytes), "other bytes arrive");
  free(want);
  free(got);
}

static void measure(int a, int b) {
  void *from, *to;
  cudaStream_t stream;
  int reach = 0;
  CHECK(!sl_cuda_memory_create(a, LARGE, &from), "%s", sl_detail());
  CHECK(!sl_cuda_memory_create(b, LARGE, &to), "%s", sl_detail());
  MUST(cudaDeviceCanAccessPeer(&reach, a, b));
  MUST(cudaSetDevice(a));
  MUST(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, 0));
  printf("%d>%d.peer\t%d\taccess\n", a, b, reach);
  check_bytes(to, from, 1 << 20, 3 * a + b);
  printf("%d>%d.%d\t%.3g\tseconds\n", a, b, SMALL, copy_seconds(stream, to, from, SMALL));
  printf("%d>%d.%d\t%.4g\tGB/s\n", a, b, LARGE,
         LARGE / copy_seconds(stream, to, from, LARGE) * 1e-9);
  MUST(cudaStreamDestroy(stream));
  sl_cuda_memory_destroy(from);
  sl_cuda_memory_destroy(to);
}

int main(void) {
  int count;
  if (sl_cuda_count(&count)) {
    printf("skipped: no GPU: %s\n", sl_detail());
    return 77;
  }
  for (int a = 0; a < count; a++)
    for (int b = 0; b < count; b++)
      if (a != b) measure(a, b);
  return 0;
}
