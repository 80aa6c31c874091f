/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of all vector levels. A process chooses its instruction set once, so each level needs a
 * separate process. */
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
