/* The runtime's own state, private to run/. One worker owns each struct below and is the
 * only one to touch it while a run is on; what is shared is atomic and says so.
 *
 *   actor     next firing; how many of its ports are not satisfied
 *   in_port   which key it needs next; table of keys that are ready
 *   out_port  which slot it is writing
 *   reg       free slots, answers outstanding per slot   (producer's worker)
 *   queue     actors that can fire; firings under way
 *   worker    queues, mailbox, timers, trace ring
 */
#ifndef SLUICE_ACTORS_STATE_H
#define SLUICE_ACTORS_STATE_H

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

/* One firing's place in a key map: what the port does there, and how far the
 * key moves to the next firing's. A map becomes a ring of these, which needs
 * neither a division nor a branch to follow. */
typedef struct map_step {
  int64_t delta;
  const struct map_step *next;
  uint32_t flags; /* SL_FIRST, SL_LAST, SL_SKIP */
} map_step;

typedef struct walk {
  const map_step *now;
  int64_t key;
} walk;

/* The same for the ticks of an actor; a ring of these is a number of steps. */
typedef struct tick_step {
  int64_t delta;
  const struct tick_step *next;
  int32_t microbatch, piece;
  int32_t ahead;          /* its step less the actor's own */
  bool last;              /* the last firing of the actor's step */
  bool turns;             /* or after it the actor's rank may be another */
} tick_step;

typedef struct in_port {
  walk at;
  bool waiting;    /* its key is needed and not ready */
  bool early;      /* its slot may go back at launch: the producer queues up behind */
  bool fenced;     /* it may be told at launch, and so may the producer: one queue waits for
                      the other on the device, at a fence */
  uint32_t mask;
  int32_t cause;   /* SL_WAIT_INPUT | register << 3 */
  int32_t number;  /* among the register's consumers */
  int32_t *entry;  /* in `ready`, of the key it is at */
  int32_t *ready;  /* [mask + 1] slot + 1 by key & mask, 0: not ready. If fenced, behind
                      them, by the same, the fences, and the latest of these */
  actor *actor;
  reg *reg;
} in_port;
_Static_assert(sizeof(in_port) == SLI_CACHE_LINE, "a port is one line");

typedef struct out_port {
  walk at;
  bool waiting;    /* needs a slot and there is none */
  int32_t slot;    /* the slot being written, or -1 */
  int32_t cause;   /* SL_WAIT_CREDIT | register << 3 */
  actor *actor;
  reg *reg;
} out_port;

/* A register's consumers on one other worker: one message tells them all. */
typedef struct group {
  worker *worker;
  in_port **ports;
  int32_t nports;
  bool fenced;           /* all of them are */
} group;

/* A quota over several registers of one device (plan/flow.h). */
typedef struct pool {
  _Alignas(SLI_CACHE_LINE) sli_level level;
  int32_t nqueues;
  queue **queues;        /* that write to it */
} pool;

/* Slots that several registers of one queue have in common. Their producers take turns, so none
 * of them counts what is free here: who could fire but for a slot is lent one, or parked. */
typedef struct bank {
  int32_t *free;         /* stack of free slots */
  uint32_t nfree;
  out_port *parked;      /* waits for a slot, and its actor for nothing else; or NULL */
  reg *members;          /* those registers, by `next` */
} bank;

/* A register's part in a bank. */
typedef struct sharing {
  bank *bank;            /* of those that have the same slots, or NULL */
  reg *next;             /* of its members */
  bool told;             /* its lazy W know that a slot of the bank is wanted; until one comes back */
} sharing;

/* How a register comes to another quota while a run goes on. The producer's worker alone, but
 * for the last two. */
typedef struct resize {
  int32_t owed;           /* slots to retire as they come back: the quota was lowered */
  int32_t made, nretired; /* slots that have ever been in use; slots out of use */
  int32_t *retired;       /* stack */
  /* A QUOTA message is under way: set by who sends it, after `wanted`; cleared by the
   * worker that takes it, before it reads `wanted`. Both by an exchange (acquire and
   * release), so a change that finds it set is in what the worker reads. */
  _Atomic bool asked;
  _Atomic int32_t wanted;
} resize;

/* What a slot holds, where that is checked. */
typedef struct slot_tag {
  int64_t key;
  int32_t reg;           /* of which that is a key; SL_NONE: none, it is free */
  bool ready;
  int32_t rows;          /* that are valid; -1: not known, or it has none */
  int32_t moved;         /* those that a copy should have brought; -1: that is no copy's */
  int64_t from, to;      /* ticks in which it was made; -1: not known */
} slot_tag;

