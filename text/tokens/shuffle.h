/* SPDX-License-Identifier: Apache-2.0 */
/* A random permutation that needs no memory: each index is computed independently. */
#ifndef SLUICE_TEXT_TOKENS_SHUFFLE_H
#define SLUICE_TEXT_TOKENS_SHUFFLE_H

#include <stdint.h>

/* Maps i in 0..n-1 to its index in the permutation of this seed and epoch, a bijection of 0..n-1.
 * The result is the same on every machine. Any thread. */
int64_t sli_shuffle(uint64_t seed, int64_t epoch, int64_t i, int64_t n);

#endif
