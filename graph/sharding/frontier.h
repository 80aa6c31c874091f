/* SPDX-License-Identifier: Apache-2.0 */
/* Live tensors between consecutive nodes, and the layouts that later readers may want. */
#ifndef SLUICE_GRAPH_SHARDING_FRONTIER_H
#define SLUICE_GRAPH_SHARDING_FRONTIER_H

#include "graph/sharding/ways.h"

/* Every tensor with reads still to come has a place in each search state. */
typedef struct sli_frontier {
  int width;  /* number of places */
  int *place; /* [ntensors]; -1 if it never has a place */
  int *first; /* [ntensors] numbers of the nodes at which it gets and gives up its place */
  int *last;
  uint16_t *wants; /* [nodes][width] layouts that later readers in the block may want */
  double *boxing;  /* [nodes][width][codes] upper bound on boxing for later reads, by the
                      tensor's layout */
} sli_frontier;

void sli_frontier_init(sli_frontier *f, const sli_ways *w);
void sli_frontier_fini(sli_frontier *f);

/* True if node k is the first of its block. A source belongs to the preceding block. */
bool sli_starts_block(const sli_ways *w, int k);

#endif
