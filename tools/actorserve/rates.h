/* How fast a session has been lately: counters of the last seconds. */
#ifndef SLUICE_TOOLS_ACTORSERVE_RATES_H
#define SLUICE_TOOLS_ACTORSERVE_RATES_H

#include <pthread.h>

#include <sluice/session.h>

enum { RATES_SECONDS = 10 };

typedef struct rates {
  pthread_mutex_t lock;
  int count;          /* taken so far */
  struct rates_sample {
    double seconds;   /* when */
    double ticks, rows, tokens;
  } of[RATES_SECONDS]; /* the newest, round and round */
} rates;

/* Any thread: takes a sample, unless the last one is younger than a second. */
void rates_note(rates *r, const sl_session_stats *now);
/* Each a second, from the oldest sample on; 0 before there is one. */
struct rates_sample rates_now(rates *r, const sl_session_stats *now);

#endif
