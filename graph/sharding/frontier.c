/* SPDX-License-Identifier: Apache-2.0 */
/* Live tensors between consecutive nodes, and the layouts that later readers may want. */
#include "graph/sharding/frontier.h"

#include <stdlib.h>
#include <string.h>

bool sli_starts_block(const sli_ways *w, int k) {
  if (w->nodes[k]->cls != SL_CLASS_F) return false;
  for (int i = k - 1; i >= 0; i--)
    if (w->nodes[i]->cls == SL_CLASS_F) return w->nodes[i]->block != w->nodes[k]->block;
  return true;
}

static bool has_place(const sli_ways *w, const sl_tensor *t) {
  return w->reads[t->id] > (t->param ? 1 : 0);
}

static void find_life(const sli_ways *w, sli_frontier *frontier) {
  for (int t = 0; t < w->costs.g->ntensors; t++)
    frontier->place[t] = frontier->first[t] = frontier->last[t] = -1;
  for (int k = 0; k < w->count; k++) {
    const sli_node *n = w->nodes[k];
    for (int i = 0; i < n->nin; i++) {
      if (!n->in[i]) continue;
      int t = n->in[i]->id;
      if (frontier->first[t] < 0) frontier->first[t] = k;
      frontier->last[t] = k;
    }
    for (int o = 0; o < n->nout; o++)
      if (n->out[o]) frontier->first[n->out[o]->id] = k;
  }
}

static void take_place(sli_frontier *frontier, int t, bool *taken) {
  int at = 0;
  while (at < frontier->width && taken[at]) at++;
  frontier->width = SLI_MAX(frontier->width, at + 1);
  taken[at] = true;
  frontier->place[t] = at;
}

static void find_places(const sli_ways *w, sli_frontier *frontier) {
  bool *taken = sli_calloc((size_t)w->costs.g->ntensors + 1, sizeof *taken);
  for (int k = 0; k < w->count; k++) {
    const sli_node *n = w->nodes[k];
    for (int i = 0; i < n->nin; i++)
      if (n->in[i] && has_place(w, n->in[i]) && frontier->place[n->in[i]->id] < 0)
        take_place(frontier, n->in[i]->id, taken);
    for (int o = 0; o < n->nout; o++)
      if (n->out[o] && has_place(w, n->out[o])) take_place(frontier, n->out[o]->id, taken);
    for (int i = 0; i < n->nin; i++)
      if (n->in[i] && frontier->place[n->in[i]->id] >= 0 && frontier->last[n->in[i]->id] == k)
        taken[frontier->place[n->in[i]->id]] = false;
  }
  free(taken);
}

/* Returns the largest cost of a read over all ways, for a tensor in layout `code`. */
static double reading_at_most(const sli_ways *w, int k, int i, int code) {
  double most = 0;
  for (int a = 0; a < w->nways[k]; a++) {
    sli_seen seen = {.layout = (uint16_t)code};
    sli_cost cost =
        sli_cost_reading(&w->costs, w->nodes[k]->in[i], sli_way_in(&w->of[k][a], i), &seen);
    most = SLI_MAX(most, sli_cost_weight(&w->costs, cost));
  }
  return most;
}

static void forget(sli_frontier *frontier, int k, int place) {
  frontier->wants[k * frontier->width + place] = 0;
  memset(&frontier->boxing[(k * frontier->width + place) * SLI_SBP_CODES], 0,
         SLI_SBP_CODES * sizeof *frontier->boxing);
}

static void look_past_input(const sli_ways *w, sli_frontier *frontier, int k, int i) {
  const sl_tensor *t = w->nodes[k + 1]->in[i];
  int place = t ? frontier->place[t->id] : -1;
  if (place < 0) return;
  if (t->param && frontier->first[t->id] == k + 1) {
    forget(frontier, k, place);
    return;
  }
  for (int a = 0; a < w->nways[k + 1] && !sli_starts_block(w, k + 1); a++)
    frontier->wants[k * frontier->width + place] |=
        (uint16_t)(1 << sli_way_in(&w->of[k + 1][a], i).want);
  for (int code = 0; code < SLI_SBP_CODES; code++)
    frontier->boxing[(k * frontier->width + place) * SLI_SBP_CODES + code] +=
        reading_at_most(w, k + 1, i, code);
}

/* Collects the reads that follow each node, from the last node to the first. */
static void look_ahead(const sli_ways *w, sli_frontier *frontier) {
  size_t width = (size_t)frontier->width, cells = (size_t)w->count * width + 1;
  frontier->wants = sli_calloc(cells, sizeof *frontier->wants);
  frontier->boxing = sli_calloc(cells * SLI_SBP_CODES, sizeof *frontier->boxing);
  for (int k = w->count - 2; k >= 0; k--) {
    const sli_node *next = w->nodes[k + 1];
    size_t at = (size_t)k * width;
    memcpy(&frontier->boxing[at * SLI_SBP_CODES], &frontier->boxing[(at + width) * SLI_SBP_CODES],
           width * SLI_SBP_CODES * sizeof *frontier->boxing);
    if (!sli_starts_block(w, k + 1))
      memcpy(&frontier->wants[at], &frontier->wants[at + width], width * sizeof *frontier->wants);
    for (int o = 0; o < next->nout; o++) /* no reads before the tensor exists */
      if (next->out[o] && frontier->place[next->out[o]->id] >= 0)
        forget(frontier, k, frontier->place[next->out[o]->id]);
    for (int i = 0; i < next->nin; i++) look_past_input(w, frontier, k, i);
  }
}

void sli_frontier_init(sli_frontier *frontier, const sli_ways *w) {
  size_t n = (size_t)w->costs.g->ntensors + 1;
  *frontier = (sli_frontier){.place = sli_calloc(n, sizeof *frontier->place),
                             .first = sli_calloc(n, sizeof *frontier->first),
                             .last = sli_calloc(n, sizeof *frontier->last)};
  find_life(w, frontier);
  find_places(w, frontier);
  look_ahead(w, frontier);
}

void sli_frontier_fini(sli_frontier *frontier) {
  free(frontier->place);
  free(frontier->first);
  free(frontier->last);
  free(frontier->wants);
  free(frontier->boxing);
}
