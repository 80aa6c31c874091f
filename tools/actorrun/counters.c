/* SPDX-License-Identifier: Apache-2.0 */
/* Counters (sl_counter) of a run's steps, summed. */
#include "tools/actorrun/actorrun.h"

#include <stdlib.h>
#include <string.h>

/* Allocates the counters. All steps of a run have the same counters. */
static void begin(counters *all, const sl_step_report *report) {
  all->count = report->ncounters;
  all->items = sli_calloc((size_t)all->count, sizeof *all->items);
  for (int i = 0; i < all->count; i++) {
    size_t n = (size_t)report->counters[i].n;
    all->items[i] = (counter){sli_strdup(report->counters[i].name), (int64_t)n,
                              sli_calloc(n, sizeof(double)), sli_calloc(n, sizeof(double))};
  }
}

void counters_step(counters *all, const sl_step_report *report) {
  if (!all->items && report->ncounters) begin(all, report);
  for (int i = 0; i < all->count; i++) {
    counter *t = &all->items[i];
    memcpy(t->last, report->counters[i].values, (size_t)t->n * sizeof *t->last);
    for (int64_t e = 0; e < t->n; e++) t->sum[e] += t->last[e];
  }
}

void counters_fini(counters *all) {
  for (int i = 0; i < all->count; i++) {
    free(all->items[i].name);
    free(all->items[i].sum);
    free(all->items[i].last);
  }
  free(all->items);
}
