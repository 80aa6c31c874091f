/* SPDX-License-Identifier: Apache-2.0 */
/* A worker thread for slow work, such as reading a long body or tokenizing a long text, so that
 * the event loop need not wait. */
#ifndef SLUICE_TOOLS_ACTORSERVE_WORKER_H
#define SLUICE_TOOLS_ACTORSERVE_WORKER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <sluice/status.h>

typedef struct worker worker;

/* A unit of work; the worker owns it from put until take. */
typedef struct work {
  void (*run)(struct work *w); /* called on the worker's thread */
  void *user;
  size_t bytes; /* size of the work */
  /* set when the result is no longer wanted; run() may not have been called */
  atomic_bool stop;
  uint64_t turn; /* order: the smallest comes next */
  struct work *next;
} work;

sl_status worker_create(worker **out);
/* Stops the work in progress. Unfinished work returns to the caller. */
void worker_destroy(worker *w);
int worker_fd(const worker *w); /* readable while there is finished work */
/* Queues work. Short work precedes long work, unless the long work has waited for some time. */
void worker_put(worker *w, work *x);
/* Requests an early end of work that was not taken yet. */
void worker_stop(worker *w, work *x);
work *worker_take(worker *w); /* returns finished work, or NULL */
/* Returns how long the work in progress has run. */
double worker_seconds(worker *w);

#endif
