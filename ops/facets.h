/* SPDX-License-Identifier: Apache-2.0 */
/* Facets of an op: how it takes part in cuts, sharding, serving and exact sums. */
#ifndef SLUICE_OPS_FACETS_H
#define SLUICE_OPS_FACETS_H

#include <sluice/op.h>

#include "base/base.h"

/* Return a facet of an op, or one that promises nothing if the op has none. */
#define SLI_OP_FACET(facet)                                            \
  static inline const sl_op_##facet *sli_op_##facet(const sl_op *op) { \
    static const sl_op_##facet none;                                   \
    return op->facet ? op->facet : &none;                              \
  }
SLI_OP_FACET(cut)
SLI_OP_FACET(shard)
SLI_OP_FACET(memory)
SLI_OP_FACET(rows)
SLI_OP_FACET(narrow)
SLI_OP_FACET(serve)
SLI_OP_FACET(exact)
#undef SLI_OP_FACET
/* Return how an op reads its weight, and what its calls exchange along a sequence. */
static inline sl_weight sli_op_weight(const sl_op *op) { return sli_op_shard(op)->weight; }
static inline sl_sequence_share sli_op_sequence(const sl_op *op) {
  return sli_op_shard(op)->sequence;
}
/* True for a gradient that reads rows of neighbouring devices. */
static inline bool sli_op_reads_near(const sl_op *op) {
  return sli_op_shard(op)->behind || sli_op_shard(op)->before;
}
/* True for an op that keeps a record of earlier pieces. */
static inline bool sli_op_keeps_record(const sl_op *op) {
  return sli_op_cut(op)->pieces == SL_PIECES_STATE;
}
/* Return the layout of an input or an output; the last entry applies to all further ones. */
static inline sl_sbp sli_signature_in(const sl_signature *s, int i) {
  return s->in[SLI_MIN(i, SL_SIGNATURE_ARGS - 1)];
}
static inline sl_sbp sli_signature_out(const sl_signature *s, int o) {
  return s->out[SLI_MIN(o, SL_SIGNATURE_ARGS - 1)];
}
/* Fills out[SL_SIGNATURES] with an op's own signatures for a call, and returns their number. */
static inline int sli_op_signatures(const sl_op *op, const sl_attrs *attrs, int nin,
                                    const sl_type *in, sl_signature *out) {
  bool any = op->shard && op->shard->signatures;
  return any ? op->shard->signatures(attrs, nin, in, out) : 0;
}
/* True if an op has a trait, SL_OP_... */
static inline bool sli_op_is(const sl_op *op, uint32_t trait) { return op->traits & trait; }

#endif
