/* The tensor axis: whatever is cheapest, and what comes next. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "graph/sbp_ways.h"

static void take(const sli_ways *w, const int *way, sli_choice *out) {
  const sl_graph *g = w->costs.g;
  *out = (sli_choice){.of = sli_calloc((size_t)g->nnodes + 1, sizeof *out->of),
                      .params = sli_calloc((size_t)g->nparams + 1, sizeof *out->params)};
  memcpy(out->params, w->params, (size_t)g->nparams * sizeof *out->params);
  for (int k = 0; k < w->count; k++) out->of[w->nodes[k]->id] = w->of[k][way[k]].signature;
  sli_costs_sum(&w->costs, w->fixed, out);
}

sl_status sli_choose_tensor(sl_graph *g, const sli_dim *dims, const sli_grid *grid,
                            bool free_sources, int ngiven, const sli_sbp_given *given,
                            sli_choice *out) {
  sli_ways w;
  sl_status status = sli_ways_init(&w, g, dims, grid, free_sources, ngiven, given);
  if (status) return status;
  uint32_t *allowed = sli_calloc((size_t)w.count + 1, sizeof *allowed);
  int *way = sli_calloc((size_t)w.count + 1, sizeof *way);
  for (int k = 0; k < w.count; k++) allowed[k] = UINT32_MAX;
  double weight = sli_ways_search(&w, allowed, INFINITY, way);
  SLI_CHECK(weight < INFINITY, "no way to share the graph out");
  take(&w, way, out);
  free(allowed);
  free(way);
  sli_ways_fini(&w);
  return SL_OK;
}
