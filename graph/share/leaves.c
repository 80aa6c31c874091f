/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the tensors whose dim 0 is the data rows, along which devices that shard the data split
 * them. */
#include "graph/share/search.h"

static bool is_first(sl_sbp sbp) { return sbp.kind == SL_SPLIT && !sbp.dim; }

/* True for nodes that read data; constants have no data rows. */
static bool is_data(const sli_node *n) { return n->cls == SL_CLASS_L; }

/* True if a signature splits exactly those inputs that have rows, along dim 0. */
static bool splits_rows(const sli_node *n, const sl_signature *s, const bool *rows) {
  bool any = false;
  for (int i = 0; i < n->nin; i++) {
    if (!n->in[i]) continue;
    bool has = rows[n->in[i]->id];
    sl_sbp sbp = sli_signature_in(s, i);
    if (has ? !is_first(sbp) : sbp.kind != SL_BROADCAST) return false;
    any |= has;
  }
  return any;
}

static void note_outputs(const sli_node *n, const sl_signature *s, bool *rows) {
  for (int o = 0; o < n->nout; o++)
    if (n->out[o]) rows[n->out[o]->id] |= is_first(sli_signature_out(s, o));
}

const bool *sli_rows_find(sl_graph *g) {
  bool *rows = sli_arena_alloc(&g->arena, (size_t)g->ntensors + 1);
  sl_signature all[SLI_SIGNATURES_RAW];
  for (int i = 0; i < g->nnodes; i++) {
    const sli_node *n = g->nodes[i];
    int count = sli_signatures_raw(n, all);
    for (int s = 0; s < count; s++)
      if (n->nin ? splits_rows(n, &all[s], rows) : is_data(n) && is_first(all[s].out[0]))
        note_outputs(n, &all[s], rows);
  }
  return rows;
}
