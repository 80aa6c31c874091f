/* SPDX-License-Identifier: Apache-2.0 */
/* An order in which the tasks of a tick could run one after another.
 *
 * A slot pool gives a slot to the next task once all readers of the previous task are done. If one
 * of these readers waits for the next task, both are stuck. This cannot happen in an order in which
 * each task follows all tasks that it reads from: a task that takes over a slot follows the readers
 * of the slot's previous contents (slot_pools.c).
 *
 * Passes are ordered by the data flow (sli_lower_turn). Tasks that a pass reads from come right
 * before it, unless they come earlier anyway; exchanges of its results come as soon as possible. */
#include "graph/lower/ir.h"

#include <stdlib.h>

typedef struct line {
  const sli_lowering *l;
  int count;
  int *place;   /* [ncomputing] from 1 on; 0: no place yet */
  int *pending; /* [ncomputing] inputs from its own pass without a place yet */
} line;

static bool same_direction(const sli_task *a, const sli_task *b) {
  return a != b && a->backward == b->backward && a->phase == b->phase && a->pace == b->pace;
}

static void count_pending(line *x) {
  const sli_lowering *l = x->l;
  for (int i = 0; i < l->nbuffers; i++) {
    const sli_buffer *b = &l->buffers[i];
    if (b->producer == SL_NONE || b->source != SL_NONE) continue;
    for (int c = 0; c < b->nconsumers; c++)
      x->pending[b->consumers[c]] +=
          same_direction(&l->tasks[b->producer], &l->tasks[b->consumers[c]]);
  }
}

static void turns_place(line *x, int task);

static void place_what_it_reads(line *x, int task) {
  const sli_lowering *l = x->l;
  const sli_task *g = &l->tasks[task];
  for (int i = 0; i < g->ninputs; i++) {
    int by = l->buffers[l->buffers[g->inputs[i]].origin].producer;
    if (by != SL_NONE && !x->place[by] && same_direction(&l->tasks[by], g)) turns_place(x, by);
  }
}

/* Places exchanges of a task's results, if all their other inputs have places. */
static void place_exchanges(line *x, int task) {
  const sli_lowering *l = x->l;
  const sli_task *g = &l->tasks[task];
  for (int i = 0; i < g->noutputs; i++) {
    const sli_buffer *b = &l->buffers[g->outputs[i]];
    for (int c = 0; c < b->nconsumers; c++) {
      int to = b->consumers[c];
      if (!same_direction(g, &l->tasks[to]) || --x->pending[to]) continue;
      if (l->tasks[to].cls == SL_CLASS_C && !x->place[to]) turns_place(x, to);
    }
  }
}

static void turns_place(line *x, int task) {
  x->place[task] = -1; /* a cycle back to this task belongs to another tick */
  place_what_it_reads(x, task);
  x->place[task] = ++x->count;
  place_exchanges(x, task);
}

static int by_turn(const void *a, const void *b, void *lowering) {
  return sli_lower_turn(lowering, *(const int *)a, *(const int *)b);
}

int *sli_lower_places(sli_lowering *l) {
  size_t n = (size_t)l->ncomputing;
  line x = {.l = l,
            .place = sli_arena_alloc(&l->arena, n * sizeof *x.place),
            .pending = sli_calloc(n + 1, sizeof *x.pending)};
  int *passes = sli_calloc(n + 1, sizeof *passes), npasses = 0;
  count_pending(&x);
  for (int i = 0; i < l->ncomputing; i++)
    if (l->tasks[i].cls != SL_CLASS_C) passes[npasses++] = i;
  qsort_r(passes, (size_t)npasses, sizeof *passes, by_turn, l);
  for (int i = 0; i < npasses; i++)
    if (!x.place[passes[i]]) turns_place(&x, passes[i]);
  for (int i = 0; i < l->ncomputing; i++)
    if (!x.place[i]) turns_place(&x, i);
  free(passes);
  free(x.pending);
  return x.place;
}
