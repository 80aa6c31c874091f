/* --arrivals: requests come as a file says, on either clock, and what is left is how they were answered. */
#ifndef SLUICE_TOOLS_ACTORSERVE_PLAY_H
#define SLUICE_TOOLS_ACTORSERVE_PLAY_H

#include "tools/actorserve/actorserve.h"

typedef struct played {
  arrivals came;
  sl_rehearsal run;    /* on the real clock nobody knows how long each stage computed */
  outcome outcome;
  sl_tick_cost cost, corners; /* of its ticks on the real clock, if they can tell; else all 0 */
} played;

/* Real: submits them to the session, each at its time, and waits until all have been answered. */
sl_status play_real(sl_session *session, uint64_t seed, played *p);

/* The whole of actorserve --arrivals: plays, prints, writes the report. */
sl_status play(settings *s, served *m);

/* measure.c: the whole of actorserve --measure. */
sl_status measure(settings *s, served *m);

/* report.c: how they were answered, as JSON. */
sl_status report_played(const char *path, const settings *s, const played *p);

#endif
