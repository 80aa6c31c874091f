/* SPDX-License-Identifier: Apache-2.0 */
/* Lowering: from a model graph to a plan. */
#ifndef SLUICE_LOWER_H
#define SLUICE_LOWER_H

#include <stdio.h>

#include <sluice/graph.h>
#include <sluice/hardware.h>
#include <sluice/plan.h>
#include <sluice/renamed.h>
#include <sluice/runtime.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A quota given by the user: "act.b", "act.w", "act" (both), "load", "param",
 * "pool", ... at one stage or at all of them (stage SL_NONE). */
typedef struct sl_quota {
  const char *name;
  int stage;
  int slots;
} sl_quota;

/* Placement of registers between uses (home). Registers with this quota name, made by blocks that
 * match `block`, move to `space` when they are made and back in time for the backward pass. Actors
 * of their own (`spill`, `fill`) do the transfers. */
typedef struct sl_home {
  const char *name;  /* "act" (both), "act.b", "act.w", "kv", "state" */
  const char *block; /* pattern of block names: "h.31", "h.*"; NULL: all */
  sl_space space;    /* SL_SPACE_DEVICE: stay where they are made */
} sl_home;

typedef struct sl_home_options {
  int count;
  const sl_home *of;   /* the last that matches a register counts */
  const char *disk;    /* folder for registers on disk; NULL: $TMPDIR, or /var/tmp */
  size_t disk_bytes;   /* disk budget of each device; 0: no limit */
  const char *update;  /* device that updates parameters: "device" (NULL); "host" (beside
                          GPUs, on the host's cores and in its memory); or "every:K": every
                          K-th block the device, the others the host */
  size_t host_bytes;   /* budget of each device for host memory beside its own; 0: no limit */
  const char *offload; /* "activations=0.6": of a block's internal activations this fraction
                          of the pieces is offloaded to where activations live, and the
                          others are recomputed. NULL: all are offloaded */
} sl_home_options;

/* Values of a counter (sl_counter) for a step. */
typedef struct sl_counter_values {
  const char *name;
  int64_t n;
  const double *values; /* [n] */
} sl_counter_values;

/* A number of a step (sl_step_value). */
typedef struct sl_step_number {
  const char *name;
  double value;
} sl_step_number;

typedef struct sl_step_report {
  int64_t step;
  double loss;      /* mean over the step's microbatches, summed in order */
  double grad_norm; /* before clipping */
  float lr;
  SL_RENAMED(int ncounters, int ntallies)
  SL_RENAMED(const sl_counter_values *counters,
             const sl_counter_values *tallies) /* [ncounters]; valid during the call only */
  int nvalues;
  const sl_step_number *values; /* [nvalues] of sl_step_value(), in order; likewise */
} sl_step_report;

/* Transfers from a GPU to one of another process: DIRECT (NCCL), through HOST memory, or AUTO:
 * direct if the two GPU numbers differ and the library is found. No GPU can be both ends of a
 * direct link; numbers do not distinguish GPUs of several hosts. */
typedef enum sl_gpu_links { SL_LINKS_AUTO, SL_LINKS_DIRECT, SL_LINKS_HOST } sl_gpu_links;

/* Devices of the plan. */
typedef struct sl_device_options {
  const char *kind;    /* "cpu", "cuda", "timed" or "null" */
  int count;           /* 0: one per pipeline device */
  int nnumbers;        /* GPUs to use, in order of the devices, */
  const int *numbers;  /* starting over if there are more devices; several devices may share a
                          GPU. 0: the first GPU */
  int threads;         /* threads of each CPU device; 0: 1 */
  size_t budget_bytes; /* budget of each device; 0: none */
  sl_gpu_links links;  /* SL_E_UNSUPPORTED if direct links are requested and impossible */
} sl_device_options;

/* Modelled durations of a microbatch's passes, in seconds; B does not include W. */
typedef struct sl_stage_cost {
  double F, B, W;
} sl_stage_cost;

/* Cost of a part of the model that is sharded over all stages (vocab_parallel), in addition to
 * their own passes: the block it belongs to, and the durations of each stage's part. */
