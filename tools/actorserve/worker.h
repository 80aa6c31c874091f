/* A thread that does what takes long: reading a long body, making tokens of a long text. Everybody else would wait. */
#ifndef SLUICE_TOOLS_ACTORSERVE_WORKER_H
#define SLUICE_TOOLS_ACTORSERVE_WORKER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <sluice/status.h>

typedef struct worker worker;

/* Something to do; the worker's from put until take. */
typedef struct work {
  void (*run)(struct work *w);  /* in its thread */
  void *user;
  size_t bytes;                 /* how long it is */
  atomic_bool stop;             /* nobody wants it any more; it may not have been run */
  uint64_t turn;                /* the smallest comes next */
  struct work *next;
} work;

sl_status worker_create(worker **out);
void worker_destroy(worker *w);   /* stops what is under way; what it has is its users' again */
int worker_fd(const worker *w);   /* readable while there is something to take */
/* Short ones go before long ones, unless those have waited for some time. */
void worker_put(worker *w, work *x);
/* It is done soon. Not of what was taken. */
void worker_stop(worker *w, work *x);
work *worker_take(worker *w);     /* one that is done, or NULL */
/* For how long the one that is under way has been. */
double worker_seconds(worker *w);

#endif
