/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of the emulated device share. */
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

/* Puts an operation at the end of a stream. It runs on any thread, one at a time. */
void emulated_enqueue(cudaStream_t stream, std::function<void()> run);

/* Puts an operation there that another process takes part in: it is complete when `ready`,
 * asked again and again, says so. */
void emulated_enqueue_when(cudaStream_t stream, std::function<bool()> ready);

/* A number below this one: SLUICE_EMULATED_SEED says which come. */
uint64_t emulated_draw(uint64_t below);

/* The most shared memory that launches of a kernel may ask for. */
size_t emulated_shared_bytes(const void *kernel);

#endif
