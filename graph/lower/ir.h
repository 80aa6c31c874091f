/* SPDX-License-Identifier: Apache-2.0 */
/* Data structures shared by the lowering passes.
 *
 * The passes gather nodes into tasks (one task becomes one actor) and tensors that leave their task
 * into buffers (one buffer becomes one register). Transfers bring data to readers in another
 * memory; they are ordinary tasks and buffers. Later passes assign buffers to slot pools, set
 * quotas, and write tasks and buffers as a plan.
 *
 * Tasks and buffers are identified by index. Their order follows the graph, so two processes
 * lower the same graph to the same plan. */
#ifndef SLUICE_GRAPH_LOWER_IR_H
#define SLUICE_GRAPH_LOWER_IR_H

#include "graph/lower/lower.h"
#include "ops/expert_loads.h"

/* Firing rate: several times per tick (SL_OP_REPEATS), once per pair of a piece and an earlier or
 * equal piece (sweep.c), per tick, per piece that is offloaded (offload.c), per microbatch, per
 * step, or every store_every steps. */
typedef enum sli_rate {
  SLI_PER_TURN = -2,
  SLI_PER_PAIR = -1,
  SLI_PER_TICK,
  SLI_PER_LEAVING,
  SLI_PER_MICROBATCH,
  SLI_PER_STEP,
  SLI_PER_STORE
} sli_rate;

/* Kind of transfer. */
typedef enum sli_transfer_kind {
  SLI_TRANSFER_LINK,   /* to the host memory of another process */
  SLI_TRANSFER_DIRECT, /* from a device's memory into that of another process's device */
  SLI_TRANSFER_WIRE,   /* modelled: transfers one at a time */
  SLI_TRANSFER_FLIGHT, /* modelled: takes time, but transfers overlap */
  SLI_TRANSFER_MEMORY, /* modelled: through host memory, one at a time */
  SLI_TRANSFER_CORES,  /* modelled: no transfer, but the queue of the host's cores */
  SLI_TRANSFER_H2D,    /* copy from host to device */
  SLI_TRANSFER_D2H,    /* copy from device to host */
  SLI_TRANSFER_D2D,    /* copy from device to device */
  SLI_TRANSFER_SPILL,  /* to the memory where a register is placed */
  SLI_TRANSFER_FILL,   /* from that memory back to the device */
  SLI_TRANSFER_LOADS,  /* no transfer, but the queue of loads of experts */
  SLI_TRANSFERS
} sli_transfer_kind;

typedef struct sli_transfer_traits {
  const char *name;        /* name of its queues */
  const char *verb;        /* verb in the names of its actors */
  const sl_queue_ops *ops; /* NULL: the kind's queue ops, one queue per device; else one per
                              device pair */
  bool in_turn;            /* transfers run one at a time */
  bool updates;            /* host updates use the queue too, with lowest priority */
  bool homes;              /* between a home (placement) and the device; else between memories */
  bool loads;    /* reads what rows want; its firings are planned by the device's worker */
  sli_role role; /* role of the copies; SLI_ROLES: the role of the original buffer */
} sli_transfer_traits;
extern const sli_transfer_traits sli_transfer_kinds[SLI_TRANSFERS]; /* transfer_kinds.c */

/* Transfer that a task performs: the task computes nothing and brings a buffer to its readers. */
typedef struct sli_transfer_task {
  sli_transfer_kind kind;
  int to;        /* destination device; the transfer runs on its task's device */
  sl_space home; /* home involved, for routes between homes */
  int origin;    /* original buffer that the transfer brings */
  int reader;    /* the only task it serves, at that task's rate; SL_NONE: serves all readers there,
                    at the rate at which the buffer is written */
  bool fetches;  /* with a reader: this is the first transfer for only that reader */
  bool oldest;   /* brings the oldest version of parameters, for rollouts ahead of training */
  int nth;       /* index among the buffers that the reader fetches from the device */
} sli_transfer_task;

