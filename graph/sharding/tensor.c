/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the cheapest choice for the tensor axis. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "graph/sharding/ways.h"

/* Runs the search; sets *out only if *found. */
static sl_status tensor_choose(const sli_tensor_search *s, sli_choice *out, bool *found) {
  sli_ways w;
  sl_status status = sli_ways_init(&w, s);
  if (status) return status;
  uint32_t *allowed = sli_calloc((size_t)w.count + 1, sizeof *allowed);
  int *way = sli_calloc((size_t)w.count + 1, sizeof *way);
  for (int k = 0; k < w.count; k++) allowed[k] = UINT32_MAX;
  *found = sli_ways_search(&w, allowed, INFINITY, way) < INFINITY;
  if (*found) sli_ways_take(&w, way, out);
  free(allowed);
  free(way);
  sli_ways_fini(&w);
  return SL_OK;
}

/* True if a choice exists without this one of the given layouts. */
static bool is_in_the_way(const sli_tensor_search *s, int given) {
  sl_given_sbp *rest = sli_calloc((size_t)s->ngiven, sizeof *rest);
  memcpy(rest, s->given, (size_t)given * sizeof *rest);
  memcpy(rest + given, s->given + given + 1, (size_t)(s->ngiven - given - 1) * sizeof *rest);
  sli_tensor_search without = *s;
  without.given = rest;
  without.ngiven--;
  sli_choice choice;
  bool found = false;
  if (!tensor_choose(&without, &choice, &found) && found) sli_choice_free(&choice);
  free(rest);
  return found;
}

/* Fails with an error that names a conflicting given layout. Private tensors must be read in their
 * original layout (sl_op_cut.own), so layouts may each be possible, but not all together. */
static sl_status tensor_refuse(const sli_tensor_search *s) {
  int last = s->ngiven - 1;
  while (last >= 0 && !is_in_the_way(s, last)) last--;
  if (last < 0)
    return sl_fail(
        SL_E_UNSUPPORTED,
        "the tensors cannot be split with all given layouts at once: data that differs between "
        "devices must be read as it is made");
  char sbp[SLI_SBP_TEXT];
  return sl_fail(
      SL_E_USAGE,
      "%s cannot lie as %s along the tensor axis together with the other layouts: data that "
      "differs between devices must be read as it is made",
      s->given[last].name, sli_sbp_format(sbp, s->given[last].sbp));
}

/* ---- one layout between blocks ------------------------------------------------------------- */

/* Lists the nodes whose first output a later block reads: passed[nnodes]. Returns their number. */
static int find_passed(const sl_graph *g, const sli_node **passed) {
  bool *is_passed = sli_calloc((size_t)g->nnodes + 1, sizeof *is_passed);
  int count = 0;
  for (int i = 0; i < g->nnodes; i++)
    for (int a = 0; a < g->nodes[i]->nin && sli_is_forward(g->nodes[i]); a++) {
      const sli_node *maker = g->nodes[i]->in[a] ? g->nodes[i]->in[a]->producer : NULL;
      if (maker && sli_is_forward(maker) && maker->block != g->nodes[i]->block &&
          g->nodes[i]->in[a] == maker->out[0])
        is_passed[maker->id] = true;
    }
  for (int i = 0; i < g->nnodes; i++)
    if (is_passed[i]) passed[count++] = g->nodes[i];
  free(is_passed);
  return count;
}

typedef struct vote {
  sl_sbp sbp;
  int count;
} vote;

static int by_votes(const void *a, const void *b) {
  return ((const vote *)b)->count - ((const vote *)a)->count;
}

/* Lists the layouts of these nodes' outputs, the most common first, then a copy on each device:
 * out[count + 1]. Returns their number. */
static int list_layouts(const sli_choice *choice, int count, const sli_node *const *passed,
                        vote *out) {
  int n = 0;
  for (int i = 0; i < count; i++) {
    sl_sbp sbp = choice->signatures[passed[i]->id].out[0];
    int v = 0;
    while (v < n && !sli_sbp_equal(out[v].sbp, sbp)) v++;
    if (v == n) out[n++] = (vote){sbp, 0};
    out[v].count++;
  }
  qsort(out, (size_t)n, sizeof *out, by_votes);
  out[n++] = (vote){{SL_BROADCAST, 0}, 0};
  return n;
}

/* Chooses again, with the same layout for all tensors that blocks pass on. */
static sl_status choose_with(const sli_tensor_search *s, int count, const sli_node *const *passed,
                             sl_sbp sbp, sli_choice *out, bool *found) {
  sli_tensor_search with = *s;
  sl_given_sbp *given = sli_calloc((size_t)(s->ngiven + count) + 1, sizeof *given);
  if (s->ngiven) memcpy(given, s->given, (size_t)s->ngiven * sizeof *given);
  for (int i = 0; i < count; i++)
    given[s->ngiven + i] =
        (sl_given_sbp){.name = passed[i]->name, .axis = SLI_AXIS_TENSOR, .sbp = sbp};
  with.given = given;
  with.ngiven += count;
  sl_status status = tensor_choose(&with, out, found);
  free(given);
  return status;
}

/* Gives the tensors that blocks pass on one layout, since any stage may follow another: the most
 * common one that all can have. Keeps the choice if there is none; lowering then refuses the paths
 * that it does not fit. */
static void choose_alike(const sli_tensor_search *s, sli_choice *choice) {
  const sli_node **passed = sli_calloc((size_t)s->g->nnodes + 1, sizeof(sli_node *));
  int count = find_passed(s->g, passed);
  vote *layouts = sli_calloc((size_t)count + 1, sizeof *layouts);
  int n = list_layouts(choice, count, passed, layouts);
  bool found = n < 3; /* one layout, and the copy */
  for (int i = 0; i < n && !found; i++) {
    sli_choice again;
    if (choose_with(s, count, passed, layouts[i].sbp, &again, &found) || !found) {
      found = false;
      continue;
    }
    sli_choice_free(choice);
    *choice = again;
  }
  free(layouts);
  free(passed);
}

sl_status sli_choose_tensor(const sli_tensor_search *s, sli_choice *out) {
  bool found = false;
  sl_status status = tensor_choose(s, out, &found);
  if (!status && found && s->g->skips) choose_alike(s, out);
  return status || found ? status : tensor_refuse(s);
}