/* What is in a register's slots beside values. */
typedef struct contents {
  int32_t *extents;      /* rows of each slot that are valid, written and read by whoever the slot
                            itself is; NULL: it is full */
  size_t poison;         /* bytes of a slot to fill with poison when it comes free; 0: none */
  size_t blank;          /* those of a slot with rows, before it is filled */
  bool closed;           /* the address sanitizer is told of free slots */
  bool lags;             /* some of it was there at the start, so its ticks are not its readers' */
  slot_tag *tags;        /* [slots] NULL: nothing is checked (tags.h) */
  _Atomic int32_t *owner; /* which of two registers has their memory, one over the other; NULL: it
                            is its own */
  const sl_plan *named;  /* with tags: for names */
} contents;

struct reg {
  /* The producer's worker alone. */
  _Alignas(SLI_CACHE_LINE) uint32_t nfree; /* with a bank 1: it may be lent one */
  uint32_t watch;        /* with fewer free than this, taking one is an event: least_free,
                            or any number where slots are counted */
  int32_t *free;         /* stack of free slots; with a bank: the one that is lent */
  int32_t *pending;      /* [quota] answers outstanding per slot */
  out_port *producer;    /* NULL: its initial slots stay for ever */
  in_port **consumers;   /* [nconsumers] those of the producer's queue, then of its worker, */
  int32_t nsame, nlocal; /* ... then the others */
  int32_t newest;        /* slot of the newest initial key */
  int32_t least_free;
  bool counted;          /* taking or freeing a slot changes a pool, an activation count or a
                            bank */
  sharing shared;
  int32_t kept;
  _Atomic int32_t quota; /* slots there are; read from outside too, relaxed */
  resize resize;
  uint64_t *fences;      /* [slots + 1][nconsumers] of the firings that read a slot last, until
                            it is taken; then the latest of each consumer. NULL: no consumer
                            is fenced */
  /* Read by the consumers' workers too, and never changed. */
  _Alignas(SLI_CACHE_LINE) worker *worker; /* the producer's */
  in_port *only;         /* the one consumer, if it is alone, on the worker, and slots need
                            no counting: then `pending` is not kept */
  group *far;            /* [nfar] the others, by worker */
  int32_t nconsumers, nfar;
  bool carried;          /* lies in another process: data takes READY along */
  bool lazy;             /* lazy W read it: they are notified when the producer waits */
  uintptr_t base;        /* of slot 0, or 0 without data */
  size_t stride;
  int32_t id;
  pool *pool;
  _Alignas(SLI_CACHE_LINE) double activation;
  struct device *device;
  contents contents;
};

/* How many rows a firing has filled of its last output that has some, or read where none has. */
typedef struct row_note {
  int64_t firing;
  int32_t rows;
} row_note;

/* Of an actor some of whose slots have rows. */
typedef struct extents {
  int32_t **now;           /* [bases] what a launch is told */
  row_note *notes;         /* [mask + 1] by firing; of an actor elsewhere what is known of it */
  uint64_t mask;
  _Atomic uint64_t *read;  /* [inputs] rows read so far; read from outside too, relaxed */
} extents;

/* What a launch is told. */
typedef struct binding {
  sl_firing firing;
  void **bases;          /* [inputs, outputs, workspace] */
  uint8_t *first;        /* the same */
  sl_move *move;         /* of a link that leads to another process */
  extents *extents;      /* NULL: all slots are full */
  const uint64_t *durations; /* by tick; NULL: all are alike */
  struct {               /* where slots are checked: */
    bool copies;         /* it hands on what it reads */
    bool repeats;        /* several of its firings are of one tick, or it fires once a step */
  } checks;
} binding;

/* A lazy W is put off until its slots are wanted, or its stage has no B left in the step. */
typedef struct lazy {
  const actor *backward; /* the B of its stage; NULL: it is not lazy */
  int64_t *wanted;       /* [inputs] the key whose slot the producer waits for */
} lazy;

struct actor {
  /* Of the next firing: its tick, and the priority, the smaller first: class, rank, and
   * in the low half the tick. */
  _Alignas(SLI_CACHE_LINE) union {
    unsigned __int128 order;
    struct {
      int64_t tick_number;
      uint64_t rank;
    };
  };
  int32_t missing;       /* ports not satisfied, plus a closed gate */
  uint64_t since_ns;     /* when it became able to fire */
  int32_t cause;         /* SL_WAIT_* | register << 3: what satisfied it last */
  queue *queue;
  in_port *in, *in_end;
  out_port *out, *out_end;
  uint64_t duration_ns;  /* of the next firing */
  const tick_step *tick; /* the same */
  int64_t fired;         /* firings so far */
  _Atomic int64_t done;  /* those that are complete; read from outside, relaxed */
  int64_t every;         /* steps from one in which it fires to the next */
  const sl_program *program; /* NULL: nothing to run */
  int64_t step;          /* of the next firing */
  uint64_t order_base;   /* class and rank, without what groups of ticks add */
  int32_t id;
  bool gated;            /* waits for its next step to begin */
  bool notifies;         /* lazy W read what it makes: it notifies them when it waits */
  bool binds;            /* its queue looks at data */
  bool fenced;           /* some of its ports are, or their other ends */
  bool borrows;          /* some of its outputs have a bank */
  bool ordered;          /* it has its places in its queue's fixed order */
  lazy lazy;
  binding bound;         /* to the launch under way */
  const sl_actor *plan;
};

