/* SPDX-License-Identifier: Apache-2.0 */
/* Explains which actors wait for which, in a progressing run and in a stalled one.
 *
 * The numbers of a status tell what an actor lacks for its next firing. An input waits for the
 * register's producer, an output for a reader that holds its slots. In a stalled run, following
 * these edges from any waiting actor leads back to an actor already seen. These actors form the
 * cycle, which is printed actor by actor and register by register. */
#include "actors/status/status_inner.h"
#include "actors/status/status.h"
#include "base/memory.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- one actor --------------------------------------------------------------------------- */

/* Flow state of a status. Counts each queue's running firing as begun. */
static sli_flow_state state_of(const sl_run_status *rs) {
  const sl_plan *plan = rs->plan;
  int64_t *begun = rs->memory->begun;
  for (int32_t a = 0; a < plan->nactors; a++) begun[a] = rs->fired[a];
  for (int32_t q = 0; q < plan->nqueues; q++)
    if (rs->queues[q].running >= 0) begun[rs->queues[q].running]++;
  return (sli_flow_state){.fired = rs->fired, .begun = begun, .slots = rs->slots};
}

static sl_actor_wait wait_of(const sl_run_status *rs, const sli_flow_state *at, int32_t actor) {
  const sl_actor *a = &rs->plan->actors[actor];
  sl_actor_wait wait = {.actor = actor, .why = SL_WAIT_NONE, .reg = SL_NONE, .on = SL_NONE};
  if (rs->fired[actor] < 0) return wait;
  wait.tick = sl_plan_tick(rs->plan, actor, rs->fired[actor]);
  sli_lack lack = sli_flow_lack(rs->memory->flow, at, actor);
  if (!lack.what) {
    if (a->cls == SL_CLASS_W && rs->plan->queues[a->queue].lazy_w) wait.why = SL_WAIT_POLICY;
    return wait;
  }
  wait.why = lack.what == SLI_LACKS_INPUT ? SL_WAIT_INPUT : SL_WAIT_CREDIT;
  wait.reg = lack.reg;
  wait.on = lack.on;
  return wait;
}

sl_actor_wait sl_run_status_actor_wait(const sl_run_status *rs, int32_t actor) {
  sli_flow_state at = state_of(rs);
  return wait_of(rs, &at, actor);
}

/* ---- what a queue waits for ---------------------------------------------------------------- */

/* Next actor of a fixed order, which advances by one with each firing. SL_NONE if unknown. */
static int32_t next_in_order(const sl_run_status *rs, int32_t queue) {
  const sl_plan *plan = rs->plan;
  const sl_queue *q = &plan->queues[queue];
  int64_t fired = 0;
  for (int32_t a = 0; a < plan->nactors; a++) {
    if (!sli_same_lanes(plan, plan->actors[a].queue, queue)) continue;
    if (rs->fired[a] < 0) return SL_NONE;
    fired += rs->fired[a];
  }
  return q->order[fired % q->norder];
}

static int how_much(const sl_run_status *rs, int32_t queue, const sl_actor_wait *wait) {
  if (wait->why == SL_WAIT_POLICY) return 0;
  return wait->on == SL_NONE || rs->plan->actors[wait->on].queue != queue ? 2 : 1;
}

/* True if wait a is more informative than wait b. A wait for another queue ranks first, then a wait
 * for this queue, then a wait by policy. Among equals the older tick wins, and within a tick the
 * pass that comes first. */
static bool says_more(const sl_run_status *rs, int32_t queue, const sl_actor_wait *a,
                      const sl_actor_wait *b) {
  if (b->actor == SL_NONE) return true;
  int more_a = how_much(rs, queue, a), more_b = how_much(rs, queue, b);
  if (more_a != more_b) return more_a > more_b;
  if (a->tick.number != b->tick.number) return a->tick.number < b->tick.number;
  return rs->plan->actors[a->actor].cls < rs->plan->actors[b->actor].cls;
}

sl_actor_wait sl_run_status_queue_wait(const sl_run_status *rs, int32_t queue) {
  const sl_plan *plan = rs->plan;
  sl_actor_wait best = {.actor = SL_NONE, .reg = SL_NONE, .on = SL_NONE};
  if (rs->queues[queue].running == SL_UNKNOWN) return best;
  sli_flow_state at = state_of(rs);
  if (plan->queues[queue].order) {
    int32_t next = next_in_order(rs, queue);
    return next == SL_NONE ? best : wait_of(rs, &at, next);
  }
  for (int32_t a = 0; a < plan->nactors; a++) {
    if (plan->actors[a].queue != queue || rs->fired[a] < 0) continue;
    sl_actor_wait wait = wait_of(rs, &at, a);
    if (wait.why == SL_WAIT_NONE) return wait;
    if (says_more(rs, queue, &wait, &best)) best = wait;
  }
  return best;
}

/* ---- text --------------------------------------------------------------------------------- */

