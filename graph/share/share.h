/* SPDX-License-Identifier: Apache-2.0 */
/* Pass 3: sharding a stage over several devices.
 *
 * Each stage of the pipeline runs on a grid of devices with named axes: D for the data, for each
 * of those Q for the sequences, and for each of those T for the tensors. Experts use a grid of
 * their own over the same devices: EP of the D T devices each hold some experts. Both grids are
 * built from the same factors of D and T. All ops but experts see the factors of D as one axis,
 * and those of T as one axis; experts see the factors that make up EP as one axis.
 *
 * Signatures (sl_signature), one per axis, describe how a call is sharded. There are three
 * steps:
 *
 *   signatures  the ways to shard each forward node                 signatures.c, allowed.c
 *   choice      one of them for each forward node, by cost          rows.c, dispatched.c, tensor.c
 *   expansion   a node for each device; where a producer and a consumer lay out a
 *               tensor differently, the slices, sums and joins that convert it
 *                                                   make.c, boxing.c, dispatch.c, ring.c, states.c,
 *                                                   shards.c, expand.c
 *
 * Later passes know nothing of signatures: a collective is a set of nodes that read what other
 * devices have made, so it has registers, quotas and a place in the proof like everything else. */
#ifndef SLUICE_GRAPH_SHARE_H
#define SLUICE_GRAPH_SHARE_H

#include <stdio.h>

#include <sluice/lower.h>

#include "graph/cost/cost.h"
#include "graph/graph.h"

/* Axes of a grid, in the numbering of sl_given_sbp. The axis of stages leads from stage to
 * stage: most of the model is on one stage, and only blocks of stage_sharding.c are sharded over
 * all. A stage's own grid lacks that axis; the grid that the graph is expanded over has it. */
enum {
  SLI_AXIS_DATA,
  SLI_AXIS_TENSOR,
  SLI_AXIS_SEQUENCE,
  SLI_AXIS_STAGES,
  SLI_AXIS_EXPERT,        /* among devices that share the data: those with other experts */
  SLI_AXIS_TENSOR_EXPERT, /* among devices that share the tensors: those with other experts */
  SLI_AXES
};

/* Fixed properties of an axis. */
typedef struct sli_axis {
  const char *name, *option;
  bool rows; /* devices along it have different data and the same of everything else: each has a
                summand of a parameter's gradient */
  int of;    /* axis that it is a factor of: the factors share one choice, and a split
                along one is a split along all, except for calls that run at the experts */
  int at_experts;     /* axis whose choice applies to those calls */
  int at;             /* index in sl_device.at of a device's place along it */
  sl_traffic traffic; /* category that its traffic is counted as */
  struct {            /* for axes of rows: words of messages about sources, for what is required
                         and what is missing */
    const char *split, *none, *few, *rows, *into;
  } words;
} sli_axis;
extern const sli_axis sli_axes[SLI_AXES];

/* Fills in the requested sizes, with 1 for stages. Returns true if experts use their own grid of
 * the D T devices; else they are sharded over the data axis, and over tensors as is cheapest. */
bool sli_grid_sizes(const sl_lower_options *o, int size[SLI_AXES]);

/* Axes from the outermost to the innermost, along which ranks are neighbours. */
extern const int sli_nesting[SLI_AXES];
/* Axes in the order in which a dim split along several of them is split, from last to first: row
 * axes split the parts again. */
extern const int sli_splitting[SLI_AXES];

/* Set of axes treated as one: bit a, axis a. Its members are numbered in rank order. */
typedef unsigned sli_along;
enum { SLI_ALONG_ALL = (1 << SLI_AXES) - 1 };
/* Axes along which rows of the data are sharded. */
extern const sli_along sli_along_data;

/* Expected number of rows for each expert (loads.c). */
typedef struct sli_loads {
  const char *text; /* as given: a file's name */
  double zipf;      /* without rows: expert e has a share of 1/(e+1)^zipf */
  int count;
  int64_t *rows;    /* [count] per microbatch; NULL: not given */
  int lines, width; /* lines of the file, and numbers in each; 0: lines differ in length */
} sli_loads;
/* Reads the loads into the arena. NULL: all experts have equally many rows. */
sl_status sli_loads_read(const char *text, sli_arena *arena, const sli_loads **out);
/* Experts of one layer, and its number among the layers with experts. */
typedef struct sli_layer {
  int number, of;
  int64_t experts;
} sli_layer;
/* Checks that the loads are for these experts and add up to so many rows. */
sl_status sli_loads_check(const sli_loads *loads, const sli_layer *layer, int64_t rows);
/* Returns how many of the rows belong to experts before number `end`. */
int64_t sli_loads_before(const sli_loads *loads, const sli_layer *layer, int64_t rows, int64_t end);

