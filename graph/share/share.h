/* Pass 3: sharing a stage out over several devices.
 *
 * Each stage of the pipeline lies on a grid of devices, whose axes have names: D for the data,
 * for each of those Q for the sequences, and for each of those T for the tensors. Experts lie on a grid of
 * their own of the same devices: EP of the D T each have some of them. So both grids are made of the same
 * factors of D and of T: to all but experts those of D are one, and those of T, and to experts what EP is
 * made of.
 *
 * What one call does is shared along the axes by signatures (sl_signature), one for each. Three steps:
 *
 *   signatures  what the ways to share each forward node are        signatures.c
 *   choice      one of them for each forward node, by cost          rows.c, routed.c, tensor.c
 *   expansion   a node for each device, and between producers and consumers that see a
 *               tensor differently the slices, sums and joins that make one of the other
 *                                                   make.c, boxing.c, route.c, ring.c, shards.c,
 *                                                   expand.c
 *
 * Nothing behind these knows of signatures: a collective is nodes that read what other
 * devices have made, so it has registers, quotas and a place in the proof like all else. */
#ifndef SLUICE_GRAPH_SHARE_H
#define SLUICE_GRAPH_SHARE_H

#include <stdio.h>

#include <sluice/lower.h>

#include "graph/cost/cost.h"
#include "graph/graph.h"

/* The axes of a grid, by name: as sl_given_sbp counts them. That of stages leads from stage to stage:
 * most of the model lies on one of them, and only what is spread (spread.c) on all. No stage's
 * own grid has it, but the one that the graph is expanded over. */
enum {
  SLI_AXIS_DATA,
  SLI_AXIS_TENSOR,
  SLI_AXIS_SEQUENCE,
  SLI_AXIS_STAGES,
  SLI_AXIS_EXPERT,        /* of those that share the data, those with other experts */
  SLI_AXIS_TENSOR_EXPERT, /* and of those that share the tensors */
  SLI_AXES
};

/* What is known of an axis beforehand. */
typedef struct sli_axis {
  const char *name, *option;
  bool rows; /* devices along it have other data, and the same of everything else: each has a
                summand of a parameter's gradient */
  int of;             /* the axis that it is a factor of: they go by one choice, and what is split along one
                         of them is split along all, but what runs where experts are */
  int at_experts;     /* whose choice that goes by */
  int at;             /* where sl_device has a device's place along it */
  sl_traffic traffic; /* what goes along it is counted as */
  struct {            /* of axes of rows, of what sources give: what it must be, and what it lacks */
    const char *split, *none, *few, *rows, *into;
  } words;
} sli_axis;
extern const sli_axis sli_axes[SLI_AXES];

/* The sizes that are asked for, of stages 1; and do experts lie on their own grid of D T devices? Else
 * they are shared out over the data's, and what tensors' devices have of them is as is cheapest. */
bool sli_grid_sizes(const sl_lower_options *o, int size[SLI_AXES]);

/* From the outermost to the innermost, along which ranks are neighbours. */
extern const int sli_nesting[SLI_AXES];
/* A dim split along several is split along the last of these first: the parts of what is shared out
 * once more by rows. */
extern const int sli_splitting[SLI_AXES];

/* Axes that something is done along at once, as along one: bit a, axis a. Its members are
 * counted as ranks are. */
typedef unsigned sli_along;
enum { SLI_ALONG_ALL = (1 << SLI_AXES) - 1 };
/* Along which rows of the data are shared out. */
extern const sli_along sli_along_data;

/* How many rows are expected to come to each expert (loads.c). */
typedef struct sli_loads {
  const char *text;      /* as it was given: a file's name */
  double zipf;           /* without rows: expert e has a share of 1/(e+1)^zipf */
  int count;
  int64_t *rows;         /* [count] of a microbatch; NULL: none are given */
  int lines, width;      /* of the file, and numbers in each of these; 0: not as many in all */
} sli_loads;
/* NULL: all have as many. They are the arena's. */
sl_status sli_loads_read(const char *text, sli_arena *arena, const sli_loads **out);
/* A layer's experts, among those of so many layers. */
typedef struct sli_layer {
  int number, of;
  int64_t experts;
} sli_layer;
/* Are they of these experts, and so many rows together? */
sl_status sli_loads_check(const sli_loads *loads, const sli_layer *layer, int64_t rows);
/* Of so many rows those for experts before number `end`. */
int64_t sli_loads_before(const sli_loads *loads, const sli_layer *layer, int64_t rows, int64_t end);

