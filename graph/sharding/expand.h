/* SPDX-License-Identifier: Apache-2.0 */
/* Code shared by expansion and boxing inside share/: the per-device tensors of a logical tensor.
 *
 * A logical tensor is a tensor of the graph before expansion, which all devices share. An array is
 * a logical tensor in one layout: one tensor per device. */
#ifndef SLUICE_GRAPH_SHARDING_EXPAND_H
#define SLUICE_GRAPH_SHARDING_EXPAND_H

#include "graph/sharding/sharding.h"

typedef struct sli_layout {
  sl_sbp axis[SLI_AXES];
} sli_layout;

/* A split dim and the axes that split it. Row axes that split the same dim act as one axis, and so
 * do the factors of an axis; the number of parts is the product of their sizes. */
typedef struct sli_cutting {
  sli_along along;
  int dim;
} sli_cutting;

/* Point in the schedule at which a tensor is converted: the forward or backward pass over a block,
 * or once per step. */
typedef struct sli_moment {
  sl_class cls; /* F, B or W: class of the reader; L: reads of a source */
  int block;
  int phase;    /* SLI_PHASE_MAIN: every tick */
  bool sharded; /* each stage converts its part, in a separate block */
} sli_moment;

typedef struct sli_array {
  struct sli_array *next;  /* next array of the same logical tensor */
  const sl_tensor *tensor; /* logical tensor */
  sli_layout layout;
  sli_moment made; /* boxed: the point of its readers; else the point of its nodes */
  bool transient;  /* see sl_tensor */
  bool sharded;    /* each stage has its own tensors; else one stage's tensors represent all
                      stages */
  bool gathered;   /* whole on both sides of a stage boundary, which it crossed in parts */
  bool kept;       /* boxed in the forward pass and also read by the backward pass */
  sl_tensor **on;  /* [ranks] */
} sli_array;

typedef struct sli_expansion {
  sl_graph *g;
  const sli_dim *dims; /* dims of logical tensors */
  int *shaped;         /* [logical tensors] tensor whose dims apply; for a gradient, the tensor
                          that it belongs to */
  /* [logical tensors] call that dispatches the tensor's rows to experts, or NULL */
  const sli_node **routers;
  const sli_grid *grid;
  const sli_choice *choice; /* [SLI_AXES] */
  sli_sharding sharding;
  int ranks, own; /* ranks of all stages, used in sharded blocks; ranks of one stage */
  int *sharded;   /* [blocks] first of the per-stage blocks that replace it; 0: not sharded */
  int nvariants;  /* 1 if sequences are not cut into pieces */
  int nlogical;   /* number of logical nodes */
  sli_node **logical;
  int nparams; /* number of logical parameters */
  sl_tensor **params;
  sli_array **arrays; /* [logical tensors] list of arrays: the original, then boxed ones */
  size_t type_capacity;
  sl_type *types;            /* [tensors][nvariants] types of the devices' tensors */
  bool *shared;              /* [logical tensors] gradients that are reduce-scattered every tick */
  struct sli_round **rounds; /* [logical nodes] tensors that ring attention keeps for the
                                backward pass */
  sl_tensor ***states;       /* [logical nodes][ranks] states before a device's positions */
  double *share;             /* [means][ranks][nvariants] weights of a device's part in the loss
                                and in each metric */
  int nboxes;                /* boxes made so far, for names */
} sli_expansion;

/* Arguments for creating a node. */
typedef struct sli_making {
  const sl_op *op;
  const char *name; /* name on rank 0 */
  sli_moment at;
  sl_class cls; /* class of the node */
  int rank, nin, nout;
  sl_tensor *const *in;
  const sl_type *unread; /* [nvariants][nin] types of NULL inputs that have a type; or NULL */
  const sl_attrs *attrs; /* [nvariants] */
  const sl_type *out;    /* [nvariants][nout]; NULL: inferred */
  sl_here where;
} sli_making;

/* ---- stages: stage_sharding.c ---------------------------------------------------------- */

/* True if stages hold different tensors in this layout. */
static inline bool sli_is_stage_sharded(const sli_layout *lies) {
  return lies->axis[SLI_AXIS_STAGES].kind != SL_BROADCAST;
}
/* Returns the number of ranks, from 0 on, that have their own tensor or node. */
static inline int sli_own_ranks(const sli_expansion *x, bool sharded) {
  return sharded ? x->ranks : x->own;
}
/* Uses one stage's tensors for all stages, if the tensor is not sharded. */
void sli_stand_for_all(const sli_expansion *x, sli_array *a);
/* Returns the block in which a rank's part of a node runs, or its part of a parameter is stored. */
int sli_block_of(sli_expansion *x, int block, bool sharded, int rank);
/* Restores rank numbering within a stage, at the end of expansion. */
void sli_fold_ranks(sli_expansion *x);

