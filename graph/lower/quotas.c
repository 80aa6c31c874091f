/* Quotas: the schedule's, the user's, and those that follow from them.
 *
 * The schedule sets the activations' credits, act.b and act.w. Registers
 * between stages and beside the passes get as many slots as those credits can
 * ever use, so that they never decide anything: what F has produced and the
 * next stage's backward has not yet given up is bounded by F's own credit, plus
 * that stage's act.w where weight gradients read it too. Whoever wants them
 * tighter says so with --quota.
 *
 * Credits count ticks. Where sequences are cut in K pieces, a schedule's credit
 * for a microbatch becomes K of them, so that it keeps the memory it is known
 * for; the row of seq1f1b counts pieces itself. A backward pass begins with a
 * microbatch's last piece, so no stage can do with fewer than K. */
#include "graph/lower/ir.h"
#include "graph/state/quota.h"

#include <string.h>

static int clamp(int value, int most) { return SLI_MAX(1, SLI_MIN(value, most)); }

sli_at sli_lower_at(const sli_lowering *l, int stage) {
  return (sli_at){l->in->p, l->pick.v, l->in->m, l->in->k, l->device_of[stage], l->chunk_of[stage], stage};
}

static void schedule_credits(sli_lowering *l) {
  size_t bytes = (size_t)l->stages * sizeof(int);
  l->act_b = sli_arena_alloc(&l->arena, bytes);
  l->act_w = sli_arena_alloc(&l->arena, bytes);
  for (int s = 0; s < l->stages; s++) {
    sli_at at = sli_lower_at(l, s);
    int b = l->pick.schedule->act_b(&at), w = l->pick.schedule->act_w ? l->pick.schedule->act_w(&at) : b;
    if (!l->pick.schedule->in_pieces) b *= l->in->k, w *= l->in->k;
    bool own = s < SLI_TUNED_STAGES;
    b += l->pick.tune.act_b + (own ? l->pick.tune.stage_b[s] : 0);
    w += l->pick.tune.act_w + (own ? l->pick.tune.stage_w[s] : 0);
    l->act_b[s] = clamp(b, l->in->m * l->in->k);
    l->act_w[s] = clamp(w, l->in->m * l->in->k);
  }
}

int sli_lower_given(const sli_lowering *l, const char *name, int stage) {
  int slots = 0;
  for (int i = 0; i < l->in->options->nquotas; i++)
    if (sli_quota_names(&l->in->options->quotas[i], name, stage)) slots = l->in->options->quotas[i].slots;
  return slots;
}

/* The last one for this knob of any stage on a device, or 0. */
static int given_to_device(const sli_lowering *l, const char *name, int device) {
  int slots = 0;
  for (int i = 0; i < l->in->options->nquotas; i++)
    for (int s = 0; s < l->stages; s++)
      if (l->device_of[s] == device && sli_quota_names(&l->in->options->quotas[i], name, s))
        slots = l->in->options->quotas[i].slots;
  return slots;
}

static int bundle_stage(const sli_lowering *l, const sli_bundle *b) {
  return b->producer == SL_NONE ? SL_NONE : l->groups[b->producer].stage;
}

static sl_status check_given(const sli_lowering *l) {
  for (int i = 0; i < l->in->options->nquotas; i++) {
    const sl_quota *q = &l->in->options->quotas[i];
    if (q->slots < 1)
      return sl_fail(SL_E_USAGE, "quota %s is %d, but an actor needs at least one slot", q->name,
                     q->slots);
    bool found = !strcmp(q->name, "pool") || (!strcmp(q->name, "watermark") && l->pick.split);
    for (int b = 0; b < l->nbundles && !found; b++)
      found = sli_quota_names(q, l->bundles[b].quota_name, bundle_stage(l, &l->bundles[b]));
    if (found || (q->stage < l->stages && sli_lower_copies(l, q->name))) continue;
    char stage[32] = "";
    if (q->stage != SL_NONE) snprintf(stage, sizeof stage, "@%d", q->stage);
    return sl_fail(SL_E_USAGE, "no register answers to quota %s%s here; --plan FILE lists them",
                   q->name, stage);
  }
  return SL_OK;
}

static void given_credits(sli_lowering *l) {
  for (int s = 0; s < l->stages; s++) {
    int b = sli_lower_given(l, "act.b", s), w = sli_lower_given(l, "act.w", s);
    if (b) l->act_b[s] = b;
    if (w) l->act_w[s] = w;
  }
}

static int most_credits(const sli_lowering *l) {
  int most = 1;
  for (int s = 0; s < l->stages; s++)
    most = SLI_MAX(most, l->pick.split ? SLI_MAX(l->act_b[s], l->act_w[s]) : l->act_b[s]);
  return most;
}

/* Slots that can ever be in use at once in what crosses to other stages. */
static int crossing(const sli_lowering *l, const sli_bundle *b) {
  const sli_group *from = &l->groups[b->producer];
  int ahead = l->act_b[from->stage], held = 0;
  for (int i = 0; i < b->nconsumers; i++) {
    const sli_group *to = &l->groups[b->consumers[i]];
    if (to->stage == SL_NONE) continue;
    ahead = SLI_MAX(ahead, l->act_b[to->stage]);
    if (to->cls == SL_CLASS_W) held = SLI_MAX(held, l->act_w[to->stage]);
  }
  return ahead + held;
}

/* Microbatches of which a stage can have a piece forward and not yet backward:
 * of the oldest the first piece is enough, for it is the last to go. */
static int microbatches_begun(const sli_lowering *l, int stage) {
  int credits = l->pick.split ? SLI_MIN(l->act_b[stage], l->act_w[stage]) : l->act_b[stage];
  return clamp(1 + (credits - 1 + l->in->k - 1) / l->in->k, l->in->m);
}

