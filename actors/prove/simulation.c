/* SPDX-License-Identifier: Apache-2.0 */
/* Simulation: runs a copy of a plan on the virtual clock. */
#include "actors/prove/prove.h"

#include "actors/plan/plan.h"

#include <stdlib.h>
#include <string.h>

static void *copy_of(const void *items, int32_t count, size_t size) {
  void *copy = sli_calloc((size_t)count, size);
  return count ? memcpy(copy, items, (size_t)count * size) : copy;
}

void sli_simulation_init(sli_simulation *simulation, const sl_plan *plan, bool timed) {
  simulation->rt = NULL;
  simulation->first_step = 0;
  simulation->plan = *plan;
  simulation->plan.queues = copy_of(plan->queues, plan->nqueues, sizeof *plan->queues);
  simulation->plan.regs = copy_of(plan->regs, plan->nregs, sizeof *plan->regs);
  simulation->plan.pools = copy_of(plan->pools, plan->npools, sizeof *plan->pools);
  simulation->plan.actors = copy_of(plan->actors, plan->nactors, sizeof *plan->actors);
  for (int32_t i = 0; i < plan->nqueues; i++) {
    sl_queue *q = &simulation->plan.queues[i];
    if (q->group && q->order) q->ops = &sl_queue_group;
    else if (q->group || !q->ops->timed) q->ops = timed ? &sl_queue_timed : &sl_queue_null;
  }
}

void sli_simulation_fini(sli_simulation *simulation) {
  sl_runtime_destroy(simulation->rt);
  free(simulation->plan.queues);
  free(simulation->plan.regs);
  free(simulation->plan.pools);
  free(simulation->plan.actors);
}

sl_status sli_simulate(sli_simulation *simulation, int64_t steps, bool keep_trace) {
  size_t records = keep_trace ? (size_t)(sli_plan_firings(&simulation->plan) * steps) : 1;
  sl_runtime_options options = {.clock = SL_CLOCK_VIRTUAL,
                                .no_data = true,
                                .first_step = simulation->first_step,
                                .trace_records = SLI_MIN(records, (size_t)1 << 26)};
  sl_status status = sl_runtime_create(&simulation->plan, &options, &simulation->rt);
  return status ? status : sl_runtime_run(simulation->rt, steps);
}

/* ---- proofs -------------------------------------------------------------------------- */

/* Number of steps after which a plan repeats a state. */
static int64_t steps_to_repeat(const sl_plan *plan) {
  int32_t most = 0;
  for (int32_t i = 0; i < plan->nregs; i++) most = SLI_MAX(most, plan->regs[i].initial);
  return 2 + (most > 1);
}

/* True if the order in which a pool's slots are taken and freed is fixed before the run: one queue,
 * or the lanes of one device, with a fixed order run all actors that take or free them. */
static bool is_settled(const sl_plan *plan, int32_t pool) {
  int32_t queue = SL_NONE;
  for (int32_t i = 0; i < plan->nactors; i++) {
    const sl_actor *a = &plan->actors[i];
    for (int32_t p = 0; p < a->nin + a->nout; p++) {
      const sl_port *port = p < a->nin ? &a->in[p] : &a->out[p - a->nin];
      if (plan->regs[port->reg].pool != pool) continue;
      if (!plan->queues[a->queue].order ||
          (queue != SL_NONE && !sli_same_lanes(plan, queue, a->queue)))
        return false;
      queue = a->queue;
    }
  }
  return true;
}

/* Makes pools grant only reserved slots, unless their order is settled: other grants depend on
 * which actor asks first. A proof without them is enough. A run that has halted can make the
 * proof's firings one after another, since none needs more slots of a register than are reserved
 * for it. */
void sli_simulation_lend_nothing(sli_simulation *simulation) {
  for (int32_t i = 0; i < simulation->plan.npools; i++) {
    if (is_settled(&simulation->plan, i)) continue;
    int32_t kept = 0;
    for (int32_t j = 0; j < simulation->plan.nregs; j++)
      if (simulation->plan.regs[j].pool == i) kept += sli_register_kept(&simulation->plan.regs[j]);
    simulation->plan.pools[i].quota = kept;
  }
}

/* Common multiple, limited to INT64_MAX / 4. */
static int64_t common_multiple(int64_t a, int64_t b) {
  int64_t all;
  return __builtin_mul_overflow(a / sli_common_divisor(a, b), b, &all) || all > INT64_MAX / 4
             ? INT64_MAX / 4
             : all;
}

/* Step in which all actors fire, including those that skip steps. A simulation that begins there
 * tries both kinds of step. Each leaves the plan in the state it found, so any sequence of them
 * finishes. */
static int64_t fullest_step(const sl_plan *plan) {
  int64_t period = 1;
  for (int32_t i = 0; i < plan->nactors; i++)
    period = common_multiple(period, sli_every(&plan->actors[i]));
  return period - 1;
}

sl_status sli_simulate_all(sli_simulation *simulation) {
  sli_simulation_lend_nothing(simulation);
  simulation->first_step = fullest_step(&simulation->plan);
  return sli_simulate(simulation, steps_to_repeat(&simulation->plan), false);
}
