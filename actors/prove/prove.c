/* Proof, mending and prediction: the runtime itself on the virtual clock.
 *
 * A rehearsal is a copy of the plan whose queues touch no data. If it fires
 * everything, so does the plan, whatever the timing. If it gets stuck, every
 * actor that waits for a free slot names a quota that may be too small; each of
 * them is tried larger, alone, and the smallest change that lets the rehearsal
 * finish is what the error recommends. */
#include "actors/plan/plan.h"
#include "actors/run/run.h"

#include <stdlib.h>
#include <string.h>

typedef struct rehearsal {
  sl_plan plan; /* a shallow copy; what is changed is owned */
  sl_runtime *rt;
  int64_t first_step;
} rehearsal;

static void *copy_of(const void *items, int32_t count, size_t size) {
  void *copy = sli_calloc((size_t)count, size);
  return count ? memcpy(copy, items, (size_t)count * size) : copy;
}

/* seconds NULL: firings take no time (unless the plan's queues are timed). */
static void rehearsal_init(rehearsal *r, const sl_plan *plan, const double *seconds) {
  r->rt = NULL;
  r->first_step = 0;
  r->plan = *plan;
  r->plan.queues = copy_of(plan->queues, plan->nqueues, sizeof *plan->queues);
  r->plan.regs = copy_of(plan->regs, plan->nregs, sizeof *plan->regs);
  r->plan.pools = copy_of(plan->pools, plan->npools, sizeof *plan->pools);
  r->plan.actors = copy_of(plan->actors, plan->nactors, sizeof *plan->actors);
  for (int32_t i = 0; i < plan->nqueues; i++)
    if (!r->plan.queues[i].ops->timed)
      r->plan.queues[i].ops = seconds ? &sl_queue_timed : &sl_queue_null;
  for (int32_t i = 0; seconds && i < plan->nactors; i++) r->plan.actors[i].seconds = seconds[i];
}

static void rehearsal_fini(rehearsal *r) {
  sl_runtime_destroy(r->rt);
  free(r->plan.queues);
  free(r->plan.regs);
  free(r->plan.pools);
  free(r->plan.actors);
}

static size_t step_firings(const sl_plan *plan) {
  size_t sum = 0;
  for (int32_t i = 0; i < plan->nactors; i++) sum += (size_t)plan->actors[i].firings_per_step;
  return sum;
}

static sl_status rehearse(rehearsal *r, int64_t steps, bool keep_trace) {
  size_t records = keep_trace ? step_firings(&r->plan) * (size_t)steps : 1;
  sl_runtime_options options = {.clock = SL_CLOCK_VIRTUAL, .no_data = true,
                                .first_step = r->first_step,
                                .trace_records = SLI_MIN(records, (size_t)1 << 26)};
  sl_status status = sl_runtime_create(&r->plan, &options, &r->rt);
  return status ? status : sl_runtime_run(r->rt, steps);
}

/* Steps after which a plan is back in a state it has been in. */
static int64_t steps_to_repeat(const sl_plan *plan) {
  int32_t most = 0;
  for (int32_t i = 0; i < plan->nregs; i++) most = SLI_MAX(most, plan->regs[i].initial);
  return 2 + (most > 1);
}

/* ---- pools ---------------------------------------------------------------------- */

/* Is who takes and gives back a pool's slots settled before the run? It is where one
 * queue with a fixed order runs all actors that do. */
static bool is_settled(const sl_plan *plan, int32_t pool) {
  int32_t queue = SL_NONE;
  for (int32_t i = 0; i < plan->nactors; i++) {
    const sl_actor *a = &plan->actors[i];
    for (int32_t p = 0; p < a->nin + a->nout; p++) {
      const sl_port *port = p < a->nin ? &a->in[p] : &a->out[p - a->nin];
      if (plan->regs[port->reg].pool != pool) continue;
      if (!plan->queues[a->queue].order || (queue != SL_NONE && queue != a->queue)) return false;
      queue = a->queue;
    }
  }
  return true;
}

/* What pools lend beyond what they keep depends on who asks first, unless that is
 * settled, so a proof must do without. That is enough: the firings it made can be
 * made in any run that has come to a halt, one after another, since none needs more
 * slots of a register than are kept for it. */
