/* The plan: actors, registers, queues, devices. What the runtime runs.
 *
 * A plan knows nothing of layers or losses. It is made by lowering a graph, or
 * by hand with the builder below, and is plain data: the same calls give the
 * same bytes (and hash) on every process. Once built it is not changed; the
 * runtime keeps its own state.
 *
 * Units: times in seconds (double) in the plan, in nanoseconds at run time;
 * sizes in bytes; keys and ticks count from 0. */
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
 * Which slot a firing takes is data. Firing n of an actor uses, at one of its
 * ports, key  (n / period) * stride + entry[n % period].offset.
 * FIRST: the port takes the slot with this firing (an input waits for it to be
 * ready, an output for a free one). LAST: the port gives it up after this
 * firing (an input frees it, an output announces it). SKIP: the port sits this
 * firing out. */
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

typedef struct sl_actor {
  const char *name;
  sl_class cls;
  int32_t queue;
  int32_t stage, chunk;     /* SL_NONE where it has none */
  int32_t ticks;            /* map from firing to tick number */
  int32_t firings_per_step;
  int32_t every;            /* N > 1: fires in the last of every N steps only. It begins no
                               step by itself, so it needs an input */
  int32_t own_ticks;        /* > 0: `ticks` counts so many for each step in which it fires, which
                               may be more than the M*K that a step has */
  bool source;              /* decides how far the run goes: has no data input */
  /* Order inside the class: the smaller rank first, then the older tick. With
   * groups, a group of ticks counted within the step goes before the next:
   * rank + (tick in step + rank_shift) / rank_group * rank_stride. */
  int32_t rank, rank_group, rank_stride, rank_shift;
  bool urgent;              /* goes before all classes of its queue: others wait for it */
  int32_t nin, nout;
  sl_port *in, *out;
  /* [nin + nout] which base of the program each port has, inputs first: its own number, or that of
   * a port before it, both inputs or both outputs. Of those that have one base one takes part in
   * each firing and the others sit it out: so where a program reads or writes goes by tick.
   * NULL: each has its own. */
  const int32_t *bases;
  sl_program *program;      /* may be NULL: nothing to run. Bases are the inputs' slots,
                               then the outputs', then the workspace */
  double seconds;           /* modelled duration of one firing */
  /* With a table the firing of tick t takes table[t % nseconds] instead. */
  int32_t nseconds;
  const double *seconds_table;
} sl_actor;

/* What a register's memory is for, in the memory table and the report. */
#define SL_MEMORY_TABLE(X)                                                     \
  X(PARAMETERS, "parameters")                                                  \
  X(GRADIENTS, "gradients")                                                    \
  X(OPTIMIZER, "optimizer")                                                    \
  X(ACTIVATIONS, "activations")                                                \
  X(WORKSPACE, "workspace")                                                    \
  X(CHECKPOINT, "checkpoint")

typedef enum sl_memory {
#define X(name, text) SL_MEMORY_##name,
  SL_MEMORY_TABLE(X)
#undef X
  SL_MEMORY_COUNT
} sl_memory;
const char *sl_memory_name(sl_memory memory);

/* Where a register's slots lie: in its device's own memory; in the host's, as the device
 * reaches it best: pinned; or on disk, beside the host's. */
#define SL_SPACE_TABLE(X)                                                      \
  X(DEVICE, "device")                                                          \
  X(HOST, "host")                                                              \
  X(DISK, "disk")

typedef enum sl_space {
#define X(name, text) SL_SPACE_##name,
  SL_SPACE_TABLE(X)
#undef X
  SL_SPACE_COUNT
} sl_space;
const char *sl_space_name(sl_space space);

