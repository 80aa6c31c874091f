/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks of keys that attention is limited to: their size, and how many each query block attends
 * to. */
#ifndef SLUICE_OPS_ATTENTION_BLOCKS_H
#define SLUICE_OPS_ATTENTION_BLOCKS_H

#include <math.h>
#include <stdint.h>

#include "ops/attention_shape.h"

/* Positions per block: one tile of keys. */
enum { SLI_BLOCK = SLI_KEY_TILE };

static inline int64_t sli_blocks(int64_t length) { return (length + SLI_BLOCK - 1) / SLI_BLOCK; }

/* Returns `n`, limited to what query block `i` can attend to: at least itself and the first block,
 * at most the i + 1 blocks of causal attention. */
static inline int64_t sli_blocks_within(int64_t n, int64_t i) {
  if (n < 2) n = 2;
  return n < i + 1 ? n : i + 1;
}

/* Returns the number of key blocks that query block `i` attends to with a fraction `share` of the
 * i + 1 blocks of causal attention. */
static inline int64_t sli_blocks_of_share(float share, int64_t i) {
  const double slack = 1e-6; /* makes a tenth of 10 blocks 1 */
  return sli_blocks_within((int64_t)ceil((double)share * (double)(i + 1) - slack), i);
}

/* Returns that number for attrs.attention.blocks blocks, or a fraction attrs.attention.share. */
static inline int64_t sli_blocks_chosen(const sl_attrs *attrs, int64_t i) {
  return attrs->attention.blocks ? sli_blocks_within(attrs->attention.blocks, i)
                                 : sli_blocks_of_share(attrs->attention.share, i);
}

/* Returns the pairs of a query and a key that a chunk of `positions` positions computes after
 * `before` positions, with a fraction `share` of the blocks; the choice multiplies the last queries
 * with all keys twice, which is half the work of attention each time. */
static inline double sli_chunk_pairs(float share, int64_t positions, int64_t before) {
  double pairs = (double)SLI_BLOCK * (double)(before + positions);
  for (int64_t i = before / SLI_BLOCK; i < (before + positions) / SLI_BLOCK; i++)
    pairs += SLI_BLOCK * SLI_BLOCK * ((double)sli_blocks_of_share(share, i) - 0.5);
  return pairs;
}

#endif
