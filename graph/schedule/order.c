/* SPDX-License-Identifier: Apache-2.0 */
/* Fixed order of passes: derived, or read from a file.
 *
 * Greedy order is not always best: a device that takes the first available pass may narrowly miss a
 * pass that all other devices wait for. With equal stages that never happens; with latency or
 * uneven stages it can, and some schedules depend on devices staying in step. On modelled devices,
 * whose durations are known, a plan is therefore also tried with two fixed orders: the order that
 * emerges without transfer times, and the order with passes of equal duration, which is the
 * published one. The best on the virtual clock is kept.
 *
 * The file has a line per device, `0: F0 F0 B0 F0 B0 B0 ...`: the passes of one step in order, each
 * a class letter and the stage along the model. Microbatches are not listed, since a pass takes
 * them in order. A device's other work in a step (gradient norm, update) follows the passes; work
 * that occurs in some steps only (an evaluation) runs when it can. Empty lines and text after a #
 * are ignored. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <sluice/runtime.h>

#include "actors/plan/plan.h"
#include "base/base.h"
#include "graph/schedule/schedule.h"
#include "io/file.h"

/* ---- reading ---------------------------------------------------------------------- */

static bool is_pass(const sli_pass_order *o, int32_t actor) {
  sl_class cls = o->plan->actors[actor].cls;
  bool aside = o->aside && o->aside[actor];
  return !aside && (cls == SL_CLASS_F || cls == SL_CLASS_B || cls == SL_CLASS_W);
}

/* True if an actor runs on a device's queue of passes, or on a lane beside it. */
static bool is_on(const sli_pass_order *o, int32_t actor, int32_t queue) {
  return sli_same_lanes(o->plan, o->plan->actors[actor].queue, queue);
}

static int32_t find_pass(const sli_pass_order *o, int32_t queue, const char *name) {
  for (int32_t i = 0; i < o->plan->nactors; i++)
    if (is_on(o, i, queue) && !strcmp(o->plan->actors[i].name, name)) return i;
  return SL_NONE;
}

/* Returns the firings of an actor in a step, or 0 if the queue's order does not include it. */
static int32_t firings(const sli_pass_order *o, int32_t actor, int32_t queue) {
  const sl_actor *a = &o->plan->actors[actor];
  return is_on(o, actor, queue) && sli_every(a) == 1 ? a->firings_per_step : 0;
}

static int32_t count_firings(const sli_pass_order *o, int32_t queue) {
  int32_t sum = 0;
  for (int32_t i = 0; i < o->plan->nactors; i++) sum += firings(o, i, queue);
  return sum;
}

/* Checks that a line lists each pass as often as a step runs it. */
static sl_status check_passes(const sli_pass_order *o, int32_t queue, const int32_t *order,
                              int32_t n, const char *path, int line) {
  for (int32_t i = 0; i < o->plan->nactors; i++) {
    const sl_actor *a = &o->plan->actors[i];
    int32_t times = 0;
    if (!is_on(o, i, queue) || !is_pass(o, i)) continue;
    for (int32_t k = 0; k < n; k++) times += order[k] == i;
    if (times != a->firings_per_step)
      return sl_fail(SL_E_INPUT, "%s:%d: %s is listed %d times, but a step has it %d times", path,
                     line, a->name, times, a->firings_per_step);
  }
  return SL_OK;
}

/* Fixes the order of a device, on all lanes of its passes: its passes, then its other work. */
static void set_order(const sli_pass_order *o, int device, int32_t *order, int32_t n) {
  int32_t queue = o->queues[device], most = count_firings(o, queue);
  for (int32_t i = 0; i < o->plan->nactors; i++)
    for (int32_t f = 0; !is_pass(o, i) && f < firings(o, i, queue) && n < most; f++) order[n++] = i;
  for (int32_t i = 0; i < o->plan->nqueues; i++) {
    if (!sli_same_lanes(o->plan, i, queue)) continue;
    o->plan->queues[i].order = order;
    o->plan->queues[i].norder = n;
  }
}

