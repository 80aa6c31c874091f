/* SPDX-License-Identifier: Apache-2.0 */
/* The plan: actors, registers, queues, devices. The runtime runs it.
 *
 * A plan knows nothing of layers or losses. It comes from lowering a graph, or from calls of the
 * builder below. It is plain data: the same calls give the same bytes (and hash) in every process.
 * A finished plan does not change; the runtime keeps run-time state elsewhere.
 *
 * Units: times are seconds (double) in the plan and nanoseconds at run time; sizes are bytes; keys
 * and ticks count from 0. */
#ifndef SLUICE_PLAN_H
#define SLUICE_PLAN_H

#include <stdio.h>

#include <sluice/program.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { SL_NONE = -1 };

/* ---- key maps -------------------------------------------------------------
 *
 * A map says which slot a firing uses. At a port, firing n of an actor uses the key (n / period) *
 * stride + entry[n % period].offset. FIRST: the port acquires the slot with this firing (an input
 * waits until the slot is ready, an output until a slot is free). LAST: the port releases the slot
 * after this firing (an input frees it, an output announces it). SKIP: this firing does not use the
 * port. */
enum { SL_FIRST = 1, SL_LAST = 2, SL_SKIP = 4 };

typedef struct sl_map_entry {
  int32_t offset;
  uint32_t flags;
} sl_map_entry;

typedef struct sl_map {
  uint32_t period;
  int64_t stride;
  const sl_map_entry *entries; /* [period] */
} sl_map;

/* ---- the parts ------------------------------------------------------------ */

typedef struct sl_port {
  int32_t reg;
  int32_t map; /* index into plan->maps */
} sl_port;

/* Durations by number of valid rows: seconds[i] for rows[i], linear in between and beyond the last.
 * Rows ascend. */
typedef struct sl_rows_seconds {
  int32_t count; /* 0: no durations */
  const double *rows, *seconds;
} sl_rows_seconds;

/* Share of a device that a firing asks for, and what it gets for it: a firing that takes D seconds
 * alone takes D / rate. */
typedef struct sl_share {
  double part, rate;
} sl_share;

typedef struct sl_actor {
  const char *name;
  sl_class cls;
  int32_t queue;
  int32_t stage, chunk; /* SL_NONE if none */
  int32_t ticks;        /* map from firing to tick number (index into plan->maps) */
  int32_t firings_per_step;
  int32_t every;     /* N > 1: fires only in the last of every N steps. Such an actor cannot begin a
                        step, so it needs an input */
  int32_t own_ticks; /* > 0: number of ticks that `ticks` counts per step in which the actor fires;
                        may exceed the M*K of a step */
  bool source;       /* determines how far the run goes; has no data input */
  /* Order within the class: lower rank first, then older tick. With rank_group, ticks of a step
   * form groups that run one after another: the rank is then rank + (tick in step + rank_shift) /
   * rank_group * rank_stride. */
  int32_t rank, rank_group, rank_stride, rank_shift;
  bool urgent; /* runs before all classes of its queue, because other actors wait for it */
  int32_t nin, nout;
  sl_port *in, *out;
  /* [nin + nout] the program's base for each port, inputs first: the port's number, or that of an
   * earlier port (both inputs, or both outputs). Each firing uses exactly one of the ports that
   * share a base, so the slot that a program reads or writes can depend on the tick. NULL: one base
   * per port. */
  const int32_t *bases;
  sl_program *program; /* NULL: nothing to run. Bases are the inputs' slots, the outputs' slots,
                          then the workspace */
  double seconds;      /* modelled duration of one firing */
  /* Table of durations: the firing of tick t takes seconds_table[t % nseconds]. nseconds 0: no
   * table. */
  int32_t nseconds;
  const double *seconds_table;
  /* Shares on a queue that is a lane: the firing of tick t asks for shares[t % nshares]. nshares 0:
   * it asks for the whole device. */
  int32_t nshares;
  const sl_share *shares;
  /* Durations of a served graph's actor on modelled hardware, by the rows and by the picked rows of
   * a tick; their sum is a firing's, without attention to pages. count 0: not known by rows. */
  sl_rows_seconds by_rows, by_picks;
} sl_actor;