typedef struct sli_grid {
  int size[SLI_AXES]; /* 0, 1: not shared along this axis */
  sli_axis_link link[SLI_AXES];
  bool apart[SLI_AXES]; /* devices along it do not address each other's memory */
  const sl_hardware *hardware; /* of a device; NULL: one core */
  bool ring, zigzag; /* along the sequence: attention goes chunk by chunk; devices have two runs of
                        positions each, so that all see as much; see ring.c */
  bool folded;        /* experts' grid is of all D T devices: what tensors' devices have of a token's
                         they share out along `tokens`, the dim of rows or of positions */
  int tokens;
  double expert_rows; /* so many times an even share of rows there is room for where experts are; 0: all */
  const sli_loads *loads; /* on devices that hold no values: rows that come to each expert; NULL: as many */
  bool alike; /* only rank 0 is there, and stands for all; see expand.c */
} sli_grid;

int sli_grid_size(const sli_grid *grid, sli_along along);
static inline int sli_grid_ranks(const sli_grid *grid) {
  return sli_grid_size(grid, SLI_ALONG_ALL);
}
/* From a device to the next along an axis, where axes are nested so. */
int sli_grid_nested_stride(const sli_grid *grid, const int nesting[SLI_AXES], int axis);
/* A device's place along these, and the device at another place along them: where all are
 * alike, itself. */
int sli_rank_member(const sli_grid *grid, int rank, sli_along along);
int sli_rank_at(const sli_grid *grid, int rank, sli_along along, int member);
/* Whose parts a device has: where one stands for all, those of the last member of a row,
 * which are the largest. */
int sli_rank_share(const sli_grid *grid, int rank, sli_along along);
/* Those along which devices have other data. */
sli_along sli_grid_rows(void);
/* Those that go by one choice with this axis: but for experts', and where those are. */
sli_along sli_axis_factors(int axis);
sli_along sli_grid_experts(void);
/* Whom an exchange counted as this axis's is between: what all axes of rows exchange as one is the data's. */
sli_along sli_row_of(int axis);
/* Devices among whom what goes by this axis's choice is shared. */
int sli_choice_size(const sli_grid *grid, int axis);

/* ---- dims ------------------------------------------------------------------------
 *
 * A dim is shared out by units: a head's numbers stay together, and a dim that is a row of
 * segments (queries, keys, values) is shared out segment by segment. Member m of R has
 * units [mU/R, (m+1)U/R) of each segment. */
typedef struct sli_dim {
  int nsegments;                    /* 1 where nothing else is said */
  int64_t segment[SL_PART_RANGES];  /* their lengths; the sum is the dim's */
  int64_t units;                    /* U, which divides each; R must be no more */
  bool cut;                         /* into pieces: only axes of rows share it out, piece by piece */
} sli_dim;

/* The dims of every tensor: [ntensors][SL_MAX_DIMS]. Attention says what its inputs are
 * made of, and that goes on through whatever keeps columns apart. Only those of forward
 * tensors, parameters and parameters' gradients say more than lengths. The caller's to
 * free(). */
sl_status sli_dims_find(const sl_graph *g, sli_dim **out);

/* Member m's part of a tensor split along `dim`; empty if R is more than its units. */
sl_part sli_dim_part(const sli_dim *dims, int dim, int size, int member);

/* ---- signatures -------------------------------------------------------------------- */

/* All ways to share a forward node among `size` devices of an axis that its dims allow, the first
 * of them everything everywhere. out[SL_SIGNATURES]; returns how many. */
int sli_signatures(const sli_dim *dims, const sli_node *node, int axis, int size,
                   sl_signature *out);

static inline bool sli_sbp_equal(sl_sbp a, sl_sbp b) { return a.kind == b.kind && a.dim == b.dim; }
/* How a signature has an input or an output: the last stands for all behind it. */
static inline sl_sbp sli_signature_in(const sl_signature *s, int i) {
  return s->in[SLI_MIN(i, SL_SIGNATURE_ARGS - 1)];
}
static inline sl_sbp sli_signature_out(const sl_signature *s, int o) {
  return s->out[SLI_MIN(o, SL_SIGNATURE_ARGS - 1)];
}

/* Does each device run the whole call? */
bool sli_is_repeated(const sl_signature *s);

/* The way back. How the gradient of output o is wanted: that of a summand by everyone, any
 * other as the output lies. And how that of input i comes back: in the same parts; the same
 * everywhere for a summand; as summands where all had the input and each used it for its own
 * share; and whole where each device ran the whole call. */
sl_sbp sli_gradient_wanted(const sl_signature *s, int o);
sl_sbp sli_gradient_given(const sl_signature *s, int i);

/* "B", "P", "S0", "R" */
enum { SLI_SBP_TEXT = 8 };
const char *sli_sbp_format(char out[SLI_SBP_TEXT], sl_sbp a);