/* Reads the passes of one line. */
static sl_status read_passes(const sli_pass_order *o, const char *path, int line, int device,
                             char *text) {
  sl_plan *plan = o->plan;
  int32_t queue = o->queues[device], most = count_firings(o, queue), n = 0;
  int32_t *order = sl_plan_alloc(plan, (size_t)most * sizeof *order);
  char *state = NULL;
  for (char *word = strtok_r(text, " \t\r\n", &state); word;
       word = strtok_r(NULL, " \t\r\n", &state)) {
    int32_t actor = find_pass(o, queue, word);
    if (actor == SL_NONE)
      return sl_fail(SL_E_INPUT, "%s:%d: device %d has no pass %s", path, line, device, word);
    if (n == most)
      return sl_fail(SL_E_INPUT, "%s:%d: device %d has more passes than the %d of a step", path,
                     line, device, most);
    order[n++] = actor;
  }
  sl_status status = check_passes(o, queue, order, n, path, line);
  if (!status) set_order(o, device, order, n);
  return status;
}

typedef struct reading {
  const sli_pass_order *o;
  const char *path;
} reading;

static sl_status read_line(void *ctx, int line, char *text, size_t length) {
  const reading *r = ctx;
  const sli_pass_order *o = r->o;
  const char *path = r->path;
  if (strlen(text) != length) return sl_fail(SL_E_INPUT, "%s:%d: contains a byte 0", path, line);
  text[strcspn(text, "#")] = 0;
  char *at = text + strspn(text, " \t\r\n"), *end;
  if (!*at) return SL_OK;
  long device = strtol(at, &end, 10);
  if (end == at || *end != ':' || device < 0 || device >= o->ndevices)
    return sl_fail(SL_E_INPUT, "%s:%d: a line must begin with a device, 0: to %d:", path, line,
                   o->ndevices - 1);
  if (o->plan->queues[o->queues[device]].order)
    return sl_fail(SL_E_INPUT, "%s:%d: device %ld already has an order", path, line, device);
  return read_passes(o, path, line, (int)device, end + 1);
}

static bool has_passes(const sli_pass_order *o, int32_t queue) {
  for (int32_t i = 0; i < o->plan->nactors; i++)
    if (is_pass(o, i) && firings(o, i, queue)) return true;
  return false;
}

static sl_status check_all_there(const sli_pass_order *o, const char *path) {
  for (int d = 0; d < o->ndevices; d++)
    if (!o->plan->queues[o->queues[d]].order && has_passes(o, o->queues[d]))
      return sl_fail(SL_E_INPUT, "%s: device %d has no order; each of the %d devices needs a line",
                     path, d, o->ndevices);
  return SL_OK;
}

static sl_status read_orders(const sli_pass_order *o, const char *path) {
  sl_status status = sli_file_lines(path, read_line, &(reading){o, path});
  return status ? status : check_all_there(o, path);
}

/* ---- scripts ----------------------------------------------------------------------- */

static int32_t find_scripted(const sli_pass_order *o, int32_t queue, const sli_scripted *s) {
  for (int32_t i = 0; i < o->plan->nactors; i++) {
    const sl_actor *a = &o->plan->actors[i];
    if (is_on(o, i, queue) && is_pass(o, i) && a->cls == s->cls && a->chunk == s->chunk) return i;
  }
  return SL_NONE;
}

/* Fixes the orders of scripts. A first chunk may have no input gradient. */
static void follow_scripts(const sli_pass_order *o) {
  for (int d = 0; d < o->ndevices; d++) {
    int32_t queue = o->queues[d], n = 0,
            *order = sl_plan_alloc(o->plan, (size_t)count_firings(o, queue) * sizeof *order);
    for (int i = 0; i < o->nscripted; i++) {
      int32_t actor = find_scripted(o, queue, &o->scripts[d][i]);
      if (actor != SL_NONE) order[n++] = actor;
    }
    set_order(o, d, order, n);
  }
}

/* ---- choosing ---------------------------------------------------------------------- */

typedef struct order {
  int32_t n;
  const int32_t *actors;
} order;

static void get_orders(const sli_pass_order *o, order *out) {
  for (int d = 0; d < o->ndevices; d++) {
    const sl_queue *q = &o->plan->queues[o->queues[d]];
    out[d] = (order){q->norder, q->order};
  }
}