typedef struct sl_sharded_cost {
  const char *block;
  const sl_stage_cost *stages; /* [nstages] */
} sl_sharded_cost;

/* Modelled durations for every chunk, or stage by stage along the model, and for crossing a stage
 * boundary, in seconds. All zero: derived from the ops' costs. */
typedef struct sl_cost {
  double F, B, W, comm;
  int nstages; /* 0, or the number of stages: replaces F, B and W */
  const sl_stage_cost *stages;
  SL_RENAMED(int nsharded, int nspread) /* sharded parts not listed here take no time */
  SL_RENAMED(const sl_sharded_cost *sharded, const sl_sharded_cost *spread)
} sl_cost;

/* One tensor that a device needs to resume a stage of the pipeline after a step. It is a parameter
 * ("NAME"), its optimizer's state ("NAME:m", "NAME:v": sl_update.states), or, if parameters have
 * two slots, its previous version ("NAME:previous"). If a stage has several devices, each may have
 * all of it or a part. */
typedef struct sl_state_tensor {
  const char *name;
  sl_type type;          /* type of the data here */
  const sl_shard *shard; /* part of the whole that is here; NULL: all */
  bool replica;          /* a device of lower rank has the same: no need to store it */
  const void *data;      /* NULL: in memory that the host cannot address */
  int32_t reg, slot;     /* between runs: its slot, for sl_runtime_read() ... */
  size_t offset;         /* ... and sl_runtime_write(); offset within the slot */
  float start;           /* value of all elements before the first step, for optimizer state */
} sl_state_tensor;

typedef struct sl_stage_state {
  int64_t steps; /* completed */
  int stage;     /* stage along the model */
  int rank;      /* rank among the stage's devices, 0 if there is one */
  int ntensors;
  const sl_state_tensor *tensors;
} sl_stage_state;

/* Size of a manifest entry, which the writer of a device's state leaves for the writer of
 * the checkpoint. */
enum { SL_MANIFEST_ENTRY_BYTES = 64 };

/* Distribution requested for the parameter, or an op's first output, of this name along an axis of
 * the grid: 0 data, 1 tensor, 2 sequence. */
typedef struct sl_given_sbp {
  const char *name;
  int axis;
  sl_sbp sbp;
} sl_given_sbp;

/* Devices, and what they share. Each stage has a grid of `data` * `sequence` * `tensor` devices.
 * Data axis: each has other rows of every microbatch. Sequence axis: other positions of every
 * sequence. Tensor axis: a shard of the tensors. A stage's device is rank (data * sequence + s) *
 * tensor + t of its grid. The layout decides which number that device has. */
typedef struct sl_parallel_options {
  int stages;                     /* P pipeline devices [1] */
  const char *placement;          /* of chunks: "line", "loop", "vee"; NULL: the schedule's */
  int data;                       /* D [1] */
  int sequence;                   /* Q [1] */
  const char *sequence_attention; /* method of attention across positions: "heads" (all
                                     positions, for some heads), "ring" (chunk by chunk), "auto"
                                     (NULL): by cost */
  const char *sequence_states;    /* linear attention: "heads" (all positions, for some heads),
                                     "exchange" (own positions; devices exchange states), "auto"
                                     (NULL): by cost */
  const char *sequence_layout;    /* positions of a device: "contiguous", or "zigzag", which
                                     balances causal attention; NULL: the best */
  int tensor;                     /* T [1] */
  bool free_data;       /* devices that share tensors may also share the rows of the data, if
                           that is cheapest */
  const char *layout;   /* order of the axes, innermost first, from a device to its neighbour:
                           "data,tensor,stage". NULL: tensor,sequence,data,stage. Results do
                           not depend on it, but traffic within a host or process does */
  const char *assign;   /* device at each place of the layout, from 0 on: a permutation such
                           as "0,2,1,3" or "4-7,0-3". NULL: the identity. Results do not
                           depend on it, but the traffic of each link does */
  const char *exchange; /* communication among the devices of a stage within a pass: "beside"
                           (NULL), overlapped with passes of other microbatches; or "inline":
                           a pass keeps its device until it is done */
  int processes;        /* number of processes, which drive equal numbers of devices if
                           possible [1] */
  int ngiven;           /* distributions of tensors requested by the user */
  const sl_given_sbp *given;
} sl_parallel_options;

