/* SPDX-License-Identifier: Apache-2.0 */
/* Passes beside each other: schedules with a script (graph/schedule/script.c).
 *
 * On modelled devices the passes forward and those backward are lanes of their device. A pass that
 * the script puts beside another asks for its part of the work that both do; all others ask for the
 * whole device. Two that begin together end together, after the time of --cost F&B, or if that is
 * not given after the sum of their times. Devices that compute run the same order on one queue. */
#include <stdlib.h>
#include <string.h>

#include "graph/lower/ir.h"

static bool is_scripted(const sli_task *task) {
  return !task->transfer && !task->host && !task->pace && !task->phase && task->stage >= 0 &&
         task->cls <= SL_CLASS_W;
}

/* True if every pass of a stage is one task on one device, as a script expects. */
static bool is_plain(const sli_lowering *l) {
  int *tasks = sli_calloc((size_t)l->stages * SL_CLASS_COUNT, sizeof *tasks);
  const char *placement = l->in->options->parallel.placement;
  bool plain = l->in->ranks == 1 && !l->routes && l->in->options->schedule.ranges <= 1 &&
               !l->in->options->schedule.order &&
               (!placement || !strcmp(placement, l->pick.schedule->placement));
  for (int i = 0; i < l->ntasks && plain; i++)
    if (is_scripted(&l->tasks[i]))
      plain = ++tasks[l->tasks[i].stage * SL_CLASS_COUNT + l->tasks[i].cls] == 1 &&
              l->tasks[i].rate == SLI_PER_TICK;
  free(tasks);
  return plain;
}

void sli_lower_scripts(sli_lowering *l) {
  sli_at at = {.p = l->in->p, .v = l->pick.v, .m = l->in->m, .k = l->in->k};
  sli_scripted **scripts = sli_arena_alloc(&l->arena, (size_t)l->in->p * sizeof *scripts);
  if (!l->pick.split || !is_plain(l)) return;
  for (int d = 0; d < l->in->p; d++) {
    at.d = sli_along_of(l->in, d);
    l->script.count = sli_schedule_script(l->pick.schedule, &at, &l->arena, &scripts[d]);
    if (!l->script.count) return;
  }
  l->script.passes = (const sli_scripted *const *)scripts;
  l->script.lanes = l->in->kind->modelled;
}

/* Returns the seconds of a chunk's passes of one class, on a device. */
static double chunk_seconds(const sli_lowering *l, int device, int chunk, sl_class cls) {
  for (int i = 0; i < l->ncomputing; i++) {
    const sli_task *task = &l->tasks[i];
    if (is_scripted(task) && task->device == device && task->chunk == chunk && task->cls == cls)
      return sli_lower_seconds(l, task);
  }
  return 0;
}

/* Returns how much sooner two passes end beside each other than one after the other. */
static double gain_beside(const sli_lowering *l) {
  const sl_cost *c = &l->in->options->simulation.cost;
  return c->together > 0 ? (c->F + c->B + c->W) / c->together : 1;
}

/* Returns the share of a pass that takes `own` seconds beside one of `other` seconds. */
static sl_share share_beside(double own, double other, double gain) {
  const double least = 1e-3; /* of a device, so that both get on */
  double all = own + other, part = all > 0 ? own / all : 0.5;
  part = SLI_MIN(SLI_MAX(part, least), 1 - least);
  return (sl_share){part, own > 0 ? own / all * gain : part};
}

const sl_share *sli_lower_shares(const sli_lowering *l, const sli_task *task) {
  if (!l->script.lanes || !is_scripted(task)) return NULL;
  const sli_scripted *items = l->script.passes[task->device];
  double seconds[2][2]; /* by chunk: forward, backward */
  for (int c = 0; c < 2; c++) {
    seconds[c][0] = chunk_seconds(l, task->device, c, SL_CLASS_F);
    seconds[c][1] = chunk_seconds(l, task->device, c, SL_CLASS_B) +
                    chunk_seconds(l, task->device, c, SL_CLASS_W);
  }
  sl_share *shares = sl_plan_alloc(l->plan, (size_t)l->in->m * sizeof *shares);
  bool backward = task->cls != SL_CLASS_F;
  for (int i = 0; i < l->script.count; i++) {
    const sli_scripted *s = &items[i];
    if (s->cls != task->cls || s->chunk != task->chunk) continue;
    shares[s->number] = s->beside ? share_beside(seconds[s->chunk][backward],
                                                 seconds[!s->chunk][!backward], gain_beside(l))
                                  : (sl_share){1, 1};
  }
  return shares;
}