typedef struct sli_grid {
  int size[SLI_AXES]; /* 0, 1: not sharded along this axis */
  sli_axis_link link[SLI_AXES];
  bool apart[SLI_AXES];        /* devices along it do not address each other's memory */
  const sl_hardware *hardware; /* hardware of a device; NULL: one core */
  bool ring, zigzag; /* along the sequence: ring attention, chunk by chunk; zigzag: each device
                        has two runs of positions, so that all do the same work; see ring.c */
  bool states;       /* along the sequence: devices exchange states of linear attention; states.c */
  bool folded;       /* the experts' grid spans all D T devices: tensor-axis devices shard the
                        tokens along dim `tokens`, rows or positions */
  int tokens;
  double expert_rows;     /* capacity factor of experts: room for so many times an even share of
                             rows; 0: room for all */
  const sli_loads *loads; /* on devices without values: rows that come to each expert; NULL:
                             equally many */
  bool alike;             /* only rank 0 exists, and stands for all; see expand.c */
} sli_grid;

int sli_grid_size(const sli_grid *grid, sli_along along);
static inline int sli_grid_ranks(const sli_grid *grid) {
  return sli_grid_size(grid, SLI_ALONG_ALL);
}
/* Returns the distance from a device to the next along an axis, for a nesting of the axes. */
int sli_grid_nested_stride(const sli_grid *grid, const int nesting[SLI_AXES], int axis);
/* Return a device's place along these axes, and the device at another place along them. Where
 * all are alike, that is the device itself. */
int sli_rank_member(const sli_grid *grid, int rank, sli_along along);
int sli_rank_at(const sli_grid *grid, int rank, sli_along along, int member);
/* Returns the member whose parts a device has. Where one device stands for all, that is the last
 * member of a row, whose parts are the largest. */
int sli_rank_share(const sli_grid *grid, int rank, sli_along along);
/* Returns the axes along which devices have different data. */
sli_along sli_grid_rows(void);
/* Return the axes that share this axis's choice, except at experts; and the axes of experts. */
sli_along sli_axis_factors(int axis);
sli_along sli_grid_experts(void);
/* Returns the axes that an exchange counted under this axis goes along. An exchange along all
 * row axes at once counts under the data axis. */
sli_along sli_row_of(int axis);
/* Returns the number of devices over which this axis's choice shards. */
int sli_choice_size(const sli_grid *grid, int axis);

/* ---- dims ------------------------------------------------------------------------
 *
 * A dim is sharded by units: the numbers of a head stay together. A dim that is a row of
 * segments (queries, keys, values) is sharded segment by segment. Member m of R has units [mU/R,
 * (m+1)U/R) of each segment. */
typedef struct sli_dim {
  int nsegments;                   /* 1 unless an op says otherwise */
  int64_t segment[SL_PART_RANGES]; /* their lengths, which add up to the dim's */
  int64_t units;                   /* U, which divides each segment; R is at most U */
  bool cut;                        /* cut into pieces: only axes of rows shard it, piece by
                                      piece */
  bool heads;                      /* its units are heads, or channels of them: no positions */
} sli_dim;

/* Finds the dims of every tensor: [ntensors][SL_MAX_DIMS]. Attention defines the units of its
 * inputs, which propagate through ops that keep columns apart. Only forward tensors, parameters
 * and parameters' gradients have more than lengths. The caller frees the result. */
sl_status sli_dims_find(const sl_graph *g, sli_dim **out);

/* Returns member m's part of a tensor split along `dim`; empty if R exceeds the units. */
sl_part sli_dim_part(const sli_dim *dims, int dim, int size, int member);

/* ---- signatures -------------------------------------------------------------------- */

/* True for linear attention, of which devices that share positions may exchange states. */
bool sli_has_states(const sli_node *forward);

/* Lists the ways to shard a forward node over `size` devices of an axis that its dims allow. The
 * first is everything everywhere. out[SL_SIGNATURES]; returns the count. */
int sli_signatures(const sli_dim *dims, const sli_node *node, int axis, int size,
                   sl_signature *out);

static inline bool sli_sbp_equal(sl_sbp a, sl_sbp b) { return a.kind == b.kind && a.dim == b.dim; }
/* Return the layout of an input or an output; the last entry stands for all behind it. */
static inline sl_sbp sli_signature_in(const sl_signature *s, int i) {
  return s->in[SLI_MIN(i, SL_SIGNATURE_ARGS - 1)];
}
static inline sl_sbp sli_signature_out(const sl_signature *s, int o) {
  return s->out[SLI_MIN(o, SL_SIGNATURE_ARGS - 1)];
}

/* True if each device runs the whole call. */
bool sli_is_repeated(const sl_signature *s);

/* Layouts of the backward pass. Everyone wants the whole gradient of a summand; other gradients
 * are wanted in the layout of output o. The gradient of input i comes back in the input's parts;
 * whole for a summand; as summands where all had the input and each used it for its own share;
 * and whole where each device ran the whole call. */
sl_sbp sli_gradient_wanted(const sl_signature *s, int o);
sl_sbp sli_gradient_given(const sl_signature *s, int i);

/* "B", "P", "S0", "R" */
enum { SLI_SBP_TEXT = 8 };
const char *sli_sbp_format(char out[SLI_SBP_TEXT], sl_sbp a);

