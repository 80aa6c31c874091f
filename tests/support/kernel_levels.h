/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of all vector levels. A process chooses its instructions once, so each level needs a
 * process of its own. */
#ifndef SLUICE_TESTS_KERNEL_LEVELS_H
#define SLUICE_TESTS_KERNEL_LEVELS_H

#include <stdint.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/cpu/chunk.h"
#include "tests/support/test.h"

/* Chunk functions of each level; a processor supports those up to sli_cpu_level(). */
static const sli_cpu_chunks *const levels[] = {&sli_cpu_level0, &sli_cpu_level1, &sli_cpu_level2,
                                               &sli_cpu_level3, &sli_cpu_level4};

/* The thread sanitizer sees what threads share, which no level changes: the daily run takes the
 * lowest and the best. */
static inline void on_every_level(void (*check)(uint64_t seed), uint64_t seed) {
  const int step = TEST_SANITIZED == 2 && !test_long() ? 4 : 1;
  for (int level = 0; level <= 4; level += step) {
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
