/* SPDX-License-Identifier: Apache-2.0 */
/* Runtime state, private to run/. During a run only one worker, the owner, touches each struct
 * below. Fields shared between workers are atomic and marked as such.
 *
 *   actor     next firing; number of its ports that are not satisfied
 *   in_port   key it needs next; table of keys that are ready
 *   out_port  slot it is writing
 *   reg       free slots, pending releases per slot   (producer's worker)
 *   queue     actors that can fire; firings in flight
 *   worker    queues, mailbox, timers, trace ring */
#ifndef SLUICE_ACTORS_RUN_STATE_H
#define SLUICE_ACTORS_RUN_STATE_H

#include <pthread.h>
#include <stdatomic.h>

#include <sluice/runtime.h>

#include "actors/plan/plan.h"
#include "actors/run/clock.h"
#include "actors/run/gate.h"
#include "actors/run/mailbox.h"
#include "actors/run/run.h"

typedef struct actor actor;
typedef struct reg reg;
typedef struct queue queue;
typedef struct worker worker;

/* One firing's entry in a key map: the port's flags, and the distance to the next firing's key. A
 * map becomes a ring of these, which can be followed without division or branch. */
typedef struct map_step {
  int64_t delta;
  const struct map_step *next;
  uint32_t flags; /* SL_FIRST, SL_LAST, SL_SKIP */
} map_step;

typedef struct walk {
  const map_step *now;
  int64_t key;
} walk;

/* One firing's entry in the ring of an actor's ticks. The ring covers a whole number of steps. */
typedef struct tick_step {
  int64_t delta;
  const struct tick_step *next;
  int32_t microbatch, piece;
  int32_t ahead; /* step of the tick minus the actor's own step */
  bool last;     /* the last firing of the actor's step */
  bool turns;    /* last firing of the step, or the actor's rank may change after it */
} tick_step;

typedef struct in_port {
  walk at;
  bool waiting; /* needs a key that is not ready */
  bool early;   /* may return its slot at launch: the producer runs behind it on the same queue */
  bool fenced;  /* consumer and producer may be notified at launch: one queue waits for the
                   other on the device, at a fence */
  uint32_t mask;
  int32_t cause;  /* SL_WAIT_INPUT | register << 3 */
  int32_t number; /* index among the register's consumers */
  int32_t *entry; /* entry in `ready` of its current key */
  int32_t *ready; /* [mask + 1] slot + 1 by key & mask, 0: not ready. If fenced, followed by the
                     fences, indexed the same way, and the latest fence */
  actor *actor;
  reg *reg;
} in_port;
_Static_assert(sizeof(in_port) == SLI_CACHE_LINE, "a port is one line");

typedef struct out_port {
  walk at;
  bool waiting;  /* needs a slot, and none is free */
  int32_t slot;  /* the slot being written, or -1 */
  int32_t cause; /* SL_WAIT_CREDIT | register << 3 */
  actor *actor;
  reg *reg;
} out_port;

/* A register's consumers on one other worker; a single message notifies them all. */
typedef struct group {
  worker *worker;
  in_port **ports;
  int32_t nports;
  bool fenced; /* all of them are fenced */
} group;

/* A quota over several registers of one device (plan/flow.h). */
typedef struct pool {
  _Alignas(SLI_CACHE_LINE) sli_level level;
  int32_t nqueues;
  queue **queues; /* queues that write to it */
} pool;

/* Slot pool: slots shared by several registers of one queue. Their producers take turns, so the
 * registers have no separate counts of free slots. An actor that lacks only a slot is lent one, or
 * parked. */
typedef struct slot_pool {
  int32_t *free; /* stack of free slots */
  uint32_t nfree;
  out_port *parked; /* port whose actor lacks only a slot; or NULL */
  reg *members;     /* registers that share the slots, linked by `next` */
} slot_pool;

/* A register's membership in a slot pool. */
typedef struct sharing {
  slot_pool *slot_pool; /* the slot pool whose slots it uses, or NULL */
  reg *next;            /* next member of the slot pool */
  bool notified; /* the register's lazy W have been told that the slot pool needs a slot; reset when
                    one is returned */
} sharing;

/* Change of a register's quota during a run. Only the producer's worker touches it, except the last
 * two fields. */
