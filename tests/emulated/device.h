/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations that the parts of the emulated device share. */
#ifndef SLUICE_TESTS_EMULATED_DEVICE_H
#define SLUICE_TESTS_EMULATED_DEVICE_H

#include "tests/emulated/cuda_runtime.h"

#include <stdio.h>
#include <stdlib.h>

#define REQUIRE(condition, ...)                         \
  do {                                                  \
    if (!(condition)) {                                 \
      fprintf(stderr, "emulated device: " __VA_ARGS__); \
      fputc('\n', stderr);                              \
      abort();                                          \
    }                                                   \
  } while (0)

/* Appends an operation to a stream. It runs on any thread, one at a time. */
void emulated_enqueue(cudaStream_t stream, std::function<void()> run);

/* Appends an operation that involves another process: it completes once `ready`, polled repeatedly,
 * returns true. */
void emulated_enqueue_when(cudaStream_t stream, std::function<bool()> ready);

/* Returns a random number below `below`; SLUICE_EMULATED_SEED seeds the sequence. */
uint64_t emulated_draw(uint64_t below);

/* Returns the most shared memory that launches of a kernel may request. */
size_t emulated_shared_bytes(const void *kernel);

#endif
