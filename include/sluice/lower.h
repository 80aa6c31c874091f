/* SPDX-License-Identifier: Apache-2.0 */
/* Lowering: from a model graph to a plan. */
#ifndef SLUICE_LOWER_H
#define SLUICE_LOWER_H

#include <stdio.h>

#include <sluice/graph.h>
#include <sluice/hardware.h>
#include <sluice/plan.h>
#include <sluice/runtime.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A quota set by the user: "act.b", "act.w", "act" (both), "load", "param", "pool", ... at one
 * stage, or at all stages (stage SL_NONE). */
typedef struct sl_quota {
  const char *name;
  int stage;
  int slots;
} sl_quota;

/* Placement of registers between uses (home). Registers with this quota name, written by blocks
 * that match `block`, move to `space` after they are written and back in time for the backward
 * pass. Separate actors (`spill`, `fill`) do the transfers. */
typedef struct sl_home {
  const char *name;  /* "act" (both), "act.b", "act.w", "kv", "state" */
  const char *block; /* pattern of block names: "h.31", "h.*"; NULL: all */
  sl_space space;    /* SL_SPACE_DEVICE: they stay on the device */
  int peer;          /* SL_SPACE_PEER: how many devices further along the pipeline, cyclically; 1 to
                        one less than the stages */
} sl_home;

typedef struct sl_home_options {
  int count;
  const sl_home *homes; /* the last entry that matches a register applies */
  const char *disk;     /* directory for registers on disk; NULL: $TMPDIR, or /var/tmp */
  size_t disk_bytes;    /* disk budget of each device; 0: no limit */
  const char *update;   /* where parameters are updated: "device" (NULL); "host" (with GPUs: on the
                           host's cores, in host memory); or "every:K": every K-th block on the
                           device, all other blocks on the host */
  size_t host_bytes;    /* budget of each device for host memory; 0: no limit */
  const char *offload;  /* "activations=0.6": offloads a block's internal activations to their home
                           for this fraction of the pieces, and recomputes them for the rest. NULL:
                           offloads all */
} sl_home_options;

/* A counter's values (sl_counter) for one step. */
typedef struct sl_counter_values {
  const char *name;
  int64_t n;
  const double *values; /* [n] */
} sl_counter_values;

/* A logged number of a step (sl_step_value). */
typedef struct sl_step_number {
  const char *name;
  double value;
} sl_step_number;

typedef struct sl_step_report {
  int64_t step;
  double loss;      /* mean over the step's microbatches, summed in order */
  double grad_norm; /* before clipping */
  float lr;
  int ncounters;
  const sl_counter_values *counters; /* [ncounters]; valid during the call only */
  int nvalues;
  const sl_step_number *values; /* [nvalues] numbers of sl_step_value(), in order; also valid during
                                   the call only */
} sl_step_report;

/* Uses of NCCL: transfers between GPUs of different processes, and collectives among the GPUs of a
 * stage where they cost less than sums and joins of parts. AUTO: both, if the GPU numbers
 * differ and NCCL is found. DIRECT: both, also on modelled devices. CHANNELS: transfers alone.
 * HOST: neither; transfers go through host memory. A GPU cannot be both ends of a transfer, nor two
 * members of a collective; GPU numbers do not distinguish hosts. */
typedef enum sl_gpu_links {
  SL_LINKS_AUTO,
  SL_LINKS_DIRECT,
  SL_LINKS_HOST,
  SL_LINKS_CHANNELS
} sl_gpu_links;

/* Devices of the plan. */
typedef struct sl_device_options {
  const char *kind;    /* "cpu", "cuda", "timed" or "null" */
  int count;           /* 0: one per pipeline device */
  int nnumbers;        /* number of GPUs in `numbers`; 0: the first GPU */
  const int *numbers;  /* GPUs to use, in device order; repeated if there are more devices, which
                          then share GPUs */
  int threads;         /* threads of each CPU device; 0: 1 */
  size_t budget_bytes; /* budget of each device; 0: none */
  sl_gpu_links links;  /* SL_E_UNSUPPORTED if DIRECT is requested but NCCL is not found */
} sl_device_options;

/* Modelled durations of a microbatch's passes, in seconds; B does not include W. */
typedef struct sl_stage_cost {
  double F, B, W;
} sl_stage_cost;

