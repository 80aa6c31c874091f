/* SPDX-License-Identifier: Apache-2.0 */
/* Advice for a plan that gets stuck. Every actor that waits for a free slot points to a quota that
 * may be too small. Each such quota is enlarged alone, and the error recommends the smallest change
 * with which the simulation finishes. If none is enough, several quotas are too small: the error
 * names the one with which the simulation gets furthest. */
#include "actors/prove/advise.h"

#include "actors/plan/plan.h"
#include "actors/run/run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *sli_quota_warning(const char *quota) {
  return strcmp(quota, "param")
             ? ""
             : " (this changes the training: steps then use weights that are one update old)";
}

/* A quota setting: of the registers of one name, written by one stage or by any stage, or of a
 * pool. */
typedef struct knob {
  const char *name;
  int32_t stage, pool, slots;
  bool everywhere;
} knob;

static int32_t writer_stage(const sl_plan *plan, const sl_register *r) {
  return r->producer == SL_NONE ? SL_NONE : plan->actors[r->producer].stage;
}

static bool turns(const sl_plan *plan, const knob *k, const sl_register *r) {
  return k->pool == SL_NONE && !strcmp(r->quota_name, k->name) &&
         (k->everywhere || writer_stage(plan, r) == k->stage);
}

/* Counts firings except loads, which only run ahead. */
static int64_t firings(const sli_simulation *simulation) {
  int64_t sum = 0;
  for (int32_t i = 0; i < simulation->plan.nactors; i++)
    if (simulation->plan.actors[i].cls != SL_CLASS_L) sum += sli_runtime_done(simulation->rt, i);
  return sum;
}

/* Simulates the plan with a setting; *fired: firings until it finishes or gets stuck. */
static bool finishes_after(const sl_plan *plan, const knob *k, int32_t slots, int64_t *fired) {
  sli_simulation r;
  sli_simulation_init(&r, plan, false);
  for (int32_t i = 0; i < plan->nregs; i++)
    if (turns(plan, k, &plan->regs[i]))
      r.plan.regs[i].quota = k->everywhere ? slots : SLI_MAX(slots, plan->regs[i].quota);
  if (k->pool != SL_NONE) r.plan.pools[k->pool].quota = slots;
  bool good = !sli_simulate_all(&r);
  *fired = firings(&r);
  sli_simulation_fini(&r);
  return good;
}

static bool finishes_with(const sl_plan *plan, const knob *k, int32_t slots) {
  int64_t fired;
  return finishes_after(plan, k, slots, &fired);
}

/* Smallest number of slots with which the plan finishes, or 0. */
static int32_t least_slots(const sl_plan *plan, const knob *k) {
  int32_t most = 2 * plan->microbatches * plan->pieces + 2, low = k->slots, high = k->slots;
  do high = SLI_MIN(2 * high, most);
  while (!finishes_with(plan, k, high) && high < most && (low = high));
  if (high == most && !finishes_with(plan, k, high)) return 0;
  while (high - low > 1) {
    int32_t middle = low + (high - low) / 2;
    if (finishes_with(plan, k, middle)) high = middle;
    else low = middle;
  }
  return high;
}

static bool known(const knob *knobs, int count, const knob *k) {
  for (int i = 0; i < count; i++)
    if ((k->everywhere || knobs[i].stage == k->stage) && knobs[i].pool == k->pool &&
        !strcmp(knobs[i].name, k->name))
      return true;
  return false;
}

/* Finds the quota setting that would have given an output its slot. Returns false if the output
 * does not lack a slot. A pool counts only if the actor lacks nothing else. */
static bool missed_knob(const sli_simulation *simulation, const sli_flow *flow,
                        const sli_flow_state *at, int32_t actor, int32_t port, knob *out) {
  const sl_plan *plan = &simulation->plan;
  sli_lack lack = sli_flow_output(flow, at, actor, port);
  const sl_register *reg = &plan->regs[lack.reg];
  *out = (knob){reg->quota_name, writer_stage(plan, reg), SL_NONE, reg->quota, false};
  if (lack.what != SLI_LACKS_POOL) return lack.what == SLI_LACKS_SLOT;
  *out = (knob){"pool", out->stage, reg->pool, plan->pools[reg->pool].quota, false};
  return sli_flow_lack(flow, at, actor).what == SLI_LACKS_POOL;
}

