/* Orders that need no memory: a permutation that is computed number by number. */
#ifndef SLUICE_IO_SHUFFLE_H
#define SLUICE_IO_SHUFFLE_H

#include <stdint.h>

/* Where number i of 0..n-1 comes in the permutation of this seed and epoch: a number of 0..n-1,
 * another one for each i. The same on every machine. Any thread. */
int64_t sli_shuffle(uint64_t seed, int64_t epoch, int64_t i, int64_t n);

#endif