/* ---- nodes of one device: make.c ------------------------------------------------- */

sl_status sli_expand_node(sli_expansion *x, const sli_making *m, sli_node **out);
/* Creates output o of a node. */
sl_tensor *sli_expand_output(sli_expansion *x, sli_node *n, int o, const char *name);
/* Records the types of a device's tensor in each variant: types[v * stride]. */
void sli_note_types(sli_expansion *x, const sl_tensor *t, const sl_type *types, int stride);
/* Returns the name on device `rank` of an object called `name` on the first device. */
const char *sli_expand_name(sli_expansion *x, const char *name, int rank);
const sl_type *sli_expand_type(const sli_expansion *x, const sl_tensor *t, int variant);
/* True for a tensor of rows dispatched to experts, or the gradient of one. */
bool sli_is_of_experts(const sli_expansion *x, const sl_tensor *t);
/* True if the axis at place `a` of sli_splitting splits a dim of a logical tensor before the axis
 * at place `b` splits the parts again. The parts of the later axis are adjacent, on devices that
 * are close to each other. */
bool sli_splits_first(const sli_expansion *x, const sl_tensor *t, int dim, int a, int b);
/* Lists the splits of a logical tensor's layout in order; returns their number. */
int sli_layout_cuttings(const sli_expansion *x, const sl_tensor *t, const sli_layout *lies,
                        sli_cutting out[SLI_AXES]);
/* Returns the axes that split or exchange the tensor together with this one, as one axis. */
sli_along sli_share_row(const sli_expansion *x, const sl_tensor *t, int axis);
/* Return a logical tensor's type in a variant, and a device's type in a layout. */
sl_type sli_logical_type(const sl_tensor *t, int variant);
sl_type sli_local_type(const sli_expansion *x, const sl_tensor *t, sli_layout lies, int rank,
                       int variant);
/* Describe rows at their experts: the call that routed them, the layout of the ids where the rows
 * come from, and the layout of the rows. */
const sli_node *sli_router_of(const sli_expansion *x, const sl_tensor *t);
sli_layout sli_ids_layout(const sli_expansion *x, const sl_tensor *ids);
bool sli_is_dispatched(const sli_layout *lies);
sli_layout sli_rows_layout(const sli_expansion *x, const sli_layout *lies);
/* Returns member `member`'s part of a tensor split along cut.dim. `base` is the tensor's type after
 * the inner axes have split it. */
sl_part sli_cut_part(const sli_expansion *x, const sl_tensor *t, sli_cutting cut, int member,
                     const sl_type *base);

/* Returns a device's part of t in this layout; `piece` restricts it to a piece of the sequences, or
 * is NULL. */
const sl_region *sli_share_region(const sli_expansion *x, const sl_tensor *t, sli_layout lies,
                                  int rank, int variant, const sl_region *piece);

static inline bool sli_layout_equal(const sli_layout *a, const sli_layout *b) {
  for (int i = 0; i < SLI_AXES; i++)
    if (!sli_sbp_equal(a->axis[i], b->axis[i])) return false;
  return true;
}

/* Formats a layout along all axes that have several devices. */
const char *sli_layout_format(const sli_expansion *x, const sli_layout *lies);

/* ---- layouts by signature: local.c
 * --------------------------------------------------------------- */

/* Returns the layout of a parameter, ignoring ZeRO shards. */
sl_sbp sli_share_param(const sli_expansion *x, const sl_tensor *param, int axis);
/* Returns the signature of a forward node along an axis. */
const sl_signature *sli_share_signature(const sli_expansion *x, const sli_node *forward, int axis);
/* Return the layout of the node's input or output i. */
typedef sl_sbp sli_sbp_of(const sl_signature *s, int i);
sli_layout sli_share_layout(const sli_expansion *x, const sli_node *forward, sli_sbp_of *of, int i);
/* Returns the fraction of a microbatch's rows over which a device takes a mean. */
double sli_share_of_rows(const sli_expansion *x, const sli_node *mean, int rank, int variant);
/* Returns the attributes [nvariants] of a device's part of a node, which is `forward` or belongs to
 * its backward pass. */
