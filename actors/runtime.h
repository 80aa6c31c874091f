/* The runtime's own state. One worker owns each struct below and is the only
 * one to touch it while a run is on; what is shared is atomic and says so.
 *
 *   actor     next firing; how many of its ports are not satisfied
 *   in_port   which key it needs next; table of keys that are ready
 *   out_port  which slot it is writing
 *   reg       free slots, answers outstanding per slot   (producer's worker)
 *   queue     actors that can fire; firings under way
 *   worker    queues, mailbox, timers, trace ring
 */
#ifndef SLUICE_ACTORS_RUNTIME_H
#define SLUICE_ACTORS_RUNTIME_H

#include <pthread.h>
#include <stdatomic.h>

#include <sluice/runtime.h>

#include "actors/clock.h"
#include "actors/mailbox.h"
#include "actors/plan.h"

typedef struct actor actor;
typedef struct reg reg;
typedef struct queue queue;
typedef struct worker worker;

/* A walk along a key map, one step per firing, without a division. */
typedef struct walk {
  const sl_map_entry *entries;
  uint32_t period, index;
  int64_t stride, base;
  int64_t key;
  uint32_t flags;
} walk;

typedef struct in_port {
  walk at;
  bool waiting;    /* its key is needed and not ready */
  uint32_t mask;
  int32_t *ready;  /* [mask + 1] slot + 1 by key & mask, 0: not ready */
  actor *actor;
  reg *reg;
} in_port;

typedef struct out_port {
  walk at;
  bool waiting;    /* needs a slot and there is none */
  int32_t slot;    /* the slot being written, or -1 */
  actor *actor;
  reg *reg;
} out_port;

/* A register's consumers on one queue. */
typedef struct group {
  queue *queue;
  int32_t nports;
  in_port **ports;
} group;

typedef struct pool {
  int32_t quota, used;
  int32_t empty; /* registers of the pool that hold no slot: one is kept for each */
} pool;

struct reg {
  int32_t id;
  int32_t nfree;
  int32_t *free;         /* stack of free slots */
  int32_t *pending;      /* [quota] answers outstanding per slot */
  uint8_t *base;         /* slot 0, or NULL without data */
  size_t stride;
  int32_t nconsumers, ngroups;
  group *groups;
  out_port *producer;    /* NULL: its initial slots stay for ever */
  queue *queue;          /* the producer's */
  pool *pool;
  int32_t used, peak, newest;
  double activation;
  struct device *device;
};

struct actor {
  int32_t id;
  int32_t missing;       /* ports not satisfied, plus a closed gate */
  sl_class cls;
  int32_t nin, nout;
  in_port *in;
  out_port *out;
  queue *queue;
  const sl_program *program;
  uint64_t duration_ns;
  uint64_t order_high, order_low; /* priority: smaller first */
  walk tick;
  int64_t fired;
  int32_t cause;         /* SL_WAIT_* | register << 3: what satisfied it last */
  bool source, gated;
  int32_t firings_per_step, in_step; /* firings of the step so far */
  int64_t step;
  uint64_t since_ns;     /* when it became able to fire */
  void **bases;          /* [nin + nout + 1] */
  uint8_t *first;        /* [nin + nout + 1] */
  const sl_actor *plan;
};

/* What a completed firing still has to tell other queues. */
typedef struct notice {
  reg *reg;
  group *group;          /* READY to this group; NULL: FREE to the producer */
  int64_t key;
  int32_t slot;
} notice;

/* A firing under way on an asynchronous queue. */
typedef struct flight {
  actor *actor;
  int64_t firing;
  uint64_t start_ns, duration_ns, fence;
  int32_t cause, nnotices;
  notice *notices;
} flight;

struct queue {
  int32_t id;
  const sl_queue_ops *ops;
  void *impl;
  worker *worker;
  const sl_queue *plan;
  struct device *device;
  actor **runnable;
  int32_t nrunnable;
  bool listed;           /* on the worker's list of queues to look at */
  bool pooled;           /* some register written here draws on a pool */
  int32_t inflight, head, run_ahead;
  flight *flights;       /* ring of run_ahead */
  uint64_t busy_until_ns;/* end of the last firing */
  void *workspace;
};

typedef struct device {
  uint8_t *arena;
  double held, peak;     /* activations; the worker of its compute queue */
  worker *worker;
} device;

typedef struct timer {
  uint64_t due_ns;
  queue *queue;
} timer;

struct worker {
  sl_runtime *rt;
  int32_t id;
  pthread_t thread;
  int32_t nqueues, nactors;
  queue **queues;        /* [nqueues] */
  actor **actors;        /* [nactors] */
  queue **listed;        /* ring of nqueues */
  int32_t listed_head, nlisted;
  timer *timers;         /* heap by due time, one per queue with known completions */
  int32_t ntimers;
  queue **polled;        /* queues whose completions must be asked for */
  int32_t npolled;
  uint64_t now_ns;
  uint64_t fired, target; /* firings since creation; of this run's end */
  uint64_t firings_per_step, messages, wakes, random;
  uint64_t spin_ns;      /* how long to look before sleeping; adapts */
  sl_trace_record *ring;
  uint64_t ring_mask, nrecords;
  _Atomic uint64_t progress; /* written here, read by the watchdog */
  sl_status status;      /* of opening its queues */
  char *detail;
  _Alignas(SLI_CACHE_LINE) _Atomic uint32_t sleeping; /* futex: 1 while asleep */
  sli_mailbox mailbox;
};

struct sl_runtime {
  const sl_plan *plan;
  sl_runtime_options options;
  sli_clock clock;
  bool threads;          /* workers are threads (real clock) */
  bool oversubscribed;   /* more workers than cores */
  int32_t nworkers;
  worker *workers;
  actor *actors;
  reg *regs;
  queue *queues;
  device *devices;
  pool *pools;
  sli_arena memory;
  int64_t steps;         /* completed */
  int64_t goal;          /* steps to have completed at the end of this run */
  _Atomic uint64_t gate; /* newest step begun * 2 + stop requested: one word, so that
                            a stop and a step's begin cannot miss each other */
  _Atomic uint32_t epoch;  /* futex: runs begun; odd numbers of no meaning */
  _Atomic uint32_t active; /* futex: workers not yet done with this run */
  _Atomic bool quit;
  _Atomic int failed;      /* 0, 1: being written, 2: failure and text are set */
  sl_status failure;
  char failure_text[512];
  _Atomic uint64_t first_firing_ns;
};

/* worker.c */
void sli_worker_run(worker *w);           /* one run, to its end */
void sli_worker_wake(worker *w);          /* any thread, signal-safe */
void sli_actor_start(worker *w, actor *a);/* first look at an actor's ports */
bool sli_gate_open(sl_runtime *rt, int64_t step);
int64_t sli_final_steps(sl_runtime *rt);  /* steps at which this run ends */
void sli_walk_init(walk *at, const sl_map *map);

/* explain.c: who waits for whom, as text. `cycle` receives the culprits. */
char *sli_explain(const sl_runtime *rt);

/* base of the futex calls */
void sli_futex_wait(_Atomic uint32_t *word, uint32_t value, uint64_t timeout_ns);
void sli_futex_wake(_Atomic uint32_t *word);

#endif
