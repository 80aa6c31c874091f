/* SPDX-License-Identifier: Apache-2.0 */
/* Philox4x32-10 of Salmon, Moraes, Dror & Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3", SC
 * 2011. A block cipher weakened for speed: random number i is a function of (key, i) and needs no
 * state. */
#ifndef SLUICE_BASE_PHILOX_H
#define SLUICE_BASE_PHILOX_H

#include <stdint.h>

#ifdef __CUDACC__
#define SLI_PHILOX __host__ __device__ static inline
#else
#define SLI_PHILOX static inline
#endif

enum { SLI_PHILOX_ROUNDS = 10 };
#define SLI_PHILOX_M0 UINT32_C(0xD2511F53)
#define SLI_PHILOX_M1 UINT32_C(0xCD9E8D57)

/* One round on a counter of four words with two key words. */
SLI_PHILOX void sli_philox_round(uint32_t *c0, uint32_t *c1, uint32_t *c2, uint32_t *c3,
                                 uint32_t k0, uint32_t k1) {
  uint64_t a = (uint64_t)SLI_PHILOX_M0 * *c0, b = (uint64_t)SLI_PHILOX_M1 * *c2;
  uint32_t x0 = (uint32_t)(b >> 32) ^ *c1 ^ k0, x2 = (uint32_t)(a >> 32) ^ *c3 ^ k1;
  *c0 = x0;
  *c1 = (uint32_t)b;
  *c2 = x2;
  *c3 = (uint32_t)a;
}

/* Computes the key of the next round. */
SLI_PHILOX void sli_philox_bump(uint32_t *k0, uint32_t *k1) {
  *k0 += UINT32_C(0x9E3779B9);
  *k1 += UINT32_C(0xBB67AE85);
}

/* Replaces the counter by four random words. */
SLI_PHILOX void sli_philox(uint32_t counter[4], uint64_t key) {
  uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
  for (int r = 0; r < SLI_PHILOX_ROUNDS; r++, sli_philox_bump(&k0, &k1))
    sli_philox_round(&counter[0], &counter[1], &counter[2], &counter[3], k0, k1);
}

#endif
