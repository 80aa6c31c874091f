/* What the search chooses from: for each node the ways to share it, priced as far as they
 * can be by themselves. */
#ifndef SLUICE_GRAPH_SBP_WAYS_H
#define SLUICE_GRAPH_SBP_WAYS_H

#include "graph/share/search.h"

typedef struct sli_way {
  sl_signature signature;
  double weight; /* calls, and all about parameters that nobody else reads */
  sli_reading in[SL_SIGNATURE_ARGS];
} sli_way;

static inline sli_reading sli_way_in(const sli_way *way, int i) {
  return way->in[SLI_MIN(i, SL_SIGNATURE_ARGS - 1)];
}

typedef struct sli_ways {
  sli_costs costs;
  int count;              /* nodes that have signatures, in order */
  const sli_node **nodes;
  int *nways;             /* [count] */
  sli_way (*of)[SL_SIGNATURES]; /* [count] */
  int *reads;             /* [ntensors] how often they read it */
  bool *fixed;            /* [nparams] said by the user to lie as ... */
  sl_sbp *params;         /* [nparams] ... this */
} sli_ways;

/* An error names what the user has said and cannot be. */
sl_status sli_ways_init(sli_ways *w, const sli_tensor_search *search);
void sli_ways_fini(sli_ways *w);

/* The least weight: way[count] one for each node, of those in allowed[count] (bit i: way i).
 * Returns it, or INFINITY if it is not less than `limit`. */
double sli_ways_search(const sli_ways *w, const uint32_t *allowed, double limit, int *way);

/* The choice that these ways are. */
void sli_ways_take(const sli_ways *w, const int *way, sli_choice *out);

#endif
