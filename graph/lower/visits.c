/* SPDX-License-Identifier: Apache-2.0 */
/* Firings of tasks if microbatches skip stages, and the keys of the buffers they read and write
 * (stage_routes.c). */
#include "graph/lower/ir.h"

#include <stdlib.h>

static bool is_all(const sli_lowering *l, const sli_visits *v) { return v->count == l->in->m; }

/* ---- queries
 * ------------------------------------------------------------------------------------ */

static const sli_stage_route *route_of(const sli_lowering *l, int buffer) {
  const sli_stage_routes *w = l->routes;
  return w && buffer < w->nroutes && w->routes[buffer].made_as != SL_NONE ? &w->routes[buffer]
                                                                          : NULL;
}

static const sli_visits *some_of(const sli_lowering *l, const sli_visits *v) {
  return is_all(l, v) ? NULL : v;
}

/* Returns the single reader of a transfer of data made once a step, whose firings the transfer
 * shares. */
static const sli_task *follows(const sli_lowering *l, const sli_task *task) {
  bool one = task->transfer && task->transfer->reader != SL_NONE &&
             l->buffers[task->transfer->origin].rate >= SLI_PER_STEP;
  return one ? &l->tasks[task->transfer->reader] : NULL;
}

const sli_visits *sli_buffer_visits(const sli_lowering *l, const sli_buffer *b) {
  if (!l->routes || b->rate >= SLI_PER_STEP || b->pace) return NULL;
  const sli_stage_route *along = route_of(l, b->origin);
  if (along) return some_of(l, &along->visits);
  const sli_task *reader = b->producer == SL_NONE ? NULL : follows(l, &l->tasks[b->producer]);
  if (reader) return sli_task_visits(l, reader);
  int by = l->buffers[b->origin].producer;
  return by == SL_NONE ? NULL : sli_task_visits(l, &l->tasks[by]);
}

/* Returns a task's visits; reports have the visits of their inputs. */
const sli_visits *sli_task_visits(const sli_lowering *l, const sli_task *task) {
  if (!l->routes || task->rate != SLI_PER_TICK || task->pace) return NULL;
  if (sli_is_of_pass(task)) return some_of(l, &l->routes->stage[task->stage]);
  if (follows(l, task)) return sli_task_visits(l, follows(l, task));
  if (!task->transfer && !(task->cls == SL_CLASS_L && task->ninputs)) return NULL;
  return sli_buffer_visits(l,
                           &l->buffers[task->transfer ? task->transfer->origin : task->inputs[0]]);
}

int sli_buffer_taken_for(const sli_lowering *l, const sli_task *task, int buffer) {
  int origin = l->buffers[buffer].origin;
  const sli_stage_route *along = route_of(l, origin);
  if (!along) return origin;
  return task->stage == along->from ? along->made_as : along->read_as;
}

/* Returns the first port among the ports that replace the same buffer. */
static int base_of(const sli_lowering *l, const sli_task *task, const int *buffers, int port) {
  int i = 0;
  if (!route_of(l, l->buffers[buffers[port]].origin)) return port;
  while (sli_buffer_taken_for(l, task, buffers[i]) != sli_buffer_taken_for(l, task, buffers[port]))
    i++;
  return i;
}

const int32_t *sli_visits_bases(const sli_lowering *l, const sli_task *task) {
  if (!l->routes || task->transfer) return NULL;
  int32_t *bases = sl_plan_alloc(l->plan, (size_t)(task->ninputs + task->noutputs) * sizeof *bases);
  bool any = false;
  for (int i = 0; i < task->ninputs; i++) {
    bases[i] = base_of(l, task, task->inputs, i);
    any |= bases[i] != i;
  }
  for (int i = 0; i < task->noutputs; i++) {
    bases[task->ninputs + i] = task->ninputs + base_of(l, task, task->outputs, i);
    any |= bases[task->ninputs + i] != task->ninputs + i;
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

/* Maps firings to consecutive keys; tasks that also fire in other ticks skip those ticks. */
int32_t sli_visits_map(const sli_lowering *l, const sli_task *task, const sli_buffer *b) {
  const sli_visits *fires = sli_task_visits(l, task), *made = sli_buffer_visits(l, b);
  int n = fires ? fires->count : l->in->m, keys = made ? made->count : l->in->m, key = 0;
  sl_map_entry *entries = sli_calloc((size_t)n, sizeof *entries);
  for (int i = 0; i < n; i++) {
    int tick = fires ? fires->tick[i] : i;
    bool there = key < keys && (made ? made->tick[key] : key) == tick;
    entries[i] = there ? (sl_map_entry){key++, SL_FIRST | SL_LAST} : (sl_map_entry){0, SL_SKIP};
  }
  SLI_CHECK(key == keys, "group %s fires %d times for %d of bundle %s", task->name, n, keys,
            b->name);
  int32_t map = sl_plan_add_map(l->plan, (uint32_t)n, keys, entries);
  free(entries);
  return map;
}
