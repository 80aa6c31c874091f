/* SPDX-License-Identifier: Apache-2.0 */
/* Input counts of attention over a piece of a sequence (Seq1F1B), shared by the rules of
 * ops/attention_piece.c and their kernels. */
#ifndef SLUICE_OPS_ATTENTION_PIECE_H
#define SLUICE_OPS_ATTENTION_PIECE_H

#include "ops/ops.h"

/* Number of inputs of the forward call. A recomputed call has the records after them. */
static inline int sli_attention_piece_inputs(int nin) { return nin > 4 ? 4 : 3; }

static inline int sli_attention_packed_inputs(int nin) { return nin > 2 ? 2 : 1; }

#endif
