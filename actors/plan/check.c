/* SPDX-License-Identifier: Apache-2.0 */
/* Invariants of registers, ports and pools, checked before a plan is simulated. prove.c checks
 * whether it finishes. */
#include "actors/plan/plan.h"

#include <stdlib.h>
#include <string.h>

/* The virtual clock counts nanoseconds in 64 bits. */
static bool is_duration(double seconds) { return seconds >= 0 && seconds <= 1e9; }

/* Returns the first of `count` numbers that is no duration, or NULL. */
static const double *find_wrong(const double *seconds, int32_t count) {
  for (int32_t i = 0; i < count; i++)
    if (!is_duration(seconds[i])) return &seconds[i];
  return NULL;
}

static sl_status check_seconds(const sl_actor *a) {
  const double *found = find_wrong(&a->seconds, 1);
  if (!found) found = find_wrong(a->seconds_table, a->nseconds);
  if (!found) found = find_wrong(a->by_rows.seconds, a->by_rows.count);
  if (!found) found = find_wrong(a->by_picks.seconds, a->by_picks.count);
  if (!found) return SL_OK;
  double wrong = *found;
  return sl_fail(SL_E_INPUT, "actor %s takes %g s: durations must be from 0 to 1e9 s", a->name,
                 wrong);
}

/* Checks shares. Whether a device has them is a question of the proof. */
static sl_status check_parts(const sl_plan *plan, const sl_actor *a) {
  const sl_queue *q = &plan->queues[a->queue];
  if (a->nshares && !q->lane)
    return sl_fail(SL_E_INPUT, "actor %s asks for a share, but queue %s is no lane of its device",
                   a->name, q->name);
  for (int32_t i = 0; i < a->nshares; i++) {
    sl_share s = a->shares[i];
    if (!(s.part >= 1e-6 && s.part <= 1e3 && s.rate >= 1e-6 && s.rate <= 1e3))
      return sl_fail(SL_E_INPUT,
                     "actor %s asks for a share of %g and runs at %g with it: both must be above 0",
                     a->name, s.part, s.rate);
  }
  return SL_OK;
}

/* Checks lanes: each runs one firing at a time, and one worker runs all of a device. */
static sl_status check_lane(const sl_plan *plan, int32_t queue) {
  const sl_queue *q = &plan->queues[queue];
  if (!q->lane) return SL_OK;
  if (q->run_ahead > 1 || q->apart)
    return sl_fail(SL_E_INPUT, "queue %s is a lane: it can neither run ahead nor apart", q->name);
  for (int32_t i = 0; i < queue; i++) {
    const sl_queue *other = &plan->queues[i];
    if (!sli_same_lanes(plan, i, queue)) continue;
    if (other->norder != q->norder ||
        (q->norder && memcmp(q->order, other->order, (size_t)q->norder * sizeof *q->order) != 0))
      return sl_fail(SL_E_INPUT, "queues %s and %s are lanes of %s, which have one fixed order",
                     other->name, q->name, plan->devices[q->device].name);
  }
  return SL_OK;
}

/* Checks a queue of a group against the group's first: both fire alike actors in one order. */
static sl_status check_group(const sl_plan *plan, int32_t queue) {
  const sl_queue *q = &plan->queues[queue], *first = plan->queues;
  if (!q->group) return SL_OK;
  while (first->group != q->group) first++;
  bool alike = q->run_ahead == 1 && q->norder == first->norder;
  for (int32_t i = 0; alike && i < q->norder; i++)
    alike = sli_actors_alike(&plan->actors[first->order[i]], &plan->actors[q->order[i]]);
  if (alike) return SL_OK;
  return sl_fail(SL_E_INPUT,
                 "queues %s and %s are of one group, but do not fire alike actors in one "
                 "order, one at a time",
                 first->name, q->name);
}