/* Returns the bytes that one of R devices receives to convert a tensor of `bytes` bytes from
 * layout `a` to `b`: B->S, B->P: 0; S->B, and from there to P: (R-1)/R bytes (all-gather); P->S:
 * (R-1)/R (reduce-scatter); P->B: 2 (R-1)/R (both); S->S', and dispatch to experts and back if
 * all have equally many rows: (R-1)/R^2 (all-to-all). */
double sli_boxing_bytes(sl_sbp a, sl_sbp b, int size, double bytes);

/* Returns for each tensor whether its dim 0 is the rows of the data: [ntensors], in the arena. */
const bool *sli_rows_find(sl_graph *g);

/* Sets the groups in which products sum, forward and backward (attrs.chunk, attrs.part). */
sl_status sli_groups_set(sl_graph *g);

/* ---- choice ------------------------------------------------------------------------- */

/* Choice for one axis: a signature for each forward node (by id; unset for other nodes), and
 * each parameter's layout after its update. */
typedef struct sli_choice {
  sl_signature *of;         /* [nnodes] */
  sl_sbp *params;           /* [nparams] */
  bool *chunked;            /* [nnodes] attention that runs chunk by chunk (ring attention); NULL:
                               none */
  const sli_node **routers; /* [ntensors] call that says where dispatched (routed) rows go; NULL:
                               none are */
  double seconds;           /* of a microbatch, forward and backward, by the cost model */
  double compute_seconds, boxing_seconds, boxing_bytes; /* its parts, for one device */
  char *runner_up; /* text: the cheapest choice that shards something else differently, and
                      its cost; NULL: none, or not searched for */
} sli_choice;
void sli_choice_free(sli_choice *choice);

/* Chooses for an axis of rows: source data is split, along dim 0 or the sequence dim, and so is
 * everything computed from it; parameters are replicated. Returns an error that names an op
 * which cannot do that. Ops that mix positions split the heads instead, and their inputs and
 * outputs are exchanged. */
sl_status sli_choose_rows(sl_graph *g, const sli_dim *dims, const sli_grid *grid, int axis,
                          sli_choice *out);

/* Chooses for the axis of stages: each stage has a part of the vocabulary's tables: the lookups,
 * the product before the loss, and the loss. Everything else stays on its own stage. */
sl_status sli_choose_stage_sharding(sl_graph *g, const sli_dim *dims, int stages, sli_choice *out);

/* Checks that the choice agrees with what the user says. */
sl_status sli_check_rows(const sl_graph *g, const sli_choice *rows, int axis, int ngiven,
                         const sl_given_sbp *given);

/* Inputs of the choice for the tensor axis. */
typedef struct sli_tensor_search {
  const sl_graph *g;
  const sli_dim *dims;
  const sli_grid *grid;
  bool free_sources; /* sources may be split too: the axis serves whatever is cheapest; else each
                        device has the same data */
  int ngiven;
  const sl_given_sbp *given;
  const sli_choice *rows; /* [SLI_AXES] choices made before; NULL: no sequences are sharded */
} sli_tensor_search;

/* Chooses for the tensor axis: the cheapest choice for a microbatch, by dynamic programming over
 * the forward nodes, with as many rows of data as one device of the data axis has. */
sl_status sli_choose_tensor(const sli_tensor_search *search, sli_choice *out);

/* Sets chosen->runner_up, for reports, to the cheapest choice that lays out a weight
 * differently. Takes as many searches as there are linear maps. */
sl_status sli_find_runner_up(const sli_tensor_search *search, sli_choice *chosen);

/* Prints the choice and its reasons as a table for people; an axis without a choice (of is NULL)
 * has no table. */
void sli_choice_print(const sl_graph *g, const sli_grid *grid, const sli_choice choice[SLI_AXES],
                      FILE *out);

/* Return the ids that dispatch rows for a call at the experts, and the number of experts. */
const sl_tensor *sli_router_ids(const sli_node *router);
int64_t sli_router_experts(const sli_node *router);
/* True if both calls dispatch rows to the same devices. */
bool sli_dispatch_alike(const sli_node *a, const sli_node *b);

/* True if the node runs where its experts are. */
bool sli_is_at_experts(const sli_choice *experts, const sli_node *forward);
/* Chooses the dim of tokens that tensor-axis devices shard, where the experts' grid spans all
 * devices. */
sl_status sli_choose_tokens(sl_graph *g, const sli_dim *dims, const sli_choice *experts,
                            sli_grid *grid);

/* Regroups sums so that gradients that come back at the experts are added there first. */
void sli_regroup_sums(sl_graph *g, const sli_choice *experts);

/* ---- expansion ------------------------------------------------------------------------ */

/* Parts of a parameter and its gradient that are sharded along the data axis: ZeRO's stages
 * (Rajbhandari et al., arXiv 1910.02054). */
typedef enum sli_sharding {
  SLI_SHARD_NOTHING,
  SLI_SHARD_OPTIMIZER,
  SLI_SHARD_GRADIENTS,
  SLI_SHARD_PARAMETERS
} sli_sharding;

/* Replaces the graph's nodes and tensors by those of all devices. */
sl_status sli_pass_expand(sl_graph *g, const sli_dim *dims, const sli_grid *grid,
                          const sli_choice choice[SLI_AXES], sli_sharding sharding);

#endif