/* Smallest quota of a register with this name. */
static int32_t fewest_slots(const sl_plan *plan, const char *name) {
  int32_t fewest = INT32_MAX;
  for (int32_t i = 0; i < plan->nregs; i++)
    if (!strcmp(plan->regs[i].quota_name, name)) fewest = SLI_MIN(fewest, plan->regs[i].quota);
  return fewest;
}

static knob widened(const sl_plan *plan, knob k) {
  k.everywhere = true;
  k.slots = fewest_slots(plan, k.name);
  return k;
}

/* Collects the quota settings that actors of a stuck simulation wait for: stage by stage, or for
 * all stages together. */
static int waiting_knobs(const sli_simulation *simulation, bool everywhere, knob *knobs, int most) {
  const sl_plan *plan = &simulation->plan;
  int64_t *fired = sli_calloc((size_t)plan->nactors + 1, sizeof *fired);
  for (int32_t i = 0; i < plan->nactors; i++) fired[i] = sli_runtime_done(simulation->rt, i);
  sli_flow *flow = sli_flow_create(plan);
  const sli_flow_state at = {.fired = fired};
  int count = 0;
  for (int32_t i = 0; i < plan->nactors; i++)
    for (int32_t p = 0; p < plan->actors[i].nout && count < most; p++) {
      knob k;
      if (!missed_knob(simulation, flow, &at, i, p, &k) || (everywhere && k.pool != SL_NONE))
        continue;
      if (everywhere) k = widened(plan, k);
      if (!known(knobs, count, &k)) knobs[count++] = k;
    }
  sli_flow_destroy(flow);
  free(fired);
  return count;
}

/* Chooses the setting that needs the fewest additional slots, of those that keep the training
 * (`keeps`) or of those that change it. Returns that number, or 0 if no setting helps. */
static int32_t best_knob(const sl_plan *plan, const knob *knobs, int count, bool keeps,
                         knob *best) {
  int32_t least = 0;
  for (int i = 0; i < count; i++) {
    if (!*sli_quota_warning(knobs[i].name) != keeps) continue;
    int32_t slots = least_slots(plan, &knobs[i]);
    if (!slots || (least && slots - knobs[i].slots >= least)) continue;
    least = slots - knobs[i].slots;
    *best = knobs[i];
    best->slots = slots;
  }
  return least;
}

/* Chooses the setting with one or two more slots with which the plan gets furthest, further than
 * the stuck simulation. Returns false if there is none. */
static bool furthest_knob(const sl_plan *plan, const sli_simulation *stuck, knob *best) {
  knob knobs[16] = {0};
  int64_t most = firings(stuck), fired;
  bool found = false;
  int count = waiting_knobs(stuck, false, knobs, 16);
  for (int i = 0; i < count; i++)
    for (int32_t more = 1; more <= 2 && !*sli_quota_warning(knobs[i].name); more++) {
      int32_t slots = knobs[i].slots + more;
      finishes_after(plan, &knobs[i], slots, &fired);
      if (fired <= most) continue;
      found = true, most = fired;
      *best = knobs[i];
      best->slots = slots;
    }
  return found;
}

sli_advice sli_advise(const sl_plan *plan, const sli_simulation *stuck) {
  knob knobs[16] = {0}, best = {0};
  int32_t least = 0;
  bool partial = false;
  for (int keeps = 1; keeps >= 0 && !least && !partial; keeps--) {
    for (int everywhere = 0; everywhere < 2 && !least; everywhere++) {
      int count = waiting_knobs(stuck, everywhere, knobs, 16);
      least = best_knob(plan, knobs, count, keeps, &best);
    }
    partial = keeps && !least && furthest_knob(plan, stuck, &best);
  }
  sli_advice a = {.stage = best.everywhere ? SL_NONE : best.stage,
                  .slots = least || partial ? best.slots : 0,
                  .partial = partial};
  if (a.slots) snprintf(a.name, sizeof a.name, "%s", best.name);
  return a;
}
