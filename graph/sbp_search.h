/* What finding dims, signatures and choices share. */
#ifndef SLUICE_GRAPH_SBP_SEARCH_H
#define SLUICE_GRAPH_SBP_SEARCH_H

#include "graph/sbp.h"

/* Is it one that signatures are for? */
static inline bool sli_is_shared(const sli_node *n) {
  return n->cls == SL_CLASS_F || n->op == &sl_op_source;
}

/* All ways to share such a node, whatever the size and the units of its dims; 0 for other
 * nodes. out[SLI_SIGNATURES_RAW]. */
enum { SLI_SIGNATURES_RAW = 1 + SL_MAX_DIMS + SL_SIGNATURES };
int sli_signatures_raw(const sli_node *node, sl_signature *out);

/* How a signature has an input or an output; those beyond SL_SIGNATURE_ARGS are everywhere. */
static inline sl_sbp sli_signature_in(const sl_signature *s, int i) {
  return i < SL_SIGNATURE_ARGS ? s->in[i] : (sl_sbp){SL_BROADCAST, 0};
}
static inline sl_sbp sli_signature_out(const sl_signature *s, int o) {
  return o < SL_SIGNATURE_ARGS ? s->out[o] : (sl_sbp){SL_BROADCAST, 0};
}

#endif
