/* An order in which the groups of a tick could run one after another.
 *
 * A lane gives a slot to the next group once all readers of the group before are done. If one of
 * these readers waits for the next group itself, nothing goes on. That cannot happen in an order
 * in which each group follows all groups that it reads from: a group that takes over a slot
 * follows the readers of its previous contents (lanes.c).
 *
 * Passes are ordered by the data flow (sli_lower_turn). Groups that a pass reads from come right
 * before it, unless they come earlier anyway; exchanges of its results come as soon as possible. */
#include "graph/lower/ir.h"

#include <stdlib.h>

typedef struct line {
  const sli_lowering *l;
  int count;
  int *place;   /* [ncomputing] from 1 on; 0: no place yet */
  int *pending; /* [ncomputing] inputs from its own pass without a place yet */
} line;

static bool same_way(const sli_group *a, const sli_group *b) {
  return a != b && a->back == b->back && a->phase == b->phase && a->eval == b->eval;
}

static void count_pending(line *x) {
  const sli_lowering *l = x->l;
  for (int i = 0; i < l->nbundles; i++) {
    const sli_bundle *b = &l->bundles[i];
    if (b->producer == SL_NONE || b->source != SL_NONE) continue;
    for (int c = 0; c < b->nconsumers; c++)
      x->pending[b->consumers[c]] += same_way(&l->groups[b->producer], &l->groups[b->consumers[c]]);
  }
}

static void place(line *x, int group);

static void place_what_it_reads(line *x, int group) {
  const sli_lowering *l = x->l;
  const sli_group *g = &l->groups[group];
  for (int i = 0; i < g->ninputs; i++) {
    int by = l->bundles[l->bundles[g->inputs[i]].origin].producer;
    if (by != SL_NONE && !x->place[by] && same_way(&l->groups[by], g)) place(x, by);
  }
}

/* Places exchanges of a group's results, if nothing else is missing. */
static void place_exchanges(line *x, int group) {
  const sli_lowering *l = x->l;
  const sli_group *g = &l->groups[group];
  for (int i = 0; i < g->noutputs; i++) {
    const sli_bundle *b = &l->bundles[g->outputs[i]];
    for (int c = 0; c < b->nconsumers; c++) {
      int to = b->consumers[c];
      if (!same_way(g, &l->groups[to]) || --x->pending[to]) continue;
      if (l->groups[to].cls == SL_CLASS_C && !x->place[to]) place(x, to);
    }
  }
}

static void place(line *x, int group) {
  x->place[group] = -1; /* a cycle back to this group belongs to another tick */
  place_what_it_reads(x, group);
  x->place[group] = ++x->count;
  place_exchanges(x, group);
}

static int by_turn(const void *a, const void *b, void *lowering) {
  return sli_lower_turn(lowering, *(const int *)a, *(const int *)b);
}

int *sli_lower_places(sli_lowering *l) {
  size_t n = (size_t)l->ncomputing;
  line x = {.l = l, .place = sli_arena_alloc(&l->arena, n * sizeof *x.place),
            .pending = sli_calloc(n + 1, sizeof *x.pending)};
  int *passes = sli_calloc(n + 1, sizeof *passes), npasses = 0;
  count_pending(&x);
  for (int i = 0; i < l->ncomputing; i++)
    if (l->groups[i].cls != SL_CLASS_C) passes[npasses++] = i;
  qsort_r(passes, (size_t)npasses, sizeof *passes, by_turn, l);
  for (int i = 0; i < npasses; i++)
    if (!x.place[passes[i]]) place(&x, passes[i]);
  for (int i = 0; i < l->ncomputing; i++)
    if (!x.place[i]) place(&x, i);
  free(passes);
  free(x.pending);
  return x.place;
}