typedef struct resize {
  int32_t owed; /* slots to retire when they are returned, because the quota was lowered */
  int32_t made, nretired; /* slots ever put into use; slots retired */
  int32_t *retired;       /* stack */
  /* A QUOTA message is in flight. Set by the sender after `wanted`; cleared by the receiving worker
   * before it reads `wanted`. Both use an exchange (acquire and release), so the worker reads every
   * change that found the flag set. */
  _Atomic bool asked;
  _Atomic int32_t wanted;
} resize;

/* Debug tag of a slot: its contents, for checks. */
typedef struct slot_tag {
  int64_t key;
  int32_t reg; /* register of the key; SL_NONE: the slot is free */
  bool ready;
  int32_t rows;     /* valid rows; -1: unknown, or it has none */
  int32_t moved;    /* rows that a copy should have transferred; -1: not made by a copy */
  int64_t from, to; /* range of ticks in which it was made; -1: unknown */
} slot_tag;

/* Data about a register's slots, other than their values. */
typedef struct contents {
  int32_t *lengths;       /* valid rows of each slot, read and written by the slot's current
                             owner; NULL: always full */
  size_t poison;          /* bytes of a slot to fill with poison when it becomes free; 0: none */
  size_t blank;           /* bytes to poison in a slot with rows before it is filled */
  bool closed;            /* free slots are reported to the address sanitizer */
  bool lags;              /* part of it was ready at the start, so its ticks differ from its
                             readers' */
  slot_tag *tags;         /* [slots] NULL: nothing is checked (tags.h) */
  _Atomic int32_t *owner; /* number of the aliased register that holds the memory now; NULL: not
                             aliased */
  const sl_plan *named;   /* plan for names in messages, if there are tags */
} contents;

struct reg {
  /* Producer's worker only. */
  _Alignas(SLI_CACHE_LINE) uint32_t nfree; /* free slots; with a slot pool 1: it may be lent one */
  uint32_t watch; /* taking a slot that leaves fewer free than this calls watch_slots(); least_free,
                     or INT32_MAX if slots are counted */
  int32_t *free;  /* stack of free slots; with a slot pool: the lent slot */
  int32_t *pending;      /* [quota] pending releases per slot */
  out_port *producer;    /* NULL: its initial slots are permanent */
  in_port **consumers;   /* [nconsumers] consumers on the producer's queue, then on its worker, */
  int32_t nsame, nlocal; /* ... then on other workers */
  int32_t newest;        /* slot of the newest initial key */
  int32_t least_free;
  bool counted; /* taking or freeing a slot changes a pool, an activation count or a
                   slot pool */
  sharing shared;
  int32_t kept;
  _Atomic int32_t quota; /* slots that exist; also read from outside, relaxed */
  resize resize;
  uint64_t *fences; /* [slots + 1][nconsumers] fences of the firings that last read a slot,
                       until it is taken; then the latest of each consumer. NULL: no
                       consumer is fenced */
  /* Constant; also read by the consumers' workers. */
  _Alignas(SLI_CACHE_LINE) worker *worker; /* the producer's */
  in_port *only; /* the only consumer, if it is on this worker and slots are not counted;
                    `pending` is then unused */
  group *far;    /* [nfar] consumers on other workers, by worker */
  int32_t nconsumers, nfar;
  bool carried;   /* slots are in another process; the READY message travels with the data */
  bool lazy;      /* lazy W read it: they are notified when the producer waits */
  uintptr_t base; /* address of slot 0, or 0 without data */
  size_t stride;
  int32_t id;
  pool *pool;
  _Alignas(SLI_CACHE_LINE) double activation;
  struct device *device;
  contents contents;
};

/* Rows that a firing filled in its last output with rows, or read if no output has rows. */
typedef struct row_note {
  int64_t firing;
  int32_t rows;
} row_note;

/* Valid lengths of an actor's slots, if any have rows. */
typedef struct lengths {
  int32_t **now;   /* [bases] pointers passed to a launch */
  row_note *notes; /* [mask + 1] notes by firing; imported for an actor in another process */
  uint64_t mask;
  _Atomic uint64_t *read; /* [inputs] rows read so far; also read from outside, relaxed */
} lengths;

/* Lanes of a device: the part of it that no firing has, and their position in a common order. */
typedef struct lanes {
  int32_t unused; /* of WHOLE_DEVICE */
  int32_t in_order;
  int32_t nqueues;
  queue **queues; /* [nqueues] */
} lanes;
enum { WHOLE_DEVICE = 1000000 };

