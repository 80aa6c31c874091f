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

static void find_life(const sli_ways *w, sli_frontier *p) {
  for (int t = 0; t < w->costs.g->ntensors; t++) p->place[t] = p->first[t] = p->last[t] = -1;
  for (int k = 0; k < w->count; k++) {
    const sli_node *n = w->nodes[k];
    for (int i = 0; i < n->nin; i++) {
      if (!n->in[i]) continue;
      int t = n->in[i]->id;
      if (p->first[t] < 0) p->first[t] = k;
      p->last[t] = k;
    }
    for (int o = 0; o < n->nout; o++)
      if (n->out[o]) p->first[n->out[o]->id] = k;
  }
}

static void take_place(sli_frontier *p, int t, bool *taken) {
  int at = 0;
  while (at < p->width && taken[at]) at++;
  p->width = SLI_MAX(p->width, at + 1);
  taken[at] = true;
  p->place[t] = at;
}

static void find_places(const sli_ways *w, sli_frontier *p) {
  bool *taken = sli_calloc((size_t)w->costs.g->ntensors + 1, sizeof *taken);
  for (int k = 0; k < w->count; k++) {
    const sli_node *n = w->nodes[k];
    for (int i = 0; i < n->nin; i++)
      if (n->in[i] && has_place(w, n->in[i]) && p->place[n->in[i]->id] < 0)
        take_place(p, n->in[i]->id, taken);
    for (int o = 0; o < n->nout; o++)
      if (n->out[o] && has_place(w, n->out[o])) take_place(p, n->out[o]->id, taken);
    for (int i = 0; i < n->nin; i++)
      if (n->in[i] && p->place[n->in[i]->id] >= 0 && p->last[n->in[i]->id] == k)
        taken[p->place[n->in[i]->id]] = false;
  }
  free(taken);
}

/* Returns the largest cost of a read over all ways, for a tensor in layout `code`. */
static double reading_at_most(const sli_ways *w, int k, int i, int code) {
  double most = 0;
  for (int a = 0; a < w->nways[k]; a++) {
    sli_seen seen = {.lies = (uint16_t)code};
    sli_cost cost =
        sli_cost_reading(&w->costs, w->nodes[k]->in[i], sli_way_in(&w->of[k][a], i), &seen);
    most = SLI_MAX(most, sli_cost_weight(&w->costs, cost));
  }
  return most;
}

static void forget(sli_frontier *p, int k, int place) {
  p->wants[k * p->width + place] = 0;
  memset(&p->boxing[(k * p->width + place) * SLI_SBP_CODES], 0, SLI_SBP_CODES * sizeof *p->boxing);
}

static void look_past_input(const sli_ways *w, sli_frontier *p, int k, int i) {
  const sl_tensor *t = w->nodes[k + 1]->in[i];
  int place = t ? p->place[t->id] : -1;
  if (place < 0) return;
  if (t->param && p->first[t->id] == k + 1) {
    forget(p, k, place);
    return;
  }
  for (int a = 0; a < w->nways[k + 1] && !sli_starts_block(w, k + 1); a++)
    p->wants[k * p->width + place] |= (uint16_t)(1 << sli_way_in(&w->of[k + 1][a], i).want);
  for (int code = 0; code < SLI_SBP_CODES; code++)
    p->boxing[(k * p->width + place) * SLI_SBP_CODES + code] += reading_at_most(w, k + 1, i, code);
}

/* Collects the reads that follow each node, from the last node to the first. */
static void look_ahead(const sli_ways *w, sli_frontier *p) {
  size_t width = (size_t)p->width, cells = (size_t)w->count * width + 1;
  p->wants = sli_calloc(cells, sizeof *p->wants);
  p->boxing = sli_calloc(cells * SLI_SBP_CODES, sizeof *p->boxing);
  for (int k = w->count - 2; k >= 0; k--) {
    const sli_node *next = w->nodes[k + 1];
    size_t at = (size_t)k * width;
    memcpy(&p->boxing[at * SLI_SBP_CODES], &p->boxing[(at + width) * SLI_SBP_CODES],
           width * SLI_SBP_CODES * sizeof *p->boxing);
    if (!sli_starts_block(w, k + 1))
      memcpy(&p->wants[at], &p->wants[at + width], width * sizeof *p->wants);
    for (int o = 0; o < next->nout; o++) /* no reads before the tensor exists */
      if (next->out[o] && p->place[next->out[o]->id] >= 0) forget(p, k, p->place[next->out[o]->id]);
    for (int i = 0; i < next->nin; i++) look_past_input(w, p, k, i);
  }
}

void sli_frontier_init(sli_frontier *p, const sli_ways *w) {
  size_t n = (size_t)w->costs.g->ntensors + 1;
  *p = (sli_frontier){.place = sli_calloc(n, sizeof *p->place),
                      .first = sli_calloc(n, sizeof *p->first),
                      .last = sli_calloc(n, sizeof *p->last)};
  find_life(w, p);
  find_places(w, p);
  look_ahead(w, p);
}

void sli_frontier_fini(sli_frontier *p) {
  free(p->place);
  free(p->first);
  free(p->last);
  free(p->wants);
  free(p->boxing);
}
