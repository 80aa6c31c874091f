/* Which devices of a stage have the same of a parameter or of the optimizer's state.
 *
 * What devices have of one whole goes by one name. Where they have the same part, or all
 * of it, they keep it the same by making the same updates; so one of them, that of the
 * lowest rank, speaks for all when values are stored or gathered, and the others'
 * are replicas. */
#include "graph/lower.h"

#include <stdlib.h>
#include <string.h>

static bool part_equal(const sl_part *a, const sl_part *b) {
  if (a->axis != b->axis) return false;
  if (a->axis == SL_PART_ALL) return true;
  bool same = a->nranges == b->nranges;
  for (int r = 0; same && r < a->nranges; r++)
    same = a->begin[r] == b->begin[r] && a->count[r] == b->count[r];
  return same;
}

bool sli_shard_equal(const sl_shard *a, const sl_shard *b) {
  if (!a || !b) return a == b;
  bool same = sl_type_equal(&a->whole, &b->whole);
  for (int p = 0; same && p < SL_SHARD_PARTS; p++) same = part_equal(&a->parts[p], &b->parts[p]);
  return same;
}

int sli_lower_state_stage(const sli_lowering *l, const sl_tensor *t) {
  int bundle = l->homes[t->id].bundle;
  if (bundle == SL_NONE) return SL_NONE;
  if (t->param) return l->stage_of[t->home];
  const sli_bundle *b = &l->bundles[bundle];
  bool state = b->producer != SL_NONE && b->memory == SL_MEMORY_OPTIMIZER;
  return state ? l->groups[b->producer].stage : SL_NONE;
}

static int by_name(const void *a, const void *b) {
  const sl_tensor *const *x = a, *const *y = b;
  int order = strcmp((*x)->name, (*y)->name);
  return order ? order : (*x)->rank - (*y)->rank;
}

/* Is one of the `count` before t, which have its name and lower ranks, the same? */
static bool has_twin(const sl_tensor *const *before, int count, const sl_tensor *t) {
  for (int i = 0; i < count; i++)
    if (sli_shard_equal(before[i]->shard, t->shard)) return true;
  return false;
}

void sli_lower_replicas(sli_lowering *l) {
  const sl_graph *g = l->g;
  l->replica = sli_arena_alloc(&l->arena, (size_t)g->ntensors * sizeof *l->replica);
  if (l->ranks == 1) return;
  const sl_tensor **all = sli_calloc((size_t)g->ntensors, sizeof *all);
  int n = 0;
  for (int i = 0; i < g->ntensors; i++)
    if (sli_lower_state_stage(l, g->tensors[i]) != SL_NONE) all[n++] = g->tensors[i];
  qsort(all, (size_t)n, sizeof *all, by_name);
  for (int i = 0, first = 0; i < n; i++) {
    if (strcmp(all[i]->name, all[first]->name)) first = i;
    l->replica[all[i]->id] = has_twin(all + first, i - first, all[i]);
  }
  free(all);
}
