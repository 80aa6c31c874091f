/* What a server counts, as Prometheus reads it. */
#ifndef SLUICE_TOOLS_ACTORSERVE_METRICS_H
#define SLUICE_TOOLS_ACTORSERVE_METRICS_H

#include <stdint.h>
#include <stdio.h>

#include <sluice/session.h>

#include "tools/actorserve/http/http.h"

enum { METRICS_BUCKETS = 12 };

/* Durations, by how long they are. */
typedef struct histogram {
  uint64_t counts[METRICS_BUCKETS + 1]; /* the last: longer than all others */
  double seconds;                       /* all together */
} histogram;
void histogram_add(histogram *h, double seconds);

typedef struct metrics {
  uint64_t answers[6];        /* by the first digit of their status */
  uint64_t hung_up, cut_off;  /* clients that left before the end; that read too slowly */
  uint64_t prompt_tokens, answer_tokens;
  histogram first, next, whole; /* from a request to its first token; between tokens; to its end */
} metrics;

void metrics_print(FILE *out, const metrics *m, const sl_session_stats *session, http_counts http);

#endif
