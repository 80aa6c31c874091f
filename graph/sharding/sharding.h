/* SPDX-License-Identifier: Apache-2.0 */
/* Pass 3: sharding a stage over several devices.
 *
 * Each stage of the pipeline runs on a D x Q x T grid of devices: D shards the data, Q the
 * sequences, T the tensors. Experts use a separate grid over the same devices: EP of the D T
 * devices each hold some experts. Both grids are built from the same factors of D and T. All ops
 * but experts treat the factors of D as one axis and those of T as one axis; experts treat the
 * factors of EP as one axis.
 *
 * Signatures (sl_signature), one per axis, describe how a call is sharded. There are three steps:
 *
 *   signatures  the ways to shard each forward node                 signatures.c, allowed.c
 *   choice      one of them for each forward node, by cost          rows.c, dispatched.c, tensor.c
 *   expansion   a node for each device; if a producer and a consumer lay out a
 *               tensor differently, the slices, sums and joins that convert it
 *                                                   make.c, boxing.c, dispatch.c, ring.c, states.c,
 *                                                   shards.c, expand.c
 *
 * Later passes know nothing of signatures. A collective is a set of nodes that read other devices'
 * outputs, so it has registers, quotas and a place in the proof like all other nodes. */
#ifndef SLUICE_GRAPH_SHARDING_SHARDING_H
#define SLUICE_GRAPH_SHARDING_SHARDING_H

#include <stdio.h>

#include <sluice/lower.h>

#include "graph/cost/cost.h"
#include "graph/graph.h"

/* Axes of a grid, in the numbering of sl_given_sbp. The axis of stages runs from stage to stage:
 * most blocks are on one stage, and only the blocks of stage_sharding.c are sharded over all
 * stages. A stage's grid lacks this axis; the grid over which the graph is expanded has it. */
enum {
  SLI_AXIS_DATA,
  SLI_AXIS_TENSOR,
  SLI_AXIS_SEQUENCE,
  SLI_AXIS_STAGES,
  SLI_AXIS_EXPERT,        /* devices that shard the data and hold different experts */
  SLI_AXIS_TENSOR_EXPERT, /* devices that shard the tensors and hold different experts */
  SLI_AXES
};

/* Fixed properties of an axis. */
typedef struct sli_axis {
  const char *name, *option;
  bool rows;  /* devices along it differ only in their data: each has a summand of every parameter
                 gradient */
  int parent; /* axis that it is a factor of: factors share one choice, and a split along one is a
             split along all, except in calls that run at the experts */
  int at_experts;     /* axis whose choice applies to calls at the experts */
  int at;             /* index of a device's place along it in sl_device.at */
  sl_traffic traffic; /* category of its traffic */
  struct {            /* for axes of rows: words used in error messages about sources */
    const char *split, *none, *few, *rows, *into;
  } words;
} sli_axis;
extern const sli_axis sli_axes[SLI_AXES];

/* Fills in the requested sizes, with 1 for stages. Returns true if experts use their own grid of
 * the D T devices; else experts are sharded over the data axis, and over the tensor axis if that is
 * cheapest. */
bool sli_grid_sizes(const sl_lower_options *o, int size[SLI_AXES]);

/* Axes from the outermost to the innermost; ranks are consecutive along the innermost. */
extern const int sli_nesting[SLI_AXES];
/* Axes in the order, from last to first, in which they split the same dim of a parameter, or of
 * heads: row axes split the parts again. Rows and positions of activations are split by row axes
 * first (sli_splits_first). */
extern const int sli_splitting[SLI_AXES];

/* Set of axes treated as one: bit a, axis a. Its members are numbered in rank order. */
typedef unsigned sli_along;
enum { SLI_ALONG_ALL = (1 << SLI_AXES) - 1 };
/* Axes along which data rows are sharded. */
extern const sli_along sli_along_data;

