/* A step of boxing, along one axis or several as one, and the nodes that it is made of: for boxing.c and
 * route.c. */
#ifndef SLUICE_GRAPH_BOX_H
#define SLUICE_GRAPH_BOX_H

#include "graph/share/expand.h"

typedef struct sli_boxing {
  sli_expansion *x;
  const sli_array *from;
  sli_array *to;
  sli_along along;
  int members, ranks; /* those that do it */
} sli_boxing;

/* Of several axes, the outermost. */
int sli_box_axis(sli_along along);
/* Then what is read comes by hops, as whatever stages read of each other. */
static inline bool sli_box_between_stages(const sli_boxing *b) { return b->along == 1u << SLI_AXIS_STAGES; }
/* What is done alone is part of the reader's own work. */
sl_class sli_box_class(const sli_boxing *b);

/* A device's call for it: at the place of what is read (`near`) or of who reads it. */
typedef struct sli_box_making {
  const sl_op *op;
  const char *what; /* it does, for its name */
  sl_class cls;
  bool near;
  int rank, nin;
  sl_tensor *const *in;
  const sl_attrs *attrs; /* [nvariants] */
  const sl_type *type;   /* [nvariants] what comes of it; NULL: as the row says */
} sli_box_making;
sl_status sli_box_node(const sli_boxing *b, const sli_box_making *m, sli_node **node, sl_tensor **out);

/* ---- rows that go where their experts are, and back: route.c ------------------------ */

/* ids as they lie where rows come from, and all that lead to these devices' experts. */
sl_status sli_box_to_experts(sli_boxing *b, const sli_array *ids, const sli_array *all);
sl_status sli_box_from_experts(sli_boxing *b, const sli_array *ids, const sli_array *all);

#endif
