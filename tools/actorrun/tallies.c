/* SPDX-License-Identifier: Apache-2.0 */
/* Counters (sl_tally) of a run's steps, summed. */
#include "tools/actorrun/actorrun.h"

#include <stdlib.h>
#include <string.h>

/* Allocates the counters. All steps of a run have the same ones. */
static void begin(tallies *all, const sl_step_report *report) {
  all->count = report->ntallies;
  all->of = sli_calloc((size_t)all->count, sizeof *all->of);
  for (int i = 0; i < all->count; i++) {
    size_t n = (size_t)report->tallies[i].n;
    all->of[i] = (tally){sli_strdup(report->tallies[i].name), (int64_t)n, sli_calloc(n, sizeof(double)),
                         sli_calloc(n, sizeof(double))};
  }
}

void tallies_step(tallies *all, const sl_step_report *report) {
  if (!all->of && report->ntallies) begin(all, report);
  for (int i = 0; i < all->count; i++) {
    tally *t = &all->of[i];
    memcpy(t->last, report->tallies[i].values, (size_t)t->n * sizeof *t->last);
    for (int64_t e = 0; e < t->n; e++) t->sum[e] += t->last[e];
  }
}

void tallies_fini(tallies *all) {
  for (int i = 0; i < all->count; i++) {
    free(all->of[i].name);
    free(all->of[i].sum);
    free(all->of[i].last);
  }
  free(all->of);
}
