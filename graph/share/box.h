/* SPDX-License-Identifier: Apache-2.0 */
/* A step of boxing, along one axis or several as one, and its nodes: for boxing.c and route.c. */
#ifndef SLUICE_GRAPH_BOX_H
#define SLUICE_GRAPH_BOX_H

#include "graph/share/expand.h"

typedef struct sli_boxing {
  sli_expansion *x;
  const sli_array *from;
  sli_array *to;
  sli_along along;
  int members, ranks; /* number of devices that take part */
} sli_boxing;

/* Returns the outermost of several axes. */
int sli_box_axis(sli_along along);
/* True if boxing goes along the axis of stages; its inputs then arrive by transfers (hops), like
 * all data between stages. */
static inline bool sli_box_between_stages(const sli_boxing *b) {
  return b->along == 1u << SLI_AXIS_STAGES;
}
/* Returns the class of the boxing nodes. A step without exchange belongs to the reader's class. */
sl_class sli_box_class(const sli_boxing *b);

/* A device's call of a boxing step: placed with its input (`near`) or with its reader. */
typedef struct sli_box_making {
  const sl_op *op;
  const char *what; /* what it does, for its name */
  sl_class cls;
  bool near;
  int rank, nin;
  sl_tensor *const *in;
  const sl_attrs *attrs; /* [nvariants] */
  const sl_type *type;   /* [nvariants] output type; NULL: by the op's shape rule */
} sli_box_making;
sl_status sli_box_node(const sli_boxing *b, const sli_box_making *m, sli_node **node,
                       sl_tensor **out);

/* ---- dispatch of rows to experts, and back: dispatch.c -------------------------------- */

/* Move rows to the experts and back. `ids`: ids in the layout of the rows' origin; `all`: all
 * ids that lead to these devices' experts. */
sl_status sli_box_to_experts(sli_boxing *b, const sli_array *ids, const sli_array *all);
sl_status sli_box_from_experts(sli_boxing *b, const sli_array *ids, const sli_array *all);
/* Makes the numbers of the leaves whose rows are at the experts. */
sl_status sli_box_own_leaves(sli_boxing *b, const sli_array *ids, const sli_array *all);

#endif
