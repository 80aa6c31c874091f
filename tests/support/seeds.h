/* SPDX-License-Identifier: Apache-2.0 */
/* Random cases of a test. Each follows from its seed. The seeds of a run are printed, so that a
 * failed case can be repeated alone:
 *
 *   test_FOLDER_NAME [SEED [COUNT]]
 *
 * SLUICE_SEEDS=N in the environment runs N times as many (tools/test --long). */
#ifndef SLUICE_TESTS_SEEDS_H
#define SLUICE_TESTS_SEEDS_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct seeds {
  uint64_t first, end; /* [first, end) */
} seeds;

/* Returns the factor of the number of cases. */
static inline uint64_t seeds_times(void) {
  const char *text = getenv("SLUICE_SEEDS");
  uint64_t times = text ? strtoull(text, NULL, 10) : 1;
  return times ? times : 1;
}

/* Returns `usual` cases from `first` on, or those that the command line names: one, if it has
 * only a seed. */
static inline seeds seeds_of(int argc, char **argv, uint64_t first, uint64_t usual) {
  seeds s = {argc > 1 ? strtoull(argv[1], NULL, 0) : first, 0};
  uint64_t count = argc > 2 ? strtoull(argv[2], NULL, 0) : argc > 1 ? 1 : usual * seeds_times();
  s.end = s.first + count;
  printf("seeds %llu .. %llu\n", (unsigned long long)s.first, (unsigned long long)s.end - 1);
  fflush(stdout);
  return s;
}

static inline uint64_t seeds_count(seeds s) { return s.end - s.first; }

#endif
