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

/* A quota given by the user: "act.b", "act.w", "act" (both), "load", "param",
 * "pool", ... at one stage or at all of them (stage SL_NONE). */
typedef struct sl_quota {
  const char *name;
  int stage;
  int slots;
} sl_quota;

/* Where registers live while nobody reads them. Those that answer to a quota of this name, made by
 * blocks of that name, are brought there as they are made, and back in time for who reads them on
 * the way back, by actors of their own (`spill`, `fill`). */
typedef struct sl_home {
  const char *name;        /* "act" (both), "act.b", "act.w", "kv", "state" */
  const char *block;       /* pattern of blocks' names: "h.31", "h.*"; NULL: all */
  sl_space space;          /* SL_SPACE_DEVICE: where they are made */
} sl_home;

typedef struct sl_home_options {
  int count;
  const sl_home *of;       /* the last that speaks of a register counts */
  const char *disk;        /* folder for what lives on disk; NULL: $TMPDIR, or /var/tmp */
  size_t disk_bytes;       /* that each device may take of it; 0: any number */
  const char *update;      /* who updates parameters: "device" (NULL), "host" (beside GPUs, on cores
                              and in memory of the host), or "every:K": every K-th block the
                              device, the others the host */
  size_t host_bytes;       /* that each device may take of the host's memory beside its own; 0: any
                              number */
  const char *offload;     /* "activations=0.6": of what a block makes for itself of a piece, this
                              share of the pieces goes where activations live, and the others' is
                              computed again. NULL: all goes */
} sl_home_options;

/* What an sl_tally() comes to. */
typedef struct sl_tally_values {
  const char *name;
  int64_t n;
  const double *values; /* [n] */
} sl_tally_values;

typedef struct sl_step_report {
  int64_t step;
  double loss;      /* mean over the step's microbatches, summed in order */
  double grad_norm; /* before clipping */
  float lr;
  int ntallies;
  const sl_tally_values *tallies; /* [ntallies]; valid during the call only */
} sl_step_report;

/* How data goes from a GPU to one of another process: directly (NCCL), through the host's
 * memory, or AUTO: directly where the two have different numbers and the library is found.
 * No GPU can be both ends of a direct way; numbers do not tell GPUs of several hosts apart. */
typedef enum sl_gpu_links { SL_LINKS_AUTO, SL_LINKS_DIRECT, SL_LINKS_HOST } sl_gpu_links;

/* How devices are made up. */
typedef struct sl_device_options {
  const char *kind; /* "cpu", "cuda", "timed" or "null" */
  int count;        /* 0: one per pipeline device */
  int nnumbers;     /* GPUs: which ones, from the first device on, and again from the start */
  const int *numbers; /* if there are more devices; several may lie on one. 0: the first */
  int threads;      /* of each CPU device; 0: 1 */
  size_t budget_bytes; /* each; 0: none */
  sl_gpu_links links;  /* SL_E_UNSUPPORTED if they are to be direct and cannot */
} sl_device_options;

/* Modelled durations of a microbatch's passes, in seconds; B is without W's part. */
typedef struct sl_stage_cost {
  double F, B, W;
} sl_stage_cost;

/* Of a part of the model that is spread over all stages (vocab_parallel), beside their own passes:
 * the block in which the model has it, and what each stage takes for its part. */
typedef struct sl_spread_cost {
  const char *block;
  const sl_stage_cost *stages; /* [nstages] */
} sl_spread_cost;

/* The same of every chunk, or stage by stage along the model; and of a stage boundary crossing, in
 * seconds. All zero: taken from the ops' costs. */
typedef struct sl_cost {
  double F, B, W, comm;
  int nstages;             /* 0, or as many as there are: instead of F, B and W */
  const sl_stage_cost *stages;
  int nspread;             /* what is spread and not among these takes no time */
  const sl_spread_cost *spread;
} sl_cost;