/* Nodes that run together, or a transfer: one actor. */
typedef struct sli_task {
  const char *name; /* "F2", "load0", "clip", "send:fwd@0>1" */
  sl_class cls;
  int stage, device, chunk; /* stage and chunk SL_NONE outside the pipeline */
  int rank;                 /* rank among the stage's devices */
  int phase;
  int level, part, visit, axis; /* see task.c */
  sli_along along;              /* of collectives: the axes whose devices take part; else 0 */
  int depth;     /* for an exchange after all ticks: 1 + depth of its inputs; 0: not known
                    yet (slot_pools.c) */
  int about;     /* task whose place in the order it takes: itself, its producer or its
                    reader */
  bool backward; /* part of the backward pass */
  sli_rate rate;
  int turns; /* firings per tick, if the rate is per turn */
  sli_pace pace;
  bool host;                         /* runs concurrently with passes, on the device's host queue */
  const sli_transfer_task *transfer; /* NULL: it computes */
  int nnodes;
  size_t node_capacity;
  sli_node **nodes;
  int ninputs, noutputs; /* buffers read and written */
  size_t input_capacity, output_capacity;
  int *inputs, *outputs; /* ports in this order */
  size_t workspace_bytes;
  double seconds;    /* duration of a firing; for computing tasks set when the plan is written */
  int32_t actor;     /* SL_NONE: not written yet */
  int32_t own_queue; /* queue of a source that waits */
  int before;        /* previous task of this device, or SL_NONE */
} sli_task;

/* Stored copy of a buffer: its offset in the slot of `store` and the bytes of each version,
 * without the page padding that the buffer may have at its home. */
typedef struct sli_image {
  bool stored; /* checkpoints hold part of the buffer */
  size_t offset, bytes;
} sli_image;

/* Slot sharing: the slot pool that a buffer belongs to. */
typedef struct sli_slot_pool {
  int leader; /* earlier buffer whose slots it shares; SL_NONE: none, or first of a
                 slot pool */
  int least;  /* slots that the slot pool needs at least; 0: no buffer shares them */
} sli_slot_pool;

/* Tensors that are stored together: one register. */
typedef struct sli_buffer {
  const char *name;
  sli_role role;
  int producer;   /* task, or SL_NONE for parameters that no task updates */
  int nconsumers; /* number of readers, in place or at the end of transfers */
  int *consumers; /* tasks, ascending; readers of a transferred copy count for its origin */
  int origin;     /* original buffer that it is a copy of; itself if it is not a transfer's copy */
  int source;     /* buffer that the transfer reads; SL_NONE: not a transfer's copy */
  sli_rate rate;  /* rate at which its slots are used */
  sli_pace pace;
  sl_memory memory; /* memory category it is counted as */
  int device;
  sl_space home;   /* memory of the device that holds it */
  sl_space target; /* placement until the backward pass (offload target): SL_SPACE_DEVICE, or
                      another memory; then `home` is only where it is written (home.c) */
  int peer;        /* of a target SL_SPACE_PEER: how many devices further along the pipeline */
  bool held;
  int initial;
  int quota, quota_most;
  bool transient; /* need not exist for the whole step: may be in a slot pool (slot_pools.c) */
  sli_slot_pool slot_pool;
  bool pooled;    /* its slot pool has been chosen by the time of its use */
  int aliases;    /* earlier buffer whose memory it can reuse, or SL_NONE */
  int aliased_by; /* 1 + the buffer that aliases it, 0: none known */
  bool credit;    /* counts as an activation of its stage */
  bool aside;     /* not part of a pass: a loss, a norm, the clip factor */
  double activation;
  size_t bytes, payload_bytes; /* payload_bytes excludes alignment padding between tensors */
  sl_tensor *valid_length;  /* valid length of its only tensor, if not all rows may be valid; else
                               NULL */
  const sl_tensor *delayed; /* earlier value that readers of a delay get; NULL: not a delay */
  bool frozen; /* parameters that updates pass on unchanged, if they may be offloaded or keep a
                  file's storage format */
  sli_image image;
  int32_t reg;
} sli_buffer;