/* What a completed firing still has to tell: that a slot is ready, to the
 * consumers that are not on its queue, or that one is free, to the producer. */
typedef struct notice {
  reg *reg;
  int64_t key;
  int32_t slot;
  sli_message_kind kind;
} notice;

/* A firing under way on an asynchronous queue. */
typedef struct flight {
  actor *actor;
  int64_t firing;
  uint64_t start_ns, since_ns, duration_ns, fence;
  int32_t cause;
  notice *notices, *end;
} flight;

struct queue {
  _Alignas(SLI_CACHE_LINE) actor **runnable; /* in order, the next one last; before the first
                            lies one that nothing goes behind */
  actor **top;           /* behind the last */
  bool listed;           /* no need to list it: it is, or it is full */
  bool selective;        /* pools, banks, lazy W, a fixed order or look-ahead may forbid an
                            actor that could fire, or lazy W have to be notified */
  bool passed;           /* look-ahead: has let the other queues go first */
  bool held;             /* what could go waits for firings of other queues: look again */
  int32_t in_order;      /* position in a fixed order */
  uint64_t look_ahead_ns;
  int32_t nactors;
  actor **actors;        /* [nactors] all that fire here */
  queue *next;           /* on the worker's ring of queues with something to start */
  uint64_t busy_until_ns;/* end of the last firing */
  bool (*launch)(void *queue, const sl_program *program, const sl_firing *firing,
                 uint64_t now_ns, uint64_t duration_ns, uint64_t *fence); /* ops->launch */
  void *impl;
  worker *worker;
  int32_t inflight, run_ahead, head, nflights;
  flight *flights;       /* ring of nflights: run_ahead, or as many as slots allow */
  uint64_t due_ns;       /* of its timer, ... */
  queue *due_next;       /* ... and the next in its bucket */
  /* The oldest firing under way, or SL_NONE, and since when it is the oldest. Read from
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
  double held, peak;     /* activations; the worker of its compute queue */
  worker *worker;        /* NULL: of another process */
} device;

/* Queues with known completions, by when these are due (timer.h). */
typedef struct bucket {
  queue *first, **end;     /* a list, and where its next one goes */
  uint64_t due_ns;         /* the least of them */
} bucket;

typedef struct timers {
  uint64_t taken_ns;       /* when the last one that was taken was due */
  uint64_t filled;         /* bit b: bucket b has some */
  bucket buckets[64];
} timers;

/* What is read from outside while a run goes on. */
typedef struct progress {
  _Atomic uint64_t fired;  /* firings completed, each with a record: released with it */
  _Atomic int32_t current; /* the actor whose program runs, or did last; SL_NONE: the worker
                              looks for news. Relaxed, as ... */
  _Atomic uint64_t woke_ns;/* ... when it last had some */
} progress;

/* Record n is records[n & mask]. */
typedef struct ring {
  sl_trace_record *records;
  uint64_t mask;
} ring;

/* Queues with firings under way. */
typedef struct awaited {
  int32_t npolled, nmute;
  queue **polled;          /* queues whose completions must be asked for; those of nmute of them
                              nobody else tells */
  uint64_t ask_ns;         /* how long these were left alone last; 0: one has come */
  timers timers;
} awaited;

/* What a worker fires. */
typedef struct share {
  int32_t nqueues, nactors, nsparse;
  queue **queues;          /* [nqueues] */
  actor **actors;          /* [nactors] */
  actor **sparse;          /* [nsparse] those that sit steps out */
  uint64_t firings_per_step; /* of the others */
  uint64_t target;         /* firings at this run's end */
} share;

struct worker {
  sl_runtime *rt;
  uint64_t now_ns;
  progress progress;
  bool real;               /* the clock moves by itself */
  bool unusual;            /* the next firing is the first, or jitter is on */
  bool plain;              /* nothing unusual, nothing selective, no firing that completed
                              later, a fast clock */
  bool held;               /* a queue is */
  uint32_t reopened;       /* the gate's, as last seen */
  queue *last;             /* on the ring of queues with something to start, or NULL */
  awaited awaited;
  ring ring;
  sli_clock clock;
  share share;
  uint64_t messages, wakes, random;
  uint64_t ran_ns, coreless_ns; /* its thread had a core, or wanted one and had none */
  uint64_t spin_ns;        /* how long to look before sleeping; adapts */
  int32_t id;
  int32_t process;         /* stands for all workers of another process; -1: a worker here */
  const sl_peers *peers;   /* of the carrier: it moves them on; else NULL */
  pthread_t thread;
  sli_arena memory;        /* of what is its own: nobody else touches these cache lines */
  sl_status status;        /* of opening its queues */
  char *detail;
  _Alignas(SLI_LINE_PAIR) _Atomic uint32_t sleeping; /* futex: 1 while asleep */
  sli_mailbox mailbox;
};

