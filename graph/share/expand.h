/* SPDX-License-Identifier: Apache-2.0 */
/* Code shared by expansion and boxing inside share/: the devices' tensors of a logical one.
 *
 * A logical tensor is a tensor of the graph before expansion, one for all devices. An array is a
 * logical tensor in one layout: a tensor for each device. */
#ifndef SLUICE_GRAPH_EXPAND_H
#define SLUICE_GRAPH_EXPAND_H

#include "graph/share/share.h"

typedef struct sli_layout {
  sl_sbp axis[SLI_AXES];
} sli_layout;

/* A split dim and the axes that split it. Row axes that split the same dim act as one axis, and
 * so do the factors of an axis, with as many parts as they have devices together. */
typedef struct sli_cutting {
  sli_along along;
  int dim;
} sli_cutting;

/* Point of the schedule at which a tensor is converted: the forward or backward pass over a
 * block, or once a step. */
typedef struct sli_moment {
  sl_class cls; /* F, B or W: class of the reader; L: the source's own */
  int block;
  int phase;    /* SLI_PHASE_MAIN: every tick */
  bool sharded; /* on each stage for its part, in a block of its own */
} sli_moment;

typedef struct sli_array {
  struct sli_array *next; /* same logical tensor in another layout */
  const sl_tensor *of;    /* logical tensor */
  sli_layout lies;
  sli_moment made; /* by boxing: for readers at this point; else where its nodes are */
  bool transient;  /* see sl_tensor */
  bool sharded;    /* each stage has its own; else one stage's tensors stand for all */
  bool kept;       /* boxed in the forward pass and also read by the backward pass */
  sl_tensor **on;  /* [ranks] */
} sli_array;

typedef struct sli_expansion {
  sl_graph *g;
  const sli_dim *dims; /* dims of logical tensors */
  int *shaped;         /* [logical tensors] tensor whose dims it has: for a gradient, the
                          tensor it is the gradient of */
  const sli_node *
      *routers; /* [logical tensors] call that dispatches its rows to experts, or NULL */
  const sli_grid *grid;
  const sli_choice *choice; /* [SLI_AXES] */
  sli_sharding sharding;
  int ranks, own; /* ranks of all stages, where a block is sharded; ranks of one stage */
  int *sharded;   /* [blocks] first of the blocks that stand for it on the stages; 0: not
                    sharded */
  int nvariants;  /* 1 where sequences are not cut */
  int nlogical;   /* number of logical nodes */
  sli_node **logical;
  int nparams; /* number of logical parameters */
  sl_tensor **params;
  sli_array **arrays; /* [logical tensors] list of arrays: as first made, then as boxed */
  size_t type_capacity;
  sl_type *types;            /* [tensors][nvariants] types of the devices' tensors */
  bool *shared;              /* [logical tensors] gradients that are not kept whole */
  struct sli_round **rounds; /* [logical nodes] ring attention, chunk by chunk */
  sl_tensor ***states;       /* [logical nodes][ranks] states before the positions of a device */
  double *share;             /* [means][ranks][nvariants] shares of the loss and of each metric */
  int nboxes;                /* boxes made so far, for names */
} sli_expansion;

/* Arguments for making a node. */
typedef struct sli_making {
  const sl_op *op;
  const char *name; /* name on rank 0 */
  sli_moment at;
  sl_class cls; /* class of the node */
  int rank, nin, nout;
  sl_tensor *const *in;
  const sl_type *unread; /* [nvariants][nin] types of inputs that are NULL but have a type; or
                            NULL */
  const sl_attrs *attrs; /* [nvariants] */
  const sl_type *out;    /* [nvariants][nout]; NULL: inferred */
  sl_here where;
} sli_making;

/* ---- stages: stage_sharding.c ---------------------------------------------------------- */