/* Producers and readers of each tensor. */
typedef struct sli_uses {
  int *producer;     /* [ntensors] producing task, or SL_NONE */
  int *count;        /* [ntensors] reading tasks */
  int **tasks;       /* [ntensors] ascending, without the producer */
  int *first, *last; /* [ntensors] node index in the producing task; first: of all tensors in
                        its place */
  int *in_place_of;  /* [ntensors] tensor whose place it uses: itself unless written in place */
  bool *summed;      /* [ntensors] accumulated over the step */
  bool *state;       /* [ntensors] updated in place by its producer */
  bool *swept;       /* [ntensors] also read for later pieces */
} sli_uses;

/* Location of a tensor: in a buffer's slots, or (buffer SL_NONE) in the workspace of its task. */
typedef struct sli_spot {
  int buffer;
  int task;
  size_t offset;
} sli_spot;

/* Section of a block that a task covers, if the block has several tasks: its first and last
 * levels. */
typedef struct sli_section {
  int first, last;
} sli_section;

typedef struct sli_sections {
  int count;
  sli_section *items; /* [count] by task */
} sli_sections;

/* Ticks of a step in which a task fires or a buffer is made, ascending. */
typedef struct sli_visits {
  int count;
  const int32_t *tick; /* [count] ascending */
} sli_visits;

/* Buffer for one route between stages: the original buffers at its producer and its reader. */
typedef struct sli_stage_route {
  int made_as, read_as; /* indices of the original buffers; SL_NONE: not a route */
  int from, to;         /* stages */
  sli_visits visits;
} sli_stage_route;

typedef struct sli_stage_routes {
  sli_visits *stage; /* [stages] visits of each stage; a list of all ticks of a step is treated as
                        no list (is_all) */
  int *next;         /* [m][stages] next stage on a microbatch's path, or SL_NONE */
  int nroutes;
  sli_stage_route *routes; /* [nroutes] by buffer */
} sli_stage_routes;

/* The plan's queues, by device. */
typedef struct sli_queues {
  int32_t *pass, *host;
  int32_t *back;                     /* passes backward, if they have lanes; else NULL */
  int32_t *exchange[SLI_AXES];       /* by the axis of a task */
  int32_t *store;                    /* queue of store actors */
  int32_t *group[SLI_ALONG_ALL + 1]; /* of collectives along these axes; NULL: none yet */
  int32_t ngroups;
} sli_queues;

/* Scripts of the devices, if the schedule has any for this step. */
typedef struct sli_scripts {
  int count;                         /* passes of a device in a step */
  const sli_scripted *const *passes; /* [p][count]; NULL: none */
  bool lanes; /* passes backward have a queue of their own, a lane beside that of passes forward */
} sli_scripts;

/* Pieces that sequences are cut into. */
typedef struct sli_pieces {
  sl_program_piece *pieces;  /* [k], owned by the plan; NULL where sequences are not cut */
  sl_program_piece *leaving; /* [k] the same pieces, with other variants for offloaded ones */
} sli_pieces;

