/* SPDX-License-Identifier: Apache-2.0 */
/* Offloading the activations of some pieces (--offload).
 *
 * If sequences are cut into pieces, the activations of a block can be offloaded or recomputed piece
 * by piece. As many pieces are offloaded as bandwidth allows, and the rest cost recompute time
 * (MEMO: Zhao et al., arXiv 2407.12117). The inputs of blocks, results of attention and exchanged
 * tensors are offloaded for all pieces.
 *
 * The buffer of a piece is written as usual, but its spill writes only some of the pieces, and a
 * fill reads only these. Both fire once per offloaded piece, and the reader's port skips all other
 * pieces. The reader's program has a variant for each kind of piece (programs.c). Offloaded pieces
 * are spread evenly, from the first on, so that the transfers are evenly loaded. */
#include "graph/lower/ir.h"

/* Returns how many of the pieces before this one are offloaded. */
static int leaving_before(const sli_lowering *l, int piece) {
  return (piece * l->in->leaving + l->in->k - 1) / l->in->k;
}

bool sli_lower_leaves(const sli_lowering *l, int piece) {
  return leaving_before(l, piece + 1) > leaving_before(l, piece);
}

/* Maps firings to keys of offloaded pieces, which are numbered consecutively. Tasks that fire for
 * every piece skip the other pieces. */
static int32_t map_all(sli_lowering *l, bool backward) {
  int k = l->in->k;
  sl_map_entry entries[k];
  for (int i = 0; i < k; i++) {
    int piece = backward ? k - 1 - i : i;
    entries[i] = sli_lower_leaves(l, piece)
                     ? (sl_map_entry){leaving_before(l, piece), SL_FIRST | SL_LAST}
                     : (sl_map_entry){0, SL_SKIP};
  }
  return sl_plan_add_map(l->plan, (uint32_t)k, l->in->leaving, entries);
}

int32_t sli_lower_leaving_map(sli_lowering *l, const sli_task *task) {
  if (task->rate != SLI_PER_LEAVING) return map_all(l, task->backward);
  int n = l->in->leaving;
  sl_map_entry entries[n];
  for (int i = 0; i < n; i++)
    entries[i] = (sl_map_entry){task->backward ? n - 1 - i : i, SL_FIRST | SL_LAST};
  return sl_plan_add_map(l->plan, (uint32_t)n, n, entries);
}

int32_t sli_lower_leaving_ticks(sli_lowering *l, const sli_task *task) {
  int n = l->in->leaving, at = 0;
  sl_map_entry entries[n];
  for (int piece = 0; piece < l->in->k; piece++)
    if (sli_lower_leaves(l, piece)) {
      int i = task->backward ? n - 1 - at : at;
      entries[i] = (sl_map_entry){piece, SL_FIRST | SL_LAST};
      at++;
    }
  return sl_plan_add_map(l->plan, (uint32_t)n, l->in->k, entries);
}

double sli_lower_rematerialized(const sli_lowering *l) {
  return l->in->leaving == SL_NONE ? 1 : 1 - (double)l->in->leaving / l->in->k;
}

/* ---- readers of both kinds of piece
 * ------------------------------------------------------------ */

static bool reads_kept(const sli_node *n) {
  bool reads = false;
  for (int a = 0; a < n->nin && !n->rematerialized; a++) reads |= n->in[a] && n->in[a]->kept;
  return reads;
}

bool sli_lower_reads_leaving(const sli_task *task) {
  bool reads = false;
  for (int i = 0; i < task->nnodes; i++) reads |= reads_kept(task->nodes[i]);
  return reads;
}