/* True if a tensor in this layout differs from stage to stage. */
static inline bool sli_is_stage_sharded(const sli_layout *lies) {
  return lies->axis[SLI_AXIS_STAGES].kind != SL_BROADCAST;
}
/* Returns how many ranks, from 0 on, have their own tensor or node. */
static inline int sli_own_ranks(const sli_expansion *x, bool sharded) {
  return sharded ? x->ranks : x->own;
}
/* Lets one stage's tensors stand for all, where the tensor is not sharded. */
void sli_stand_for_all(const sli_expansion *x, sli_array *a);
/* Returns the block where a rank's share runs, or its part of a parameter lives. */
int sli_block_of(sli_expansion *x, int block, bool sharded, int rank);
/* Restores rank numbering within a stage, at the end of expansion. */
void sli_fold_ranks(sli_expansion *x);

/* ---- nodes of one device: make.c ------------------------------------------------- */

sl_status sli_expand_node(sli_expansion *x, const sli_making *m, sli_node **out);
/* Creates output o of a node. */
sl_tensor *sli_expand_output(sli_expansion *x, sli_node *n, int o, const char *name);
/* Notes the types of a device's tensor in each variant: types[v * stride]. */
void sli_note_types(sli_expansion *x, const sl_tensor *t, const sl_type *types, int stride);
/* Returns a device's name for what is called `name` on the first. */
const char *sli_expand_name(sli_expansion *x, const char *name, int rank);
const sl_type *sli_expand_type(const sli_expansion *x, const sl_tensor *t, int variant);
/* True for a tensor of rows dispatched to experts, or the gradient of one. */
bool sli_is_of_experts(const sli_expansion *x, const sl_tensor *t);
/* Lists the splits of a logical tensor's layout in order; returns their number. */
int sli_layout_cuttings(const sli_expansion *x, const sl_tensor *t, const sli_layout *lies,
                        sli_cutting out[SLI_AXES]);
/* Returns the axes that split or exchange the tensor together with this one, as one axis. */
sli_along sli_share_row(const sli_expansion *x, const sl_tensor *t, int axis);
/* Return a logical tensor's type in a variant, and a device's type in a layout. */
sl_type sli_logical_type(const sl_tensor *t, int variant);
sl_type sli_local_type(const sli_expansion *x, const sl_tensor *t, sli_layout lies, int rank,
                       int variant);
/* Describe rows at their experts: the call that says where they are, the layout of the ids where
 * rows come from, and the layout of the rows. */
const sli_node *sli_router_of(const sli_expansion *x, const sl_tensor *t);
sli_layout sli_ids_layout(const sli_expansion *x, const sl_tensor *ids);
bool sli_is_dispatched(const sli_layout *lies);
sli_layout sli_rows_layout(const sli_expansion *x, const sli_layout *lies);
/* Returns the part that member `member` has of a tensor that the axes within leave it, split
 * along dim. */
sl_part sli_cut_part(const sli_expansion *x, const sl_tensor *t, sli_cutting cut, int member,
                     const sl_type *base);

/* Returns a device's part of the whole of t in this layout; `piece`: as a piece of sequences, or
 * NULL. */
const sl_region *sli_share_region(const sli_expansion *x, const sl_tensor *t, sli_layout lies,
                                  int rank, int variant, const sl_region *piece);

static inline bool sli_layout_equal(const sli_layout *a, const sli_layout *b) {
  for (int i = 0; i < SLI_AXES; i++)
    if (!sli_sbp_equal(a->axis[i], b->axis[i])) return false;
  return true;
}

/* ---- layouts by signature: local.c
 * --------------------------------------------------------------- */

/* Returns the layout of a parameter, apart from ZeRO shards. */
sl_sbp sli_share_param(const sli_expansion *x, const sl_tensor *param, int axis);
/* Returns the signature of a forward node along an axis. */
const sl_signature *sli_share_signature(const sli_expansion *x, const sli_node *forward, int axis);
/* Returns the layout of its input or output i. */
typedef sl_sbp sli_sbp_of(const sl_signature *s, int i);
sli_layout sli_share_layout(const sli_expansion *x, const sli_node *forward, sli_sbp_of *of, int i);
/* Returns the share of a microbatch's rows that a device takes a mean over. */
double sli_share_of_rows(const sli_expansion *x, const sli_node *mean, int rank, int variant);
/* Returns the attributes of a device's share of a node, which is `forward` or part of its
 * backward pass: [nvariants]. */