/* One tensor that a device needs for a stage of the pipeline to go on after a step: a
 * parameter ("NAME"), its optimizer's state ("NAME:m", "NAME:v": sl_update.states), or, where
 * parameters have two slots, its version before ("NAME:previous"). Where a stage lies on
 * several devices each may have all of it or a part. */
typedef struct sl_state_tensor {
  const char *name;
  sl_type type;          /* of what is here */
  const sl_shard *shard; /* which part of the whole that is; NULL: all */
  bool replica;          /* a device of lower rank has the same: no need to store it */
  const void *data;      /* NULL: in memory that the host does not address */
  int32_t reg, slot;     /* between runs: where that is, for sl_runtime_read() ... */
  size_t offset;         /* ... and sl_runtime_write(); within the slot */
  float start;           /* of the optimizer's state: all its elements before the first step */
} sl_state_tensor;

typedef struct sl_stage_state {
  int64_t steps; /* completed */
  int stage;     /* along the model */
  int rank;      /* which of the stage's devices, 0 where there is one */
  int ntensors;
  const sl_state_tensor *tensors;
} sl_stage_state;

/* What the writer of a device's state tells the one who completes the checkpoint. */
enum { SL_RECEIPT_BYTES = 64 };

/* The parameter, or an op's first output, of this name lies so along an axis of the grid:
 * 0 data, 1 tensor, 2 sequence. */
typedef struct sl_given_sbp {
  const char *name;
  int axis;
  sl_sbp sbp;
} sl_given_sbp;

