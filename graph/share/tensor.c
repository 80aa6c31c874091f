/* The tensor axis: the cheapest choice. */
#include <math.h>
#include <stdlib.h>

#include "graph/share/ways.h"

sl_status sli_choose_tensor(const sli_tensor_search *s, sli_choice *out) {
  sli_ways w;
  sl_status status = sli_ways_init(&w, s);
  if (status) return status;
  uint32_t *allowed = sli_calloc((size_t)w.count + 1, sizeof *allowed);
  int *way = sli_calloc((size_t)w.count + 1, sizeof *way);
  for (int k = 0; k < w.count; k++) allowed[k] = UINT32_MAX;
  double weight = sli_ways_search(&w, allowed, INFINITY, way);
  SLI_CHECK(weight < INFINITY, "every node has a way, but they have none together");
  sli_ways_take(&w, way, out);
  free(allowed);
  free(way);
  sli_ways_fini(&w);
  return SL_OK;
}
