/* SPDX-License-Identifier: Apache-2.0 */
/* Lines about a server's activity, every ten seconds unless it is idle. */
#ifndef SLUICE_TOOLS_ACTORSERVE_PROGRESS_H
#define SLUICE_TOOLS_ACTORSERVE_PROGRESS_H

#include <sluice/session.h>

typedef struct progress {
  uint64_t last_ns; /* time of the last line; 0 if none yet */
  /* counters at that time */
  uint64_t rows_prompt, tokens, requests, rounds, drafted, accepted;
} progress;

/* Returns whether ten seconds have passed since the last line. */
bool progress_is_due(progress *p);
/* Writes a line to standard error, unless nothing has happened. */
void progress_note(progress *p, const sl_session_stats *now);

#endif
