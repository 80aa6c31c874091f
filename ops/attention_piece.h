/* SPDX-License-Identifier: Apache-2.0 */
/* Input numbers of attention over a piece of a sequence (Seq1F1B), shared by the rules of
 * ops/attention_piece.c and their kernels. */
#ifndef SLUICE_OPS_ATTENTION_PIECE_H
#define SLUICE_OPS_ATTENTION_PIECE_H

/* Inputs of the backward call after q. Those of the forward call after keys and values come next,
 * then ids. */
enum { SLI_PIECE_KV = 1, SLI_PIECE_O, SLI_PIECE_LSE, SLI_PIECE_DO, SLI_PIECE_MORE };

/* Returns how many inputs of a recomputed call are those of the forward call, which has `inputs`
 * and perhaps ids; the records follow them. */
static inline int sli_piece_inputs(int inputs, int nin) {
  return nin > inputs + 1 ? inputs + 1 : inputs;
}

#endif
