/* SPDX-License-Identifier: Apache-2.0 */
/* Random numbers of a test, all derived from its seed. */
#ifndef SLUICE_TESTS_SUPPORT_RNG_H
#define SLUICE_TESTS_SUPPORT_RNG_H

#include "base/philox.h"

typedef struct rng {
  uint64_t key, count;
} rng;

/* Returns a number below `sides`. */
static inline uint32_t rng_below(rng *d, uint32_t sides) {
  uint32_t words[4] = {(uint32_t)d->count++};
  sli_philox(words, d->key);
  return words[0] % sides;
}

#endif