struct sli_lowering {
  const sli_inputs *in;
  sli_pick pick;
  int stages;                /* p * v */
  int *stage_of;             /* [g->nblocks] */
  int *device_of, *chunk_of; /* [stages] along the pipeline */
  int ntasks;
  int ncomputing; /* number of tasks before the transfers */
  size_t task_capacity;
  sli_task *tasks;
  int *task_of; /* [g->nnodes] */
  int *newest;  /* [1 + stages][ranks] tasks, see sli_newest_on */
  int *places;  /* [ncomputing] places of tasks in one order over a tick (turns.c) */
  sli_sections sections;
  sli_stage_routes *routes; /* routes of microbatches; NULL if all go from stage to stage */
  int nbuffers;
  size_t buffer_capacity;
  sli_buffer *buffers;
  sli_spot *spots;    /* [g->ntensors] */
  int *alike;         /* [1 + stages][ranks][SLI_ROLES] latest buffer of such tensors */
  int *act_b, *act_w; /* [stages] credits for activations */
  int *pools;         /* [p] credits shared by all stages of a device, 0: no pool */
  int *watermarks;    /* [p] W passes that a device may hold back, -1: not lazy */
  bool store;         /* the plan has store actors */
  sli_arena arena;
  sl_plan *plan;
  sli_queues queues;
  sli_scripts script;
  sli_pieces cut;
  int *numbers; /* [g->ntensors] index of each valid length in the program being written, by its
                   first tensor; SL_NONE: none */
};

/* Returns the number of updates by which the parameters of rollouts lag. */
static inline int sli_lower_ahead(const sli_lowering *l) {
  return l->in->g->rollouts.count ? l->in->options->rollouts.ahead : 0;
}
/* Returns the number of ticks per step for passes of this pace. */
static inline int sli_lower_ticks(const sli_lowering *l, sli_pace pace) {
  if (pace == SLI_PACE_ROLLOUT) return l->in->g->rollouts.ticks;
  if (pace == SLI_PACE_SPAN) return l->in->g->spans.prompts;
  return (pace == SLI_PACE_EVAL ? l->in->g->evaluated.microbatches : l->in->m) * l->in->k;
}

/* Returns the number of ticks that count as one microbatch of the schedule: the pieces of its
 * ranges. */
static inline int sli_lower_counted(const sli_lowering *l) {
  return l->in->k * SLI_MAX(SLI_MIN(l->in->options->schedule.ranges, l->in->m), 1);
}

/* ---- the passes, in this order ---------------------------------------------------------- */

void sli_lower_task(sli_lowering *l);          /* nodes -> tasks */
void sli_lower_buffer(sli_lowering *l);        /* tensors -> buffers, workspace */
sl_status sli_lower_versions(sli_lowering *l); /* parameters with two versions */
void sli_lower_store(sli_lowering *l);         /* tasks and buffers of checkpoints */
void sli_lower_sections(sli_lowering *l);      /* position of each task in its block */
sl_status sli_lower_homes(sli_lowering *l);    /* buffers placed in another memory */
void sli_lower_transfers(sli_lowering *l);     /* transfers for all remaining reads from
                                                  another memory */
void sli_lower_slot_pools(sli_lowering *l);    /* buffers that share slots */
void sli_lower_aliases(sli_lowering *l);       /* gradients that alias activations */
sl_status sli_lower_quotas(sli_lowering *l);   /* schedule and user -> quotas */
sl_status sli_lower_emit(sli_lowering *l);     /* tasks, buffers -> plan */

/* ---- tasks and buffers ------------------------------------------------------------------- */

/* Add a task or buffer and return its index; the caller adds ports. Earlier pointers into the
 * array become invalid. */
int sli_add_task(sli_lowering *l, sli_task task);
int sli_add_buffer(sli_lowering *l, sli_buffer buffer);
/* Replaces the unused buffer at index `at`. */
void sli_put_buffer(sli_lowering *l, int at, sli_buffer buffer);
void sli_add_port(sli_task *task, int buffer, bool output);
/* Returns the port at which a task has a buffer, whether direct or through transfers.
 * Input ports come first. */
int sli_task_port(const sli_lowering *l, const sli_task *task, int buffer, bool output);
/* Adds a register by which `from` signals to `to` that it has fired; `first`: the first turn is
 * ready at the start. */