/* Cost of a part of the model that is sharded over all stages (vocabulary.parallel), in addition to
 * their passes: the block it belongs to, and the durations of each stage's part. */
typedef struct sl_sharded_cost {
  const char *block;
  const sl_stage_cost *stages; /* [nstages] */
} sl_sharded_cost;

/* Modelled durations in seconds: of each chunk's passes (or of each stage's, along the model), and
 * of crossing a stage boundary. All zero: derived from the ops' costs. */
typedef struct sl_cost {
  double F, B, W, comm;
  int nstages; /* 0, or the number of stages: replaces F, B and W */
  const sl_stage_cost *stages;
  int nsharded; /* sharded parts not listed here take no time */
  const sl_sharded_cost *sharded;
  double together; /* of a pass forward beside one backward (F&B); 0: the sum of both */
} sl_cost;

/* One tensor that a device needs to resume a stage of the pipeline after a step. It is a parameter
 * ("NAME"), its optimizer's state ("NAME:m", "NAME:v": sl_update.states), or, if parameters have
 * two slots, its previous version ("NAME:previous"). If a stage has several devices, each may hold
 * all of the tensor or a part. */
typedef struct sl_state_tensor {
  const char *name;
  sl_type type;          /* type of the data here */
  const sl_shard *shard; /* part of the whole that is stored here; NULL: all */
  bool replica;          /* a device of lower rank holds the same data, so it need not be stored */
  const void *data;      /* NULL if the host cannot address it */
  int32_t reg, slot;     /* slot between runs, for sl_runtime_read() ... */
  size_t offset;         /* ... and sl_runtime_write(); offset within the slot */
  float start;           /* value of all elements before the first step, for optimizer state */
} sl_state_tensor;

typedef struct sl_stage_state {
  int64_t steps; /* completed */
  int stage;     /* stage along the model */
  int rank;      /* rank among the stage's devices */
  int ntensors;
  const sl_state_tensor *tensors;
} sl_stage_state;

/* Size of a manifest entry, which passes from the writer of a device's state to the writer of the
 * checkpoint. */
enum { SL_MANIFEST_ENTRY_BYTES = 64 };

/* Distribution requested for a parameter, or for an op's first output, with this name along one
 * axis of the grid: 0 data, 1 tensor, 2 sequence. */
typedef struct sl_given_sbp {
  const char *name;
  int axis;
  sl_sbp sbp;
} sl_given_sbp;

/* Devices and parallelism. Each stage has a grid of `data` * `sequence` * `tensor` devices. Along
 * the data axis devices have different rows of every microbatch, along the sequence axis different
 * positions of every sequence, along the tensor axis different shards of the tensors. The device at
 * (d, s, t) has rank (d * sequence + s) * tensor + t in its stage. The layout maps ranks to device
 * numbers. */
typedef struct sl_parallel_options {
  int stages;                     /* P pipeline devices [1] */
  const char *placement;          /* placement of chunks: "line", "loop", "vee"; NULL: the
                                     schedule's */
  int data;                       /* D [1] */
  int sequence;                   /* Q [1] */
  const char *sequence_attention; /* method of attention across devices: "heads" (each device has
                                     all positions of some heads), "ring" (keys and values chunk by
                                     chunk), "auto" (NULL): by cost */
  const char *sequence_states;    /* method of linear attention: "heads" (each device has all
                                     positions of some heads), "exchange" (each keeps its positions;
                                     devices exchange states), "auto" (NULL): by cost */
  const char *sequence_layout;    /* assignment of positions to devices: "contiguous", or "zigzag",
                                     which balances causal attention; NULL: the better one */
  int tensor;                     /* T [1] */
  bool free_data;       /* devices along the tensor axis may shard data rows instead, if that is
                           cheapest */
  const char *layout;   /* order of the axes in the device numbering, innermost first:
                           "data,tensor,stage". NULL: tensor,sequence,data,stage. It affects traffic
                           within a host or process, not results */
  const char *assign;   /* device at each position of the layout, counted from 0: a permutation such
                           as "0,2,1,3" or "4-7,0-3". NULL: the identity. It affects the traffic of
                           each link, not results */
  const char *exchange; /* communication among the devices of a stage within a pass: "beside"
                           (NULL), overlapped with passes of other microbatches; or "inline", which
                           occupies the device until it is done */
  const char *boundary; /* tensors that all devices of the tensor axis have and the next stage
                           reads: "whole" (NULL), each device sends all of it; or "scattered", each
                           sends a part and the receivers gather the parts */
  int processes;        /* number of processes, each driving the same number of devices if possible
                           [1] */
  int ngiven;           /* number of distributions in `given`, requested by the user */
  const sl_given_sbp *given;
} sl_parallel_options;