/* Arguments of a launch. */
typedef struct binding {
  sl_firing firing;
  void **bases;              /* [inputs, outputs, workspace] */
  uint8_t *first;            /* [inputs, outputs, workspace] */
  sl_move *move;             /* destination, for a link to another process */
  lengths *lengths;          /* NULL: all slots are full */
  const uint64_t *durations; /* [ndurations] durations by tick; NULL: all equal */
  uint32_t ndurations;
  const int32_t *asks; /* [plan->nshares] shares by tick, of WHOLE_DEVICE; NULL: the whole */
  struct {             /* if slots are checked: */
    bool copies;       /* passes its input on */
    bool repeats;      /* several firings share a tick, or it fires once a step */
  } checks;
} binding;

/* A lazy W is postponed until a producer waits for its slots, or its stage has no B left in the
 * step. */
typedef struct lazy {
  const actor *backward; /* the B of its stage; NULL: not lazy */
  int64_t *wanted;       /* [inputs] key whose slot the producer waits for */
} lazy;

struct actor {
  /* Next firing. The smaller `order` goes first: class and rank in the high half, tick in the low
   * half. */
  _Alignas(SLI_CACHE_LINE) union {
    unsigned __int128 order;
    struct {
      int64_t tick_number;
      uint64_t rank;
    };
  };
  int32_t missing;   /* unsatisfied ports, plus a closed gate */
  uint64_t since_ns; /* time when it became ready to fire */
  int32_t cause;     /* SL_WAIT_* | register << 3: the last thing it waited for */
  queue *queue;
  in_port *in, *in_end;
  out_port *out, *out_end;
  uint64_t duration_ns;      /* duration of the next firing */
  const tick_step *tick;     /* tick entry of the next firing */
  int64_t fired;             /* firings launched so far */
  _Atomic int64_t done;      /* firings completed; read from outside, relaxed */
  int64_t every;             /* fires in one of this many steps */
  const sl_program *program; /* NULL: nothing to run */
  int64_t step;              /* step of the next firing */
  uint64_t order_base;       /* class and rank, without the contribution of tick groups */
  int32_t id;
  bool gated;    /* waits for its next step to begin */
  bool notifies; /* lazy W read its outputs; it notifies them when it waits for a slot */
  bool binds;    /* its launches use the binding */
  bool fenced;   /* some of its ports, or their other ends, are fenced */
  bool borrows;  /* some of its outputs use a slot pool */
  bool ordered;  /* appears in its queue's fixed order */
  lazy lazy;
  binding bound; /* arguments of its launch */
  const sl_actor *plan;
};

/* A notification that a firing sends when it completes: a slot is ready, to consumers on other
 * queues, or a slot is free, to the producer. */
typedef struct notice {
  reg *reg;
  int64_t key;
  int32_t slot;
  sli_message_kind kind;
} notice;

/* A firing in flight on an asynchronous queue. */
typedef struct flight {
  actor *actor;
  int64_t firing;
  uint64_t start_ns, since_ns, duration_ns, fence;
  int32_t cause;
  int32_t share; /* of WHOLE_DEVICE; 0: not on a lane */
  notice *notices, *end;
} flight;

struct queue {
  _Alignas(SLI_CACHE_LINE) actor **runnable; /* runnable actors, sorted, the next to fire last; a
                                                permanent sentinel precedes the first */
  actor **top;                               /* end of `runnable` */
  bool listed;                               /* already in the worker's ring, or full */
  bool selective; /* pools, slot pools, lazy W, fences, a fixed order or look-ahead may hold back a
                     runnable actor, or lazy W must be notified */
  bool passed;    /* look-ahead: has let the other queues go first */
  bool held;      /* a runnable firing waits on the device for other queues: look again */
  int32_t in_order; /* position in the fixed order, if it is not a lane */
  lanes *lanes;     /* NULL: not a lane */
  uint64_t look_ahead_ns;
  int32_t nactors;
  actor **actors;         /* [nactors] all actors that fire here */
  queue *next;            /* next in the worker's ring of queues with firings to start */
  uint64_t busy_until_ns; /* end of the last firing */
  bool (*launch)(void *queue, const sl_program *program, const sl_firing *firing, uint64_t now_ns,
                 uint64_t duration_ns, uint64_t *fence); /* ops->launch */
  void *impl;
  worker *worker;
  int32_t inflight, run_ahead, head, nflights;
  flight *flights; /* ring of nflights: run_ahead, or fewer if slots limit it */
  uint64_t due_ns; /* due time in the timers ... */
  queue *due_next; /* ... and the next queue in its bucket */
  /* Actor of the oldest firing in flight, or SL_NONE, and since when it is the oldest. Read from
   * outside, relaxed. */
  _Atomic int32_t flying;
  _Atomic uint64_t flying_ns;
  const sl_queue_ops *ops;
  const sl_queue *plan;
  struct device *device;
  int32_t id;
};