/* Experts, and the devices that share them. */
typedef struct sl_expert_options {
  /* EP [1]: experts are sharded over EP of the devices along the data axis; rows are dispatched to
   * them and return. If EP divides parallel.data, such a device is number data * EP + e among the
   * data-parallel ones. If it does not, or with `tensor`, EP counts all data * tensor devices,
   * those that share tensors first */
  int parallel;
  int tensor;          /* ETP: 1: experts have a grid of their own over these devices, each
                          expert on one; T: the grid of everything else, which `parallel`
                          must fit; 0: as `parallel` implies */
  double rows;         /* capacity of a device's experts, in even shares of the rows, from 1
                          on; more rows end the run. 0: room for all */
  const char *routing; /* Modelled devices: number of rows of each expert. "balanced": equal.
                          "learned" (NULL): equal as well, since only values tell. "zipf:S".
                          Or a file with a number per expert, which add up to a microbatch's
                          rows: one line per layer with experts, or one line for all */
} sl_expert_options;

/* The vocabulary's tables: those of the classifier before the loss, and embeddings with as many
 * words. */
typedef struct sl_vocabulary_options {
  bool parallel; /* shards them over the stages */
  int barriers;  /* number of times a microbatch then waits for all stages: 1 (the
                    products of the logits' gradient come before the sums) or 2; 0: 2 */
} sl_vocabulary_options;

/* Order of the passes, and what is one actor. */
typedef struct sl_schedule_options {
  const char *name;   /* in the schedule table; NULL: "1f1b"; "auto": searched for */
  const char *chosen; /* schedule auto, skip: an earlier result for the same stages and microbatches
                         (sl_lowered_chosen), instead of a new search */
  double activations; /* schedule auto: most activations a device may hold, in microbatches'
                         worth; 0: no limit */
  int chunks;         /* V chunks on each device; 0: the schedule's */
  const char *backward; /* "fused", "split"; NULL: the schedule's */
  const char *order;    /* "derive", or a file with the order of passes of each device; NULL:
                           decided at run time */
  const char *paths;    /* file with the stages that each microbatch visits, one line each,
                           such as "0: 0 2 3"; NULL: all */
  double skip;          /* > 0: searches for paths that leave out this fraction of all visits
                           and shorten a step on the virtual clock (sl_lowered_paths) */
  bool skip_in_turn; /* leaves out the stages in turn, without a search (with `skip`): for searches
                        whose candidates skip */
  bool swap;         /* reorders the visits as well, if that is shorter (with `skip`) */
  const char *grain; /* part of a stage that is one actor per class: "pass" (all of it) or
                        "layer" (a block); NULL: layer with several devices along the data
                        axis, else pass */
  const char *piece_order; /* If sequences are cut: "tokens" (NULL), a piece passes all blocks of
                              a stage before the next piece; or "layers": all pieces of a
                              microbatch pass a block before the next block. Blocks are then
                              actors, as with grain layer. Results do not depend on it */
  double look_ahead;       /* seconds a modelled device stays idle for a better pass that is about
                              to be ready */
} sl_schedule_options;

/* Memory: the state, activations and registers that are kept, and their places. */
typedef struct sl_memory_options {
  const char *shard; /* state that the devices along the data axis shard instead of
                        replicating it (ZeRO, FSDP): "nothing", "optimizer" (its state),
                        "gradients" (these too), "parameters" (all three); NULL: nothing */
  /* activation checkpointing: activations recomputed instead of kept. "none" (NULL), "selective"
   * (by calls that cost next to nothing) or "full" (all of a block). "full@h.3" applies to blocks
   * of that name; several are separated by commas, and the last that matches a block counts */
  const char *recompute;
  int nquotas;
  const sl_quota *quotas;
  sl_home_options homes; /* none: all registers stay where they are made */
} sl_memory_options;

