/* What expansion and boxing share, inside share/: the devices' tensors of a logical one.
 *
 * "Logical" is what the graph held before, one for all devices. An array is a logical
 * tensor as it lies in one way: a tensor for each device. */
#ifndef SLUICE_GRAPH_EXPAND_H
#define SLUICE_GRAPH_EXPAND_H

#include "graph/share/share.h"

typedef struct sli_layout {
  sl_sbp axis[SLI_AXES];
} sli_layout;

/* A dim that is split, along which axes: those of rows that split the same one do so as one axis, and so do the factors
 * of one, with as many parts as they have devices together. */
typedef struct sli_cutting {
  sli_along along;
  int dim;
} sli_cutting;


/* Where and when something is done to a tensor: the forward or the backward pass over a
 * block, or once a step. */
typedef struct sli_moment {
  sl_class cls; /* F, B or W: of whoever reads it; L: a source's own */
  int block;
  int phase;    /* SLI_PHASE_MAIN: every tick */
  bool spread;  /* on each stage for its part, in a block of its own */
} sli_moment;

typedef struct sli_array {
  struct sli_array *next; /* of the same logical tensor, lying otherwise */
  const sl_tensor *of;    /* logical */
  sli_layout lies;
  sli_moment made;        /* by boxing: for readers there; else where its nodes stand */
  bool transient;         /* see sl_tensor */
  bool spread;            /* each stage has its own; else one stage's stand for all */
  bool kept;              /* by boxing on the way forward, and the way back reads it too */
  sl_tensor **on;         /* [ranks] */
} sli_array;

typedef struct sli_expansion {
  sl_graph *g;
  const sli_dim *dims;    /* of logical tensors */
  int *shaped;            /* [logical tensors] whose dims are theirs: a gradient's are those of
                             what it is the gradient of */
  const sli_grid *grid;
  const sli_choice *choice; /* [SLI_AXES] */
  sli_sharding sharding;
  int ranks, own;         /* of all stages, where something is spread; of one stage */
  int *spread;            /* [blocks] the first of the blocks that stand for it on the stages; 0 */
  int nvariants;          /* 1 where sequences are not cut */
  int nlogical;           /* logical nodes ... */
  sli_node **logical;
  int nparams;            /* ... and parameters */
  sl_tensor **params;
  sli_array **arrays;     /* [logical tensors] as made first, then as boxed */
  size_t type_capacity;
  sl_type *types;         /* [tensors][nvariants] of the devices' tensors */
  bool *shared;           /* [logical tensors] gradients that are not to be kept whole */
  struct sli_round **rounds; /* [logical nodes] of attention that goes chunk by chunk */
  double *share;          /* [means][ranks][nvariants] of the loss, of each metric */
  int nboxes;             /* so far: for names */
} sli_expansion;

/* What to make a node of. */
typedef struct sli_making {
  const sl_op *op;
  const char *name;      /* rank 0's */
  sli_moment at;
  sl_class cls;          /* the node's own */
  int rank, nin, nout;
  sl_tensor *const *in;
  const sl_type *unread; /* [nvariants][nin] of inputs that are NULL but have a type; or NULL */
  const sl_attrs *attrs; /* [nvariants] */
  const sl_type *out;    /* [nvariants][nout]; NULL: inferred */
  sl_here where;
} sli_making;

/* ---- stages: spread.c ------------------------------------------------------------------ */

/* Is a tensor that lies so another one on each stage? */
static inline bool sli_is_spread(const sli_layout *lies) {
  return lies->axis[SLI_AXIS_STAGES].kind != SL_BROADCAST;
}
/* Ranks that have a tensor, or a node, of their own: the first so many. */
static inline int sli_own_ranks(const sli_expansion *x, bool spread) {
  return spread ? x->ranks : x->own;
}
/* What is not spread: the one stage's stand for all. */
void sli_stand_for_all(const sli_expansion *x, sli_array *a);
/* Where a rank's share is done, or a parameter of it lives. */
int sli_block_of(sli_expansion *x, int block, bool spread, int rank);
/* In the end: ranks count the devices of a stage again. */
void sli_fold_ranks(sli_expansion *x);

/* ---- of one device: make.c ---------------------------------------------------------- */