/* Experts and their distribution over devices. */
typedef struct sl_expert_options {
  /* EP [1]: experts are sharded over EP devices along the data axis; rows are dispatched to them
   * and return. If EP divides parallel.data, expert rank e of group d is data-parallel device d *
   * EP + e. Otherwise, or with `tensor`, EP counts all data * tensor devices, tensor axis first */
  int parallel;
  int tensor;          /* ETP: 1: experts have a separate grid over these devices, with each expert
                          on one device; T: the model's grid, which `parallel` must fit; 0: as
                          `parallel` implies */
  double rows;         /* capacity of a device's experts, as a multiple (at least 1) of an even
                          share of the rows; more rows end the run. 0: room for all rows */
  const char *routing; /* modelled devices: rows per expert. "balanced": equal. "learned" (NULL):
                          also equal, since routing depends on values. "zipf:S". Or a file with a
                          number per expert, summing to a microbatch's rows: one line per layer with
                          experts, or one line for all layers */
  /* Modelled devices: "order" (NULL), devices have experts in their order; "load", the experts with
   * most rows go first, each to the device with fewest rows. Copies of experts with most rows, over
   * which their rows are spread; needs "load" */
  const char *placement;
  int replicas;
} sl_expert_options;

/* The vocabulary's tables: the classifier before the loss, and embeddings of the same
 * vocabulary. */
typedef struct sl_vocabulary_options {
  bool parallel; /* shards them over the stages */
  int barriers;  /* with `parallel`, number of times that a microbatch waits for all stages: 1 (the
                    products with the logits' gradient run before the sums over stages) or 2; 0:
                    2 */
} sl_vocabulary_options;

/* Order of passes, and the granularity of actors. */
typedef struct sl_schedule_options {
  const char *name;     /* entry of the schedule table; NULL: "1f1b"; "auto": search for one */
  const char *chosen;   /* schedule auto, skip: result of an earlier search for the same stages and
                           microbatches (sl_lowered_chosen), to use instead of a new search */
  double activations;   /* schedule auto: maximum activations per device, in microbatches; 0: no
                           limit */
  int chunks;           /* V chunks per device; 0: the schedule's */
  const char *backward; /* "fused", "split"; NULL: the schedule's */
  const char *order;    /* "derive", or a file with each device's order of passes; NULL: decided at
                           run time */
  const char *paths;    /* file with the stages that each microbatch visits, one line each,
                           such as "0: 0 2 3"; NULL: all */
  double skip;          /* > 0: searches for paths that skip this fraction of all visits and shorten
                           a step on the virtual clock (sl_lowered_paths) */
  bool skip_in_turn;    /* with `skip`: skips stages in turn, without a search; for searches over
                           candidates that skip */
  bool swap;            /* with `skip`: also reorders the visits if that shortens the step */
  const char *grain; /* part of a stage that forms one actor per class: "pass" (the whole stage) or
                        "layer" (a block); NULL: layer with several devices along the data axis,
                        else pass */
  const char *piece_order; /* if sequences are cut: "tokens" (NULL), a piece passes all blocks of a
                              stage before the next piece; or "layers", all pieces of a microbatch
                              pass a block before the next block. Each block is then an actor, as
                              with grain layer. Results do not depend on it */
  double look_ahead;       /* seconds that a modelled device may stay idle to wait for a better
                              pass */
  int ranges; /* N microbatches that count as one for the schedule's slots and groups; 0: 1 */
} sl_schedule_options;

