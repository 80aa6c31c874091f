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

/* Returns the number of key blocks that query block `i` attends to: attrs.count, or the fraction
 * attrs.value of the i + 1 blocks of causal attention. The query block itself and the first block
 * are always included. */
static inline int64_t sli_blocks_chosen(const sl_attrs *attrs, int64_t i) {
  const double slack = 1e-6; /* makes a tenth of 10 blocks 1 */
  int64_t n =
      attrs->count ? attrs->count : (int64_t)ceil((double)attrs->value * (double)(i + 1) - slack);
  if (n < 2) n = 2;
  return n < i + 1 ? n : i + 1;
}

#endif