typedef struct sl_lower_options {
  int stages;              /* P pipeline devices [1] */
  int chunks;              /* V chunks on each; 0: the schedule's */
  const char *placement;   /* "line", "loop", "vee"; NULL: the schedule's */
  /* Each stage lies on a grid of devices: data_parallel times, each with other rows of every
   * microbatch, each of those times on `sequence` devices, each with other positions of every
   * sequence, and each of those times on `tensor` devices that share the tensors. A stage's
   * device is rank (data * sequence + s) * tensor + t of its grid. Which number the device has is
   * the layout's affair. */
  int data_parallel;       /* D [1] */
  int sequence;            /* Q [1] */
  const char *sequence_attention; /* how attention finds other positions: "heads" (all of them, for
                              some heads), "ring" (chunk by chunk), "auto" (NULL): by cost */
  const char *sequence_layout; /* which positions a device has: "contiguous", or "zigzag", by which all
                              see as much; NULL: as is best */
  int tensor;              /* T [1] */
  int expert_parallel;     /* EP [1]: experts are shared out over so many of the data_parallel devices,
                              which it divides: their rows go to them and come back. Such a device has
                              place data * EP + e among those that share the data. Where it does not, or
                              with expert_tensor, over so many of all data_parallel * tensor: first of
                              those that share tensors */
  int expert_tensor;       /* ETP: 1: experts lie on a grid of their own of these, each on one device; T: on the
                              grid of all else, which expert_parallel must suit; 0: as expert_parallel says */
  double expert_rows;      /* so many times an even share of rows a device of experts has room for, from 1
                              on; more end the run. 0: for all */
  const char *routing;     /* modelled devices: how many rows come to each expert: "balanced", as many (and
                              so "learned", NULL, which only values tell), "zipf:S", or a file with a number
                              for each that together are all of a microbatch, on a line for each layer with
                              experts, or once for all */
  const char *layout;      /* which axes lead from a device to its neighbour, from the innermost on:
                              "data,tensor,stage". NULL: tensor,sequence,data,stage. No result
                              depends on it, but what devices of one host, or of one process, exchange */
  const char *assign;      /* which device takes the place that the layout gives to each, from 0 on: a
                              permutation such as "0,2,1,3" or "4-7,0-3". NULL: that of its number. No result
                              depends on it, but what goes over which link */
  bool vocab_parallel;     /* each stage has a part of the vocabulary's tables: of the classifier
                              before the loss, and of embeddings of as many words */
  int vocab_barriers;      /* how often a microbatch waits for all stages then: 1 (the products of the
                              logits' gradient come before the sums) or 2; 0: 2 */
  bool any_order;          /* for predictions: no order of passes is looked for, as nobody asks how long a step takes */
  bool alike;              /* for predictions: of each stage one device is planned, which stands
                              for all of its grid. That is exact where all have parts of the
                              same size; where not, it is the one with the largest parts */
  bool free_data;          /* devices that share tensors may share the rows of the data too, if
                              that is cheapest */
  const char *print_after; /* prints the graph after the pass of this name to `printed`; may be NULL */
  FILE *printed;
  FILE *sharing;           /* gets a table of how each op is shared out, and why; may be NULL */
  const char *shard;       /* what the data_parallel devices share out instead of each having
                              all: "nothing", "optimizer" (its state), "gradients" (these
                              too), "parameters" (all three); NULL: nothing */
  const char *grain;       /* what of a stage is one actor of a class: "pass" (all of it) or
                              "layer" (a block); NULL: layer with data_parallel, else pass */
  const char *exchange;    /* what the devices of a stage exchange within a pass goes "beside" (NULL)
                              passes, which go on with other microbatches meanwhile, or "inline": a
                              pass that has begun has its device until it is done */
  int ngiven;              /* how tensors lie, as the user wants them */
  const sl_given_sbp *given;
  int processes;           /* that drive the devices, as many each as comes out even [1] */
  const char *schedule;    /* name of a row of the schedule table; NULL: "1f1b" */
  const char *chosen;      /* schedule auto: what it has chosen before for the same graph and
                              options (sl_lowered_chosen), instead of searching for it again */
  const char *order;       /* "derive", or a file with the order of passes of each
                              device; NULL: it emerges */
  const char *backward;    /* "fused", "split"; NULL: the schedule's */
  const char *paths;       /* file with the stages that each microbatch visits, a line like "0: 0 2 3"
                              for each; NULL: all visit all */
  double skip;             /* > 0: looks for paths that leave out this share of all visits and make a
                              step short on the virtual clock (sl_lowered_paths), */
  bool swap;               /* and visit stages in another order, where that is shorter */
  int nquotas;
  const sl_quota *quotas;
  sl_home_options homes;   /* none: all registers live where they are made */
  const char *piece_order; /* where sequences are cut: "tokens" (NULL), a piece goes through all blocks of a
                              stage before the next one, or "layers": all pieces of a microbatch go
                              through a block before the next block; blocks are actors then, as with
                              grain layer. No result depends on it */
  const char *recompute;   /* activations computed again instead of kept: "none" (NULL),
                              "selective" (by calls that cost next to nothing) or "full" (all
                              of a block); "full@h.3" of blocks of that name, and several of
                              these with commas: the last that speaks of a block counts */
  sl_device_options devices;
  double look_ahead;       /* seconds a device idles for a better pass about to be ready */
  double activations;      /* schedule auto: most microbatches' worth of activations a
                              device may hold; 0: any number */
  sl_cost cost;            /* timed devices; with chunks 0, of a device's whole share */
  const sl_hardware *hardware; /* timed devices without measured durations; may be NULL */
  /* Measured seconds of one call of the op with this name in the graph, or a
   * negative number if it was not measured; the op's cost is used then. */
  double (*op_seconds)(void *ctx, const char *name);
  void *op_seconds_ctx;
  sl_dtype dtype;          /* of products' operands: SL_F32, or SL_BF16 where the devices
                              multiply bf16 (elsewhere f32). On GPUs what flows through the
                              model is bf16 then, too. Weights, sums over a step and everything
                              else are f32 */
  bool check_finite;       /* look at every output of every call: the first value that is not
                              finite ends the run, with op, actor and microbatch */
  uint64_t seed;           /* of random numbers drawn as it runs */
  /* What the run reports while it goes. Called on a worker's thread, in step order; must not block for long. May be
   * NULL. */
  void (*on_step)(void *ctx, const sl_step_report *report);
  /* The loss of an evaluation, after step number `step` (sl_graph_options.eval_every); before it,
   * each metric (sl_metric). May be NULL. */
  void (*on_eval)(void *ctx, int64_t step, double loss);
  void (*on_metric)(void *ctx, int64_t step, const char *name, double value);
  /* Inference: an output of the graph is ready. Of a served graph on devices that hold no values `data` is
   * NULL. */
  void (*on_output)(void *ctx, const char *name, const sl_type *type, const void *data);
  void *ctx;
  /* Checkpoints: after every store_every-th step (0: never) a copy of each stage's
   * state is handed to on_store, beside the passes: training waits for it only if
   * the next copy is due and no slot of register `store` is free. Where a stage lies
   * on several devices, each that has something of its own hands over that, and no
   * replicas. Devices may call at once, each on its thread, which may block. `receipt`
   * is plain data, SL_RECEIPT_BYTES zeroed; when all of a step have left theirs,
   * on_stored gets them, steps in order. A status other than SL_OK ends the run with
   * it. */
  int64_t store_every;
  sl_status (*on_store)(void *ctx, const sl_stage_state *state, void *receipt);
  sl_status (*on_stored)(void *ctx, int64_t steps, int nreceipts, const void *const *receipts);
  void *store_ctx;
} sl_lower_options;