/* Purpose of a register's memory, in the memory table and the report. */
/* clang-format off */
#define SL_MEMORY_TABLE(X)                                                     \
  X(PARAMETERS, "parameters")                                                  \
  X(GRADIENTS, "gradients")                                                    \
  X(OPTIMIZER, "optimizer")                                                    \
  X(ACTIVATIONS, "activations")                                                \
  X(WORKSPACE, "workspace")                                                    \
  X(CHECKPOINT, "checkpoint")
/* clang-format on */

typedef enum sl_memory {
#define X(name, text) SL_MEMORY_##name,
  SL_MEMORY_TABLE(X)
#undef X
      SL_MEMORY_COUNT
} sl_memory;
const char *sl_memory_name(sl_memory memory);

/* Memory space of a register's slots: the device's own memory; host memory, pinned where the device
 * needs it; or disk, attached to the host. */
/* clang-format off */
#define SL_SPACE_TABLE(X)                                                      \
  X(DEVICE, "device")                                                          \
  X(HOST, "host")                                                              \
  X(DISK, "disk")
/* clang-format on */

typedef enum sl_space {
#define X(name, text) SL_SPACE_##name,
  SL_SPACE_TABLE(X)
#undef X
      SL_SPACE_COUNT,
  /* Home only, no space of a plan: the own memory of a later device of the pipeline. */
  SL_SPACE_PEER = SL_SPACE_COUNT,
  SL_HOME_COUNT
} sl_space;
const char *sl_space_name(sl_space space);

typedef struct sl_register {
  const char *name;       /* "act.b@2" */
  const char *quota_name; /* quota setting that applies to it: "act.b" */
  int32_t quota;          /* slots */
  int32_t quota_most;     /* maximum quota during a run; 0: quota */
  int32_t pool;           /* pool that its slots count against, or SL_NONE */
  int32_t kept;           /* slots of the pool reserved for it; 0: 1. The plan must be able to
                             finish with only these */
  int32_t initial;        /* keys 0..initial-1 are ready at the start (a delay edge) */
  bool delayed;           /* read in later ticks than those that write it; for checks */
  bool held;              /* private state: one slot that its producer never releases */
  int32_t device;         /* device of its slots */
  sl_space space;         /* memory space on that device */
  sl_memory memory;
  size_t slot_bytes;
  size_t payload_bytes; /* bytes without alignment padding; 0: slot_bytes */
  size_t offset;        /* offset of slot 0 in its space's arena; slot i is i * slot_stride
                           further on */
  size_t slot_stride;   /* whole pages for slots on disk and for those copied to or from disk */
  /* 1 + an earlier register whose slots this register shares; 0: separate slots. The producers of
   * the registers take turns: while one may take a slot, all other producers wait for something
   * later. Together they therefore need no more slots than one register, and the largest slot size
   * is enough. */
  int32_t shares;
  /* Aliasing: 1 + an earlier register whose memory this register uses; 0: separate memory. The
   * writer of either register has read something that depends on every read of the other register,
   * so neither needs to wait. Each has one slot. An actor may read that register and write this one
   * in one firing: its program then uses places in the slot it reads. */
  int32_t aliases;
  double activation; /* fraction of a microbatch's activations in one slot */
  bool aside;        /* not part of a pass: a loss, a norm, the clip factor */
  bool peer;         /* lives here for another device, whose transfers write and read it */
  /* Capacity of a slot in rows, which are equal consecutive parts of its payload. Only the first
   * rows are valid; the producer sets their number (the valid length, possibly 0), and transfers
   * move only valid rows. 0: slots are always full. On queues that touch no data the valid length
   * of key k is lengths[k % nlengths]; without a table slots are full. */
  int32_t rows;
  int32_t nlengths;
  const int32_t *lengths;
  /* Derived by sl_plan_finish: */
  int32_t producer;   /* actor, or SL_NONE */
  int32_t nconsumers; /* number of input ports that read it */
} sl_register;

/* A device pool: its registers together use at most `quota` slots, some of them reserved for each
 * register. All its registers are written on one device. */
typedef struct sl_pool {
  const char *name;
  int32_t quota;
} sl_pool;