/* Memory: sharding, recomputation, quotas and homes. */
typedef struct sl_memory_options {
  const char *shard; /* state that devices along the data axis shard instead of replicating (ZeRO,
                        FSDP): "nothing", "optimizer" (optimizer state), "gradients" (and
                        gradients), "parameters" (and parameters); NULL: nothing */
  /* activation checkpointing: which activations are recomputed instead of kept: "none" (NULL),
   * "selective" (cheap ones) or "full" (a block's activations). "full@h.3" applies to blocks that
   * match the name; separate several by commas; the last that matches a block applies */
  const char *recompute;
  int nquotas;
  const sl_quota *quotas;
  sl_home_options homes; /* default: all registers stay where they are written */
} sl_memory_options;

/* Number formats, random numbers and value checks. */
typedef struct sl_number_options {
  sl_dtype dtype;    /* operand type of matrix products: SL_F32, or SL_BF16 where the device
                        multiplies bf16 (elsewhere f32). On GPUs activations are then bf16 too.
                        Weights, sums over a step and everything else stay f32 */
  bool check_finite; /* checks every output of every call: the first non-finite value ends the run
                        with an error that names op, actor and microbatch */
  bool exact;        /* sums in an order that does not depend on the grid (docs/exact.md) */
  int leaf;          /* exact: number of positions summed as one leaf of a gradient; 0: all */
  uint64_t seed;     /* seed of random numbers drawn during the run */
} sl_number_options;

/* Durations of modelled devices, and predictions. */
typedef struct sl_simulation_options {
  sl_cost cost;                /* timed devices; with chunks 0, cost of all of a device's chunks */
  const sl_hardware *hardware; /* for timed devices without measured durations; may be NULL */
  /* Returns the measured seconds of one call of the op with this name in the graph; negative: not
   * measured, use the op's cost. */
  double (*op_seconds)(void *ctx, const char *name);
  void *op_seconds_ctx;
  bool any_order;   /* skips the search for a pass order; for predictions that need no step time */
  int microbatches; /* > 0: chooses layouts for a step of this many, of which the plan has only
                       some; for predictions */
  bool alike;       /* plans one device per stage that represents its whole grid; for predictions.
                       Exact if all parts have the same size; otherwise it is the device with the
                       largest parts */
} sl_simulation_options;

/* Output printed during lowering. */
typedef struct sl_print_options {
  const char *after; /* prints the graph after this pass to `graph`; may be NULL */
  FILE *graph;
  FILE *sharing; /* prints a table of how each op is sharded, and why, to this file; may be NULL */
} sl_print_options;

/* Log-probabilities of the targets of a step's batch. */
typedef struct sl_logprobs_report {
  int64_t step;
  int64_t rows, length;  /* rows of the batch, and targets per row, without sink tokens */
  const float *logprobs; /* [rows, length]; valid during the call only */
} sl_logprobs_report;

/* Callbacks for steps and outputs; each may be NULL, and receives ctx. */
typedef struct sl_report_options {
  /* Reports each step. Called on a worker's thread, in step order; must not block for long. */
  void (*on_step)(void *ctx, const sl_step_report *report);
  /* Reports the log-probabilities of each step of a model with one cross entropy; called like
   * on_step. They come from the forward pass, before the update. */
  void (*on_logprobs)(void *ctx, const sl_logprobs_report *report);
  /* Report an evaluation after step `step` (sl_graph_options.eval_every): each metric (sl_metric),
   * then the loss. */
  void (*on_eval)(void *ctx, int64_t step, double loss);
  void (*on_metric)(void *ctx, int64_t step, const char *name, double value);
  /* Inference: receives an output of the graph. `data` is NULL for a served graph on devices that
   * hold no values. */
  void (*on_output)(void *ctx, const char *name, const sl_type *type, const void *data);
  void *ctx;
} sl_report_options;

/* Checkpoints. After every `every`-th step (0: never), on_store receives a copy of each stage's
 * state while training continues. Training waits only if the next copy is due and register `store`
 * has no free slot. If a stage has several devices, each passes the state that it owns, without
 * replicas. Devices may call on_store concurrently, each on its own thread, and the callback may
 * block. `entry` points to SL_MANIFEST_ENTRY_BYTES zeroed bytes of plain data for the callback to
 * fill in. When all devices have stored a step, on_stored receives its entries; steps come in
 * order. A status other than SL_OK ends the run with that status. */