/* Checks rows: they are equal parts of a slot, and initial slots are full. */
static sl_status check_rows(const sl_register *r) {
  if (!r->rows && !r->nlengths) return SL_OK;
  if (r->rows < 1 || sl_slot_payload(r) % (size_t)r->rows)
    return sl_fail(SL_E_INPUT, "register %s: its slots of %zu bytes cannot be divided into %d rows",
                   r->name, sl_slot_payload(r), r->rows);
  if (r->held)
    return sl_fail(SL_E_INPUT, "register %s is held, so its slot is always full", r->name);
  for (int32_t i = 0; i < r->nlengths; i++)
    if (r->lengths[i] < 0 || r->lengths[i] > r->rows)
      return sl_fail(SL_E_INPUT, "register %s: %d of %d rows cannot be valid", r->name,
                     r->lengths[i], r->rows);
  return SL_OK;
}

/* Checks that calls and the register agree on a slot's rows. */
static sl_status check_lengths(const sl_plan *plan, const sl_actor *a) {
  const sl_program *program = a->program;
  for (int32_t p = 0; program && program->nlengths && p < a->nin + a->nout; p++) {
    const sl_register *r = &plan->regs[(p < a->nin ? a->in : a->out - a->nin)[p].reg];
    int e = program->base_length[p];
    if (e >= program->nlengths || (e >= 0 ? program->length_rows[e] : 0) != r->rows)
      return sl_fail(SL_E_INPUT,
                     "actor %s, register %s: its slots have %d rows, but its calls use %d", a->name,
                     r->name, r->rows, e >= 0 ? program->length_rows[e] : 0);
  }
  return SL_OK;
}

static sl_status check_register(const sl_plan *plan, const sl_register *r) {
  if (r->quota < 1)
    return sl_fail(SL_E_USAGE, "register %s: quota %s is %d, but an actor needs at least one slot",
                   r->name, r->quota_name, r->quota);
  if (r->initial > r->quota)
    return sl_fail(SL_E_USAGE, "register %s: %d initial slots do not fit in quota %s = %d", r->name,
                   r->initial, r->quota_name, r->quota);
  if (r->producer == SL_NONE && !r->initial)
    return sl_fail(SL_E_INPUT, "register %s has no producer and no initial slot", r->name);
  if (r->device < 0 || r->device >= plan->ndevices)
    return sl_fail(SL_E_INPUT, "register %s: device %d, but there are %d", r->name, r->device,
                   plan->ndevices);
  if ((unsigned)r->space >= SL_SPACE_COUNT)
    return sl_fail(SL_E_INPUT, "register %s: no space %d", r->name, (int)r->space);
  if ((unsigned)r->memory >= SL_MEMORY_COUNT)
    return sl_fail(SL_E_INPUT, "register %s: no memory %d", r->name, (int)r->memory);
  if (r->pool != SL_NONE && (r->pool < 0 || r->pool >= plan->npools))
    return sl_fail(SL_E_INPUT, "register %s: pool %d, but there are %d", r->name, r->pool,
                   plan->npools);
  return SL_OK;
}

/* Checks that slots counted in a pool or as activations are counted by one worker, that of their
 * device. A queue with `apart` runs on another worker. */
static sl_status check_counted(const sl_plan *plan, const sl_register *r) {
  if (r->producer == SL_NONE || (r->pool == SL_NONE && !(r->activation > 0))) return SL_OK;
  int32_t written = plan->queues[plan->actors[r->producer].queue].device;
  if (plan->queues[plan->actors[r->producer].queue].apart)
    return sl_fail(
        SL_E_INPUT,
        "register %s is written on queue %s, which runs apart from its device, so its slots "
        "cannot be counted",
        r->name, plan->queues[plan->actors[r->producer].queue].name);
  if (written == r->device) return SL_OK;
  return sl_fail(SL_E_INPUT,
                 "register %s is on device %s but written on %s, so its slots cannot be counted",
                 r->name, plan->devices[r->device].name, plan->devices[written].name);
}

/* Checks registers that share slots: one queue writes them, and they have the same quota, device
 * and space. */