static void set_orders(const sli_pass_order *o, const order *from) {
  for (int d = 0; d < o->ndevices; d++) {
    sl_queue *q = &o->plan->queues[o->queues[d]];
    q->norder = from[d].n;
    q->order = from[d].actors;
  }
}

static double predicted_bubble(const sl_plan *plan) {
  sl_statistics f;
  if (sl_plan_predict(plan, NULL, &f)) return INFINITY; /* the proof reports the reason */
  free(f.devices);
  return f.bubble_fraction;
}

/* Fixes the order and finishes the plan again, since the order is part of its checks and hash. */
static sl_status fix(sl_plan *plan, const double *seconds) {
  sl_status status = sl_plan_fix_order(plan, seconds);
  return status ? status : sli_plan_settle(plan);
}

/* Tries the order that emerges with these durations. Skips it if the plan deadlocks with them. */
static sl_status try_order(const sli_pass_order *o, const double *seconds, order *best,
                           double *bubble) {
  sl_status status = fix(o->plan, seconds);
  if (status) return status == SL_E_STUCK ? SL_OK : status;
  double with = predicted_bubble(o->plan);
  if (with < *bubble - 1e-9) {
    *bubble = with;
    get_orders(o, best);
  }
  set_orders(o, best);
  return SL_OK;
}

/* Returns the number of actors per pass, [stage * SL_CLASS_COUNT + class], on one device of each
 * stage. */
static int32_t *count_parts(const sli_pass_order *o, int32_t stages) {
  int32_t *parts = sli_calloc((size_t)stages * SL_CLASS_COUNT, sizeof *parts);
  int32_t *queue = sli_calloc((size_t)stages, sizeof *queue);
  for (int32_t i = 0; i < o->plan->nactors; i++) {
    const sl_actor *a = &o->plan->actors[i];
    if (!is_pass(o, i) || a->stage < 0) continue;
    if (!queue[a->stage]) queue[a->stage] = 1 + a->queue;
    parts[a->stage * SL_CLASS_COUNT + a->cls] += queue[a->stage] == 1 + a->queue;
  }
  free(queue);
  return parts;
}

/* Returns durations that make all passes equal, however many actors they have; an unsplit backward
 * pass takes as long as two forward passes. */
static double *equal_seconds(const sli_pass_order *o) {
  double *seconds = sli_calloc((size_t)o->plan->nactors, sizeof *seconds);
  int32_t stages = 1;
  for (int32_t i = 0; i < o->plan->nactors; i++)
    stages = SLI_MAX(stages, o->plan->actors[i].stage + 1);
  int32_t *parts = count_parts(o, stages);
  for (int32_t i = 0; i < o->plan->nactors; i++) {
    const sl_actor *a = &o->plan->actors[i];
    if (!is_pass(o, i)) continue;
    int32_t n = a->stage < 0 ? 1 : SLI_MAX(parts[a->stage * SL_CLASS_COUNT + a->cls], 1);
    seconds[i] = (a->cls == SL_CLASS_B && !o->split ? 2.0 : 1.0) / n;
  }
  free(parts);
  return seconds;
}

static sl_status order_choose(const sli_pass_order *o) {
  order *best = sli_calloc((size_t)o->ndevices, sizeof *best);
  double *equal = equal_seconds(o), bubble = predicted_bubble(o->plan);
  get_orders(o, best);
  sl_status status = o->latency ? try_order(o, NULL, best, &bubble) : SL_OK;
  if (!status) status = try_order(o, equal, best, &bubble);
  free(equal);
  free(best);
  return status;
}

/* ---- the pass ----------------------------------------------------------------------- */

sl_status sli_order_passes(const sli_pass_order *o) {
  bool derive = o->given && !strcmp(o->given, "derive"), reads = o->given && !derive;
  sl_status status = reads ? read_orders(o, o->given) : SL_OK;
  if (!reads && !derive && o->scripts) follow_scripts(o);
  if (!status) status = sli_plan_settle(o->plan);
  if (status || reads || (o->scripts && !derive)) return status;
  if (derive || o->tuned == 2) return fix(o->plan, NULL);
  if (o->tuned == 1 || !(o->improve || o->latency)) return SL_OK;
  status = order_choose(o);
  return status ? status : sli_plan_settle(o->plan);
}
