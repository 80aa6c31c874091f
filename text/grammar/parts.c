/* SPDX-License-Identifier: Apache-2.0 */
/* Functions used by all files of grammar/: memory, errors, nodes and edges. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "text/grammar/grammar_inner.h"

/* ---- memory and errors ----------------------------------------------------------------------- */

sli_term sli_grammar_fail(sli_grammar *g, sl_status status, const char *format, ...) {
  va_list args;
  va_start(args, format);
  if (!g->status) vsnprintf(g->failure, sizeof g->failure, format, args);
  va_end(args);
  if (!g->status) g->status = status;
  return 0;
}

bool sli_grammar_failed(const sli_grammar *g) { return g->status; }

bool sli_grammar_spend(sli_grammar *g, size_t steps) {
  g->steps += SLI_MIN(steps, (size_t)SLI_MOST_STEPS);
  if (g->steps > SLI_MOST_STEPS)
    sli_grammar_fail(g, SL_E_USAGE,
                     "the grammar or schema is too large: it takes more than %d steps to read",
                     SLI_MOST_STEPS);
  if (g->stop && atomic_load_explicit(g->stop, memory_order_relaxed))
    sli_grammar_fail(g, SL_E_STOPPED, "nobody waits for the grammar any more");
  return !g->status;
}

void *sli_grammar_alloc(sli_grammar *g, size_t bytes) {
  void *out = g->status ? NULL : sli_bounded_alloc(&g->memory, SLI_MAX(bytes, 1));
  if (!out && !g->status) sli_grammar_fail(g, SL_E_MEMORY, "there is no memory for a grammar");
  return out;
}

bool sli_grammar_grow(sli_grammar *g, void *array, size_t count, size_t *capacity, size_t size) {
  void **at = array;
  if (g->status || count < *capacity) return !g->status;
  size_t room = SLI_MAX(2 * *capacity, (size_t)16);
  void *more = sli_grammar_alloc(g, room * size);
  if (!more) return false;
  if (count) memcpy(more, *at, count * size);
  *at = more;
  *capacity = room;
  return true;
}

/* ---- nodes ----------------------------------------------------------------------------------- */

int32_t sli_grammar_node(sli_grammar *g) {
  if (g->nnodes >= SLI_MOST_NODES)
    sli_grammar_fail(g, SL_E_USAGE, "a grammar is too large: it has more than %d nodes",
                     SLI_MOST_NODES);
  if (!SLI_GRAMMAR_GROW(g, g->nodes, g->nnodes, g->nodes_room)) return 0;
  g->nodes[g->nnodes] = (sli_node_of){.edges = -1, .rule = -1};
  return (int32_t)g->nnodes++;
}

void sli_grammar_edge(sli_grammar *g, int32_t from, sli_edge edge) {
  if (g->nedges >= SLI_MOST_EDGES)
    sli_grammar_fail(g, SL_E_USAGE, "a grammar is too large: it has more than %d edges",
                     SLI_MOST_EDGES);
  if (!SLI_GRAMMAR_GROW(g, g->edges, g->nedges, g->edges_room)) return;
  edge.next = g->nodes[from].edges;
  g->nodes[from].edges = (int32_t)g->nedges;
  g->edges[g->nedges++] = edge;
}