/* The first failure of a run. */
enum { NO_FAILURE, FAILURE_IN_WRITING, FAILURE_KEPT };
typedef struct failure {
  _Atomic int state;       /* KEPT, released: the rest is set */
  sl_status status;
  char text[512];
} failure;

/* Threads wait for a run, and whoever runs them for its end. */
typedef struct crew {
  _Atomic uint32_t epoch;  /* futex: runs begun */
  _Atomic uint32_t active; /* futex: workers not yet done with this run */
  _Atomic bool quit;
} crew;

struct sl_runtime {
  const sl_plan *plan;
  sl_runtime_options options;
  sli_clock clock;
  bool threads;          /* workers are threads (real clock) */
  bool oversubscribed;   /* more workers than cores */
  bool carries_apart;    /* the carrier is a worker that has no devices */
  int32_t nworkers;      /* those of devices, then those of queues apart */
  worker *workers;
  worker *away;          /* [plan->nprocesses] with peers: the other processes, as workers */
  sli_remote *remotes;   /* list: what other processes did, once they have told */
  worker *carrier;       /* with peers: the one that moves them on, last to finish */
  actor *actors;         /* [plan->nactors] and one that goes behind all and never fires */
  reg *regs;
  queue *queues;
  device *devices;
  pool *pools;
  map_step **maps;           /* [plan->nmaps] */
  struct tick_ring *ticks; /* list of those made so far */
  sli_arena memory;
  int64_t first_step;    /* the run began with it */
  int64_t steps;         /* completed, those before the first included */
  _Atomic int32_t *quotas; /* [nregs] as last asked for; written by who changes quotas alone */
  gate gate;
  _Atomic bool wants_stop;   /* with peers */
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
    sum += (uint64_t)(sli_firings(s->sparse[i]->plan, steps) -
                      sli_firings(s->sparse[i]->plan, first));
  return sum;
}

/* The step of an actor's firing. */
static inline int64_t firing_step(const sl_actor *a, int64_t n) {
  return (n / a->firings_per_step + 1) * sli_every(a) - 1;
}

static inline bool has_runnable(const queue *q) { return q->top > q->runnable; }

static inline uint64_t worker_fired(const worker *w) {
  return atomic_load_explicit(&w->progress.fired, memory_order_relaxed);
}

/* Memory that any worker may read. */
static inline void *allot(sl_runtime *rt, size_t count, size_t size) {
  return sli_arena_alloc(&rt->memory, SLI_MAX(count, (size_t)1) * size);
}

/* Memory of one worker. NULL: of nobody, as nothing is ever written there. */
static inline void *allot_own(sl_runtime *rt, worker *w, size_t count, size_t size) {
  return w ? sli_arena_alloc(&w->memory, SLI_MAX(count, (size_t)1) * size)
           : allot(rt, count, size);
}

/* wake.c: any thread, signal-safe. */
void sli_worker_wake(worker *w);
void sli_futex_wait(_Atomic uint32_t *word, uint32_t value, uint64_t timeout_ns);
void sli_futex_wake(_Atomic uint32_t *word);

/* loop.c */
void sli_worker_run(worker *w);                        /* one run, to its end */
void sli_worker_take(worker *w, const sli_message *m); /* as if it came by mailbox */
void sli_actor_start(worker *w, actor *a);             /* first look at an actor's ports */

/* post.c */
void sli_post(worker *to, const sli_message *m); /* from who is no worker */

/* arenas.c */
/* Those of the worker's devices; NULL: of devices without one. */
sl_status sli_arenas_create(sl_runtime *rt, const worker *w);
void sli_arenas_point(sl_runtime *rt); /* tells registers and actors where they are */
void sli_arenas_destroy(sl_runtime *rt);

/* walk.c: maps and ticks as rings. */
map_step *sli_map_ring(sl_runtime *rt, const sl_map *map);
const tick_step *sli_tick_ring(sl_runtime *rt, const sl_actor *a, int64_t firing);

/* wire.c: registers, actors, ports and mailboxes, once queues have their workers. */
void sli_wire(sl_runtime *rt);

/* threads.c: opens what workers drive. */
sl_status sli_threads_start(sl_runtime *rt);
void sli_threads_join(sl_runtime *rt);

/* ask.c */
void sli_remotes_free(sl_runtime *rt);

#endif