/* Expected number of rows for each expert (loads.c). */
typedef struct sli_loads {
  const char *text; /* as given: a file name */
  double zipf;      /* without rows: expert e gets rows in proportion to 1/(e+1)^zipf */
  int count;
  int64_t *rows;    /* [count] per microbatch; NULL: not given */
  int lines, width; /* lines of the file, and numbers per line; 0: lines differ in length */
  bool placed;      /* experts are placed by load, not in their order */
  int replicas;     /* copies of experts, with `placed`: they are further experts of a layer */
  sli_arena *arena;
  struct sli_placed_loads { /* fractions of rows before each member, as computed last */
    int layer, members;
    double *before; /* [members + 1] NULL: none yet */
  } * latest;
} sli_loads;
/* Reads the loads into the arena. *out is NULL if all experts have equally many rows. */
sl_status sli_loads_read(const char *text, sli_arena *arena, sli_loads **out);
/* Experts of one layer, and its number among the layers with experts. */
typedef struct sli_layer {
  int number, count;
  int64_t experts;
} sli_layer;
/* Checks that the loads match these experts and add up to `rows` rows. */
sl_status sli_loads_check(const sli_loads *loads, const sli_layer *layer, int64_t rows);
/* Returns the first expert of one of the devices that share a layer's experts. */
static inline int64_t sli_first_expert(int64_t experts, int member, int members) {
  return experts * member / members;
}
/* Returns how many of the rows go to the experts of one of the devices that share them. */
int64_t sli_loads_of_member(const sli_loads *loads, const sli_layer *layer, int64_t rows,
                            int member, int members);

typedef struct sli_grid {
  int size[SLI_AXES]; /* 0 or 1: not sharded along this axis */
  sli_axis_link link[SLI_AXES];
  bool apart[SLI_AXES];        /* devices along it cannot address each other's memory */
  const sl_hardware *hardware; /* hardware of a device; NULL: one core */
  bool ring, zigzag; /* sequence axis: ring attention, chunk by chunk. zigzag: each device has
                        two runs of positions, which balances the work; see ring.c */
  bool states;       /* sequence axis: devices exchange states of linear attention; see states.c */
  bool folded;       /* the experts' grid spans all D T devices: tensor-axis devices shard the
                        tokens along dim `tokens`, rows or positions */
  int tokens;
  double expert_rows;     /* capacity factor of experts: multiple of an even share of the rows;
                             0: room for all rows */
  const sli_loads *loads; /* on devices without values: number of rows per expert; NULL: equal
                             numbers */
  const int *place_of;    /* [blocks of the model] places along the pipeline, if tensors that a
                             stage's devices all have cross to the next in parts; NULL: whole */
  bool alike;             /* only rank 0 exists and represents all ranks; see expand.c */
  bool collectives;       /* devices of a row can make collectives together; see collective.c */
} sli_grid;

int sli_grid_size(const sli_grid *grid, sli_along along);
static inline int sli_grid_ranks(const sli_grid *grid) {
  return sli_grid_size(grid, SLI_ALONG_ALL);
}
/* Returns the distance from a device to the next along an axis, for a nesting of the axes. */
int sli_grid_nested_stride(const sli_grid *grid, const int nesting[SLI_AXES], int axis);
/* Return a device's place along these axes, and the device at another place along them. If
 * grid->alike, that is the device itself. */
int sli_rank_member(const sli_grid *grid, int rank, sli_along along);
int sli_rank_at(const sli_grid *grid, int rank, sli_along along, int member);
/* Returns the member whose parts a device has. If one device represents all, that is the last
 * member of a row, whose parts are the largest. */
int sli_rank_share(const sli_grid *grid, int rank, sli_along along);
/* Returns the axes along which devices have different data. */
sli_along sli_grid_rows(void);
/* Return the axes that share this axis's choice, except at experts, and the axes of experts. */
sli_along sli_axis_factors(int axis);
sli_along sli_grid_experts(void);
/* Returns the axes spanned by an exchange that counts under this axis. An exchange along all row
 * axes together counts under the data axis. */
sli_along sli_row_of(int axis);
/* Returns the number of devices over which this axis's choice shards. */
int sli_choice_size(const sli_grid *grid, int axis);

/* ---- dims ------------------------------------------------------------------------
 *
 * Dims are sharded in units, so that for example the numbers of a head stay together. A dim
 * composed of segments (queries, keys, values) is sharded segment by segment. Member m of R has
 * units [mU/R, (m+1)U/R) of each segment. */
