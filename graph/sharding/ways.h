/* SPDX-License-Identifier: Apache-2.0 */
/* Search space: the ways to shard each node, with the costs that do not depend on other nodes. */
#ifndef SLUICE_GRAPH_SHARDING_WAYS_H
#define SLUICE_GRAPH_SHARDING_WAYS_H

#include "graph/sharding/search.h"

typedef struct sli_way {
  sl_signature signature;
  double weight; /* weight of its calls, and of parameters that no other node reads */
  sli_reading in[SL_SIGNATURE_ARGS];
} sli_way;

static inline sli_reading sli_way_in(const sli_way *way, int i) {
  return way->in[SLI_MIN(i, SL_SIGNATURE_ARGS - 1)];
}

typedef struct sli_ways {
  sli_costs costs;
  int count; /* number of nodes with signatures */
  const sli_node **nodes;
  int *nways;                   /* [count] */
  sli_way (*of)[SL_SIGNATURES]; /* [count] */
  int *reads;                   /* [ntensors] number of reads by these nodes */
  bool *fixed;                  /* [nparams] layout set by the user ... */
  sl_sbp *params;               /* [nparams] ... to this one */
} sli_ways;

/* Fails with an error that names a user's layout that is impossible. */
sl_status sli_ways_init(sli_ways *w, const sli_tensor_search *search);
void sli_ways_fini(sli_ways *w);

/* Finds the ways of least total weight, way[count], among allowed[count] (bit i: way i). Returns
 * the weight, or INFINITY if it is not less than `limit`. */
double sli_ways_search(const sli_ways *w, const uint32_t *allowed, double limit, int *way);

/* Builds the choice that consists of these ways. */
void sli_ways_take(const sli_ways *w, const int *way, sli_choice *out);

#endif
