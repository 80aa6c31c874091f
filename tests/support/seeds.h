/* SPDX-License-Identifier: Apache-2.0 */
/* Random cases of a test. Each follows from its seed. The seeds of a run are printed, so that a
 * failed case can be repeated alone:
 *
 *   test_FOLDER_NAME [--only CASE] [SEED [COUNT]]
 *
 * They are the same every time, unless SLUICE_SEED=N in the environment is added to each.
 * SLUICE_SEEDS=N runs N times as many. tools/test --long draws the first and sets the second to 10.
 */
#ifndef SLUICE_TESTS_SEEDS_H
#define SLUICE_TESTS_SEEDS_H

#include <stdint.h>

typedef struct seeds {
  uint64_t first, end; /* [first, end) */
} seeds;

/* Returns the factor of the number of cases. */
uint64_t seeds_times(void);

/* Returns the seed that the command line names, or the usual one, plus SLUICE_SEED. */
uint64_t seed_of(int argc, char **argv, uint64_t usual);

/* Returns `usual` cases from `first` on, or those that the command line names: one, if it has
 * only a seed. */
seeds seeds_of(int argc, char **argv, uint64_t first, uint64_t usual);

/* Returns the number of cases, for claims about all of them; 0 if --only chose one. */
uint64_t seeds_count(seeds s);

#endif