typedef struct sli_dim {
  int nsegments;                   /* 1 unless an op says otherwise */
  int64_t segment[SL_PART_RANGES]; /* segment lengths, which add up to the dim's length */
  int64_t units;                   /* U units per segment; R is at most U */
  bool cut;                        /* cut into pieces: only row axes shard it, piece by piece */
  bool heads;                      /* its units are heads or channels of heads, not positions */
} sli_dim;

/* Finds the dims of every tensor: [ntensors][SL_MAX_DIMS]. Attention defines the units of its
 * inputs, which propagate through ops that do not mix columns. Segments and units are known only
 * for forward tensors, parameters and parameter gradients. The caller frees the result. */
sl_status sli_dims_find(const sl_graph *g, sli_dim **out);

/* Returns member m's part of a tensor split along `dim`; empty if R exceeds the units. */
sl_part sli_dim_part(const sli_dim *dims, int dim, int size, int member);

/* ---- signatures -------------------------------------------------------------------- */

/* True for linear attention, whose states can be exchanged between devices that shard positions. */
bool sli_has_states(const sli_node *forward);

/* Lists in out[SL_SIGNATURES] the ways to shard a forward node over `size` devices of an axis that
 * its dims allow. The first way replicates everything. Returns their number. */
int sli_signatures(const sli_dim *dims, const sli_node *node, int axis, int size,
                   sl_signature *out);

static inline bool sli_sbp_equal(sl_sbp a, sl_sbp b) { return a.kind == b.kind && a.dim == b.dim; }
/* True if each device runs the whole call. */
bool sli_is_repeated(const sl_signature *s);

/* Layouts of the backward pass. If output o is a summand, its gradient is wanted whole; otherwise
 * it is wanted in the layout of the output. The gradient of a split input i has the input's parts;
 * that of a summand is whole. A replicated input gets summands if each device used it for its own
 * part, and a whole gradient if each device ran the whole call. */
sl_sbp sli_gradient_wanted(const sl_signature *s, int o);
sl_sbp sli_gradient_given(const sl_signature *s, int i);

/* "B", "P", "S0", "R" */
enum { SLI_SBP_TEXT = 8 };
const char *sli_sbp_format(char out[SLI_SBP_TEXT], sl_sbp a);

/* Returns the bytes that one of R devices receives to convert a tensor of `bytes` bytes from layout
 * `a` to `b`: B->S, B->P: 0; S->B and S->P: (R-1)/R bytes (all-gather); P->S: (R-1)/R
 * (reduce-scatter); P->B: 2 (R-1)/R (both); S->S', and dispatch to experts and back if all experts
 * have equally many rows: (R-1)/R^2 (all-to-all). */
double sli_boxing_bytes(sl_sbp a, sl_sbp b, int size, double bytes);

/* Returns [ntensors] whether dim 0 of each tensor is the data rows; allocated in the arena. Reads
 * g->exact.fed. */
const bool *sli_rows_find(sl_graph *g);
/* Returns [ntensors] whether each tensor depends on data or random numbers. */
const bool *sli_fed_find(sl_graph *g);

/* Sets the groups in which matrix products are summed, forward and backward (attrs.numbers.chunk,
 * attrs.numbers.part). */
sl_status sli_groups_set(sl_graph *g);

/* Seconds of an exchange along an axis in both forms: a collective, and parts that devices cut,
 * send, sum and join. */
typedef struct sli_forms {
  double collective, parts;
} sli_forms;
/* Returns both for a tensor of `bytes` bytes, from summands or parts to parts or the whole, which
 * devices want `times` times. */
sli_forms sli_exchange_forms(const sli_grid *grid, int axis, int size, sl_sbp_kind from,
                             sl_sbp_kind to, int times, double bytes);

/* ---- choice ------------------------------------------------------------------------- */

/* Choice for one axis: a signature for each forward node (by id; unset for other nodes), and
 * each parameter's layout after its update. */
typedef struct sli_choice {
  sl_signature *signatures; /* [nnodes] */
  sl_sbp *params;           /* [nparams] */
  bool *chunked;            /* [nnodes] attention that runs as ring attention, chunk by chunk;
                               NULL: none */
  const sli_node **routers; /* [ntensors] call that routes a tensor's dispatched rows; NULL: no
                               dispatch */
  double seconds;           /* modelled time of a microbatch, forward and backward */
  double compute_seconds, boxing_seconds, boxing_bytes; /* its parts, on one device */
  char *runner_up; /* text: the cheapest choice that shards a weight differently, and its cost;
                      NULL: none, or not searched for */
} sli_choice;
void sli_choice_free(sli_choice *choice);