/* Number formats, random numbers and checks of values. */
typedef struct sl_number_options {
  sl_dtype dtype;    /* operand type of products: SL_F32, or SL_BF16 on devices that
                        multiply bf16 (elsewhere f32). On GPUs activations are then bf16
                        too. Weights, sums over a step and everything else are f32 */
  bool check_finite; /* checks every output of every call: the first value that is not
                        finite ends the run, with op, actor and microbatch */
  bool exact;        /* sums in an order that no grid changes (docs/exact.md) */
  int leaf;      /* exact: positions of a sequence that a gradient's sum takes in one go; 0: all */
  uint64_t seed; /* seed of random numbers drawn during the run */
} sl_number_options;

/* Durations of modelled devices, and predictions. */
typedef struct sl_simulation_options {
  sl_cost cost;                /* timed devices; with chunks 0, cost of a device's whole share */
  const sl_hardware *hardware; /* timed devices without measured durations; may be NULL */
  /* Measured seconds of one call of the op with this name in the graph; negative: not measured, use
   * the op's cost. */
  double (*op_seconds)(void *ctx, const char *name);
  void *op_seconds_ctx;
  bool any_order; /* skips the search for an order of passes, for predictions that need
                     no step time */
  bool alike;     /* plans one device per stage, which stands for its whole grid, for
                     predictions. Exact if all have parts of one size; otherwise it is
                     the device with the largest parts */
} sl_simulation_options;

/* Output printed while a plan is made. */
typedef struct sl_print_options {
  const char *after; /* the graph after the pass of this name, to `graph`; may be NULL */
  FILE *graph;
  FILE *sharing; /* receives a table of how each op is sharded, and why; may be NULL */
} sl_print_options;

/* Logarithms of the probabilities of the targets of a step's batch. */
typedef struct sl_logprobs_report {
  int64_t step;
  int64_t rows, length;  /* of the batch, and targets of each row */
  const float *logprobs; /* [rows, length]; valid during the call only */
} sl_logprobs_report;

/* Callbacks about steps and outputs; each may be NULL, and gets ctx. */
typedef struct sl_report_options {
  /* Reports each step. Called on a worker's thread, in step order; must not block for long. */
  void (*on_step)(void *ctx, const sl_step_report *report);
  /* Reports each step of a model with one cross entropy, as on_step does. The numbers are those of
   * the forward pass, before the update. */
  void (*on_logprobs)(void *ctx, const sl_logprobs_report *report);
  /* Report an evaluation after step number `step` (sl_graph_options.eval_every): each metric
   * (sl_metric), then the loss. */
  void (*on_eval)(void *ctx, int64_t step, double loss);
  void (*on_metric)(void *ctx, int64_t step, const char *name, double value);
  /* Inference: an output of the graph is ready. For a served graph on devices that hold no values,
   * `data` is NULL. */
  void (*on_output)(void *ctx, const char *name, const sl_type *type, const void *data);
  void *ctx;
} sl_report_options;

/* Checkpoints. After every `every`-th step (0: never) on_store gets a copy of each stage's state,
 * while passes go on. Training waits only if the next copy is due and no slot of register `store`
 * is free. If a stage has several devices, each that owns something passes that, and no replicas.
 * Devices may call at once, each on its thread, which may block. `entry` is plain data,
 * SL_MANIFEST_ENTRY_BYTES zeroed. When all devices have filled in theirs for a step, on_stored gets
 * them, steps in order. A status other than SL_OK ends the run with it. */
typedef struct sl_store_options {
  int64_t every;
  sl_status (*on_store)(void *ctx, const sl_stage_state *state, void *entry);
  sl_status (*on_stored)(void *ctx, int64_t steps, int nentries, const void *const *entries);
  void *ctx;
} sl_store_options;

/* Rollouts: before the training passes of each step, `ticks` passes of a served graph of the same
 * model run on the first device of each stage, or on several, and read the same parameters. The
 * sources of training are asked for a step when its last tick has been delivered. */
