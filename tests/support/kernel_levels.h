/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of all vector levels. A process chooses its instruction set once, so each level needs a
 * separate process. With SLUICE_ON_GPU a GPU takes the place of the levels, emulated with two
 * orders of the threads of a block. */
#ifndef SLUICE_TESTS_SUPPORT_KERNEL_LEVELS_H
#define SLUICE_TESTS_SUPPORT_KERNEL_LEVELS_H

#include <stdint.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/cpu/chunk.h"
#include "tests/support/test.h"

/* Chunk functions of a level; a processor supports those up to sli_cpu_level(). */
static inline const sli_cpu_chunks *level_chunks(int level) { return sli_cpu_levels[level].chunks; }

/* Returns the best level of the architecture, which the processor may not support. */
static inline int best_level(void) {
  int level = 0;
  while (level_chunks(level + 1)) level++;
  return level;
}

#ifdef SLUICE_ON_GPU
#include "tests/gpu/device_call.h"

#ifdef SLUICE_EMULATED
extern int emulated_backwards;
#else
static int emulated_backwards; /* order of emulated threads; unused on a GPU */
#endif

static inline void run_on_gpu(kernel *k) {
  device_call d;
  device_call_create(&d, k);
  device_call_run(&d, k, k->out, k->out);
  device_call_destroy(&d);
}

static inline void on_every_level(void (*check)(uint64_t seed), uint64_t seed) {
  need_gpu();
  kernel_runner = run_on_gpu;
  for (emulated_backwards = 0; emulated_backwards < 2; emulated_backwards++) check(seed);
  emulated_backwards = 0;
  kernel_runner = NULL;
}
#else
/* Under the thread sanitizer only the lowest and the best level run by default: levels do not
 * change what threads share. */
static inline void on_every_level(void (*check)(uint64_t seed), uint64_t seed) {
  const int best = best_level(), step = TEST_SANITIZED == 2 && !test_long() && best ? best : 1;
  for (int level = 0; level <= best; level += step) {
    pid_t child = fork();
    if (!child) {
      setenv("SLUICE_CPU_LEVEL", (const char[]){(char)('0' + level), 0}, 1);
      check(seed);
      exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0, "level %d failed", level);
  }
}
#endif

#endif
