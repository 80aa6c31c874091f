/* SPDX-License-Identifier: Apache-2.0 */
/* --arrivals: replays requests from a file, on the real or the virtual clock, and reports how they
 * were answered. */
#ifndef SLUICE_TOOLS_ACTORSERVE_WORKLOAD_H
#define SLUICE_TOOLS_ACTORSERVE_WORKLOAD_H

#include "tools/actorserve/actorserve.h"

typedef struct workload {
  arrivals came;
  /* the simulation; on the real clock the stages' compute times are unknown */
  sl_session_simulation run;
  outcome outcome;
  int devices;                /* of all simulated servers; 0 on the real clock */
  double joules;              /* of these; 0 if not known */
  sl_tick_cost cost, corners; /* measured cost of ticks on the real clock, otherwise all 0 */
} workload;

/* Submits the requests to a session, each at its real time, and waits until all are answered. */
sl_status workload_run_real(sl_session *session, uint64_t seed, workload *p);

/* Runs actorserve --arrivals: replays the requests, prints the outcome, and writes the report. */
sl_status workload_run(settings *s, served *served);

/* measure.c: runs actorserve --measure. */
sl_status measure(settings *s, served *served);

/* report.c: writes the outcome as JSON. */
sl_status report_workload(const char *path, const settings *s, const workload *p);

#endif
