/* SPDX-License-Identifier: Apache-2.0 */
/* A Feistel network turns any function into a permutation of numbers of 2h bits (Luby & Rackoff,
 * "How to Construct Pseudorandom Permutations from Pseudorandom Functions", 1988); the function
 * here is Philox. Results of n or more are permuted again until they are less, which leaves a
 * permutation of 0..n-1 (Black & Rogaway, "Ciphers with Arbitrary Finite Domains", 2002). There
 * are less than 4 n numbers of 2h bits, so few rounds are needed. */
#include "text/tokens/shuffle.h"

#include "base/base.h"
#include "base/philox.h"

enum { ROUNDS = 6 };

static uint32_t mix(uint64_t seed, int64_t epoch, int round, uint32_t half) {
  uint32_t counter[4] = {half, (uint32_t)epoch, (uint32_t)((uint64_t)epoch >> 32), (uint32_t)round};
  sli_philox(counter, seed);
  return counter[0];
}

static uint64_t encrypt(uint64_t seed, int64_t epoch, int h, uint64_t x) {
  uint32_t mask = h == 32 ? UINT32_MAX : (UINT32_C(1) << h) - 1;
  uint32_t left = (uint32_t)(x >> h), right = (uint32_t)x & mask;
  for (int r = 0; r < ROUNDS; r++) {
    uint32_t next = (left ^ mix(seed, epoch, r, right)) & mask;
    left = right;
    right = next;
  }
  return (uint64_t)left << h | right;
}

int64_t sli_shuffle(uint64_t seed, int64_t epoch, int64_t i, int64_t n) {
  SLI_CHECK(n > 0 && i >= 0 && i < n, "number %lld of %lld cannot be shuffled", (long long)i,
            (long long)n);
  int h = 1;
  while (h < 31 && (int64_t)1 << 2 * h < n) h++;
  uint64_t x = (uint64_t)i;
  do x = encrypt(seed, epoch, h, x);
  while (x >= (uint64_t)n);
  return (int64_t)x;
}
