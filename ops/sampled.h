/* SPDX-License-Identifier: Apache-2.0 */
/* The hash of logits by which bits are compared, in the subset of C and CUDA. */
#ifndef SLUICE_OPS_SAMPLED_H
#define SLUICE_OPS_SAMPLED_H

#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define SLI_SAMPLED __host__ __device__ static inline
#else
#define SLI_SAMPLED static inline
#endif

/* Returns the FNV-1a hash of n logits, word by word. */
SLI_SAMPLED uint64_t sli_logits_hash(const float *logits, int64_t n) {
  uint64_t hash = UINT64_C(0xcbf29ce484222325);
  for (int64_t v = 0; v < n; v++) {
    uint32_t word;
    memcpy(&word, logits + v, sizeof word);
    hash = (hash ^ word) * UINT64_C(0x100000001b3);
  }
  return hash;
}

#endif
