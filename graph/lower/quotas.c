/* SPDX-License-Identifier: Apache-2.0 */
/* Quotas: from the schedule, from the user, and derived from both.
 *
 * The schedule sets the activations' credits, act.b and act.w. Registers between stages and outside
 * passes get as many slots as these credits can ever use, so that they never limit anything. The
 * slots that F has written and the next stage's backward pass has not yet freed are bounded by F's
 * credit, plus that stage's act.w if weight gradients read them too. Users can lower these quotas
 * with --quota. If the vocabulary is sharded over all stages, the first stages hold one more
 * microbatch for each time that a microbatch waits for all stages (Yeung et al., arXiv 2411.05288).
 *
 * Credits count ticks. If sequences are cut into K pieces, a schedule's credit for a microbatch
 * becomes K credits, which keeps the schedule's usual memory; the row of seq1f1b counts pieces
 * directly. A backward pass begins with a microbatch's last piece, so every stage needs at least
 * K. */
#include "graph/build/build.h"
#include "graph/lower/ir.h"

#include <sluice/generation.h>

#include <string.h>

static int clamp(int value, int most) { return SLI_MAX(1, SLI_MIN(value, most)); }

sli_at sli_lower_at(const sli_lowering *l, int stage) {
  const sli_inputs *in = l->in;
  return (sli_at){in->p, l->pick.v, in->m, in->k, l->device_of[stage], l->chunk_of[stage], stage};
}

static void schedule_credits(sli_lowering *l) {
  size_t bytes = (size_t)l->stages * sizeof(int);
  l->act_b = sli_arena_alloc(&l->arena, bytes);
  l->act_w = sli_arena_alloc(&l->arena, bytes);
  for (int s = 0; s < l->stages; s++) {
    sli_at at = sli_lower_at(l, s);
    const sli_schedule *row = l->pick.schedule;
    int b = row->act_b(&at), w = row->act_w ? row->act_w(&at) : b;
    int ticks = sli_lower_counted(l) / (row->in_pieces ? l->in->k : 1);
    b *= ticks, w *= ticks;
    bool own = s < SLI_TUNED_STAGES;
    int more =
        l->in->barriers * sli_lower_counted(l); /* one microbatch for each wait for all stages */
    b += more, w += more;
    b += l->pick.tune.act_b + (own ? l->pick.tune.stage_b[s] : 0);
    w += l->pick.tune.act_w + (own ? l->pick.tune.stage_w[s] : 0);
    l->act_b[s] = clamp(b, l->in->m * l->in->k);
    l->act_w[s] = clamp(w, l->in->m * l->in->k);
  }
}

/* Returns the last quota that the user gives for a name at a stage, or 0. */
static int given(const sli_lowering *l, const char *name, int stage) {
  const sl_lower_options *o = l->in->options;
  int slots = 0;
  for (int i = 0; i < o->memory.nquotas; i++)
    if (sli_quota_names(&o->memory.quotas[i], name, stage)) slots = o->memory.quotas[i].slots;
  return slots;
}

int sli_lower_given(const sli_lowering *l, sli_role role, int stage) {
  return given(l, sli_roles[role].name, stage);
}

/* Returns the last value that the user gives for a name at any stage of a device, or 0. */
static int given_to_device(const sli_lowering *l, const char *name, int device) {
  int slots = 0;
  for (int i = 0; i < l->in->options->memory.nquotas; i++)
    for (int s = 0; s < l->stages; s++)
      if (l->device_of[s] == device && sli_quota_names(&l->in->options->memory.quotas[i], name, s))
        slots = l->in->options->memory.quotas[i].slots;
  return slots;
}

/* True for quotas of copies between memories and of spills and fills, which are accepted even if
 * the plan has none of them. */
static bool names_copy(const sli_lowering *l, const sl_quota *q) {
  const sli_role_row *row = sli_role_find(q->name);
  bool copy = row && row->slots == SLI_SLOTS_SOURCE && l->in->kind->copy;
  bool staging = row && (row == &sli_roles[SLI_ROLE_SPILL] || row == &sli_roles[SLI_ROLE_FILL]);
  return (copy || staging) && q->stage < l->stages;
}