static sl_status check_shares(const sl_plan *plan, int32_t reg) {
  const sl_register *r = &plan->regs[reg];
  if (!r->shares) return SL_OK;
  if (r->shares < 0 || r->shares > reg)
    return sl_fail(SL_E_INPUT,
                   "register %s shares the slots of register %d, which does not precede it",
                   r->name, r->shares - 1);
  const sl_register *leader = &plan->regs[r->shares - 1];
  if (leader->shares || r->initial || r->held || r->pool != SL_NONE || r->activation > 0 ||
      leader->initial || leader->held || leader->pool != SL_NONE || leader->activation > 0 ||
      sli_quota_most(r) != r->quota || sli_quota_most(leader) != leader->quota ||
      r->quota != leader->quota || r->device != leader->device || r->space != leader->space)
    return sl_fail(SL_E_INPUT, "registers %s and %s cannot share slots", r->name, leader->name);
  if (r->producer == SL_NONE || leader->producer == SL_NONE ||
      plan->actors[r->producer].queue != plan->actors[leader->producer].queue)
    return sl_fail(SL_E_INPUT,
                   "registers %s and %s share slots, but are not written on the same queue",
                   r->name, leader->name);
  return SL_OK;
}

/* Register whose slots a register uses. */
static int32_t slots_of(const sl_plan *plan, int32_t reg) {
  return plan->regs[reg].shares ? plan->regs[reg].shares - 1 : reg;
}

/* Checks that no actor writes two registers that share slots: it cannot take turns with itself. */
static sl_status check_turns(const sl_plan *plan, const sl_actor *a) {
  for (int32_t p = 0; p < a->nout; p++)
    for (int32_t q = 0; q < a->nout && plan->regs[a->out[p].reg].shares; q++) {
      int32_t one = SLI_MIN(a->out[p].reg, a->out[q].reg);
      int32_t two = SLI_MAX(a->out[p].reg, a->out[q].reg);
      if (p != q && slots_of(plan, one) == slots_of(plan, two))
        return sl_fail(SL_E_INPUT, "actor %s writes registers %s and %s, which share slots",
                       a->name, plan->regs[one].name, plan->regs[two].name);
    }
  return SL_OK;
}

/* Checks registers that alias each other: one slot each, in the same memory. */
static sl_status check_over(const sl_plan *plan, int32_t reg) {
  const sl_register *r = &plan->regs[reg];
  if (!r->aliases) return SL_OK;
  if (r->aliases < 0 || r->aliases > reg)
    return sl_fail(SL_E_INPUT, "register %s aliases register %d, which does not precede it",
                   r->name, r->aliases - 1);
  const sl_register *under = &plan->regs[r->aliases - 1];
  if (under->shares || under->aliases || r->shares || r->initial || r->held || under->initial ||
      under->held || sli_quota_most(r) != 1 || sli_quota_most(under) != 1 ||
      r->device != under->device || r->space != under->space)
    return sl_fail(SL_E_INPUT, "register %s cannot alias %s", r->name, under->name);
  return SL_OK;
}

/* Properties of a map, computed once for each. */
typedef struct checked {
  bool walks;          /* each key is taken and released, one after another */
  bool stays;          /* keys are never released: the same ones stay */
  int64_t first, last; /* range of the keys that stay */
} checked;

static checked check_map(const sl_map *map) {
  checked c = {.walks = sli_map_walks(map), .stays = map->stride == 0, .first = INT64_MAX};
  for (uint32_t i = 0; i < map->period; i++) {
    const sl_map_entry *e = &map->entries[i];
    c.stays &= !(e->flags & SL_LAST);
    if (e->flags & SL_SKIP) continue;
    c.first = SLI_MIN(c.first, e->offset);
    c.last = SLI_MAX(c.last, e->offset);
  }
  return c;
}

static sl_status no_walk(const sl_plan *plan, const sl_actor *a, const sl_port *p) {
  return sl_fail(SL_E_INPUT,
                 "actor %s, register %s: key map %d does not visit every key once, in order",
                 a->name, plan->regs[p->reg].name, p->map);
}