typedef struct device {
  _Alignas(SLI_CACHE_LINE) void *arenas[SL_SPACE_COUNT];
  lanes lanes;
  double held, peak; /* activations; on the worker of its compute queue */
  worker *worker;    /* NULL: in another process */
} device;

/* Queues with known completion times, ordered by due time (timer.h). */
typedef struct bucket {
  queue *first, **end; /* list, and where the next entry goes */
  uint64_t due_ns;     /* smallest due time in it */
} bucket;

typedef struct timers {
  uint64_t taken_ns; /* due time of the last one taken */
  uint64_t filled;   /* bit b: bucket b is not empty */
  bucket buckets[64];
} timers;

/* A worker's progress, read from outside during a run. */
typedef struct progress {
  _Atomic uint64_t fired;   /* firings completed, each with its record; stored with release */
  _Atomic int32_t current;  /* actor whose program runs or ran last; SL_NONE: the worker looks for
                               news. Relaxed, as ... */
  _Atomic uint64_t woke_ns; /* ... time of the last news */
} progress;

/* Trace ring: record n is records[n & mask]. */
typedef struct ring {
  sl_trace_record *records;
  uint64_t mask;
} ring;

/* Queues with firings in flight. */
typedef struct awaited {
  int32_t npolled, nmute;
  queue **polled;  /* queues whose completions must be polled; nmute of them have no
                      other notification */
  uint64_t ask_ns; /* last pause between polls; 0 after a completion */
  timers timers;
} awaited;

/* A worker's share of the plan. */
typedef struct share {
  int32_t nqueues, nactors, nsparse;
  queue **queues;            /* [nqueues] */
  actor **actors;            /* [nactors] */
  actor **sparse;            /* [nsparse] actors that do not fire in every step */
  uint64_t firings_per_step; /* firings of all other actors */
  uint64_t target;           /* firings at the end of this run */
} share;

struct worker {
  sl_runtime *rt;
  uint64_t now_ns;
  progress progress;
  bool real;    /* real clock, which advances by itself */
  bool unusual; /* the next firing is the first, or jitter, a duration callback or checks are on */
  bool plain; /* nothing unusual or selective, no peers, no asynchronous firing, and a fast clock */
  bool held;  /* one of its queues is held */
  uint32_t reopened; /* the gate's counter, as last seen */
  queue *last;       /* last in the ring of queues with firings to start, or NULL */
  awaited awaited;
  ring ring;
  sli_clock clock;
  share share;
  uint64_t messages, wakes, random;
  uint64_t ran_ns, coreless_ns; /* time with a core, and time runnable without one */
  uint64_t spin_ns;             /* time to spin before sleeping; adapts */
  int32_t id;
  int32_t process; /* process whose workers this one stands for; -1: a worker of this process */
  const sl_peers *peers; /* transport that the carrier drives; NULL for other workers */
  pthread_t thread;
  sli_arena memory; /* arena for its own data, in cache lines that no other worker touches */
  sl_status status; /* result of opening its queues */
  char *detail;
  _Alignas(SLI_LINE_PAIR) _Atomic uint32_t sleeping; /* futex: 1 while asleep */
  sli_mailbox mailbox;
};

/* First failure of a run. */
enum { NO_FAILURE, FAILURE_IN_WRITING, FAILURE_KEPT };
typedef struct failure {
  _Atomic int state; /* KEPT, stored with release: the other fields are set */
  sl_status status;
  char text[512];
} failure;

/* Synchronises the threads, which wait for a run, with the caller, which waits for its end. */
typedef struct crew {
  _Atomic uint32_t epoch;  /* futex: runs begun */
  _Atomic uint32_t active; /* futex: workers still in this run */
  _Atomic bool quit;
} crew;

