/* SPDX-License-Identifier: Apache-2.0 */
/* Recent rates of a session, from counters of the last seconds. */
#ifndef SLUICE_TOOLS_ACTORSERVE_RATES_H
#define SLUICE_TOOLS_ACTORSERVE_RATES_H

#include <pthread.h>

#include <sluice/session.h>

enum { RATES_SECONDS = 10 };

typedef struct rates {
  pthread_mutex_t lock;
  int count; /* samples taken so far */
  struct rates_sample {
    double seconds; /* time of the sample */
    double ticks, rows, tokens;
  } samples[RATES_SECONDS]; /* ring of the newest samples */
} rates;

/* Takes a sample, unless the last one is less than a second old. Any thread. */
void rates_note(rates *r, const sl_session_stats *now);
/* Returns each counter's rate per second since the oldest sample, or 0 before there is one. */
struct rates_sample rates_now(rates *r, const sl_session_stats *now);

#endif