static sl_status check_ticks(const sl_plan *plan, const sl_actor *a) {
  const sl_map *map = &plan->maps[a->ticks];
  bool back = map->stride < 0;
  for (uint32_t i = 0; i < map->period; i++) back |= map->entries[i].offset < 0;
  /* Own ticks count by turns: each turn has own_ticks ticks in firings_per_step firings. */
  bool turns = !a->own_ticks || (a->own_ticks > 0 && map->stride == a->own_ticks &&
                                 map->period == (uint32_t)a->firings_per_step);
  for (uint32_t i = 0; i < map->period && a->own_ticks; i++)
    turns &= map->entries[i].offset < a->own_ticks;
  if (!back && turns && sli_ticks_period(plan, a) <= SLI_TICKS_MOST) return SL_OK;
  return sl_fail(SL_E_INPUT,
                 "actor %s: its ticks, map %d, do not return to the same point of a step", a->name,
                 a->ticks);
}

/* Checks an output: keys below `initial` exist at the start; all others are written once. */
static sl_status check_output(const sl_plan *plan, const sl_actor *a, const sl_port *p,
                              const checked *map) {
  const sl_register *r = &plan->regs[p->reg];
  int64_t first = sli_map_first(&plan->maps[p->map], 0);
  if (r->held ? !map->stays : !map->walks) return no_walk(plan, a, p);
  if (r->held || first == r->initial) return SL_OK;
  return sl_fail(
      SL_E_INPUT,
      "actor %s writes register %s starting at key %lld, but the register has %d initial slots",
      a->name, r->name, (long long)first, r->initial);
}

/* Checks an input: a reader gives back every key from its first one on. It may skip initial keys,
 * but no key that is written. */
static sl_status check_input(const sl_plan *plan, const sl_actor *a, const sl_port *p,
                             const checked *map) {
  const sl_register *r = &plan->regs[p->reg];
  bool written = r->producer != SL_NONE;
  if (!written && map->walks)
    return sl_fail(SL_E_INPUT, "actor %s returns register %s, which no actor writes", a->name,
                   r->name);
  if (written ? !map->walks : !map->stays || map->last >= r->initial) return no_walk(plan, a, p);
  int64_t first = sli_map_first(&plan->maps[p->map], 0);
  if (first < 0 || first > r->initial)
    return sl_fail(
        SL_E_INPUT,
        "actor %s reads register %s starting at key %lld, but the register has %d initial slots",
        a->name, r->name, (long long)first, r->initial);
  return SL_OK;
}

static const sl_port *port_of(const sl_actor *a, int32_t p) {
  return p < a->nin ? &a->in[p] : &a->out[p - a->nin];
}

/* Number of the ports with this base that do not skip the firing. */
static int32_t taking_part(const sl_plan *plan, const sl_actor *a, int32_t base, uint32_t firing) {
  int32_t n = 0;
  for (int32_t p = base; p < a->nin + a->nout; p++) {
    const sl_map *map = &plan->maps[port_of(a, p)->map];
    n += a->bases[p] == base && !(map->entries[firing % map->period].flags & SL_SKIP);
  }
  return n;
}

/* Checks that ports with one base take turns, firing by firing. */
static sl_status check_base(const sl_plan *plan, const sl_actor *a, int32_t port) {
  int32_t base = a->bases[port];
  const char *name = plan->regs[port_of(a, port)->reg].name;
  bool fine =
      base >= 0 && base < port && a->bases[base] == base && (base < a->nin) == (port < a->nin);
  const sl_map *map = &plan->maps[port_of(a, port)->map];
  fine = fine && map->period == plan->maps[port_of(a, base)->map].period;
  if (!fine)
    return sl_fail(SL_E_INPUT, "actor %s, register %s: it cannot share the base of port %d",
                   a->name, name, base);
  for (uint32_t i = 0; i < map->period; i++)
    if (taking_part(plan, a, base, i) != 1)
      return sl_fail(
          SL_E_INPUT,
          "actor %s, register %s: %d ports with its base take part in firing %u, not one", a->name,
          name, taking_part(plan, a, base, i), i);
  return SL_OK;
}

static sl_status check_bases(const sl_plan *plan, const sl_actor *a) {
  sl_status status = SL_OK;
  for (int32_t p = 0; a->bases && p < a->nin + a->nout && !status; p++)
    if (a->bases[p] != p) status = check_base(plan, a, p);
  return status;
}