typedef struct sl_queue {
  const char *name;
  int32_t device;
  const sl_queue_ops *ops;
  sl_space space;                      /* memory space of its programs' workspace */
  int32_t threads;                     /* threads of its team; 0: the device's */
  int32_t run_ahead;                   /* maximum firings in flight, >= 1 */
  uint8_t class_order[SL_CLASS_COUNT]; /* lower runs first */
  /* Lazy W: postpones weight gradients, at most `watermark` of them, while the step has input
   * gradients left on the stage and no actor waits for the slots that they hold. */
  bool lazy_w;
  int32_t watermark;
  /* Fixed order: the actors of one step's firings, in order, for schedules that must not depend on
   * timing. NULL: by priority. */
  int32_t norder;
  const int32_t *order;
  double look_ahead; /* seconds to stay idle for a firing of higher priority that lacks one input,
                        if the input is known to arrive by then. For queues and links with known
                        completion times */
  bool apart;        /* runs on a separate worker, so a launch that blocks delays nothing else */
  /* Resource of the device that its firings are bound by, such as "compute". Lanes of a device run
   * firings at once while the shares of these sum to at most 1. A fixed order of one is the order
   * of all. NULL: not a lane, its firings need no share. */
  const char *lane;
  /* 1 + the number of a group of devices, each with one queue of that number: their n-th firings
   * are one collective (sl_group). Ranks are in the order of the queues. The fixed orders of a
   * group are the same, actor by actor. 0: none. */
  int32_t group;
} sl_queue;

/* A device's memory in one space. */
typedef struct sl_room {
  const sl_memory_ops *memory; /* NULL: the host's memory ops, or those for disk */
  const char *path;    /* directory for memory in files, set by each process separately; NULL: as in
                          sl_memory_config */
  size_t budget_bytes; /* budget, for spaces other than the device's own memory; 0: none */
  size_t workspace_bytes; /* workspace of the largest program; at the end of the reserve */
  size_t kept_bytes;      /* state that calls keep between firings (sl_op_memory.keeps), outside the
                             arena; derived */
  size_t arena_bytes;     /* registers, workspace and kept state; derived */
  size_t used_bytes[SL_MEMORY_COUNT]; /* arena_bytes by purpose; derived */
  size_t reserve_bytes; /* address space for registers at quota_most, and workspace; only slots in
                           use take memory; derived */
} sl_room;

/* Coordinates of a device: along the pipeline, and in the grid of its stage. */
enum { SL_AT_STAGE, SL_AT_DATA, SL_AT_TENSOR, SL_AT_SEQUENCE, SL_AT_EXPERT, SL_AT_AXES };

typedef struct sl_device {
  const char *name; /* "cpu:0" */
  const char *kind; /* "cpu", "cuda", "timed", "null" */
  int process;      /* process that drives it */
  int number;       /* number among the process's devices of the same kind, such as the GPU
                       number */
  int threads;
  int at[SL_AT_AXES];
  size_t budget_bytes; /* budget of its own memory; 0: none */
  sl_room room[SL_SPACE_COUNT];
} sl_device;

/* Planned bytes of a device's own memory. */
static inline size_t sl_device_bytes(const sl_device *device) {
  return device->room[SL_SPACE_DEVICE].arena_bytes;
}

/* Bytes of a slot without alignment padding, and of one of its rows. */
static inline size_t sl_slot_payload(const sl_register *reg) {
  return reg->payload_bytes ? reg->payload_bytes : reg->slot_bytes;
}
static inline size_t sl_row_bytes(const sl_register *reg) {
  return sl_slot_payload(reg) / (size_t)reg->rows;
}

/* Bytes of one slot in the device's own memory. */
static inline size_t sl_slot_device_bytes(const sl_register *reg) {
  return reg->space == SL_SPACE_DEVICE ? reg->slot_stride : 0;
}

typedef struct sl_plan {
  int32_t nactors, nregs, npools, nqueues, ndevices, nmaps;
  sl_actor *actors;
  sl_register *regs;
  sl_pool *pools;
  sl_queue *queues;
  sl_device *devices;
  sl_map *maps;
  int32_t nprocesses;           /* processes that drive the devices; derived */
  int32_t microbatches, pieces; /* M, K: a step has M*K ticks */
  bool ticked; /* actors that take a slot for one firing read data made in the same tick, except
                  from initially ready slots; for checks */
  uint64_t hash;
  struct sli_plan_memory *memory; /* owns everything above */
} sl_plan;

/* ---- building --------------------------------------------------------------
 *
 * Each sl_plan_add_* copies the record and its name, sets no defaults, and returns its index.
 * sl_plan_finish fills in the derived fields, lays out registers in their devices' arenas and
 * checks all invariants. */
