/* SPDX-License-Identifier: Apache-2.0 */
/* Finds, for the tensor axis, the cheapest choice that lays out the weight of some linear layer
 * differently.
 *
 * A choice that differs only in a detail is not informative. For each linear layer in turn, the
 * search therefore forbids the chosen layout of its weight in all blocks that have the layer. */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "graph/sharding/ways.h"

typedef struct runner_up {
  const sli_ways *ways;
  const int *chosen;   /* [nodes] */
  uint32_t *allowed;   /* [nodes] */
  int *way, *best_way; /* [nodes] */
  double best;
  int first, last; /* first and last node of the layer that the best choice shards differently */
} runner_up;

/* Compares names apart from block numbers: "h.3/linear.2" and "h.11/linear.2" are the same. */
static bool same_place(const char *a, const char *b) {
  for (bool block = true; *a && *b; a++, b++) {
    while (block && isdigit((unsigned char)*a)) a++;
    while (block && isdigit((unsigned char)*b)) b++;
    if (*a != *b) return false;
    if (*a == '/') block = false;
  }
  return *a == *b;
}

/* True if both apply the same weight, or are the same layer in different blocks. */
static bool same_map(const sli_node *a, const sli_node *b) {
  if (sli_op_weight(a->op) != SL_WEIGHT_PRODUCT || sli_op_weight(b->op) != SL_WEIGHT_PRODUCT)
    return false;
  return a->in[1] == b->in[1] || same_place(a->name, b->name);
}

static bool is_first(const sli_ways *w, int k) {
  for (int j = 0; j < k; j++)
    if (same_map(w->nodes[j], w->nodes[k])) return false;
  return sli_op_weight(w->nodes[k]->op) == SL_WEIGHT_PRODUCT;
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
    if (!same_map(w->nodes[k], w->nodes[j])) continue;
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

static char *runner_up_describe(const runner_up *r, double chosen_seconds) {
  const sli_ways *w = r->ways;
  const sli_node *first = w->nodes[r->first], *last = w->nodes[r->last];
  const char *slash = strchr(first->name, '/'), *block = w->costs.g->blocks[last->block].name;
  sli_choice choice;
  sli_ways_take(w, r->best_way, &choice);
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

/* Finds the index of each node's way in a choice. */
static void ways_of(const sli_ways *w, const sli_choice *choice, int *way) {
  for (int k = 0; k < w->count; k++)
    while (memcmp(&w->of[k][way[k]].signature, &choice->signatures[w->nodes[k]->id],
                  sizeof(sl_signature)))
      way[k]++;
}

static char *runner_up_find(const sli_ways *w, const sli_choice *chosen) {
  size_t n = (size_t)w->count + 1;
  int *way = sli_calloc(n, sizeof *way);
  runner_up r = {.ways = w, .chosen = way, .best = INFINITY};
  ways_of(w, chosen, way);
  r.allowed = sli_calloc(n, sizeof *r.allowed);
  r.way = sli_calloc(n, sizeof *r.way);
  r.best_way = sli_calloc(n, sizeof *r.best_way);
  for (int k = 0; k < w->count; k++)
    if (is_first(w, k)) try_without(&r, k);
  char *text = r.best < INFINITY ? runner_up_describe(&r, chosen->seconds) : NULL;
  free(way);
  free(r.allowed);
  free(r.way);
  free(r.best_way);
  return text;
}

sl_status sli_find_runner_up(const sli_tensor_search *s, sli_choice *chosen) {
  sli_ways w;
  if (sli_choice_size(s->grid, SLI_AXIS_TENSOR) == 1) return SL_OK;
  sl_status status = sli_ways_init(&w, s);
  if (status) return status;
  chosen->runner_up = runner_up_find(&w, chosen);
  sli_ways_fini(&w);
  return SL_OK;
}