static void lend_nothing(rehearsal *r) {
  for (int32_t i = 0; i < r->plan.npools; i++) {
    if (is_settled(&r->plan, i)) continue;
    int32_t kept = 0;
    for (int32_t j = 0; j < r->plan.nregs; j++)
      if (r->plan.regs[j].pool == i) kept += sli_register_kept(&r->plan.regs[j]);
    r->plan.pools[i].quota = kept;
  }
}

/* ---- sparse actors --------------------------------------------------------------- */

static int64_t common_multiple(int64_t a, int64_t b) {
  int64_t x = a, y = b;
  while (y) {
    int64_t rest = x % y;
    x = y;
    y = rest;
  }
  return a / x * b;
}

/* The step in which all actors fire that sit others out. A rehearsal that begins
 * there has tried both kinds of step, and as each leaves the plan in the state
 * it found, any row of them finishes. */
static int64_t fullest_step(const sl_plan *plan) {
  int64_t period = 1;
  for (int32_t i = 0; i < plan->nactors; i++)
    period = common_multiple(period, sli_every(&plan->actors[i]));
  return period - 1;
}

/* ---- mending -------------------------------------------------------------------- */

/* One knob: the registers of a name that one stage writes, or that any stage
 * does, or a pool. */
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

static bool finishes_with(const sl_plan *plan, const knob *k, int32_t slots) {
  rehearsal r;
  rehearsal_init(&r, plan, NULL);
  for (int32_t i = 0; i < plan->nregs; i++)
    if (turns(plan, k, &plan->regs[i]))
      r.plan.regs[i].quota = k->everywhere ? slots : SLI_MAX(slots, plan->regs[i].quota);
  if (k->pool != SL_NONE) r.plan.pools[k->pool].quota = slots;
  lend_nothing(&r);
  r.first_step = fullest_step(plan);
  bool good = !rehearse(&r, steps_to_repeat(plan), false);
  rehearsal_fini(&r);
  return good;
}

/* The least number of slots with which the plan finishes, or 0. */
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
    if (knobs[i].stage == k->stage && knobs[i].pool == k->pool && !strcmp(knobs[i].name, k->name))
      return true;
  return false;
}

/* The knobs of the slots that actors of a stuck rehearsal wait for. */
static int waiting_knobs(const rehearsal *r, knob *knobs, int most) {
  int count = 0;
  for (int32_t i = 0; i < r->plan.nactors; i++) {
    const sl_actor *a = &r->plan.actors[i];
    bool missing = sli_runtime_actor(r->rt, i).missing;
    for (int32_t p = 0; p < a->nout && count < most; p++) {
      const sl_register *reg = &r->plan.regs[a->out[p].reg];
      bool waiting = sli_runtime_output(r->rt, i, p).waiting;
      knob k = {reg->quota_name, writer_stage(&r->plan, reg), SL_NONE, reg->quota, false};
      if (!waiting && (missing || reg->pool == SL_NONE)) continue;
      if (!waiting)
        k = (knob){"pool", k.stage, reg->pool, r->plan.pools[reg->pool].quota, false};
      if (!known(knobs, count, &k)) knobs[count++] = k;
    }
  }
  return count;
}

/* The knob that needs the fewest slots more. Returns how many, 0: none helps. */
static int32_t best_knob(const sl_plan *plan, const knob *knobs, int count, knob *best) {
  int32_t least = 0;
  for (int i = 0; i < count; i++) {
    int32_t slots = least_slots(plan, &knobs[i]);
    if (!slots || (least && slots - knobs[i].slots >= least)) continue;
    least = slots - knobs[i].slots;
    *best = knobs[i];
    best->slots = slots;
  }
  return least;
}

/* The fewest slots that a register of this name has. */
static int32_t fewest_slots(const sl_plan *plan, const char *name) {
  int32_t fewest = INT32_MAX;
  for (int32_t i = 0; i < plan->nregs; i++)
    if (!strcmp(plan->regs[i].quota_name, name)) fewest = SLI_MIN(fewest, plan->regs[i].quota);
  return fewest;
}