typedef struct sl_rollout_options {
  /* Makes the served graph, with sl_graph_options.serve, anew for each call of sl_lower. It must
   * outlive what is lowered. Returns NULL on failure, with the reason in sl_detail(). NULL: no
   * rollouts. */
  sl_graph *(*make)(void *ctx);
  int ticks; /* in a step, at least 1 */
  int ahead; /* updates that the parameters of a step's rollouts are old. Parameters have one slot
                more for each, and rollouts run beside so many steps of training. 0: none */
  /* Called with each tick's sampled tokens (sl_sampled), as report.on_output is, in the first
   * process; must not block for long. */
  void (*on_output)(void *ctx, const char *name, const sl_type *type, const void *data);
  void *ctx;
  const struct sl_rollout_options *next; /* those of the stage's next device, with as many ticks;
                                            NULL: no more devices answer */
} sl_rollout_options;

/* Zero is the default of every field. */
typedef struct sl_lower_options {
  sl_parallel_options parallel;
  sl_expert_options experts;
  sl_vocabulary_options vocabulary;
  sl_schedule_options schedule;
  sl_memory_options memory;
  sl_number_options numbers;
  sl_device_options devices;
  sl_simulation_options simulation;
  sl_print_options print;
  sl_report_options report;
  sl_store_options store;
  sl_rollout_options rollouts;
} sl_lower_options;

/* True if devices of this kind compute on values. Others only model time. */
bool sl_device_computes(const char *kind);

/* Process that drives a device; neighbours along the pipeline share one. */
int sl_device_process(int device, int devices, int processes);

typedef struct sl_lowered sl_lowered; /* owns the plan; the graph must outlive it */

/* Derives gradients (training), cuts the graph into stages, groups ops into
 * actors, turns edges into registers, sets quotas and lays out memory. */
sl_status sl_lower(sl_graph *g, const sl_lower_options *options, sl_lowered **out);
void sl_lowered_destroy(sl_lowered *lowered);
const sl_plan *sl_lowered_plan(const sl_lowered *lowered);
/* Number of devices that each device of the plan stands for: 1 unless all of a grid are alike. */
int sl_lowered_alike(const sl_lowered *lowered);

/* Sets to[plan->ndevices] as sl_plan_moved() does, including the traffic that a device which stands
 * for several would receive from the others. */
void sl_lowered_moved(const sl_lowered *lowered, uint64_t (*to)[SL_TRAFFIC_COUNT]);
/* The traffic, over all devices that the plan's stand for, that crosses hosts if each host has
 * devices_per_host devices, in the order of their numbers. */
void sl_lowered_crossed(const sl_lowered *lowered, int devices_per_host,
                        double to[SL_TRAFFIC_COUNT]);
/* Floating point operations of a step's passes, forward and backward, by the ops' costs. Sums all
 * devices, but counts replicated work once. 0 for inference. */
double sl_lowered_flops(const sl_lowered *lowered);
/* Name of the schedule in use. */
const char *sl_lowered_schedule(const sl_lowered *lowered);
/* The schedule and paths with everything a search has found, as text for schedule.chosen, also of
 * another process. */
const char *sl_lowered_chosen(const sl_lowered *lowered);
/* The paths that `skip` found, in the format of a `paths` file; NULL: none. */
const char *sl_lowered_paths(const sl_lowered *lowered);
int sl_lowered_chunks(const sl_lowered *lowered);
/* Type of matrix products: "f32", or the devices' name for bf16. */
const char *sl_lowered_products(const sl_lowered *lowered);
/* Type of activations and their gradients: "f32" or "bf16". */
const char *sl_lowered_tensors(const sl_lowered *lowered);
/* Calls fn for each quota in force, in a stable order; with a runtime attached, its current
 * quotas. */
void sl_lowered_quotas(const sl_lowered *lowered,
                       void (*fn)(void *ctx, const char *name, int stage, int slots), void *ctx);

/* Changes a quota during a run (sl_runtime_set_quotas): "act.b", "act.w", "act", "load", ... at one
 * stage or all (SL_NONE). Registers sized by a stage's activations change by as many slots. */