typedef struct sl_store_options {
  int64_t every;
  sl_status (*on_store)(void *ctx, const sl_stage_state *state, void *entry);
  sl_status (*on_stored)(void *ctx, int64_t steps, int nentries, const void *const *entries);
  void *ctx;
} sl_store_options;

/* Rollouts: before the training passes of each step, `ticks` passes of a served graph of the same
 * model run on the first device of each stage, or on several devices, and read the same parameters.
 * Training sources are called for a step once its last tick has been delivered. */
typedef struct sl_rollout_options {
  /* Creates the served graph, with sl_graph_options.serve; each call of sl_lower needs a new one.
   * The graph must outlive the sl_lowered. Returns NULL on failure, with the reason in sl_detail().
   * `make` NULL: no rollouts. */
  sl_graph *(*make)(void *ctx);
  int ticks; /* ticks per step, at least 1 */
  int ahead; /* number of updates by which the parameters of rollouts lag behind training. Each
                needs one more slot per parameter and lets rollouts overlap with one more training
                step. 0: none */
  /* Receives each tick's sampled tokens (sl_sampled) like report.on_output, in the first process;
   * must not block for long. */
  void (*on_output)(void *ctx, const char *name, const sl_type *type, const void *data);
  void *ctx;
  const struct sl_rollout_options *next; /* options of the stage's next device that samples, with
                                            the same `ticks`; NULL: none */
} sl_rollout_options;

/* Options of sl_lower. A zero field takes its default. */
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

/* Returns true if devices of this kind compute on values; other kinds only model time. */
bool sl_device_computes(const char *kind);

/* Returns the process that drives a device; neighbours along the pipeline share a process. */
int sl_device_process(int device, int devices, int processes);

typedef struct sl_lowered sl_lowered; /* owns the plan; the graph must outlive it */

/* Derives gradients (for training), cuts the graph into stages, groups ops into actors, turns edges
 * into registers, sets quotas and lays out memory. */
sl_status sl_lower(sl_graph *g, const sl_lower_options *options, sl_lowered **out);
void sl_lowered_destroy(sl_lowered *lowered);
const sl_plan *sl_lowered_plan(const sl_lowered *lowered);
/* Returns the number of devices that each device of the plan represents: 1 except with
 * simulation.alike. */
int sl_lowered_alike(const sl_lowered *lowered);

/* Sets to[plan->ndevices] as sl_plan_moved() does, including the traffic that a device which
 * represents several would receive from the rest of them. */
void sl_lowered_moved(const sl_lowered *lowered, uint64_t (*to)[SL_TRAFFIC_COUNT]);
/* Sets `to` to the traffic between hosts, over all devices that the plan represents, if each host
 * has devices_per_host consecutively numbered devices. */
void sl_lowered_crossed(const sl_lowered *lowered, int devices_per_host,
                        double to[SL_TRAFFIC_COUNT]);
/* Returns the floating point operations of a step's forward and backward passes, by the ops' costs,
 * over all devices. Replicated work counts once. 0 for inference. */
double sl_lowered_flops(const sl_lowered *lowered);
/* Returns the name of the schedule in use. */
const char *sl_lowered_schedule(const sl_lowered *lowered);
/* Returns the schedule and paths with all search results, as text for schedule.chosen, in this or
 * another process. */
const char *sl_lowered_chosen(const sl_lowered *lowered);
/* Returns the paths that `skip` found, in the format of a `paths` file, or NULL if there are
 * none. */
const char *sl_lowered_paths(const sl_lowered *lowered);
int sl_lowered_chunks(const sl_lowered *lowered);
/* Returns the type of matrix products: "f32", or the devices' name for bf16. */
const char *sl_lowered_products(const sl_lowered *lowered);
/* Returns the type of activations and their gradients: "f32" or "bf16". */
const char *sl_lowered_tensors(const sl_lowered *lowered);
/* Calls fn for each quota in force, in a stable order. If a runtime is attached, these are its
 * current quotas. */
void sl_lowered_quotas(const sl_lowered *lowered,
                       void (*fn)(void *ctx, const char *name, int stage, int slots), void *ctx);

/* Changes a quota during a run (sl_runtime_set_quotas): "act.b", "act.w", "act", "load", ... at one
 * stage or at all stages (SL_NONE). Registers sized by a stage's activations change by the same
 * number of slots. */