/* True for quotas of filled buffers, which are accepted even if everything stays on the device. */
static bool names_filled(const sli_lowering *l, const sl_quota *q) {
  bool named = false;
  for (int r = 0; r < SLI_ROLES; r++)
    if (sli_home_given(l->in->options, (sli_role)r))
      named |= sli_quota_names(q, sli_roles[sli_roles[r].filled].name, q->stage);
  return named && q->stage < l->stages;
}

/* Lists names, "act.b, act.w, load", or leaves the text if there are none. */
static const char *join_names(const char *const *names, char *out, size_t bytes) {
  size_t n = 0;
  for (; *names && n < bytes; names++)
    n += (size_t)snprintf(out + n, bytes - n, "%s%s", n ? ", " : "", *names);
  return out;
}

/* Lists the quotas of this plan, in the order of the roles. */
static void list_quotas(const sli_lowering *l, const char *names[SLI_ROLES + 1]) {
  bool has[SLI_ROLES] = {0};
  int n = 0;
  for (int b = 0; b < l->nbuffers; b++) has[l->buffers[b].role] = true;
  for (int r = 0; r < SLI_ROLES; r++)
    if (has[r]) names[n++] = sli_roles[r].name;
}

static sl_status unknown_quota(const sli_lowering *l, const sl_quota *q) {
  char stage[32] = "", all[512] = "nothing", meant[SLI_MEANT_TEXT];
  const char *names[SLI_ROLES + 1] = {0};
  list_quotas(l, names);
  if (q->stage != SL_NONE) snprintf(stage, sizeof stage, "@%d", q->stage);
  return sl_fail(SL_E_USAGE, "unknown quota %s%s; this plan of %d stage%s has %s%s", q->name, stage,
                 l->stages, l->stages == 1 ? "" : "s", join_names(names, all, sizeof all),
                 sli_meant(meant, names, q->name));
}

static sl_status check_given(const sli_lowering *l) {
  for (int i = 0; i < l->in->options->memory.nquotas; i++) {
    const sl_quota *q = &l->in->options->memory.quotas[i];
    if (q->slots < 1)
      return sl_fail(SL_E_USAGE, "quota %s is %d, but an actor needs at least one slot", q->name,
                     q->slots);
    bool found = !strcmp(q->name, "pool") || (!strcmp(q->name, "watermark") && l->pick.split);
    for (int b = 0; b < l->nbuffers && !found; b++)
      found = sli_quota_names(q, sli_roles[l->buffers[b].role].name,
                              sli_buffer_stage(l, &l->buffers[b]));
    if (found || names_copy(l, q) || names_filled(l, q)) continue;
    return unknown_quota(l, q);
  }
  return SL_OK;
}

