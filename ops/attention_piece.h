/* Shared by the rules of ops/attention_piece.c and their kernels. */
#ifndef SLUICE_OPS_ATTENTION_PIECE_H
#define SLUICE_OPS_ATTENTION_PIECE_H

#include "ops/ops.h"

/* A call that is made again has the records behind the inputs it had: how many those are. */
static inline int sli_attention_piece_inputs(int nin) { return nin > 4 ? 4 : 3; }

static inline int sli_attention_packed_inputs(int nin) { return nin > 2 ? 2 : 1; }

#endif