sl_attrs *sli_local_attrs(sli_expansion *x, const sli_node *n, const sli_node *forward, int rank);

/* ---- ring attention, chunk by chunk: ring.c ------------------------------------------------ */

/* Create the nodes of a ring attention call, and of its backward rule, with inputs and outputs in
 * the arrays' layouts. */
sl_status sli_expand_ring(sli_expansion *x, const sli_node *n, sli_moment at, sli_array *const *in,
                          sli_array *const *out);
sl_status sli_expand_ring_back(sli_expansion *x, const sli_node *n, sli_moment at,
                               sli_array *const *in, sli_array *const *out);

/* ---- short convolutions on sharded sequences: near.c --------------------------------------- */

/* True if a call reads rows of a neighbouring device. */
bool sli_reads_near(const sli_expansion *x, const sli_node *forward);
/* Returns the rows just before a device's rows of an input or, with `behind`, just after its rows
 * of the output's gradient. NULL on the first or last device, which has no such neighbour. */
sl_status sli_box_near(sli_expansion *x, const sli_node *forward, sli_array *have, bool behind,
                       sli_moment at, sli_array **out);

/* ---- states of sharded sequences: states.c -------------------------------------------------- */

/* True if a call continues from states that devices exchange. */
bool sli_exchanges_states(const sli_expansion *x, const sli_node *forward);
/* Create the nodes of a call that exchanges states, and of its backward rule, with inputs and
 * outputs in the arrays' layouts. */
sl_status sli_expand_states(sli_expansion *x, const sli_node *n, sli_moment at,
                            sli_array *const *in, sli_array *const *out);
sl_status sli_expand_states_back(sli_expansion *x, const sli_node *n, sli_moment at,
                                 sli_array *const *in, sli_array *const *out);

/* ---- from layout to layout: boxing.c --------------------------------------------------- */

sli_array *sli_array_add(sli_expansion *x, const sl_tensor *of, sli_layout lies, sli_moment made);

/* Returns the tensor in the layout that readers at this moment want. Reuses the original or an
 * earlier boxed array if possible, else boxes it now. */
sl_status sli_box(sli_expansion *x, const sl_tensor *t, sli_layout want, sli_moment at,
                  sli_array **out);

/* True for a tensor that devices of another stage all have, and that crosses to these readers in
 * parts (boundary.c). */
bool sli_is_scattered(const sli_expansion *x, const sl_tensor *t, const sli_layout *want,
                      const sli_moment *at);
/* Returns such a tensor as gathered for earlier readers of the stage, or NULL. */
sli_array *sli_find_gathered(const sli_expansion *x, const sl_tensor *t, const sli_moment *at);

/* Returns the leaf numbers of rows at their experts; `lies` is the layout of the ids. */
sl_status sli_box_leaves(sli_expansion *x, const sl_tensor *ids, sli_layout lies, sli_moment at,
                         sli_array **out);

/* Returns the array of a tensor in a layout if these readers can use one, or NULL. */
sli_array *sli_array_find(const sli_expansion *x, const sl_tensor *t, const sli_layout *want,
                          const sli_moment *at);

/* Joins the parts of a row's members into `whole` [nvariants] along `dim`. */
sl_status sli_box_join(sli_expansion *x, const sli_array *from, sli_along along, int dim,
                       const sl_type *whole, sli_array *to);

/* ---- parameters, their gradients, the loss and metrics: shards.c ----------------------------- */

/* Replaces the logical parameters with the devices' parameters. */
void sli_expand_params(sli_expansion *x);
/* True for a gradient that is reduce-scattered every tick, so that no device accumulates the whole
 * gradient over the step. */
bool sli_is_shared_at_once(const sli_expansion *x, const sl_tensor *grad, sli_layout lies);
/* Converts all parameter gradients to the layouts that their updates want. */
sl_status sli_expand_gradients(sli_expansion *x);
/* Adds reads of every whole parameter by the devices that generate rollouts. Sharded parameters are
 * gathered once per step. */
sl_status sli_expand_rollouts(sli_expansion *x);
/* Collects each device's part of the loss and of each metric; for a served graph, each device's
 * batch and the first device's output. */
void sli_expand_results(sli_expansion *x);
/* Drops unused nodes, after all nodes above have been created. */
void sli_expand_prune(sl_graph *g);

#endif