typedef struct sl_register {
  const char *name;       /* "act.b@2" */
  const char *quota_name; /* the knob it answers to: "act.b" */
  int32_t quota;          /* slots */
  int32_t quota_most;     /* slots it may be given while a run goes on; 0: quota */
  int32_t pool;           /* shares a pool's credits, or SL_NONE */
  int32_t kept;           /* slots of the pool kept for it; 0: 1. With these alone the
                             plan must be able to finish */
  int32_t initial;        /* keys 0..initial-1 are ready at the start (a delay edge) */
  bool held;              /* one slot, held by its producer for ever: private state */
  int32_t device;         /* where its slots live */
  sl_space space;         /* in which memory of that device */
  sl_memory memory;
  size_t slot_bytes;
  size_t payload_bytes;   /* of these, without what only aligns tensors; 0: all */
  size_t offset;          /* of slot 0 in the arena of that space; slot i follows at
                             i * slot_stride */
  size_t slot_stride;     /* slots on disk, and those copied from and to there, are whole pages */
  /* 1 + a register before it whose slots it uses too, 0: it has its own. Their producers take
   * turns: while one may take a slot, each other waits for something that comes after. So
   * they run out of slots as one register would, and the largest slot is large enough. */
  int32_t shares;
  /* 1 + a register before it in whose memory it lies, 0: its own. Whoever writes it has read
   * what came of all that was read of that one, and whoever writes that again has read what
   * came of all that was read of this: so neither has to wait for the other. One slot each. An actor
   * may read that one and write this in one firing: its program then names places in the slot it reads. */
  int32_t over;
  double activation;      /* share of a microbatch's activations one slot stands for */
  bool aside;             /* of no pass: a loss, a norm, the clip's factor */
  /* A slot has room for so many rows, equal shares of its payload one behind the other, of which
   * the first ones are valid: its extent. Who fills the slot says how many, any number from 0 on,
   * and no others are moved. 0: slots are always full. On queues that touch no data the extent of
   * key k is extents[k % nextents]; without that table slots are full. */
  int32_t rows;
  int32_t nextents;
  const int32_t *extents;
  /* Derived by sl_plan_finish: */
  int32_t producer;       /* actor, or SL_NONE */
  int32_t nconsumers;     /* input ports that read it */
} sl_register;

/* A device pool: at most `quota` slots in use over all its registers, of which
 * some are kept for each register. Its registers are written on one device. */
typedef struct sl_pool {
  const char *name;
  int32_t quota;
} sl_pool;

typedef struct sl_queue {
  const char *name;
  int32_t device;
  const sl_queue_ops *ops;
  sl_space space;                        /* where its programs have their workspace */
  int32_t threads;                       /* of its team; 0: the device's */
  int32_t run_ahead;                     /* unfinished firings it may hold, >= 1 */
  uint8_t class_order[SL_CLASS_COUNT];   /* smaller first */
  /* Lazy W: weight gradients are put off while the step has input gradients
   * left on the stage and nobody waits for their slots, at most `watermark`. */
  bool lazy_w;
  int32_t watermark;
  /* A fixed order: the actors of one step's firings, one after another, for
   * schedules that timing must not change. NULL: by priority. */
  int32_t norder;
  const int32_t *order;
  double look_ahead; /* seconds to idle for a firing that goes before all that could go now,
                        and lacks one input that is known to come by then; for queues and
                        links whose completions are known */
  bool apart; /* has a worker of its own: what blocks there holds nothing else up */
} sl_queue;

/* What a device has of one space. */
typedef struct sl_room {
  const sl_memory_ops *memory; /* NULL: the host's, or that on disk */
  const char *path; /* of memory that lies in files: their folder, which is each process's own
                       affair; NULL: as sl_memory_config says */
  size_t budget_bytes;    /* of a space that is not the device's own memory; 0: no budget */
  size_t workspace_bytes; /* largest program's; at the end of the reserve */
  size_t kept_bytes;    /* what calls keep from firing to firing (sl_op.keeps), beside the
                           arena; derived by sl_plan_finish */
  size_t arena_bytes;   /* registers, workspace and what calls keep; derived */
  size_t used_bytes[SL_MEMORY_COUNT]; /* of these, by what they are counted as; derived */
  size_t reserve_bytes; /* registers, each at quota_most, and workspace: address space, of
                           which only what is in use takes memory; derived */
} sl_room;

/* Where devices lie: along the pipeline, and in the grid of those that share a stage. */
enum { SL_AT_STAGE, SL_AT_DATA, SL_AT_TENSOR, SL_AT_SEQUENCE, SL_AT_EXPERT, SL_AT_AXES };

typedef struct sl_device {
  const char *name;   /* "cpu:0" */
  const char *kind;   /* "cpu", "cuda", "timed", "null" */
  int process;        /* that drives it */
  int number;         /* which of its kind it is for that process: a GPU's */
  int threads;
  int at[SL_AT_AXES];
  size_t budget_bytes; /* of its own memory; 0: no budget */
  sl_room room[SL_SPACE_COUNT];
} sl_device;

/* Bytes that are planned of a device's own memory. */
static inline size_t sl_device_bytes(const sl_device *device) {
  return device->room[SL_SPACE_DEVICE].arena_bytes;
}

/* Bytes of a slot without what only aligns tensors, and of one of its rows. */
static inline size_t sl_slot_payload(const sl_register *reg) {
  return reg->payload_bytes ? reg->payload_bytes : reg->slot_bytes;
}
static inline size_t sl_row_bytes(const sl_register *reg) {
  return sl_slot_payload(reg) / (size_t)reg->rows;
}