void sli_lower_credits(sli_lowering *l) {
  schedule_credits(l);
  for (int s = 0; s < l->stages; s++) {
    int b = sli_lower_given(l, SLI_ROLE_ACT_B, s), w = sli_lower_given(l, SLI_ROLE_ACT_W, s);
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

/* True for frames on their way to a decoder. */
static bool is_done(const sli_lowering *l, const sli_buffer *b) {
  return l->in->g->options.generate && b->valid_length && sli_is_frames_done(b->valid_length);
}

/* Returns the maximum slots that can be in use in a buffer for other stages. There is one more for
 * a later visit of the same stage, so that the next microbatch can begin before the visit ends, and
 * in graphs that generate, whose passes are shorter in some ticks than in others. */
static int crossing(const sli_lowering *l, const sli_buffer *b) {
  const sli_task *from = &l->tasks[b->producer];
  int ahead = l->act_b[from->stage], held = 0;
  bool again = l->in->g->options.generate;
  if (is_done(l, b)) return 2 * l->in->g->options.generate->steps; /* of two blocks */
  for (int i = 0; i < b->nconsumers; i++) {
    const sli_task *to = &l->tasks[b->consumers[i]];
    if (to->stage == SL_NONE) continue;
    ahead = SLI_MAX(ahead, l->act_b[to->stage]);
    if (to->cls == SL_CLASS_W) held = SLI_MAX(held, l->act_w[to->stage]);
    again |= to->stage == from->stage && to->visit != from->visit;
  }
  return ahead + held + again;
}

/* Returns the maximum number of microbatches for which a stage has run a piece forward but not yet
 * backward. For the oldest microbatch the first piece suffices, since it is freed last. */
static int microbatches_begun(const sli_lowering *l, int stage) {
  int credits = l->pick.split ? SLI_MIN(l->act_b[stage], l->act_w[stage]) : l->act_b[stage];
  return clamp(1 + (credits - 1 + l->in->k - 1) / l->in->k, l->in->m);
}

static int ticks_of(const sli_lowering *l) { return l->in->m * l->in->k; }

static int one(const sli_lowering *l, const sli_buffer *b) { return (void)l, (void)b, 1; }
/* Two slots; a slot pool, which is filled several times in each tick, may need more. */
static int two(const sli_lowering *l, const sli_buffer *b) {
  return b->slot_pool.least ? SLI_MAX(2, b->slot_pool.least) : clamp(2, ticks_of(l));
}
static int staging(const sli_lowering *l, const sli_buffer *b) {
  return (void)l, SLI_MAX(2, b->slot_pool.least);
}
static int inner(const sli_lowering *l, const sli_buffer *b) {
  return l->in->layers && b->producer != SL_NONE && sli_leaves_block(l, b) ? l->in->k : 1;
}
static int between(const sli_lowering *l, const sli_buffer *b) {
  return (void)b, l->in->layers ? l->in->k + 1 : 2;
}
static int of_sharded(const sli_lowering *l, const sli_buffer *b) {
  return (void)b, clamp((1 + l->in->barriers) * l->in->k, ticks_of(l));
}
/* Returns the slots of sources, and in served graphs those of results as well: the addresses of a
 * tick then repeat soon, and with them its CUDA graphs. */
static int of_all(const sli_lowering *l, const sli_buffer *b) {
  return (void)b, SLI_MAX(2 + most_credits(l), l->in->g->options.serve ? 4 : 0);
}
/* Four slots, or one per piece: results of the backward pass are written last piece first, and read
 * from the first piece on. */
static int four(const sli_lowering *l, const sli_buffer *b) {
  if (l->in->g->options.serve) return of_all(l, b);
  bool backward =
      b->producer != SL_NONE && l->tasks[b->producer].backward && b->rate == SLI_PER_TICK;
  return backward ? SLI_MAX(4, l->in->k) : 4;
}
static int of_initial(const sli_lowering *l, const sli_buffer *b) { return (void)l, b->initial; }
/* Returns the slots of a delay. A task that reads an earlier value and writes the next one in one
 * firing holds both. */
static int delayed(const sli_lowering *l, const sli_buffer *b) {
  bool both = false;
  for (int i = 0; i < b->nconsumers; i++) both |= b->consumers[i] == b->producer;
  return sli_delay_most(l->in->g, sli_delay_before(b->delayed)) + both;
}
static int of_b(const sli_lowering *l, const sli_buffer *b) {
  return clamp(l->act_b[sli_buffer_stage(l, b)], ticks_of(l));
}
static int of_w(const sli_lowering *l, const sli_buffer *b) {
  return clamp(l->act_w[sli_buffer_stage(l, b)], ticks_of(l));
}
static int of_leaving(const sli_lowering *l, const sli_buffer *b) {
  int stage = sli_buffer_stage(l, b), credits = SLI_MAX(l->act_b[stage], l->act_w[stage]);
  if (b->rate != SLI_PER_LEAVING) return clamp(credits, ticks_of(l));
  int share = (credits * l->in->leaving + l->in->k - 1) / l->in->k;
  return clamp(share + microbatches_begun(l, stage), l->in->m * l->in->leaving);
}
static int of_two_stages(const sli_lowering *l, const sli_buffer *b) {
  const sli_visits *visits = sli_buffer_visits(l, b);
  return clamp(crossing(l, b), visits ? visits->count : ticks_of(l));
}
static int begun(const sli_lowering *l, const sli_buffer *b) {
  return microbatches_begun(l, sli_buffer_stage(l, b));
}

static int (*const rules[SLI_SLOTS_COUNT])(const sli_lowering *l, const sli_buffer *b) = {
    [SLI_SLOTS_ONE] = one,
    [SLI_SLOTS_TWO] = two,
    [SLI_SLOTS_FOUR] = four,
    [SLI_SLOTS_DELAY] = delayed,
    [SLI_SLOTS_INITIAL] = of_initial,
    [SLI_SLOTS_ACT_B] = of_b,
    [SLI_SLOTS_ACT_W] = of_w,
    [SLI_SLOTS_CROSSING] = of_two_stages,
    [SLI_SLOTS_LEAVING] = of_leaving,
    [SLI_SLOTS_LOAD] = of_all,
    [SLI_SLOTS_BEGUN] = begun,
    [SLI_SLOTS_SOURCE] = two,
    [SLI_SLOTS_STAGING] = staging,
    [SLI_SLOTS_INNER] = inner,
    [SLI_SLOTS_BETWEEN] = between,
    [SLI_SLOTS_SHARDED] = of_sharded};

int sli_role_slots(const sli_lowering *l, sli_role role, const sli_buffer *b) {
  return rules[sli_roles[role].slots](l, b);
}

/* Returns the derived number of slots. A transferred copy has as many as its source, a fetched copy
 * as many as gathered parameters. Offloaded buffers have the slots of their role at home and at
 * both ends. */
static int derived(const sli_lowering *l, const sli_buffer *b) {
  const sli_transfer_task *transfer = b->source == SL_NONE ? NULL : l->tasks[b->producer].transfer;
  sli_slots rule = sli_roles[b->role].slots;
  if (transfer && !transfer->fetches && !sli_transfer_kinds[transfer->kind].homes)
    return l->buffers[b->source].quota;
  int gather = transfer && transfer->fetches
                   ? sli_lower_given(l, SLI_ROLE_GATHER, sli_buffer_stage(l, b))
                   : 0;
  if (gather) return gather;
  bool once = b->held || b->rate >= SLI_PER_STEP;
  if (!once || rule == SLI_SLOTS_FOUR) return rules[rule](l, b);
  return b->transient ? 2 : SLI_MAX(b->initial, 1);
}

/* Returns the slots of a buffer, from the user or its role. For sources, the user gives the number
 * of slots in addition to those that the pipeline holds. */
static int slots_of(const sli_lowering *l, const sli_buffer *b) {
  int slots = sli_lower_given(l, b->role, sli_buffer_stage(l, b));
  if (!slots) return derived(l, b);
  return b->role == SLI_ROLE_LOAD ? slots + most_credits(l) : slots;
}

static bool has_pool(const sli_lowering *l) {
  for (int i = 0; i < l->in->options->memory.nquotas; i++)
    if (!strcmp(l->in->options->memory.quotas[i].name, "pool")) return true;
  return l->pick.schedule->pool || l->pick.tune.pool_most;
}

static int pool_slots(const sli_lowering *l, const sli_at *at) {
  int slots =
      l->pick.schedule->pool ? l->pick.schedule->pool(at) * sli_lower_counted(l) : INT32_MAX;
  if (l->pick.tune.pool_most) slots = SLI_MIN(slots, l->pick.tune.pool_most);
  return slots + l->pick.tune.pool;
}

/* Returns how many W passes a device may postpone, or -1 if it is not lazy. */
static int watermark(const sli_lowering *l, int device) {
  sli_at at = sli_lower_at(l, device); /* its first chunk */
  int slots = given_to_device(l, "watermark", device);
  if (!l->pick.split || slots) return slots ? slots : -1;
  if (!l->pick.schedule->watermark) return -1;
  return SLI_MAX(l->pick.schedule->watermark(&at) * sli_lower_counted(l) + l->pick.tune.watermark,
                 0);
}

/* Sets one pool per device, over the activations of its chunks, and the number of lazy W. A
 * user's pool@N or watermark@N applies to the device of stage N. */
static void set_device_numbers(sli_lowering *l) {
  l->pools = sli_arena_alloc(&l->arena, (size_t)l->in->p * sizeof *l->pools);
  l->watermarks = sli_arena_alloc(&l->arena, (size_t)l->in->p * sizeof *l->watermarks);
  for (int d = 0; d < l->in->p; d++) {
    sli_at at = sli_lower_at(l, d); /* stage d is on device d */
    int slots = given_to_device(l, "pool", d);
    l->watermarks[d] = watermark(l, d);
    if (has_pool(l))
      l->pools[d] = slots ? slots : SLI_MAX(pool_slots(l, &at), l->pick.v * l->in->k);
  }
}

/* Gives parameters several slots, so that the update reads one and writes another. With two, a step
 * reads the version made two updates before it, and need not wait for the last one (PipeDream-2BW:
 * Narayanan et al., arXiv 2006.09503). With rollouts ahead, a step reads the newest version and its
 * rollouts the oldest (emit.c). */
static void add_versions(sli_lowering *l, int buffer, int slots) {
  sli_buffer *b = &l->buffers[buffer];
  int *readers = sli_arena_alloc(&l->arena, (size_t)(b->nconsumers + 1) * sizeof *readers);
  memcpy(readers, b->consumers, (size_t)b->nconsumers * sizeof *readers);
  readers[b->nconsumers++] = b->producer;
  b->consumers = readers;
  b->initial = slots;
  sli_add_port(&l->tasks[b->producer], buffer, false);
}

/* Checks that the readers of older versions can be distinguished, and that checkpoints hold these
 * versions. */
static sl_status check_ahead(const sli_lowering *l, int ahead) {
  if (ahead > 1 && l->in->options->store.every)
    return sl_fail(
        SL_E_UNSUPPORTED,
        "rollouts.ahead %d: not supported with checkpoints, which hold at most two versions of "
        "the parameters (rollouts.ahead 1)",
        ahead);
  for (int i = 0; i < l->nbuffers; i++)
    if (l->buffers[i].role == SLI_ROLE_PARAM &&
        sli_lower_given(l, SLI_ROLE_PARAM, sli_buffer_stage(l, &l->buffers[i])))
      return sl_fail(
          SL_E_USAGE,
          "quota param: not with rollouts.ahead %d, which sets the number of parameter slots",
          ahead);
  return SL_OK;
}

sl_status sli_lower_versions(sli_lowering *l) {
  int ahead = sli_lower_ahead(l);
  if (ahead) SLI_TRY(check_ahead(l, ahead));
  for (int i = 0; i < l->nbuffers; i++) {
    const sli_buffer *b = &l->buffers[i];
    if (b->role != SLI_ROLE_PARAM || b->producer == SL_NONE) continue;
    int slots = sli_lower_given(l, SLI_ROLE_PARAM, sli_buffer_stage(l, b));
    if (slots > 2)
      return sl_fail(SL_E_USAGE, "quota param is %d: parameters have one or two slots", slots);
    if (slots == 2 || ahead) add_versions(l, i, ahead ? ahead + 1 : slots);
  }
  return SL_OK;
}

/* Returns how far a quota may be raised during the run. This reserves address space, where that
 * costs nothing, and table entries; the largest plans are only predicted, never run. Shared slots,
 * their transfers, and aliased buffers cannot grow. */
static int most_slots(const sli_lowering *l, const sli_buffer *b) {
  const sl_memory_ops *memory = l->in->kind->memory[b->home];
  bool fixed = b->rate >= SLI_PER_STEP || b->held || b->transient || b->aliased_by ||
               b->role == SLI_ROLE_TURN || b->role == SLI_ROLE_BACK || b->role == SLI_ROLE_DELAY;
  if (fixed || (b->source != SL_NONE && !l->buffers[b->source].quota_most)) return 0;
  if (l->in->p > 128 || (memory && memory->fixed)) return b->quota;
  int step = b->rate == SLI_PER_TICK ? ticks_of(l) : l->in->m;
  return SLI_MAX(b->quota, SLI_MIN(4 * b->quota + 8, 2 * step));
}

sl_status sli_lower_quotas(sli_lowering *l) {
  sli_role counted = l->pick.split ? SLI_ROLE_ACT_W : SLI_ROLE_ACT_B;
  sl_status status = check_given(l);
  if (status) return status;
  for (int i = 0; i < l->nbuffers; i++) {
    sli_buffer *b = &l->buffers[i];
    b->quota = slots_of(l, b);
    b->quota_most = most_slots(l, b);
    if (b->credit && b->role == counted) b->activation = 1.0 / (l->pick.v * l->in->k);
  }
  set_device_numbers(l);
  return SL_OK;
}
