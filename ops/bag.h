/* What counts in a bag of ids: shared by CPU and CUDA. */
#ifndef SLUICE_BAG_H
#define SLUICE_BAG_H

#include "ops/layout.h"
#include <sluice/ops.h>

/* Is it an id that stands for nothing? bag NULL: none does. */
SLI_REGION bool sli_bag_pads(const sl_bag *bag, int32_t id) {
  return bag && bag->pads && id == bag->padding;
}

/* What each counts by: 1, or of a mean 1 / the number of those that count. */
SLI_REGION double sli_bag_share(const sl_bag *bag, const int32_t *ids, int64_t most) {
  int64_t count = 0;
  if (!bag || !bag->mean) return 1;
  for (int64_t l = 0; l < most; l++) count += !sli_bag_pads(bag, ids[l]);
  return count ? 1 / (double)count : 0;
}

#endif