/* Chooses for an axis of rows: source data is split along dim 0 or the sequence dim, and so is
 * everything computed from it; parameters are replicated. Ops that mix positions split the heads
 * instead, and their inputs and outputs are exchanged. If an op supports neither, the error names
 * it. */
sl_status sli_choose_rows(sl_graph *g, const sli_dim *dims, const sli_grid *grid, int axis,
                          sli_choice *out);

/* Chooses for the devices that share the rows of a served tick: calls on rows split the rows, and
 * those that read the batch split the heads. Pages or states with too few heads are refused. */
sl_status sli_choose_ticks(sl_graph *g, const sli_dim *dims, const sli_grid *grid, sli_choice *out);

/* Chooses for the axis of stages: each stage holds part of the vocabulary's tables and runs its
 * part of the lookups, the product before the loss, and the loss. Everything else stays on its own
 * stage. */
sl_status sli_choose_stage_sharding(sl_graph *g, const sli_dim *dims, int stages, sli_choice *out);

/* Checks the choice against the layouts that the user gave. */
sl_status sli_check_rows(const sl_graph *g, const sli_choice *rows, int axis, int ngiven,
                         const sl_given_sbp *given);

/* Inputs of the choice for the tensor axis. */
typedef struct sli_tensor_search {
  const sl_graph *g;
  const sli_dim *dims;
  const sli_grid *grid;
  bool free_sources; /* sources may be split too, if that is cheapest; else each device has the
                        same data */
  int ngiven;
  const sl_given_sbp *given;
  const sli_choice *rows; /* [SLI_AXES] earlier choices; NULL: sequences are not sharded */
} sli_tensor_search;

/* Chooses for the tensor axis: finds the cheapest choice for a microbatch by dynamic programming
 * over the forward nodes, with the data rows of one device of the data axis. */
sl_status sli_choose_tensor(const sli_tensor_search *search, sli_choice *out);

/* Sets chosen->runner_up, for reports, to the cheapest choice that lays out a weight differently.
 * Runs one search per linear layer. */
sl_status sli_find_runner_up(const sli_tensor_search *search, sli_choice *chosen);

/* Prints the choice and its reasons as a human-readable table; omits axes without a choice (of is
 * NULL). */
void sli_choice_print(const sl_graph *g, const sli_grid *grid, const sli_choice choice[SLI_AXES],
                      FILE *out);

/* Return the ids by which a call at the experts dispatches rows, and the number of experts. */
const sl_tensor *sli_router_ids(const sli_node *router);
int64_t sli_router_experts(const sli_node *router);
/* True if both calls dispatch rows to the same devices. */
bool sli_dispatch_alike(const sli_node *a, const sli_node *b);

/* True if the node runs on the devices of its experts. */
bool sli_is_at_experts(const sli_choice *experts, const sli_node *forward);
/* Chooses the token dim that tensor-axis devices shard if the experts' grid spans all devices. */
sl_status sli_choose_tokens(sl_graph *g, const sli_dim *dims, const sli_choice *experts,
                            sli_grid *grid);

/* Regroups sums so that gradients located at the experts are added there first. */
void sli_regroup_sums(sl_graph *g, const sli_choice *experts);

/* ---- expansion ------------------------------------------------------------------------ */

/* State sharded along the data axis: ZeRO's stages (Rajbhandari et al., arXiv 1910.02054). */
typedef enum sli_sharding {
  SLI_SHARD_NOTHING,
  SLI_SHARD_OPTIMIZER,
  SLI_SHARD_GRADIENTS,
  SLI_SHARD_PARAMETERS
} sli_sharding;

/* Replaces the graph's nodes and tensors with per-device ones. */
sl_status sli_pass_expand(sl_graph *g, const sli_dim *dims, const sli_grid *grid,
                          const sli_choice choice[SLI_AXES], sli_sharding sharding);

#endif