sl_status sl_lowered_set_quota(const sl_lowered *lowered, sl_runtime *rt, const sl_quota *quota);

/* Attaches the runtime, which is stopped if a loss is not finite. Call it once, after
 * sl_runtime_create. */
void sl_lowered_attach(sl_lowered *lowered, sl_runtime *rt);

/* Location of a parameter's values, or of a part of them. */
typedef struct sl_param_place {
  int32_t reg;           /* parameter register; its newest slot holds the values */
  size_t offset;         /* within that slot */
  sl_type type;          /* type of the data here */
  const sl_shard *shard; /* part of the whole that is stored here; NULL: all */
  int rank, device;      /* rank among its stage's devices; device number */
  bool replica;          /* an earlier place holds the same data */
} sl_param_place;

/* A parameter of the graph and its places, in order of creation. In a stage with several devices,
 * each device that holds the parameter or a part has one place. The places that are not replicas
 * together hold each value once. */
typedef struct sl_param_info {
  const char *name;
  sl_type type; /* type of the whole parameter's values */
  /* Storage format at the places, whose types describe the stored data. */
  sl_storage storage;
  sl_init init;
  const sl_adapter *adapter; /* adapter on this parameter, or the adapter that this parameter is
                                part of, by its name; NULL: neither */
  const char *frozen; /* for a parameter of a frozen model (objective.h): its name in that model;
                         else NULL */
  int stage;
  int nplaces;
  const sl_param_place *places; /* places by rank */
} sl_param_info;
int sl_lowered_params(const sl_lowered *lowered, const sl_param_info **out);

/* Access to parameter values in a runtime, between runs. Values in other processes are neither read
 * nor written. SL_E_DEVICE if a device fails. */

/* Returns true if any part of the parameter is in this process. */
bool sl_param_here(const sl_lowered *lowered, sl_runtime *rt, int index);
/* Returns the address of all the parameter's values if they are one block of host-addressable
 * memory of this process; otherwise NULL. If the parameter has several places, values written here
 * must also go through sl_param_set(). */
float *sl_param_data(const sl_lowered *lowered, sl_runtime *rt, int index);
/* Gathers a parameter's values from the places in this process. Leaves the rest of whole[]
 * unchanged; sets *all if whole[] is complete. */
sl_status sl_param_get(const sl_lowered *lowered, sl_runtime *rt, int index, float *whole,
                       bool *all);
/* Sets a parameter's values at all places in this process. `whole` may be sl_param_data(). */
sl_status sl_param_set(const sl_lowered *lowered, sl_runtime *rt, int index, const float *whole);
/* Fills every parameter by its init rule (Philox 4x32-10, keyed by seed and name, so that values do
 * not depend on stages or devices). */
sl_status sl_params_init(const sl_lowered *lowered, sl_runtime *rt, uint64_t seed);

/* Sets optimizer states to their initial values, if not 0. sl_params_init() and sl_weights_load()
 * call it. */
sl_status sl_states_init(const sl_lowered *lowered, sl_runtime *rt);

/* Copies the values just set to every version that the first step may read; required before a first
 * run in which parameters have two slots (quota param=2). */
sl_status sl_params_copy_versions(const sl_lowered *lowered, sl_runtime *rt);

/* ---- resumable state ------------------------------------------------------ */

/* Return the number of stages along the model, and of devices per stage. */
int sl_lowered_stages(const sl_lowered *lowered);
int sl_lowered_ranks(const sl_lowered *lowered);
/* Sets *out to the state that a device of a stage needs to resume, to be read or written in place
 * between runs. The list is valid until the next call for that device. Returns its length; 0 if the
 * device belongs to another process. */
int sl_lowered_state(const sl_lowered *lowered, sl_runtime *rt, int stage, int rank,
                     const sl_state_tensor **out);

/* ---- the schedule table --------------------------------------------------- */

/* Return the names of all schedules, NULL-terminated, and a one-line summary of each. */
const char *const *sl_schedule_names(void);
const char *sl_schedule_summary(const char *name);
/* Returns the default number of chunks per device. */
int sl_schedule_chunks(const char *name);

#ifdef __cplusplus
}
#endif
#endif