sl_status sl_lowered_set_quota(const sl_lowered *lowered, sl_runtime *rt, const sl_quota *quota);

/* Attaches the runtime that callbacks stop when they find a non-finite loss. Call once after
 * sl_runtime_create. */
void sl_lowered_attach(sl_lowered *lowered, sl_runtime *rt);

/* Location of a parameter's values, or of a part of them. */
typedef struct sl_param_place {
  int32_t reg;           /* parameter register; its newest slot holds the values */
  size_t offset;         /* within that slot */
  sl_type type;          /* type of the data here */
  const sl_shard *shard; /* part of the whole that is here; NULL: all */
  int rank, device;      /* rank among its stage's devices; device number */
  bool replica;          /* an earlier place has the same */
} sl_param_place;

/* A parameter of the graph and its places, in order of creation. A stage with several devices has
 * one place on each device that holds the parameter or a part. Places that are not replicas
 * together hold each value once. */
typedef struct sl_param_info {
  const char *name;
  sl_type type; /* type of the whole, in its values */
  /* Storage format at its places, whose types describe the stored data. */
  SL_RENAMED(sl_storage storage, sl_storage rest)
  sl_init init;
  const sl_adapter *adapter; /* adapter on it, or, by its name, the adapter it is part of; NULL:
                                neither */
  const char *frozen; /* parameter of a frozen model (objective.h): its name there; else NULL */
  int stage;
  int nplaces;
  const sl_param_place *places; /* places by rank */
} sl_param_info;
int sl_lowered_params(const sl_lowered *lowered, const sl_param_info **out);

/* Values of parameters in a runtime, between runs. Values in other processes are neither read nor
 * written. SL_E_DEVICE if a device fails. */

/* True if any part of the parameter is in this process. */
bool sl_param_here(const sl_lowered *lowered, sl_runtime *rt, int index);
/* Address of all its values in one block of host-addressable memory of this process; NULL if there
 * is none. If there are several places, values written here must also go through sl_param_set(). */
float *sl_param_data(const sl_lowered *lowered, sl_runtime *rt, int index);
/* Gathers a parameter's values from the places in this process; *all: whole[] is complete. Leaves
 * the rest of whole[] alone. */
sl_status sl_param_get(const sl_lowered *lowered, sl_runtime *rt, int index, float *whole,
                       bool *all);
/* Sets a parameter's values at all places in this process. `whole` may be sl_param_data(). */
sl_status sl_param_set(const sl_lowered *lowered, sl_runtime *rt, int index, const float *whole);
/* Fills every parameter by its init rule (Philox 4x32-10, keyed by seed and name: the same for any
 * number of stages and any devices). */
sl_status sl_params_init(const sl_lowered *lowered, sl_runtime *rt, uint64_t seed);

/* Sets optimizer states to their initial values, if not 0. sl_params_init() and sl_weights_load()
 * call it. */
sl_status sl_states_init(const sl_lowered *lowered, sl_runtime *rt);

/* Copies the values just set to every version that a first step may read; needed before a first run
 * with parameters in two slots (quota param=2). */
sl_status sl_params_copy_versions(const sl_lowered *lowered, sl_runtime *rt);

/* ---- resumable state ------------------------------------------------------ */

/* Number of stages along the model, and of devices per stage. */
int sl_lowered_stages(const sl_lowered *lowered);
int sl_lowered_ranks(const sl_lowered *lowered);
/* State that a device of a stage needs to resume, at its place in memory, to be read or written
 * between runs. The list is valid until the next call for that device. Returns its length; 0 if the
 * device belongs to another process. */
int sl_lowered_state(const sl_lowered *lowered, sl_runtime *rt, int stage, int rank,
                     const sl_state_tensor **out);

/* ---- the schedule table --------------------------------------------------- */

/* Names of all schedules, NULL-terminated, and one line about each. */
const char *const *sl_schedule_names(void);
const char *sl_schedule_summary(const char *name);
/* Default number of chunks per device. */
int sl_schedule_chunks(const char *name);

#ifdef __cplusplus
}
#endif
#endif
