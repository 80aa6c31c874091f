/* Which tensors are alive between the nodes, and what may still be asked of them. */
#ifndef SLUICE_GRAPH_SBP_FRONTIER_H
#define SLUICE_GRAPH_SBP_FRONTIER_H

#include "graph/share/ways.h"

/* A tensor to be read has a place in every state. */
typedef struct sli_frontier {
  int width;       /* places */
  int *place;      /* [ntensors]; -1: never has one */
  int *first;      /* [ntensors] where it begins and ends to have one, as numbers of nodes */
  int *last;
  uint16_t *wants; /* [nodes][width] layouts that later readers in the block may want */
  double *boxing;  /* [nodes][width][codes] of what is later read, by how it lies: at most */
} sli_frontier;

void sli_frontier_init(sli_frontier *f, const sli_ways *w);
void sli_frontier_fini(sli_frontier *f);

/* Is node k the first of its block? Sources belong to whatever comes before them. */
bool sli_starts_block(const sli_ways *w, int k);

#endif