void sli_add_turn(sli_lowering *l, int from, int to, bool first);
/* Returns an upper bound on the number of tensors that the task's nodes write. */
int sli_task_results(const sli_task *task);
/* Returns the buffer in its home memory: the buffer itself, unless a transfer brings it there. */
int sli_buffer_home(const sli_lowering *l, int buffer);
/* True for a node (or a task) that is one stage's part of a block sharded over all stages. */
static inline bool sli_is_sharded_node(const sli_lowering *l, const sli_node *n) {
  return sli_is_in_pass(n) && n->block >= 0 && l->in->g->blocks[n->block].sharded;
}
static inline bool sli_is_sharded_task(const sli_lowering *l, const sli_task *task) {
  return task->nnodes && sli_is_sharded_node(l, task->nodes[0]);
}

/* Returns the source of a task, or NULL if it has none. */
static inline const sl_source *sli_source_of(const sli_task *task) {
  const sli_node *n = task->nnodes ? task->nodes[0] : NULL;
  return n && sli_op_is(n->op, SL_OP_SOURCE) ? n->attrs.user : NULL;
}
/* True for a source that may block and therefore has a separate queue: it waits for earlier ticks
 * to be delivered (sl_source.behind), or for the rewards of answers. */
static inline bool sli_waits(const sli_lowering *l, const sli_task *task) {
  const sl_source *source = sli_source_of(task);
  return source && (source->behind > 0 || l->in->g->rollouts.count);
}

/* Returns the device whose memory holds the buffer: its own, or the peer where it lives. */
int sli_buffer_holder(const sli_lowering *l, const sli_buffer *b);
/* Returns the stage that writes the buffer, whose quotas apply, or SL_NONE. */
int sli_buffer_stage(const sli_lowering *l, const sli_buffer *b);
/* Compares two tasks' turns; below 0: `a` goes first. The order follows the data, forward and
 * backward: by level, then block; if blocks take turns, by block, then level. */
int sli_lower_turn(const sli_lowering *l, int a, int b);
/* [ncomputing] Returns the places of tasks in an order in which a tick's tasks could run. */
int *sli_lower_places(sli_lowering *l);
/* Returns the memory of its device that a task works in. */
sl_space sli_lower_space(const sli_lowering *l, const sli_task *task);

/* True if this task reads an offloaded buffer from its home: in the backward pass, or
 * parameters. */
bool sli_is_filled(const sli_lowering *l, const sli_buffer *b, const sli_task *task);
/* True if the buffer is written in a memory other than its home. */
static inline bool sli_is_spilled(const sli_buffer *b) {
  return b->target != SL_SPACE_DEVICE && b->target != b->home;
}
/* True for a task that reads parameters from disk, where they are. */
static inline bool sli_reads_homes(const sli_task *task) {
  return task->nnodes && sli_op_is(task->nodes[0]->op, SL_OP_LOADS);
}
/* Returns the tensor that the first firing of a tick alone reads, which reads nothing else, or
 * NULL: guesses of experts. */
static inline const sl_tensor *sli_guesses(const sli_task *task) {
  const sli_node *n = task->rate == SLI_PER_TURN ? task->nodes[0] : NULL;
  bool loads = n && n->op == &sl_op_load_experts && n->nin > SLI_LOADS_GUESSED;
  return loads ? n->in[SLI_LOADS_GUESSED] : NULL;
}
/* True if the stage finishes each microbatch before it begins the next. */
bool sli_is_one_at_a_time(const sli_lowering *l, int stage);

/* Returns the device of a stage with this rank. */
static inline int sli_lower_device(const sli_lowering *l, int stage, int rank) {
  return sli_device_at(l->in, l->device_of[stage], rank);
}

/* Returns the newest task that computes on a device of a stage, or (SL_NONE) of all stages;
 * `before` leads to earlier ones. */
static inline int *sli_newest_on(const sli_lowering *l, int stage, int rank) {
  return &l->newest[(stage + 1) * l->in->ranks + rank];
}

/* ---- places in memory (fit.c) ---------------------------------------------------------------- */

/* Buffer that is live from time `first` to time `last`. */
typedef struct sli_lifetime {
  int id; /* set by the caller; breaks ties between equal sizes, smallest first */
  int first, last;
  size_t bytes, offset;
} sli_lifetime;