struct sl_runtime {
  const sl_plan *plan;
  sl_runtime_options options;
  sli_clock clock;
  bool threads;        /* workers are threads (real clock) */
  bool oversubscribed; /* more workers than cores */
  bool carries_apart;  /* the carrier is a worker without devices */
  int32_t nworkers;    /* workers of devices, then those of queues with `apart` */
  worker *workers;
  worker *away;        /* [plan->nprocesses] stand-ins for the other processes, with peers */
  sli_remote *remotes; /* list of other processes' exports */
  worker *carrier;     /* worker that drives the peers; finishes last */
  actor *actors;       /* [plan->nactors] actors, and a sentinel that sorts last and never
                          fires */
  reg *regs;
  queue *queues;
  device *devices;
  pool *pools;
  int32_t ngroups, connected; /* groups of queues; those that are connected, the first ones */
  sl_group *groups;
  map_step **maps;         /* [plan->nmaps] */
  struct tick_ring *ticks; /* list of the rings made so far */
  sli_arena memory;
  int64_t first_step;      /* first step of the run */
  int64_t steps;           /* completed, including those before first_step */
  _Atomic int32_t *quotas; /* [nregs] quotas last requested; written only by the thread that
                              changes quotas */
  gate gate;
  _Atomic bool wants_stop; /* stop request, with peers */
  crew crew;
  failure failure;
  _Atomic uint64_t first_firing_ns;
};

static inline bool is_away(const sl_runtime *rt, int32_t device) {
  return rt->options.peers && rt->plan->devices[device].process != rt->options.process;
}

static inline uint64_t *port_fences(const in_port *p) {
  return (uint64_t *)(p->ready + p->mask + 1);
}

static inline void *slot_address(const reg *r, int32_t slot) {
  return (void *)(r->base + (size_t)slot * r->stride);
}

/* Firings of a worker from the first step of the run to `steps`. */
static inline uint64_t worker_share(const worker *w, int64_t steps) {
  const share *s = &w->share;
  int64_t first = w->rt->first_step;
  uint64_t sum = (uint64_t)(steps - first) * s->firings_per_step;
  for (int32_t i = 0; i < s->nsparse; i++)
    sum +=
        (uint64_t)(sli_firings(s->sparse[i]->plan, steps) - sli_firings(s->sparse[i]->plan, first));
  return sum;
}

/* Step of an actor's firing. */
static inline int64_t firing_step(const sl_actor *a, int64_t n) {
  return (n / a->firings_per_step + 1) * sli_every(a) - 1;
}

static inline bool has_runnable(const queue *q) { return q->top > q->runnable; }

static inline uint64_t worker_fired(const worker *w) {
  return atomic_load_explicit(&w->progress.fired, memory_order_relaxed);
}

/* Allocates memory that any worker may read. */
static inline void *allot(sl_runtime *rt, size_t count, size_t size) {
  return sli_arena_alloc(&rt->memory, SLI_MAX(count, (size_t)1) * size);
}

/* Allocates memory of one worker. w NULL: shared memory, for data that is never written. */
static inline void *allot_own(sl_runtime *rt, worker *w, size_t count, size_t size) {
  return w ? sli_arena_alloc(&w->memory, SLI_MAX(count, (size_t)1) * size) : allot(rt, count, size);
}

/* wake.c: any thread, signal-safe. */
void sli_worker_wake(worker *w);
void sli_futex_wait(_Atomic uint32_t *word, uint32_t value, uint64_t timeout_ns);
void sli_futex_wake(_Atomic uint32_t *word);

/* loop.c */
void sli_worker_run(worker *w);                        /* runs one run to its end */
void sli_worker_take(worker *w, const sli_message *m); /* handles a message as if it came by
                                                          mailbox */
void sli_actor_start(worker *w, actor *a);             /* first look at an actor's ports */

/* post.c */
void sli_post(worker *to, const sli_message *m); /* sends from a thread that is no worker */

/* arenas.c */
/* Creates the arenas of the worker's devices; NULL: of devices without a worker. */
sl_status sli_arenas_create(sl_runtime *rt, const worker *w);
void sli_arenas_point(sl_runtime *rt); /* sets the addresses of registers and actors */
void sli_arenas_destroy(sl_runtime *rt);

/* walk.c: maps and ticks as rings. */
map_step *sli_map_ring(sl_runtime *rt, const sl_map *map);
const tick_step *sli_tick_ring(sl_runtime *rt, const sl_actor *a, int64_t firing);

/* wire.c: registers, actors, ports and mailboxes, once queues have their workers. */
void sli_wire(sl_runtime *rt);

/* threads.c: opens the queues and devices of the workers. */
sl_status sli_threads_start(sl_runtime *rt);
void sli_threads_join(sl_runtime *rt);

/* ask.c */
void sli_remotes_free(sl_runtime *rt);

#endif
