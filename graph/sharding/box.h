/* SPDX-License-Identifier: Apache-2.0 */
/* One step of boxing, along one axis or several axes treated as one, and its nodes; used by
 * boxing.c and dispatch.c. */
#ifndef SLUICE_GRAPH_SHARDING_BOX_H
#define SLUICE_GRAPH_SHARDING_BOX_H

#include "graph/sharding/expand.h"

typedef struct sli_boxing {
  sli_expansion *x;
  const sli_array *from;
  sli_array *to;
  sli_along along;
  int members, ranks; /* devices in a row; ranks that box */
} sli_boxing;

/* Returns the outermost of several axes. */
int sli_box_axis(sli_along along);
/* True if boxing goes along the axis of stages; its inputs then arrive by transfers (hops), like
 * all data between stages. */
static inline bool sli_box_between_stages(const sli_boxing *b) {
  return b->along == 1u << SLI_AXIS_STAGES;
}
/* Returns the class of boxing nodes that exchange nothing: the reader's class in every-tick work,
 * else C. */
sl_class sli_box_class(const sli_boxing *b);

/* One device's call in a boxing step, placed with its input (`near`) or with its reader. */
typedef struct sli_box_making {
  const sl_op *op;
  const char *what; /* short word for the node's name */
  sl_class cls;
  bool near;
  int rank, nin;
  sl_tensor *const *in;
  const sl_attrs *attrs; /* [nvariants] */
  const sl_type *type;   /* [nvariants] output type; NULL: inferred by the op */
} sli_box_making;
/* Creates it, with all outputs of the op. */
sl_status sli_box_node(const sli_boxing *b, const sli_box_making *m, sli_node **node,
                       sl_tensor **out);

/* Returns the axis that an exchange counts under. */
int sli_box_link(const sli_boxing *b);
/* Returns the parts [nvariants] of a member along `dim` or, if dim is -1, in equal numbers of
 * elements. */
const sl_part *sli_box_parts(const sli_boxing *b, int rank, int dim, int member);

/* ---- rows of a served tick: ticks.c ------------------------------------------------------ */

/* True if this step shares the rows of a served tick, or gathers shared ones. */
bool sli_box_shares_ticks(const sli_boxing *b, sl_sbp from, sl_sbp to);
/* Take a device's own rows of a tensor that it has, or those of another member, for which they
 * wait. */
sl_status sli_box_own_rows(sli_boxing *b, int rank, sl_tensor **out);
sl_status sli_box_part_rows(sli_boxing *b, int rank, int member, sl_tensor **out);
/* Joins the rows of all members, in order. */
sl_status sli_box_join_rows(sli_boxing *b, int rank, sl_tensor *const *in, sl_tensor **out);

/* ---- as a collective: collective.c --------------------------------------------------- */

enum { SLI_SUMMED_WHOLE_BYTES = 4096 }; /* up to so many each device computes the whole sum */
/* Returns the collective that makes this step, if devices can make it and it costs no more than
 * parts, or NULL; and makes it. */
const sl_op *sli_box_collective(const sli_boxing *b);
sl_status sli_box_collect(sli_boxing *b, const sl_op *op);
/* Exchanges the slices that devices cut for each other, by all-to-all: slices and arrived
 * [member * ranks + rank], of the member that reads a slice, and of the one that cut it. */
sl_status sli_box_swap(sli_boxing *b, sl_tensor *const *slices, sl_tensor **arrived);

/* ---- over a stage boundary: boundary.c ------------------------------------------------- */

/* True if the parts of a tensor that this step joins are made on another stage and arrive in parts
 * (--boundary scattered). */
bool sli_box_crosses(const sli_boxing *b);
/* Copies each device's part where it arrives. */
sl_status sli_box_arrive(sli_boxing *b, sl_tensor *const *sent, sl_tensor **out);

/* ---- dispatch of rows to experts, and back: dispatch.c -------------------------------- */

/* Move rows to the experts and back. `ids` are the ids in the layout that the rows come from; `all`
 * are all ids routed to these devices' experts. */
sl_status sli_box_to_experts(sli_boxing *b, const sli_array *ids, const sli_array *all);
sl_status sli_box_from_experts(sli_boxing *b, const sli_array *ids, const sli_array *all);
/* Creates the leaf numbers of the rows that are at the experts. */
sl_status sli_box_own_leaves(sli_boxing *b, const sli_array *ids, const sli_array *all);

#endif