/* Sets each offset and returns the end of the last buffer. Reorders all[count]. */
size_t sli_lower_fit(sli_lifetime *all, int count);
/* Rounds a tensor's size up to whole cache lines. */
static inline size_t sli_lower_aligned(size_t bytes) { return (bytes + 63) & ~(size_t)63; }

/* ---- parts of passes ------------------------------------------------------------------------- */

/* Numbers the valid lengths of a task's program before its calls are written. The second function
 * returns the numbers for a call's arguments, or NULL if none has a valid length (lengths.c). */
void sli_lower_lengths(sli_lowering *l, const sli_task *task, sl_program *program);
const int16_t *sli_lower_lengths_of(const sli_lowering *l, int count, sl_tensor *const *tensors);
/* Return the expected number of a tensor's valid rows in a tick of a step. On modelled devices the
 * table has this number for each tick, or for the ticks of `visits`; NULL: all rows. */
int64_t sli_lower_expected(const sl_tensor *valid_length, int32_t tick);
const int32_t *sli_lower_expected_table(const sli_lowering *l, const sl_tensor *valid_length,
                                        const sli_visits *visits);

void sli_lower_in_place(const sli_lowering *l, sli_uses *u); /* chooses outputs to write in place */
/* asserts the invariants of placement */
void sli_lower_check_places(const sli_lowering *l, const sli_uses *u);

/* ---- transfers that serve a single reader (fetched.c) -------------------------------------- */

/* True if an exchange reads parameters that are placed elsewhere and fetches them. */
bool sli_is_fetched(const sli_lowering *l, const sli_buffer *b, const sli_task *task);
/* Return how many buffers it fetches from the same device before this one, and how many buffers of
 * a role have been filled for it. `some`: counts buffers that only offloaded pieces use, otherwise
 * all others. */
int sli_fetched_before(const sli_lowering *l, int buffer, const sli_task *task);
int sli_filled_before(const sli_lowering *l, const sli_task *task, sli_role role, bool some);

/* ---- pieces whose activations are offloaded (offload.c) ------------------------------------ */

bool sli_lower_leaves(const sli_lowering *l, int piece);
double sli_lower_rematerialized(const sli_lowering *l); /* fraction of pieces that are recomputed */
/* Return maps from a task's firings to keys of offloaded pieces, and to ticks, for tasks that
 * fire at that rate. */
int32_t sli_lower_leaving_map(sli_lowering *l, const sli_task *task);
int32_t sli_lower_leaving_ticks(sli_lowering *l, const sli_task *task);
/* True if the task's program has a second variant for offloaded pieces. */
bool sli_lower_reads_leaving(const sli_task *task);

/* ---- blocks, where all pieces of a microbatch go through one before the next (layers.c) ------ */

/* Returns a task's section; zeros if blocks do not take turns. */
sli_section sli_lower_section(const sli_lowering *l, int task);
/* Returns the block of a task's nodes, or for a transfer that of its `about` task; SL_NONE if
 * none. */
int sli_block_of_task(const sli_lowering *l, const sli_task *task);
/* Returns the role that an offloaded buffer has in the memory where it is written. */
sli_role sli_staging_role(const sli_lowering *l, const sli_buffer *b);
/* True if another block reads it within the same pass. */
bool sli_leaves_block(const sli_lowering *l, const sli_buffer *b);
/* Ranks the actor by microbatch first, then by block. */
void sli_lower_rank(const sli_lowering *l, const sli_task *task, sl_actor *a);

/* ---- sweeps: keys and values of earlier pieces arrive piece by piece (sweep.c) -------------- */