static int32_t process_of(const sl_plan *plan, int32_t device) {
  return plan->devices[device].process;
}

/* Checks that actors access memory only within their process. Inputs are in the actor's process,
 * and only links write to another process, each to one. */
static sl_status check_reach(const sl_plan *plan, const sl_actor *a) {
  int32_t here = process_of(plan, plan->queues[a->queue].device);
  bool link = plan->queues[a->queue].ops->link;
  bool one = a->nin > 0 && a->nout > 0;
  for (int32_t p = 1; p < a->nin; p++) one &= !plan->regs[a->in[p].reg].slot_bytes;
  for (int32_t p = 1; p < a->nout; p++) one &= !plan->regs[a->out[p].reg].slot_bytes;
  if (link && !one)
    return sl_fail(SL_E_INPUT,
                   "actor %s: a link must have one input and one output that carry bytes", a->name);
  for (int32_t p = 0; p < a->nin + a->nout; p++) {
    const sl_register *r = &plan->regs[(p < a->nin ? a->in : a->out - a->nin)[p].reg];
    int32_t there = process_of(plan, r->device);
    if ((link && p == a->nin) != (here != there))
      return sl_fail(SL_E_INPUT,
                     "actor %s runs in process %d and %s register %s, which is in process %d",
                     a->name, here, p < a->nin ? "reads" : "writes", r->name, there);
  }
  return SL_OK;
}

static sl_status check_pool(const sl_plan *plan, int32_t pool) {
  int64_t kept = 0;
  int32_t members = 0;
  for (int32_t i = 0; i < plan->nregs; i++) {
    if (plan->regs[i].pool != pool) continue;
    kept += sli_register_kept(&plan->regs[i]);
    members++;
  }
  if (plan->pools[pool].quota >= kept) return SL_OK;
  return sl_fail(SL_E_USAGE, "pool %s: quota %d cannot keep %lld slots for its %d registers",
                 plan->pools[pool].name, plan->pools[pool].quota, (long long)kept, members);
}

static sl_status check_actor(const sl_plan *plan, const sl_actor *a, const checked *maps) {
  sl_status status = check_reach(plan, a);
  if (!status) status = check_seconds(a);
  if (!status) status = check_parts(plan, a);
  if (!status) status = check_turns(plan, a);
  if (!status) status = check_ticks(plan, a);
  if (!status) status = check_lengths(plan, a);
  if (!status) status = check_bases(plan, a);
  if (!status) status = sli_plan_check_reads(plan, a);
  for (int32_t p = 0; p < a->nin && !status; p++)
    status = check_input(plan, a, &a->in[p], &maps[a->in[p].map]);
  for (int32_t p = 0; p < a->nout && !status; p++)
    status = check_output(plan, a, &a->out[p], &maps[a->out[p].map]);
  return status;
}

static sl_status check_registers(const sl_plan *plan) {
  sl_status status = SL_OK;
  for (int32_t i = 0; i < plan->nregs && !status; i++) {
    status = check_register(plan, &plan->regs[i]);
    if (!status) status = check_counted(plan, &plan->regs[i]);
    if (!status) status = check_shares(plan, i);
    if (!status) status = check_over(plan, i);
    if (!status) status = check_rows(&plan->regs[i]);
  }
  return status;
}

sl_status sli_plan_check(const sl_plan *plan) {
  sl_status status = check_registers(plan);
  checked *maps = sli_calloc((size_t)plan->nmaps + 1, sizeof *maps);
  for (int32_t i = 0; i < plan->nmaps && !status; i++) maps[i] = check_map(&plan->maps[i]);
  for (int32_t i = 0; i < plan->nactors && !status; i++)
    status = check_actor(plan, &plan->actors[i], maps);
  for (int32_t i = 0; i < plan->npools && !status; i++) status = check_pool(plan, i);
  for (int32_t i = 0; i < plan->nqueues && !status; i++) status = check_lane(plan, i);
  for (int32_t i = 0; i < plan->nqueues && !status; i++) status = check_group(plan, i);
  free(maps);
  return status;
}
