/* SPDX-License-Identifier: Apache-2.0 */
/* Drops unused nodes.
 *
 * Nodes are in executable order, so one sweep from last to first knows at each node whether a later
 * node reads it. */
#include "graph/build/build.h"
#include "graph/passes/passes.h"
#include "ops/ops.h"

/* True for an output that stays with its node: a record, and output 0 of a call that needs its
 * region. */
static bool stays(const sli_node *n, int output) {
  return sli_bit(sli_op_memory(n->op)->updates, output) ||
         (sli_op_is(n->op, SL_OP_LOCATED) && !output);
}

/* Fills in wanted[tensor] and keep[node]. Later ticks may read a delay. */
static void mark(const sl_graph *g, bool *wanted, bool *keep) {
  for (int i = 0; i < g->nnodes; i++)
    for (int o = 0; o < g->nodes[i]->nout; o++)
      if (g->nodes[i]->out[o] && sli_delay_after(g->nodes[i]->out[o]))
        wanted[g->nodes[i]->out[o]->id] = true;
  for (int i = g->nnodes - 1; i >= 0; i--) {
    const sli_node *n = g->nodes[i];
    for (int o = 0; o < n->nout; o++) keep[i] |= n->out[o] && wanted[n->out[o]->id];
    for (int o = 0; o < n->nout && keep[i]; o++)
      if (n->out[o] && stays(n, o)) wanted[n->out[o]->id] = true;
    for (int a = 0; a < n->nin && keep[i]; a++)
      if (n->in[a]) wanted[n->in[a]->id] = true;
  }
}

/* Drops outputs that nobody needs. */
static void drop_outputs(sli_node *n, const bool *wanted) {
  for (int o = 0; o < n->nout; o++)
    if (n->out[o] && !wanted[n->out[o]->id]) n->out[o] = NULL;
}

/* Keeps the marked nodes and tensors, and renumbers them. */
static void keep_only(sl_graph *g, const bool *wanted, const bool *keep) {
  int nnodes = 0, ntensors = 0;
  for (int i = 0; i < g->nnodes; i++) {
    if (!keep[i]) continue;
    drop_outputs(g->nodes[i], wanted);
    g->nodes[nnodes] = g->nodes[i];
    g->nodes[nnodes]->id = nnodes;
    nnodes++;
  }
  g->nnodes = nnodes;
  for (int t = 0; t < g->ntensors; t++) {
    if (!wanted[t]) continue;
    g->tensors[ntensors] = g->tensors[t];
    g->tensors[ntensors]->id = ntensors;
    ntensors++;
  }
  g->ntensors = ntensors;
}

void sli_graph_drop(sl_graph *g, int count, const sli_node *const *nodes) {
  bool *wanted = sli_arena_alloc(&g->arena, (size_t)g->ntensors * sizeof *wanted);
  bool *keep = sli_arena_alloc(&g->arena, (size_t)g->nnodes * sizeof *keep);
  for (int t = 0; t < g->ntensors; t++) wanted[t] = true;
  for (int i = 0; i < g->nnodes; i++) keep[i] = true;
  for (int i = 0; i < count; i++) {
    keep[nodes[i]->id] = false;
    for (int o = 0; o < nodes[i]->nout; o++)
      if (nodes[i]->out[o]) wanted[nodes[i]->out[o]->id] = false;
  }
  keep_only(g, wanted, keep);
}

/* ---- arguments that are read for their types alone ---------------------------------------------
 */

/* Drops arguments of which only the type is read; sets unread[] for their tensors. */
static void drop_arguments(sl_graph *g, bool params, bool *unread) {
  for (int i = 0; i < g->nnodes; i++)
    for (int a = 0; a < g->nodes[i]->nin; a++) {
      sl_tensor **t = &g->nodes[i]->in[a];
      if (!*t || (!params && (*t)->param) || !sli_bit_on(sli_op_memory(g->nodes[i]->op)->unread, a))
        continue;
      unread[(*t)->id] = true;
      *t = NULL;
    }
}

/* True for an exchange all of whose outputs have lost their readers; its inputs may then lose
 * theirs too. */
static bool is_idle(const sli_node *n, const bool *unread) {
  if (n->cls != SL_CLASS_C) return false;
  for (int o = 0; o < n->nout; o++)
    if (n->out[o] && !unread[n->out[o]->id]) return false;
  return true;
}