/* Returns the number of pairs of a piece and an earlier or equal piece in a microbatch. */
static inline int sli_lower_pairs(const sli_lowering *l) { return l->in->k * (l->in->k + 1) / 2; }
/* Returns the firings of a task in a microbatch, a step, or an evaluation. */
int sli_lower_firings(const sli_lowering *l, const sli_task *task);
/* True if later pieces read it too; such buffers are offloaded. */
static inline bool sli_is_swept(const sli_buffer *b) {
  return (b->role == SLI_ROLE_KV || b->role == SLI_ROLE_KV_SPILL) && b->rate == SLI_PER_TICK;
}
/* True for the offloaded copy of a swept buffer, of which there is one per piece. */
bool sli_is_piece(const sli_lowering *l, const sli_buffer *b);
/* Return the maps of a task in a sweep, and its ticks; `end`: number of ticks counted. */
int32_t sli_sweep_map(const sli_lowering *l, const sli_task *task, const sli_buffer *b);
int32_t sli_piece_map(const sli_lowering *l, const sli_buffer *b);
int32_t sli_sweep_ticks(const sli_lowering *l, const sli_task *task, int32_t end);

/* ---- microbatches that skip stages (visits.c)
 * ------------------------------------------------- */

/* Sends data from stage to stage along the paths (stage_routes.c). Runs after buffers are
 * created. */
sl_status sli_lower_stage_routes(sli_lowering *l);
/* True for a task of a pass, or an exchange within a pass, at a stage. */
static inline bool sli_is_of_pass(const sli_task *task) {
  return !task->transfer && !task->host && !task->pace && task->stage >= 0 &&
         task->rate == SLI_PER_TICK;
}
/* Return the ticks in which a task fires, or a buffer is written; NULL: all ticks. */
const sli_visits *sli_task_visits(const sli_lowering *l, const sli_task *task);
const sli_visits *sli_buffer_visits(const sli_lowering *l, const sli_buffer *b);
/* Returns the buffer that a task would use instead of this one if there were no paths, which may be
 * the same. Buffers that replace the same buffer share a base. */
int sli_buffer_taken_for(const sli_lowering *l, const sli_task *task, int buffer);
/* Return the bases of a task's ports, the map of a port, and the map of a task's ticks, if they
 * have visits. */
const int32_t *sli_visits_bases(const sli_lowering *l, const sli_task *task); /* sl_actor.bases */
int32_t sli_visits_map(const sli_lowering *l, const sli_task *task, const sli_buffer *b);
int32_t sli_visits_ticks(const sli_lowering *l, const sli_visits *v);

/* ---- passes and the exchanges they wait for (line.c) ---------------------------------------- */

/* True for an exchange that takes its turn on the queue of the passes. */
bool sli_lower_is_in_line(const sli_lowering *l, const sli_task *task);
void sli_lower_line(sli_lowering *l); /* runs after buffers are created: makes backward passes begin
                                         with their inputs */
/* True if the task continues a pass that has begun, if exchanges are in line. */
bool sli_lower_goes_on(const sli_lowering *l, const sli_task *task);

/* Sets the maximum activation slots of each stage, from the schedule and the user. */
void sli_lower_credits(sli_lowering *l);
/* Returns the last quota that the user gives for a role at a stage, or 0. */
int sli_lower_given(const sli_lowering *l, sli_role role, int stage);
/* Returns the default number of slots for a buffer of this role, or for a transferred copy of
 * it. */
int sli_role_slots(const sli_lowering *l, sli_role role, const sli_buffer *b);

/* Writes a task's program; NULL for a transfer that copies nothing. */
sl_program *sli_lower_program(sli_lowering *l, int task);

/* Write a check before a call of a task, which ends the run if sl_op.check fails, or a check after
 * it, which ends the run if an output is not finite. `of` must not move. */
void sli_lower_check(const sli_lowering *l, int task, const sl_program_call *of,
                     sl_program_call *to);
void sli_lower_finite(const sli_lowering *l, int task, const sl_program_call *of,
                      sl_program_call *to);