/* Bytes one of R devices receives to have a tensor of `bytes` bytes as b instead of a:
 * B->S, B->P: 0; S->B, and from there to P: (R-1)/R bytes (all-gather); P->S: (R-1)/R
 * (reduce-scatter); P->B: 2 (R-1)/R (both); S->S', and to experts and back where all have as many rows:
 * (R-1)/R^2 (all-to-all). */
double sli_boxing_bytes(sl_sbp a, sl_sbp b, int size, double bytes);

/* ---- choice ------------------------------------------------------------------------- */

/* For one axis: a signature for each forward node (by id; other nodes' are unset), and how
 * each parameter lies when its update is done. */
typedef struct sli_choice {
  sl_signature *of;      /* [nnodes] */
  sl_sbp *params;        /* [nparams] */
  bool *chunked;         /* [nnodes] attention that goes chunk by chunk; NULL: none does */
  const sli_node **routers; /* [ntensors] the call that says where rows go that are routed; NULL: none are */
  double seconds;        /* of a microbatch, forward and back, by the cost model */
  double compute_seconds, boxing_seconds, boxing_bytes; /* parts of it; one device's */
  char *runner_up;       /* the best that shares something else otherwise, as text: what, and
                            its cost; NULL: there is none, or it was not looked for */
} sli_choice;
void sli_choice_free(sli_choice *choice);

/* An axis of rows: what comes from sources is split, along dim 0 or along the dim of the sequences,
 * and everything computed from it; parameters are everywhere. An op that cannot be is an error that
 * names it. What mixes positions has the heads split instead, and what it reads and makes is
 * exchanged. */
sl_status sli_choose_rows(sl_graph *g, const sli_dim *dims, const sli_grid *grid, int axis,
                          sli_choice *out);

/* The axis of stages: the tables of the vocabulary in parts, one on each stage: what looks up rows
 * of them, the product that ends in the loss, and the loss. Everything else on its own stage. */
sl_status sli_choose_spread(sl_graph *g, const sli_dim *dims, int stages, sli_choice *out);

/* Is that what the user has said of it? */
sl_status sli_check_rows(const sl_graph *g, const sli_choice *rows, int axis, int ngiven,
                         const sl_given_sbp *given);

/* What a choice for the tensor axis is made of. */
typedef struct sli_tensor_search {
  const sl_graph *g;
  const sli_dim *dims;
  const sli_grid *grid;
  bool free_sources; /* sources may be split too: an axis for whatever is cheapest; else each
                        device has the same data */
  int ngiven;
  const sl_given_sbp *given;
  const sli_choice *rows; /* [SLI_AXES] chosen before; NULL: no sequences are shared out */
} sli_tensor_search;

/* The tensor axis: the cheapest choice for a microbatch by dynamic programming over the
 * forward nodes, with as many rows of data as one of the data axis's devices has. */
sl_status sli_choose_tensor(const sli_tensor_search *search, sli_choice *out);

/* For people: of the choices that lay a weight otherwise, the cheapest, as chosen->runner_up. As
 * many searches as there are linear maps. */
sl_status sli_find_runner_up(const sli_tensor_search *search, sli_choice *chosen);

/* What was chosen, and why, as a table for people; an axis without a choice (of is NULL) has none. */
void sli_choice_print(const sl_graph *g, const sli_grid *grid, const sli_choice choice[SLI_AXES],
                      FILE *out);

/* Of a call that runs where its experts are: the ids that say where that is, and how many there are. */
const sl_tensor *sli_router_ids(const sli_node *router);
int64_t sli_router_experts(const sli_node *router);

/* Does it run there? */
bool sli_is_at_experts(const sli_choice *experts, const sli_node *forward);
/* Where experts' grid is of all devices: the dim of tokens that those who share tensors share out. */
sl_status sli_choose_tokens(sl_graph *g, const sli_dim *dims, const sli_choice *experts, sli_grid *grid);

/* Gradients that come back where experts are are added there first. */
void sli_regroup_sums(sl_graph *g, const sli_choice *experts);

/* ---- expansion ------------------------------------------------------------------------ */

/* What of a parameter and its gradient is shared out along the data axis: ZeRO's stages
 * (Rajbhandari et al., arXiv 1910.02054). */
typedef enum sli_sharding {
  SLI_SHARD_NOTHING,
  SLI_SHARD_OPTIMIZER,
  SLI_SHARD_GRADIENTS,
  SLI_SHARD_PARAMETERS
} sli_sharding;

/* Puts the nodes and tensors of all devices in place of the graph's. */
sl_status sli_pass_expand(sl_graph *g, const sli_dim *dims, const sli_grid *grid,
                          const sli_choice choice[SLI_AXES], sli_sharding sharding);

#endif