/* A status, and the number of steps begun. An actor whose next firing is in a later step waits only
 * for that step. */
typedef struct picture {
  const sl_run_status *rs;
  sli_flow_state at;
  int64_t begun;
} picture;

static const char *name_of(const sl_plan *plan, int32_t actor) {
  return actor == SL_NONE ? "nobody" : plan->actors[actor].name;
}

static bool has_begun(const picture *p, int32_t actor) {
  return p->rs->fired[actor] >= 0 &&
         sl_plan_tick(p->rs->plan, actor, p->rs->fired[actor]).step < p->begun;
}

static void say_lack(const picture *p, const sli_lack *lack, FILE *out) {
  const sl_plan *plan = p->rs->plan;
  const sl_register *r = &plan->regs[lack->reg];
  if (lack->what == SLI_LACKS_INPUT) {
    fprintf(out, "waits for key %lld of register %s from %s\n", (long long)lack->key, r->name,
            name_of(plan, lack->on));
  } else if (lack->what == SLI_LACKS_SLOT) {
    fprintf(out, "waits for a free slot of register %s (quota %s = %d) from %s\n", r->name,
            r->quota_name, r->quota, name_of(plan, lack->on));
  } else {
    sli_level level = sli_flow_level(p->rs->memory->flow, &p->at, r->pool);
    fprintf(out, "waits for pool %s (quota %d, in use %d)\n", plan->pools[r->pool].name,
            level.quota, level.used);
  }
}

/* Prints what an actor waits for, if `out` is set; returns the actor it waits for. */
static int32_t waits_for(const picture *p, int32_t actor, FILE *out) {
  const sl_plan *plan = p->rs->plan;
  const sl_actor *a = &plan->actors[actor];
  const sl_queue *q = &plan->queues[a->queue];
  bool begun = has_begun(p, actor);
  sli_lack lack = {.what = SLI_LACKS_NOTHING};
  if (begun) lack = sli_flow_lack(p->rs->memory->flow, &p->at, actor);
  if (out) fprintf(out, "  %s (firing %lld) ", a->name, (long long)p->rs->fired[actor]);
  if (lack.what) {
    if (out) say_lack(p, &lack, out);
    return lack.on;
  }
  int32_t next = q->order && begun ? next_in_order(p->rs, a->queue) : actor;
  if (next != actor && next != SL_NONE) {
    if (out)
      fprintf(out, "could fire, but the order of queue %s has %s next\n", q->name,
              name_of(plan, next));
    return next;
  }
  if (out) fprintf(out, "%s\n", begun ? "could fire, or is running" : "waits for the next step");
  return SL_NONE;
}

/* First actor that lacks something other than the beginning of a step. */
static int32_t first_waiting(const picture *p) {
  for (int32_t a = 0; a < p->rs->plan->nactors; a++)
    if (has_begun(p, a) && sli_flow_lack(p->rs->memory->flow, &p->at, a).what) return a;
  return SL_NONE;
}

static void say_picture(const picture *p, FILE *out) {
  const sl_plan *plan = p->rs->plan;
  bool *seen = sli_calloc((size_t)plan->nactors + 1, sizeof *seen);
  int32_t at = first_waiting(p), last = at;
  for (; at != SL_NONE && !seen[at]; at = waits_for(p, at, NULL)) seen[at] = true, last = at;
  free(seen);
  if (at != SL_NONE) { /* back at an actor already seen: follow the cycle again, printing */
    fprintf(out, "these actors wait for each other in a cycle:\n");
    int32_t start = at;
    do at = waits_for(p, at, out);
    while (at != SL_NONE && at != start);
  } else if (last != SL_NONE) {
    fprintf(out, "everything waits for %s:\n", name_of(plan, last));
    waits_for(p, last, out);
  } else {
    fprintf(out, "no actor waits for another\n");
  }
}

/* Returns the explanation; the caller frees it with free(). */
static char *explain(const sl_runtime *rt) {
  char *text = NULL;
  size_t size = 0;
  FILE *out = sli_memory_stream(&text, &size);
  sl_run_status *rs = sl_run_status_create(sli_runtime_plan(rt));
  sl_runtime_run_status(rt, rs);
  say_picture(&(picture){rs, state_of(rs), sl_runtime_begun(rt)}, out);
  sl_run_status_destroy(rs);
  fclose(out);
  if (size && text[size - 1] == '\n') text[size - 1] = 0;
  return text;
}

static void say_idle(const sl_runtime *rt, double seconds) {
  char *text = explain(rt);
  sli_log("no actor has fired for %.0f s\n%s", seconds, text);
  free(text);
}

sl_status sl_runtime_run(sl_runtime *rt, int64_t steps) {
  SLI_TRY(sli_memory_check());
  sl_status status = sli_runtime_run(rt, steps, say_idle);
  if (status != SL_E_STUCK) return status;
  char *text = explain(rt);
  sl_fail(SL_E_STUCK, "%s", text);
  free(text);
  return status;
}
