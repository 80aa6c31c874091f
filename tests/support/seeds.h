/* SPDX-License-Identifier: Apache-2.0 */
/* Random test cases. Each case follows from its seed. A run prints its seeds, so that a failed case
 * can be repeated alone:
 *
 *   test_FOLDER_NAME [--only CASE] [SEED [COUNT]]
 *
 * Seeds are the same in every run, unless the environment has SLUICE_SEED=N, which is added to
 * each. SLUICE_SEEDS=N runs N times as many cases. tools/test --long sets the first to a random
 * number and the second to 10. */
#ifndef SLUICE_TESTS_SUPPORT_SEEDS_H
#define SLUICE_TESTS_SUPPORT_SEEDS_H

#include <stdint.h>

typedef struct seeds {
  uint64_t first, end; /* [first, end) */
} seeds;

/* Returns the factor for the number of cases. */
uint64_t seeds_times(void);

/* Returns the seed given on the command line, or the usual one, plus SLUICE_SEED. */
uint64_t seed_of(int argc, char **argv, uint64_t usual);

/* Returns `usual` cases from `first` on, or the cases given on the command line: one case if it has
 * only a seed. */
seeds seeds_of(int argc, char **argv, uint64_t first, uint64_t usual);

/* Returns the number of cases, for checks over all of them, or 0 if --only chose one. */
uint64_t seeds_count(seeds s);

#endif