/* Do devices of this kind compute on values? Others only take time. */
bool sl_device_computes(const char *kind);

/* Which of `processes` drives a device: neighbours along the pipeline share one. */
int sl_device_process(int device, int devices, int processes);

typedef struct sl_lowered sl_lowered; /* owns the plan; the graph must outlive it */

/* Derives gradients (training), cuts the graph into stages, groups ops into
 * actors, turns edges into registers, sets quotas and lays out memory. */
sl_status sl_lower(sl_graph *g, const sl_lower_options *options, sl_lowered **out);
void sl_lowered_destroy(sl_lowered *lowered);
const sl_plan *sl_lowered_plan(const sl_lowered *lowered);
/* How many devices each device of the plan stands for: 1 unless all of a grid are alike. */
int sl_lowered_alike(const sl_lowered *lowered);

/* sl_plan_moved(), with what one device that stands for all would receive of the others.
 * to[plan->ndevices]. */
void sl_lowered_moved(const sl_lowered *lowered, uint64_t (*to)[SL_TRAFFIC_COUNT]);
/* The part of it, over all devices that the plan's stand for, that goes from host to host where so many
 * devices, in the order of their numbers, are in each. */
void sl_lowered_crossed(const sl_lowered *lowered, int devices_per_host, double to[SL_TRAFFIC_COUNT]);
/* What the passes of a step compute, forward and back, by the ops' costs: on all devices
 * together, but once where several do the same. 0 for inference. */
double sl_lowered_flops(const sl_lowered *lowered);
/* The schedule as used: its name. */
const char *sl_lowered_schedule(const sl_lowered *lowered);
/* The same with all that a search has found, as text: for sl_lower_options.chosen, also of
 * another process. */
const char *sl_lowered_chosen(const sl_lowered *lowered);
/* The paths that `skip` has found, as a file for `paths` has them; else NULL. */
const char *sl_lowered_paths(const sl_lowered *lowered);
int sl_lowered_chunks(const sl_lowered *lowered);
/* How matrix products are computed: "f32", or the devices' word for bf16. */
const char *sl_lowered_products(const sl_lowered *lowered);
/* What flows through the model, and its gradients: "f32" or "bf16". */
const char *sl_lowered_tensors(const sl_lowered *lowered);
/* Calls fn for each quota in force, in a stable order; with a runtime attached, as it is there now. */
void sl_lowered_quotas(const sl_lowered *lowered,
                       void (*fn)(void *ctx, const char *name, int stage, int slots), void *ctx);

/* Changes a quota while the run goes on (sl_runtime_set_quotas): "act.b", "act.w",
 * "act", "load", ... at one stage or all (SL_NONE). Registers that are sized by
 * the activations of a stage follow by as many slots. */