static int derived(const sli_lowering *l, const sli_bundle *b) {
  const char *name = b->quota_name;
  int ticks = l->in->m * l->in->k, stage = bundle_stage(l, b);
  if (!strcmp(name, "report")) return 4;
  if (b->held || b->turn) return SLI_MAX(b->initial, 1);
  if (b->rate >= SLI_PER_STEP) return b->brief ? 2 : SLI_MAX(b->initial, 1);
  if (b->rate == SLI_PER_MICROBATCH) return microbatches_begun(l, stage);
  if (!strcmp(name, "act.b")) return l->act_b[stage];
  if (!strcmp(name, "act.w")) return l->act_w[stage];
  if (!strcmp(name, "dy")) return clamp(l->act_w[stage], ticks);
  if (!strcmp(name, "load")) return 2 + most_credits(l);
  if (!strcmp(name, "inner")) return 1;
  if (!strcmp(name, "gather") || !strcmp(name, "reduce")) return clamp(2, ticks);
  return clamp(crossing(l, b), ticks);
}

static bool has_pool(const sli_lowering *l) {
  for (int i = 0; i < l->in->options->nquotas; i++)
    if (!strcmp(l->in->options->quotas[i].name, "pool")) return true;
  return l->pick.schedule->pool || l->pick.tune.pool_most;
}

static int pool_slots(const sli_lowering *l, const sli_at *at) {
  int slots = l->pick.schedule->pool ? l->pick.schedule->pool(at) * l->in->k : INT32_MAX;
  if (l->pick.tune.pool_most) slots = SLI_MIN(slots, l->pick.tune.pool_most);
  return slots + l->pick.tune.pool;
}

/* How many W a device holds back, -1 if it is not lazy. */
static int watermark(const sli_lowering *l, int device) {
  sli_at at = sli_lower_at(l, device); /* its first chunk */
  int slots = given_to_device(l, "watermark", device);
  if (!l->pick.split || slots) return slots ? slots : -1;
  if (!l->pick.schedule->watermark) return -1;
  return SLI_MAX(l->pick.schedule->watermark(&at) * l->in->k + l->pick.tune.watermark, 0);
}

/* One pool a device, over the activations of its chunks; and how lazy its W are.
 * A user's pool@N or watermark@N is the device's that stage N lies on. */
static void set_device_numbers(sli_lowering *l) {
  l->pools = sli_arena_alloc(&l->arena, (size_t)l->in->p * sizeof *l->pools);
  l->watermarks = sli_arena_alloc(&l->arena, (size_t)l->in->p * sizeof *l->watermarks);
  for (int d = 0; d < l->in->p; d++) {
    sli_at at = sli_lower_at(l, d); /* stage d lies on device d */
    int slots = given_to_device(l, "pool", d);
    l->watermarks[d] = watermark(l, d);
    if (has_pool(l)) l->pools[d] = slots ? slots : SLI_MAX(pool_slots(l, &at), l->pick.v * l->in->k);
  }
}

/* Parameters in two slots: a step reads the version made two updates before it,
 * so that it need not wait for the last one. The update then reads one slot and
 * writes the other (PipeDream-2BW: Narayanan et al., arXiv 2006.09503). */
static sl_status buffer_parameters(sli_lowering *l, int bundle) {
  sli_bundle *b = &l->bundles[bundle];
  if (b->quota == 1 || !b->initial || b->producer == SL_NONE) return SL_OK;
  if (b->quota > 2)
    return sl_fail(SL_E_USAGE, "quota param is %d: parameters have one slot, or two", b->quota);
  int *readers = sli_arena_alloc(&l->arena, (size_t)(b->nconsumers + 1) * sizeof *readers);
  memcpy(readers, b->consumers, (size_t)b->nconsumers * sizeof *readers);
  readers[b->nconsumers++] = b->producer;
  b->consumers = readers;
  b->initial = b->quota;
  sli_group *g = &l->groups[b->producer];
  SLI_GROW(g->inputs, (size_t)g->ninputs, g->input_capacity);
  g->inputs[g->ninputs++] = bundle;
  return SL_OK;
}

/* How far a quota may be raised while the run goes on: address space is kept, where that
 * costs nothing, and room in tables. The largest plans are only ever predicted. */
static int most_slots(const sli_lowering *l, const sli_bundle *b) {
  const sl_memory_ops *memory = l->in->kind->memory[SL_SPACE_DEVICE];
  if (l->in->p > 128 || (memory && memory->fixed)) return b->quota;
  int step = b->rate == SLI_PER_TICK ? l->in->m * l->in->k : l->in->m;
  return SLI_MAX(b->quota, SLI_MIN(4 * b->quota + 8, 2 * step));
}

sl_status sli_lower_quotas(sli_lowering *l) {
  schedule_credits(l);
  sl_status status = check_given(l);
  if (status) return status;
  given_credits(l);
  for (int i = 0; i < l->nbundles; i++) {
    sli_bundle *b = &l->bundles[i];
    int slots = sli_lower_given(l, b->quota_name, bundle_stage(l, b));
    /* "load" is the prefetch depth: slots beyond what the pipeline holds */
    if (slots && !strcmp(b->quota_name, "load")) slots += most_credits(l);
    b->quota = slots ? slots : derived(l, b);
    if (b->rate < SLI_PER_STEP && !b->held && !b->brief && !b->turn) b->quota_most = most_slots(l, b);
    if (b->credit && !strcmp(b->quota_name, l->pick.split ? "act.w" : "act.b"))
      b->activation = 1.0 / (l->pick.v * l->in->k);
    if (b->memory == SL_MEMORY_PARAMETERS && (status = buffer_parameters(l, i))) return status;
  }
  set_device_numbers(l);
  return SL_OK;
}