void sli_graph_drop_unread(sl_graph *g, bool params) {
  bool *unread = sli_arena_alloc(&g->arena, (size_t)g->ntensors * sizeof *unread);
  bool *wanted = sli_arena_alloc(&g->arena, (size_t)g->ntensors * sizeof *wanted);
  bool *keep = sli_arena_alloc(&g->arena, (size_t)g->nnodes * sizeof *keep);
  int *readers = sli_arena_alloc(&g->arena, (size_t)g->ntensors * sizeof *readers);
  drop_arguments(g, params, unread);
  for (int t = 0; t < g->ntensors; t++) wanted[t] = true;
  for (int i = 0; i < g->nnodes; i++)
    for (int a = 0; a < g->nodes[i]->nin; a++)
      if (g->nodes[i]->in[a]) readers[g->nodes[i]->in[a]->id]++;
  for (int t = 0; t < g->ntensors; t++) unread[t] &= !readers[t];
  for (int i = g->nnodes - 1; i >= 0; i--) {
    const sli_node *n = g->nodes[i];
    keep[i] = !is_idle(n, unread);
    for (int o = 0; o < n->nout && !keep[i]; o++)
      if (n->out[o]) wanted[n->out[o]->id] = false;
    for (int a = 0; a < n->nin && !keep[i]; a++)
      if (n->in[a] && !--readers[n->in[a]->id]) unread[n->in[a]->id] = true;
  }
  keep_only(g, wanted, keep);
}

/* Moves a source to the block of its first reader; readers are visited last to first. */
static void place_sources(sl_graph *g) {
  for (int i = g->nnodes - 1; i >= 0; i--)
    for (int a = 0; a < g->nodes[i]->nin; a++) {
      const sl_tensor *t = g->nodes[i]->in[a];
      if (t && t->producer && t->producer->cls == SL_CLASS_L)
        t->producer->block = g->nodes[i]->block;
    }
}

/* Moves a block down. Its first visit is the first that is kept, `heir` plus 1. */
static void keep_block(sl_graph *g, int block, int kept, int *heir) {
  int first = sli_block_first(g, block);
  g->blocks[kept] = g->blocks[block];
  if (!heir[first]) heir[first] = kept + 1;
  g->blocks[kept].first = heir[first] - 1;
  if (heir[first] == kept + 1) g->blocks[kept].visits = 0;
}

static void drop_empty_blocks(sl_graph *g) {
  int *now = sli_arena_alloc(&g->arena, (size_t)g->nblocks * sizeof *now);
  for (int i = 0; i < g->nnodes; i++)
    if (g->nodes[i]->cls == SL_CLASS_F && !g->nodes[i]->pace) now[g->nodes[i]->block] = 1;
  int kept = 0, *heir = sli_arena_alloc(&g->arena, (size_t)g->nblocks * sizeof *heir);
  for (int b = 0; b < g->nblocks; b++) { /* nodes of evaluations in other blocks move to the block
                                            before */
    if (now[b]) keep_block(g, b, kept++, heir);
    now[b] = SLI_MAX(kept - 1, 0);
  }
  g->nblocks = kept;
  for (int i = 0; i < g->nnodes; i++)
    if (g->nodes[i]->block >= 0) g->nodes[i]->block = now[g->nodes[i]->block];
}

static void find_homes(sl_graph *g) {
  for (int p = 0; p < g->nparams; p++) g->params[p]->home = -1;
  for (int i = 0; i < g->nnodes; i++)
    for (int a = 0; a < g->nodes[i]->nin; a++) {
      sl_tensor *t = g->nodes[i]->in[a];
      if (t && t->param && t->home < 0) t->home = g->nodes[i]->block;
    }
  for (int p = 0; p < g->nparams; p++) { /* for statistics that nothing reads */
    sl_tensor *t = g->params[p];
    if (t->running && t->home < 0 && t->ngrads) t->home = t->grads[0]->producer->block;
  }
}

void sli_graph_prune(sl_graph *g, int nroots, sl_tensor *const *roots) {
  bool *wanted = sli_arena_alloc(&g->arena, (size_t)g->ntensors * sizeof *wanted);
  bool *keep = sli_arena_alloc(&g->arena, (size_t)g->nnodes * sizeof *keep);
  for (int r = 0; r < nroots; r++) wanted[roots[r]->id] = true;
  for (int p = 0; p < g->nparams; p++) wanted[g->params[p]->id] = true;
  mark(g, wanted, keep);
  keep_only(g, wanted, keep);
  place_sources(g);
  drop_empty_blocks(g);
  find_homes(g);
}