sl_status sl_lowered_set_quota(const sl_lowered *lowered, sl_runtime *rt, const sl_quota *quota);

/* Gives the run's failures a home: callbacks that find a non-finite loss stop
 * this runtime. Call once after sl_runtime_create. */
void sl_lowered_attach(sl_lowered *lowered, sl_runtime *rt);

/* One place where a parameter's values lie, or a part of them. */
typedef struct sl_param_place {
  int32_t reg;           /* parameter register; its newest slot holds the values */
  size_t offset;         /* within the slot */
  sl_type type;          /* of what lies here */
  const sl_shard *shard; /* which part of the whole that is; NULL: all */
  int rank, device;      /* which of its stage's devices; of all */
  bool replica;          /* a place before it has the same */
} sl_param_place;

/* The graph's parameters, in order of creation, and where they lie: in one place, or,
 * where a stage lies on several devices, in one on each that has it or a part. Places that
 * are not replicas hold each value once. */
typedef struct sl_param_info {
  const char *name;
  sl_type type;          /* of the whole, its values */
  sl_rest rest;          /* how they lie at their places, whose types say what lies there */
  sl_init init;
  const sl_adapter *adapter; /* that it has, or, by its name, is a part of; NULL: neither */
  int stage;
  int nplaces;
  const sl_param_place *places; /* by rank */
} sl_param_info;
int sl_lowered_params(const sl_lowered *lowered, const sl_param_info **out);

/* Values of parameters in a runtime, between runs. What lies in other processes is neither
 * read nor written. SL_E_DEVICE if a device fails. */

/* Does anything of it lie in this process? */
bool sl_param_here(const sl_lowered *lowered, sl_runtime *rt, int index);
/* Where all its values are in a row, in memory of this process that the host addresses; NULL
 * if nowhere. Where there is more than one place, what is written there must be set, too. */
float *sl_param_data(const sl_lowered *lowered, sl_runtime *rt, int index);
/* Gathers a parameter's values from the places in this process; *all: that was all of them.
 * The rest of whole[] is left alone. */
sl_status sl_param_get(const sl_lowered *lowered, sl_runtime *rt, int index, float *whole,
                       bool *all);
/* Gives a parameter's values to all places in this process. `whole` may be sl_param_data(). */
sl_status sl_param_set(const sl_lowered *lowered, sl_runtime *rt, int index, const float *whole);
/* Fills every parameter by its init rule (Philox 4x32-10, keyed by seed and
 * name: the same at every stage count, on any devices). */
sl_status sl_params_init(const sl_lowered *lowered, sl_runtime *rt, uint64_t seed);

/* Gives the optimizer's states what they start with, where that is not 0. sl_params_init() and
 * sl_weights_load() do that, too. */
sl_status sl_states_init(const sl_lowered *lowered, sl_runtime *rt);

/* Makes the values just set those of every version a first step may read; needed
 * before a first run with parameters in two slots (quota param=2). */
sl_status sl_params_spread(const sl_lowered *lowered, sl_runtime *rt);

/* ---- what a run goes on from ---------------------------------------------- */

/* Stages along the model, and devices of each. */
int sl_lowered_stages(const sl_lowered *lowered);
int sl_lowered_ranks(const sl_lowered *lowered);
/* What a device of a stage needs to go on, where it lies, to be read or written between
 * runs. The list is valid until the next call for that device. Returns how many; 0
 * if it lies in another process. */
int sl_lowered_state(const sl_lowered *lowered, sl_runtime *rt, int stage, int rank,
                     const sl_state_tensor **out);

/* ---- the schedule table --------------------------------------------------- */

/* Names of all schedules, NULL-terminated, and one line about each. */
const char *const *sl_schedule_names(void);
const char *sl_schedule_summary(const char *name);
/* Chunks a device has unless told otherwise. */
int sl_schedule_chunks(const char *name);

#ifdef __cplusplus
}
#endif
#endif
