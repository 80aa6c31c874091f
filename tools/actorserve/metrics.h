/* SPDX-License-Identifier: Apache-2.0 */
/* Metrics of a server, in Prometheus format. */
#ifndef SLUICE_TOOLS_ACTORSERVE_METRICS_H
#define SLUICE_TOOLS_ACTORSERVE_METRICS_H

#include <stdint.h>
#include <stdio.h>

#include <sluice/session.h>

#include "tools/actorserve/http/http.h"

enum { METRICS_BUCKETS = 12 };

/* Histogram of durations. */
typedef struct histogram {
  uint64_t counts[METRICS_BUCKETS + 1]; /* the last one counts durations above all bounds */
  double seconds;                       /* total duration */
} histogram;
void histogram_add(histogram *h, double seconds);

typedef struct metrics {
  uint64_t answers[6];       /* answers by the first digit of their status */
  uint64_t hung_up, cut_off; /* clients that left early; clients that read too slowly */
  uint64_t prompt_tokens, answer_tokens;
  histogram first, next, whole; /* times to the first token; between tokens; to the end */
} metrics;

void metrics_print(FILE *out, const metrics *m, const sl_session_stats *session, http_counts http,
                   size_t held);

#endif
