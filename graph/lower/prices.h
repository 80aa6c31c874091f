/* SPDX-License-Identifier: Apache-2.0 */
/* Prices of blocks, by which a planner estimates plans that it does not make (prices.c). */
#ifndef SLUICE_GRAPH_LOWER_PRICES_H
#define SLUICE_GRAPH_LOWER_PRICES_H

#include <sluice/op.h>

#include "graph/lower/roles.h"

/* Seconds and bytes of a block on one device, if one stage has all blocks. */
typedef struct sli_block_price {
  double pass[3];     /* seconds of a microbatch's F, B and W */
  double exchange[2]; /* seconds of a microbatch's exchanges of activations, for which its pass
                         waits: forward and backward */
  double ahead;       /* seconds of a microbatch's exchanges of parameters and gradients */
  double update, exchange_step; /* seconds of a step */
  double
      bytes[SLI_ROLES]; /* bytes of separate slots; of one slot where the stage's credits count */
  double shared;        /* bytes of slots that blocks share */
  double crossing;      /* bytes of a microbatch that later blocks read */
} sli_block_price;

typedef struct sli_prices {
  int nblocks;
  const sli_block_price *blocks; /* [nblocks + 1]; the last is what belongs to no block */
  double bytes;                  /* bytes of the device */
} sli_prices;

#endif