sl_plan *sl_plan_create(int microbatches, int pieces);
void sl_plan_destroy(sl_plan *plan);
int32_t sl_plan_add_device(sl_plan *plan, sl_device device);
int32_t sl_plan_add_queue(sl_plan *plan, sl_queue queue);
int32_t sl_plan_add_pool(sl_plan *plan, sl_pool pool);
int32_t sl_plan_add_register(sl_plan *plan, sl_register reg);
/* Copies in[], out[] and tables. The plan takes ownership of the program. */
int32_t sl_plan_add_actor(sl_plan *plan, sl_actor actor);
/* Equal maps share one index. */
int32_t sl_plan_add_map(sl_plan *plan, uint32_t period, int64_t stride,
                        const sl_map_entry *entries);
/* Common maps. each: one slot per firing. span: one slot per `span` firings. hold: a slot taken
 * once and never released. lag: one slot per `span` firings, with a key `lag` later. */
int32_t sl_plan_map_each(sl_plan *plan);
int32_t sl_plan_map_span(sl_plan *plan, uint32_t span);
int32_t sl_plan_map_hold(sl_plan *plan);
int32_t sl_plan_map_lag(sl_plan *plan, uint32_t span, int32_t lag);
/* Allocates zeroed memory that lives as long as the plan. */
void *sl_plan_alloc(sl_plan *plan, size_t bytes);
char *sl_plan_format(sl_plan *plan, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Finishes the plan. SL_E_INPUT names an invalid port, quota or map; SL_E_BUDGET names the largest
 * users of memory if a device exceeds its budget. */
sl_status sl_plan_finish(sl_plan *plan);

/* Prints the plan; the text is stable and the same on every process. */
void sl_plan_print(const sl_plan *plan, FILE *out);
/* Prints memory use by holder, per device. */
void sl_plan_print_memory(const sl_plan *plan, FILE *out);
/* Returns the bytes of a device's own memory used for one purpose. */
size_t sl_plan_memory(const sl_plan *plan, int32_t device, sl_memory memory);

/* Purpose of traffic: along the pipeline; among devices that share a stage's tensors, data, or
 * sequences (without parameters and their gradients); to and from experts; losses, norms and the
 * clip factor; between a device's memory and the host's memory or disk, both ways; and to and from
 * registers that live in another device's memory. */
/* clang-format off */
#define SL_TRAFFIC_TABLE(X)                                                    \
  X(PIPELINE, "pipeline")                                                      \
  X(TENSOR, "tensor")                                                          \
  X(DATA, "data")                                                              \
  X(SEQUENCE, "sequence")                                                      \
  X(EXPERT, "expert")                                                          \
  X(ASIDE, "aside")                                                            \
  X(HOST, "host")                                                              \
  X(DISK, "disk")                                                              \
  X(PEER, "peer")
/* clang-format on */

typedef enum sl_traffic {
#define X(name, text) SL_TRAFFIC_##name,
  SL_TRAFFIC_TABLE(X)
#undef X
      SL_TRAFFIC_COUNT
} sl_traffic;
const char *sl_traffic_name(sl_traffic traffic);

/* Sets to[ndevices] to the bytes that a step moves to each device: every read of a register on
 * another device, and transfers by links and copies. What a stage reads of another stage counts
 * once, whichever actors read it. */
void sl_plan_moved(const sl_plan *plan, uint64_t (*to)[SL_TRAFFIC_COUNT]);
/* Calls fn for the same traffic by source and destination, possibly several times per pair. from ==
 * to: between memories of one device. */
void sl_plan_moves(const sl_plan *plan,
                   void (*fn)(void *ctx, int32_t from, int32_t to, sl_traffic traffic,
                              uint64_t bytes),
                   void *ctx);

/* Returns the key that firing n uses at a port with this map, and sets its flags. */
static inline int64_t sl_map_key(const sl_map *map, int64_t n, uint32_t *flags) {
  const sl_map_entry *e = &map->entries[n % map->period];
  *flags = e->flags;
  return n / map->period * map->stride + e->offset;
}

/* Returns the tick of firing `n` of an actor. */
sl_tick sl_plan_tick(const sl_plan *plan, int32_t actor, int64_t n);

#ifdef __cplusplus
}
#endif
#endif