sl_attrs *sli_local_attrs(sli_expansion *x, const sli_node *n, const sli_node *forward, int rank);

/* ---- ring attention, chunk by chunk: ring.c ------------------------------------------------ */

/* Make the nodes of a ring attention call, and of its backward rule, with inputs and outputs in
 * the arrays' layouts. */
sl_status sli_expand_ring(sli_expansion *x, const sli_node *n, sli_moment at, sli_array *const *in,
                          sli_array *const *out);
sl_status sli_expand_ring_back(sli_expansion *x, const sli_node *n, sli_moment at,
                               sli_array *const *in, sli_array *const *out);

/* ---- short convolutions on shared sequences: near.c ---------------------------------------- */

/* True if a call reads rows of a neighbour. */
bool sli_reads_near(const sli_expansion *x, const sli_node *forward);
/* Returns the rows before those that a device has of an input, or `behind` those of its output's
 * gradient; NULL on devices that are the first or the last. */
sl_status sli_box_near(sli_expansion *x, const sli_node *forward, sli_array *have, bool behind,
                       sli_moment at, sli_array **out);

/* ---- states of shared sequences: states.c --------------------------------------------------- */

/* True if a call goes on from states that devices exchange. */
bool sli_exchanges_states(const sli_expansion *x, const sli_node *forward);
/* Make the nodes of such a call, and of its backward rule, with inputs and outputs in the arrays'
 * layouts. */
sl_status sli_expand_states(sli_expansion *x, const sli_node *n, sli_moment at,
                            sli_array *const *in, sli_array *const *out);
sl_status sli_expand_states_back(sli_expansion *x, const sli_node *n, sli_moment at,
                                 sli_array *const *in, sli_array *const *out);

/* ---- from layout to layout: boxing.c --------------------------------------------------- */

sli_array *sli_array_add(sli_expansion *x, const sl_tensor *of, sli_layout lies, sli_moment made);

/* Returns the tensor in the layout that readers at this moment want: as it is, as boxed for them
 * before, or boxed now. */
sl_status sli_box(sli_expansion *x, const sl_tensor *t, sli_layout want, sli_moment at,
                  sli_array **out);

/* Returns the leaves of rows at their experts, where the ids lie in this layout. */
sl_status sli_box_leaves(sli_expansion *x, const sl_tensor *ids, sli_layout lies, sli_moment at,
                         sli_array **out);

/* Returns a tensor in a layout if it is there for these readers; NULL: it is not. */
sli_array *sli_array_find(const sli_expansion *x, const sl_tensor *t, const sli_layout *want,
                          const sli_moment *at);

/* Joins the parts that the members of a row have, parts of `whole` [nvariants] along `dim`. */
sl_status sli_box_join(sli_expansion *x, const sli_array *from, sli_along along, int dim,
                       const sl_type *whole, sli_array *to);

/* ---- parameters, their gradients, the loss and metrics: shards.c ----------------------------- */

/* Replaces the logical parameters by the devices' parameters. */
void sli_expand_params(sli_expansion *x);
/* True for a gradient that is reduce-scattered every tick, so that no device sums all of it over
 * the step. */
bool sli_is_shared_at_once(const sli_expansion *x, const sl_tensor *grad, sli_layout lies);
/* Converts all gradients of parameters to the layouts that their updates want. */
sl_status sli_expand_gradients(sli_expansion *x);
/* Adds reads of every whole parameter by the devices that answer in rollouts. A parameter that they
 * share out is gathered once a step. */
sl_status sli_expand_rollouts(sli_expansion *x);
/* Collects each device's part of the loss and of each metric; for a served graph, its batch, and
 * the first device's output. */
void sli_expand_results(sli_expansion *x);
/* Drops unused nodes, once all of these exist. */
void sli_expand_prune(sl_graph *g);

#endif
