/* Firing times of groups where microbatches skip stages, and the keys of what they read and
 * write (ways.c). */
#include "graph/lower/ir.h"

#include <stdlib.h>

static bool is_all(const sli_lowering *l, const sli_visits *v) { return v->count == l->in->m; }

/* ---- queries
 * ------------------------------------------------------------------------------------ */

static const sli_passage *way_of(const sli_lowering *l, int bundle) {
  const sli_walks *w = l->walks;
  return w && bundle < w->nways && w->of[bundle].made_as != SL_NONE ? &w->of[bundle] : NULL;
}

static const sli_visits *some_of(const sli_lowering *l, const sli_visits *v) {
  return is_all(l, v) ? NULL : v;
}

/* Returns the single reader of a transfer of data made once a step, whose firings the transfer
 * shares. */
static const sli_group *follows(const sli_lowering *l, const sli_group *g) {
  bool one = g->hop && g->hop->reader != SL_NONE && l->bundles[g->hop->origin].rate >= SLI_PER_STEP;
  return one ? &l->groups[g->hop->reader] : NULL;
}

const sli_visits *sli_bundle_visits(const sli_lowering *l, const sli_bundle *b) {
  if (!l->walks || b->rate >= SLI_PER_STEP || b->eval) return NULL;
  const sli_passage *along = way_of(l, b->origin);
  if (along) return some_of(l, &along->visits);
  const sli_group *reader = b->producer == SL_NONE ? NULL : follows(l, &l->groups[b->producer]);
  if (reader) return sli_group_visits(l, reader);
  int by = l->bundles[b->origin].producer;
  return by == SL_NONE ? NULL : sli_group_visits(l, &l->groups[by]);
}

/* Returns a group's visits; reports have those of what they read. */
const sli_visits *sli_group_visits(const sli_lowering *l, const sli_group *g) {
  if (!l->walks || g->rate != SLI_PER_TICK || g->eval) return NULL;
  if (sli_is_of_pass(g)) return some_of(l, &l->walks->stage[g->stage]);
  if (follows(l, g)) return sli_group_visits(l, follows(l, g));
  if (!g->hop && !(g->cls == SL_CLASS_L && g->ninputs)) return NULL;
  return sli_bundle_visits(l, &l->bundles[g->hop ? g->hop->origin : g->inputs[0]]);
}

int sli_bundle_taken_for(const sli_lowering *l, const sli_group *g, int bundle) {
  int origin = l->bundles[bundle].origin;
  const sli_passage *along = way_of(l, origin);
  if (!along) return origin;
  return g->stage == along->from ? along->made_as : along->read_as;
}

/* Returns the first port among those that stand for the same bundle. */
static int base_of(const sli_lowering *l, const sli_group *g, const int *bundles, int port) {
  int i = 0;
  if (!way_of(l, l->bundles[bundles[port]].origin)) return port;
  while (sli_bundle_taken_for(l, g, bundles[i]) != sli_bundle_taken_for(l, g, bundles[port])) i++;
  return i;
}

const int32_t *sli_visits_bases(const sli_lowering *l, const sli_group *g) {
  if (!l->walks || g->hop) return NULL;
  int32_t *bases = sl_plan_alloc(l->plan, (size_t)(g->ninputs + g->noutputs) * sizeof *bases);
  bool any = false;
  for (int i = 0; i < g->ninputs; i++) {
    bases[i] = base_of(l, g, g->inputs, i);
    any |= bases[i] != i;
  }
  for (int i = 0; i < g->noutputs; i++) {
    bases[g->ninputs + i] = g->ninputs + base_of(l, g, g->outputs, i);
    any |= bases[g->ninputs + i] != g->ninputs + i;
  }
  return any ? bases : NULL;
}

/* ---- maps ------------------------------------------------------------------------------------ */

int32_t sli_visits_ticks(const sli_lowering *l, const sli_visits *v) {
  sl_map_entry *entries = sli_calloc((size_t)v->count, sizeof *entries);
  for (int i = 0; i < v->count; i++) entries[i] = (sl_map_entry){v->tick[i], SL_FIRST | SL_LAST};
  int32_t map = sl_plan_add_map(l->plan, (uint32_t)v->count, l->in->m, entries);
  free(entries);
  return map;
}

/* Maps firings to keys, which have no gap; groups that also fire in other ticks skip those. */
int32_t sli_visits_map(const sli_lowering *l, const sli_group *g, const sli_bundle *b) {
  const sli_visits *fires = sli_group_visits(l, g), *made = sli_bundle_visits(l, b);
  int n = fires ? fires->count : l->in->m, keys = made ? made->count : l->in->m, key = 0;
  sl_map_entry *entries = sli_calloc((size_t)n, sizeof *entries);
  for (int i = 0; i < n; i++) {
    int tick = fires ? fires->tick[i] : i;
    bool there = key < keys && (made ? made->tick[key] : key) == tick;
    entries[i] = there ? (sl_map_entry){key++, SL_FIRST | SL_LAST} : (sl_map_entry){0, SL_SKIP};
  }
  SLI_CHECK(key == keys, "group %s fires %d times for %d of bundle %s", g->name, n, keys, b->name);
  int32_t map = sl_plan_add_map(l->plan, (uint32_t)n, keys, entries);
  free(entries);
  return map;
}