/* Modelled durations of computing tasks: */
/* Checks that durations are given for the right number of stages. */
sl_status sli_lower_check_cost(const sli_lowering *l);
double sli_lower_seconds(const sli_lowering *l, const sli_task *task);
/* Writes out the schedule's scripts, if it has any for this step; runs after tasks are created. The
 * second function returns the shares of a task by microbatch, or NULL (script.c). */
void sli_lower_scripts(sli_lowering *l);
const sl_share *sli_lower_shares(const sli_lowering *l, const sli_task *task);
/* Returns the seconds of a node's call in a tick, by the cost of its op. */
double sli_lower_node_seconds(const sli_lowering *l, const sli_node *n);
/* Return the factors by which exchanges slow down passes, [devices], which the caller frees with
 * free(), or NULL if none; and the factor of a task. */
double *sli_lower_slowdowns(const sli_lowering *l);
double sli_lower_slowdown(const double *slowdowns, const sli_task *task);
/* Returns seconds by tick of a step, times the slowdown, or NULL if the number of valid rows does
 * not vary. */
const double *sli_lower_seconds_table(const sli_lowering *l, const sli_task *task, double slowdown);
/* Returns the set of tensors with a common valid length that the node's rows belong to, or NULL. */
const sl_tensor *sli_lower_set_of(const sli_node *n);
/* Gives a type that has `capacity` rows another number of rows; leaves other types alone. */
void sli_lower_cut(sl_type *type, int64_t capacity, int64_t rows);
/* Sets the durations of a task of a served graph by the rows of a tick, on modelled hardware;
 * leaves them alone for any other task (rows.c). */
void sli_lower_rows_seconds(const sli_lowering *l, const sli_task *task, sl_rows_seconds *by_rows,
                            sl_rows_seconds *by_picks);
/* Returns the seconds of a copy of the rows expected in this tick; g->seconds is for a full
 * slot. */
double sli_lower_copied(const sli_lowering *l, const sli_task *task, int32_t tick);
/* Returns the seconds that a transfer to or from a home takes at its bandwidth; 0: no time. */
double sli_home_seconds(const sli_lowering *l, sl_space home, bool backward, size_t bytes);

/* Returns the extra seconds between two devices that belong to different processes of one host.
 * Nothing may be chosen by it: training must not depend on which processes drive devices. */
double sli_lower_process_link(const sli_inputs *in, int from, int to, size_t bytes);
/* Return the bytes that a task's nodes receive from other devices of its stage, by axis and kind of
 * exchange; and how often in a step. */
void sli_lower_received(const sli_lowering *l, const sli_task *task,
                        double to[SLI_AXES][SLI_ALL_TO_ALL + 1]);
double sli_lower_times(const sli_lowering *l, sli_rate rate);
/* Returns the duration of a task's exchanges of this share of their bytes. */
double sli_lower_exchange_seconds(const sli_lowering *l, const sli_task *task, double share);
/* True if the measured time covers the whole cost of an exchange node. */
bool sli_lower_is_measured(const sli_lowering *l, const sli_node *n);
/* Returns the bytes per second of modelled host memory available to one device, for its copies
 * and for updates on the host; 0: unlimited. */
double sli_lower_host_rate(const sli_inputs *in);
/* Returns the parameters per second that the host's cores update for one device; 0: unlimited. */
double sli_lower_update_rate(const sli_inputs *in);
/* True if the host updates parameters in this task. */
bool sli_updates_on_host(const sli_task *task);
/* ---- checkpoints ---------------------------------------------------------------------------- */

/* Context of the store callbacks, which run every store_every steps. */
struct sli_store_user {
  sli_stores *stores;
  int stage, rank; /* stage SL_NONE: the commit actor */
};

/* Programs of checkpoints: the maximum number of calls that copy a task's updated state, the calls
 * themselves, and the whole program of a store or commit task. */
int sli_lower_store_calls(const sli_lowering *l, int task);
int sli_lower_store_copies(sli_lowering *l, int task, sl_program_call *calls);
sl_program *sli_lower_store_program(sli_lowering *l, int task);

#endif