/* What one slot takes of its device's own memory. */
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
  int32_t nprocesses; /* processes that drive the devices; derived */
  int32_t microbatches, pieces; /* M, K: a step has M*K ticks */
  bool ticked;        /* for checks: who takes a slot for one firing alone reads what was made in that
                         firing's tick, but for what begins with ready slots */
  uint64_t hash;
  struct sli_plan_memory *memory; /* owns everything above */
} sl_plan;

/* ---- building --------------------------------------------------------------
 *
 * Each sl_plan_add_* copies the record (and its name), fills nothing in, and
 * returns its index. sl_plan_finish derives what is derived, lays registers
 * out in their device's arena and checks every invariant. */
sl_plan *sl_plan_create(int microbatches, int pieces);
void sl_plan_destroy(sl_plan *plan);
int32_t sl_plan_add_device(sl_plan *plan, sl_device device);
int32_t sl_plan_add_queue(sl_plan *plan, sl_queue queue);
int32_t sl_plan_add_pool(sl_plan *plan, sl_pool pool);
int32_t sl_plan_add_register(sl_plan *plan, sl_register reg);
/* in[], out[] and tables are copied. The program is owned by the plan from here on. */
int32_t sl_plan_add_actor(sl_plan *plan, sl_actor actor);
/* Equal maps share one index. */
int32_t sl_plan_add_map(sl_plan *plan, uint32_t period, int64_t stride,
                        const sl_map_entry *entries);
/* Common maps: one slot per firing; one slot per `span` firings; a slot taken
 * once and never given up; a slot per `span` firings whose key is `lag` later. */
int32_t sl_plan_map_each(sl_plan *plan);
int32_t sl_plan_map_span(sl_plan *plan, uint32_t span);
int32_t sl_plan_map_hold(sl_plan *plan);
int32_t sl_plan_map_lag(sl_plan *plan, uint32_t span, int32_t lag);
/* Zeroed memory that lives as long as the plan. */
void *sl_plan_alloc(sl_plan *plan, size_t bytes);
char *sl_plan_format(sl_plan *plan, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* SL_E_INPUT with the culprit's name if a port, quota or map is impossible;
 * SL_E_BUDGET with the largest holders if a device's budget is exceeded. */
sl_status sl_plan_finish(sl_plan *plan);

/* Prints the plan; stable text, the same on every process. */
void sl_plan_print(const sl_plan *plan, FILE *out);
/* The table of who holds how many bytes, per device. */
void sl_plan_print_memory(const sl_plan *plan, FILE *out);
/* Bytes a device gives to one use, of its own memory. */
size_t sl_plan_memory(const sl_plan *plan, int32_t device, sl_memory memory);

/* What is moved between devices for: on along the pipeline, or between those that share a
 * stage's tensors, its data, or (but for parameters and their gradients) its sequences; losses, norms and the clip; and what goes between a device's memory
 * and the host's or a disk, there and back. */
#define SL_TRAFFIC_TABLE(X)                                                    \
  X(PIPELINE, "pipeline")                                                      \
  X(TENSOR, "tensor")                                                          \
  X(DATA, "data")                                                              \
  X(SEQUENCE, "sequence")                                                      \
  X(EXPERT, "expert")                                                          \
  X(ASIDE, "aside")                                                            \
  X(HOST, "host")                                                              \
  X(DISK, "disk")

typedef enum sl_traffic {
#define X(name, text) SL_TRAFFIC_##name,
  SL_TRAFFIC_TABLE(X)
#undef X
  SL_TRAFFIC_COUNT
} sl_traffic;
const char *sl_traffic_name(sl_traffic traffic);

/* Bytes that a step moves to each device: what its calls read of registers on other devices,
 * as often as they read it, and what links and copies bring. to[ndevices]. */
void sl_plan_moved(const sl_plan *plan, uint64_t (*to)[SL_TRAFFIC_COUNT]);
/* The same, from which device to which: several times for a pair; one device to itself: between its
 * memories. */
void sl_plan_moves(const sl_plan *plan,
                   void (*fn)(void *ctx, int32_t from, int32_t to, sl_traffic traffic, uint64_t bytes),
                   void *ctx);

/* Key that firing n has at a port with this map, and its flags. */
static inline int64_t sl_map_key(const sl_map *map, int64_t n, uint32_t *flags) {
  const sl_map_entry *e = &map->entries[n % map->period];
  *flags = e->flags;
  return n / map->period * map->stride + e->offset;
}

/* The tick of firing `n` of an actor. */
sl_tick sl_plan_tick(const sl_plan *plan, int32_t actor, int64_t n);

#ifdef __cplusplus
}
#endif
#endif