sl_status sli_expand_node(sli_expansion *x, const sli_making *m, sli_node **out);
/* Makes output o of it exist. */
sl_tensor *sli_expand_output(sli_expansion *x, sli_node *n, int o, const char *name);
/* Says what type a device's tensor has in each variant: types[v * stride]. */
void sli_note_types(sli_expansion *x, const sl_tensor *t, const sl_type *types, int stride);
/* A device's name for what is called `name` on the first. */
const char *sli_expand_name(sli_expansion *x, const char *name, int rank);
const sl_type *sli_expand_type(const sli_expansion *x, const sl_tensor *t, int variant);
/* Is it a map of experts that rows go to, or such a map's gradient? */
bool sli_is_of_experts(const sli_expansion *x, const sl_tensor *t);
/* All that a layout of a logical tensor splits, one after the other; returns how many. */
int sli_layout_cuttings(const sli_expansion *x, const sl_tensor *t, const sli_layout *lies, sli_cutting out[SLI_AXES]);
/* Axes along which it is split, or exchanged, with this one as along one. */
sli_along sli_share_row(const sli_expansion *x, const sl_tensor *t, int axis);
/* A logical tensor's type in a variant, and a device's when it lies so. */
sl_type sli_logical_type(const sl_tensor *t, int variant);
sl_type sli_local_type(const sli_expansion *x, const sl_tensor *t, sli_layout lies, int rank,
                       int variant);
/* Of rows that are where their experts are: the call that says where, how ids lie where rows come from, and how
 * rows of a layout do. */
const sli_node *sli_router_of(const sli_expansion *x, const sl_tensor *t);
sli_layout sli_ids_layout(const sli_expansion *x, const sl_tensor *ids);
bool sli_is_routed(const sli_layout *lies);
sli_layout sli_rows_layout(const sli_expansion *x, const sli_layout *lies);
/* Which part of what the axes within leave member `member` has, split along dim. */
sl_part sli_cut_part(const sli_expansion *x, const sl_tensor *t, sli_cutting cut, int member,
                     const sl_type *base);

/* Which part of the whole of t a device has that lies so; `piece`: as a piece of sequences it
 * is, or NULL. */
const sl_region *sli_share_region(const sli_expansion *x, const sl_tensor *t, sli_layout lies,
                                  int rank, int variant, const sl_region *piece);

static inline bool sli_layout_equal(const sli_layout *a, const sli_layout *b) {
  for (int i = 0; i < SLI_AXES; i++)
    if (!sli_sbp_equal(a->axis[i], b->axis[i])) return false;
  return true;
}

/* ---- by signatures: local.c ------------------------------------------------------------------ */

/* How a parameter lies, but for shards. */
sl_sbp sli_share_param(const sli_expansion *x, const sl_tensor *param, int axis);
/* How a forward node is shared along an axis. */
const sl_signature *sli_share_signature(const sli_expansion *x, const sli_node *forward, int axis);
/* How its input or output i lies. */
typedef sl_sbp sli_sbp_of(const sl_signature *s, int i);
sli_layout sli_share_layout(const sli_expansion *x, const sli_node *forward, sli_sbp_of *of, int i);
/* What of a microbatch's rows a device takes a mean over. */
double sli_share_of_rows(const sli_expansion *x, const sli_node *mean, int rank, int variant);
/* What a device's share of a node is told, where it is one of `forward` or of its way back: [nvariants]. */
sl_attrs *sli_local_attrs(sli_expansion *x, const sli_node *n, const sli_node *forward, int rank);

/* ---- attention chunk by chunk: ring.c ---------------------------------------------------- */

/* The nodes of such a call, and of the rule that is its way back, with inputs and outputs as the
 * arrays say. */
sl_status sli_expand_ring(sli_expansion *x, const sli_node *n, sli_moment at, sli_array *const *in,
                          sli_array *const *out);
sl_status sli_expand_ring_back(sli_expansion *x, const sli_node *n, sli_moment at,
                               sli_array *const *in, sli_array *const *out);

/* ---- from layout to layout: boxing.c --------------------------------------------------- */

sli_array *sli_array_add(sli_expansion *x, const sl_tensor *of, sli_layout lies, sli_moment made);

/* The tensor as its readers at this moment want it: as it is, as it has been boxed for them
 * already, or boxed now. */
sl_status sli_box(sli_expansion *x, const sl_tensor *t, sli_layout want, sli_moment at,
                  sli_array **out);

/* Joins what the members of a row have, parts of `whole` [nvariants] along `dim`. */
sl_status sli_box_join(sli_expansion *x, const sli_array *from, sli_along along, int dim,
                       const sl_type *whole, sli_array *to);

/* ---- parameters, their gradients, the loss and metrics: shards.c ------------------------------------ */

/* The devices' parameters in place of the logical ones. */
void sli_expand_params(sli_expansion *x);
/* Is a gradient shared out every tick, so that nobody sums all of it over the step? */
bool sli_is_shared_at_once(const sli_expansion *x, const sl_tensor *grad, sli_layout lies);
/* All gradients of parameters as their updates want them. */
sl_status sli_expand_gradients(sli_expansion *x);
/* What of the loss and of each metric each device has; of a served graph, its batch, and its output as the first device
 * has it. */
void sli_expand_results(sli_expansion *x);
/* Drops what nobody needs, once all of these are there. */
void sli_expand_prune(sl_graph *g);

#endif