/* One quota at one stage, or if that is not enough, at all stages. */
static void advise(const sl_plan *plan, const rehearsal *stuck, char *text, size_t size) {
  knob knobs[16] = {0}, best = {0};
  int count = waiting_knobs(stuck, knobs, 16);
  int32_t least = best_knob(plan, knobs, count, &best);
  for (int i = 0; i < count && !least; i++)
    if (knobs[i].pool == SL_NONE) {
      knobs[i].everywhere = true;
      knobs[i].slots = fewest_slots(plan, knobs[i].name);
    }
  if (!least) least = best_knob(plan, knobs, count, &best);
  text[0] = 0;
  if (!least) return;
  char at[16] = "";
  if (best.stage != SL_NONE && !best.everywhere) snprintf(at, sizeof at, "@%d", best.stage);
  snprintf(text, size, "\nthe smallest change that breaks it: --quota %s%s=%d", best.name, at,
           best.slots);
}

/* ---- the proof and the prediction --------------------------------------------------- */

sl_status sl_plan_prove(const sl_plan *plan) {
  rehearsal r;
  rehearsal_init(&r, plan, NULL);
  lend_nothing(&r);
  r.first_step = fullest_step(plan);
  sl_status status = rehearse(&r, steps_to_repeat(plan), false);
  if (status == SL_E_STUCK) {
    char *cycle = sli_strdup(sl_detail()), advice[256];
    advise(plan, &r, advice, sizeof advice);
    sl_fail(SL_E_STUCK, "the plan cannot finish: %s%s", cycle, advice);
    free(cycle);
  }
  rehearsal_fini(&r);
  return status;
}

static double *own_seconds(const sl_plan *plan) {
  double *seconds = sli_calloc((size_t)plan->nactors, sizeof *seconds);
  for (int32_t i = 0; i < plan->nactors; i++) seconds[i] = plan->actors[i].seconds;
  return seconds;
}

sl_status sl_plan_predict(const sl_plan *plan, const double *seconds, sl_figures *out) {
  double *own = seconds ? NULL : own_seconds(plan);
  rehearsal r;
  rehearsal_init(&r, plan, seconds ? seconds : own);
  sl_status status = rehearse(&r, 3, true);
  if (!status) *out = sl_runtime_figures(r.rt);
  rehearsal_fini(&r);
  free(own);
  return status;
}

/* ---- fixing an order ------------------------------------------------------------------ */

static bool has_passes(const sl_plan *plan, int32_t queue) {
  for (int32_t i = 0; i < plan->nactors; i++)
    if (plan->actors[i].queue == queue && plan->actors[i].cls == SL_CLASS_F) return true;
  return false;
}

static int32_t queue_firings(const sl_plan *plan, int32_t queue) {
  int32_t sum = 0;
  for (int32_t i = 0; i < plan->nactors; i++)
    if (plan->actors[i].queue == queue) sum += plan->actors[i].firings_per_step;
  return sum;
}

/* The queue's firings of step 1, in order of start. */
static void keep_order(sl_plan *plan, int32_t queue, const sl_trace_record *records, size_t n) {
  sl_queue *q = &plan->queues[queue];
  int32_t *order = sl_plan_alloc(plan, (size_t)queue_firings(plan, queue) * sizeof *order);
  q->norder = 0;
  for (size_t i = 0; i < n; i++) {
    const sl_actor *a = &plan->actors[records[i].actor];
    if (a->queue == queue && records[i].firing / a->firings_per_step == 1)
      order[q->norder++] = records[i].actor;
  }
  q->order = order;
}

sl_status sl_plan_fix_order(sl_plan *plan, const double *seconds) {
  double *own = own_seconds(plan);
  if (seconds) memcpy(own, seconds, (size_t)plan->nactors * sizeof *own);
  for (int32_t i = 0; i < plan->nactors; i++)
    if (plan->actors[i].cls == SL_CLASS_C) own[i] = 0;
  rehearsal r;
  rehearsal_init(&r, plan, own);
  for (int32_t i = 0; i < plan->nqueues; i++) {
    r.plan.queues[i].order = NULL;
    if (has_passes(plan, i)) r.plan.queues[i].look_ahead = 1e-9; /* behind what links bring */
  }
  sl_status status = rehearse(&r, 3, true);
  sl_trace_record *records = NULL;
  size_t n = status ? 0 : sl_runtime_trace(r.rt, &records, NULL);
  for (int32_t q = 0; q < plan->nqueues && !status; q++)
    if (has_passes(plan, q)) keep_order(plan, q, records, n);
  free(records);
  rehearsal_fini(&r);
  free(own);
  return status;
}
