/* SPDX-License-Identifier: Apache-2.0 */
/* Weights of the ids in an embedding bag, for CPU and CUDA. */
#ifndef SLUICE_OPS_BAG_H
#define SLUICE_OPS_BAG_H

#include "ops/layout.h"
#include <sluice/ops.h>

/* Returns true for the padding id. A NULL bag has no padding. */
SLI_REGION bool sli_bag_pads(const sl_bag *bag, int32_t id) {
  return bag && bag->pads && id == bag->padding;
}

/* Returns the weight of each id that is not padding: 1 for sums, 1 / (number of those ids) for
 * means. */
SLI_REGION double sli_bag_share(const sl_bag *bag, const int32_t *ids, int64_t most) {
  int64_t count = 0;
  if (!bag || !bag->mean) return 1;
  for (int64_t l = 0; l < most; l++) count += !sli_bag_pads(bag, ids[l]);
  return count ? 1 / (double)count : 0;
}

#endif
