/* The tensor axis: the cheapest choice, and how much the next one would cost. */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "graph/share/ways.h"

static void take(const sli_ways *w, const int *way, sli_choice *out) {
  const sl_graph *g = w->costs.g;
  *out = (sli_choice){.of = sli_calloc((size_t)g->nnodes + 1, sizeof *out->of),
                      .params = sli_calloc((size_t)g->nparams + 1, sizeof *out->params)};
  memcpy(out->params, w->params, (size_t)g->nparams * sizeof *out->params);
  for (int k = 0; k < w->count; k++) out->of[w->nodes[k]->id] = w->of[k][way[k]].signature;
  sli_costs_sum(&w->costs, w->fixed, out, NULL);
}

/* ---- the runner-up -----------------------------------------------------------------
 *
 * What is alike but for one small thing says nothing. So each linear map is asked in turn,
 * in all blocks that have it, to have its weight lie in any way but the one chosen. */

typedef struct runner_up {
  const sli_ways *ways;
  const int *chosen;   /* [nodes] */
  uint32_t *allowed;   /* [nodes] */
  int *way, *best_way; /* [nodes] */
  double best;
  int first, last;     /* the nodes of the map that is shared otherwise in the best */
} runner_up;

/* "h.3/linear.2" and "h.11/linear.2" */
static bool same_place(const char *a, const char *b) {
  for (bool block = true; *a && *b; a++, b++) {
    while (block && isdigit((unsigned char)*a)) a++;
    while (block && isdigit((unsigned char)*b)) b++;
    if (*a != *b) return false;
    if (*a == '/') block = false;
  }
  return *a == *b;
}

/* Is there one like it before? */
static bool is_seen(const sli_ways *w, int k) {
  for (int j = 0; j < k; j++)
    if (w->nodes[j]->op == &sl_op_linear && same_place(w->nodes[j]->name, w->nodes[k]->name))
      return true;
  return false;
}

static uint32_t other_ways(const sli_ways *w, int k, int chosen) {
  uint32_t others = 0;
  for (int a = 0; a < w->nways[k]; a++)
    if (!sli_sbp_equal(w->of[k][a].signature.in[1], w->of[k][chosen].signature.in[1]))
      others |= 1u << a;
  return others;
}

static void try_without(runner_up *r, int k) {
  const sli_ways *w = r->ways;
  int last = k;
  for (int j = 0; j < w->count; j++) {
    r->allowed[j] = UINT32_MAX;
    if (w->nodes[j]->op != &sl_op_linear || !same_place(w->nodes[k]->name, w->nodes[j]->name))
      continue;
    r->allowed[j] = other_ways(w, j, r->chosen[j]);
    last = j;
  }
  double weight = sli_ways_search(w, r->allowed, r->best, r->way);
  if (weight >= r->best) return;
  r->best = weight;
  r->first = k;
  r->last = last;
  memcpy(r->best_way, r->way, (size_t)w->count * sizeof *r->way);
}

static char *signature_text(const sli_node *n, const sl_signature *s) {
  char in[SLI_SIGNATURE_TEXT], out[SLI_SIGNATURE_TEXT];
  sli_signature_format(in, n, s, true);
  sli_signature_format(out, n, s, false);
  return sli_format("%s -> %s", in, out);
}

static char *describe(const runner_up *r, double chosen_seconds) {
  const sli_ways *w = r->ways;
  const sli_node *first = w->nodes[r->first], *last = w->nodes[r->last];
  const char *slash = strchr(first->name, '/'), *block = w->costs.g->blocks[last->block].name;
  sli_choice choice;
  take(w, r->best_way, &choice);
  char *now = signature_text(first, &w->of[r->first][r->best_way[r->first]].signature);
  char *then = signature_text(first, &w->of[r->first][r->chosen[r->first]].signature);
  char *to = r->first == r->last ? sli_strdup("") : sli_format(" .. %s", block);
  char seconds[SLI_SECONDS_TEXT];
  char *text = sli_format("%s of %s%s as %s, not %s: %s, %.3g %% more",
                          slash ? slash + 1 : first->name, w->costs.g->blocks[first->block].name,
                          to, now, then, sli_seconds_format(seconds, choice.seconds),
                          100 * (choice.seconds / chosen_seconds - 1));
  free(now);
  free(then);
  free(to);
  sli_choice_free(&choice);
  return text;
}

static char *find_runner_up(const sli_ways *w, const int *chosen, double chosen_seconds) {
  size_t n = (size_t)w->count + 1;
  runner_up r = {.ways = w, .chosen = chosen, .best = INFINITY};
  r.allowed = sli_calloc(n, sizeof *r.allowed);
  r.way = sli_calloc(n, sizeof *r.way);
  r.best_way = sli_calloc(n, sizeof *r.best_way);
  for (int k = 0; k < w->count; k++)
    if (w->nodes[k]->op == &sl_op_linear && !is_seen(w, k)) try_without(&r, k);
  char *text = r.best < INFINITY ? describe(&r, chosen_seconds) : NULL;
  free(r.allowed);
  free(r.way);
  free(r.best_way);
  return text;
}

/* ---- the choice ---------------------------------------------------------------------------- */

sl_status sli_choose_tensor(sl_graph *g, const sli_dim *dims, const sli_grid *grid,
                            bool free_sources, int ngiven, const sl_given_sbp *given,
                            sli_choice *out) {
  sli_ways w;
  sl_status status = sli_ways_init(&w, g, dims, grid, free_sources, ngiven, given);
  if (status) return status;
  uint32_t *allowed = sli_calloc((size_t)w.count + 1, sizeof *allowed);
  int *way = sli_calloc((size_t)w.count + 1, sizeof *way);
  for (int k = 0; k < w.count; k++) allowed[k] = UINT32_MAX;
  double weight = sli_ways_search(&w, allowed, INFINITY, way);
  SLI_CHECK(weight < INFINITY, "every node has a way, but they have none together");
  take(&w, way, out);
  if (grid->size[SLI_AXIS_TENSOR] > 1) out->runner_up = find_runner_up(&w, way, out->seconds);
  free(allowed);
  free(way);
  sli_ways_fini(&w);
  return SL_OK;
}
