/* SPDX-License-Identifier: Apache-2.0 */
/* Plan builder: takes records; sl_plan_finish derives the rest, checks every invariant and lays out
 * the registers. */
#include "actors/plan/plan.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "kernels/disk/disk.h"

struct sli_plan_memory {
  sli_arena arena;
  size_t actors, regs, pools, queues, devices, maps; /* capacities */
};

sl_plan *sl_plan_create(int microbatches, int pieces) {
  sl_plan *plan = sli_calloc(1, sizeof *plan);
  plan->memory = sli_calloc(1, sizeof *plan->memory);
  plan->microbatches = microbatches;
  plan->pieces = pieces;
  return plan;
}

/* Releases a program through the queue kind that prepared it. */
static void release_program(const sl_plan *plan, const sl_actor *a) {
  bool known = a->queue >= 0 && a->queue < plan->nqueues;
  const sl_queue_ops *ops = known ? plan->queues[a->queue].ops : NULL;
  (ops && ops->release ? ops->release : sl_program_release)(a->program);
}

void sl_plan_destroy(sl_plan *plan) {
  if (!plan) return;
  for (int32_t i = 0; i < plan->nactors; i++)
    if (plan->actors[i].program) release_program(plan, &plan->actors[i]);
  free(plan->actors);
  free(plan->regs);
  free(plan->pools);
  free(plan->queues);
  free(plan->devices);
  free(plan->maps);
  sli_arena_fini(&plan->memory->arena);
  free(plan->memory);
  free(plan);
}

void *sl_plan_alloc(sl_plan *plan, size_t bytes) {
  return sli_arena_alloc(&plan->memory->arena, bytes);
}

char *sl_plan_format(sl_plan *plan, const char *format, ...) {
  va_list args;
  va_start(args, format);
  char *text = sli_format_list(&plan->memory->arena, format, args);
  va_end(args);
  return text;
}

/* Appends a record to one of the plan's arrays, keeping its name in the arena. */
#define ADD(plan, array, count, record)                                      \
  do {                                                                       \
    SLI_GROW((plan)->array, (size_t)(plan)->count, (plan)->memory->array);   \
    (record).name = sli_arena_strdup(&(plan)->memory->arena, (record).name); \
    (plan)->array[(plan)->count++] = (record);                               \
  } while (0)

int32_t sl_plan_add_device(sl_plan *plan, sl_device device) {
  device.kind = sli_arena_strdup(&plan->memory->arena, device.kind);
  for (int s = 0; s < SL_SPACE_COUNT; s++)
    if (device.room[s].path)
      device.room[s].path = sli_arena_strdup(&plan->memory->arena, device.room[s].path);
  ADD(plan, devices, ndevices, device);
  return plan->ndevices - 1;
}

int32_t sl_plan_add_queue(sl_plan *plan, sl_queue queue) {
  if (queue.lane) queue.lane = sli_arena_strdup(&plan->memory->arena, queue.lane);
  ADD(plan, queues, nqueues, queue);
  return plan->nqueues - 1;
}

int32_t sl_plan_add_pool(sl_plan *plan, sl_pool pool) {
  ADD(plan, pools, npools, pool);
  return plan->npools - 1;
}

static void *copy_table(sl_plan *plan, const void *table, int32_t count, size_t size) {
  size_t bytes = (size_t)count * size;
  return count ? memcpy(sl_plan_alloc(plan, bytes), table, bytes) : NULL;
}

int32_t sl_plan_add_register(sl_plan *plan, sl_register reg) {
  reg.quota_name = sli_arena_strdup(&plan->memory->arena, reg.quota_name);
  reg.lengths = copy_table(plan, reg.lengths, reg.nlengths, sizeof *reg.lengths);
  ADD(plan, regs, nregs, reg);
  return plan->nregs - 1;
}

static void copy_durations(sl_plan *plan, sl_rows_seconds *d) {
  d->rows = copy_table(plan, d->rows, d->count, sizeof *d->rows);
  d->seconds = copy_table(plan, d->seconds, d->count, sizeof *d->seconds);
}

int32_t sl_plan_add_actor(sl_plan *plan, sl_actor actor) {
  actor.in = copy_table(plan, actor.in, actor.nin, sizeof *actor.in);
  actor.out = copy_table(plan, actor.out, actor.nout, sizeof *actor.out);
  if (actor.bases)
    actor.bases =
        copy_table(plan, (void *)actor.bases, actor.nin + actor.nout, sizeof *actor.bases);
  actor.seconds_table =
      copy_table(plan, actor.seconds_table, actor.nseconds, sizeof *actor.seconds_table);
  actor.shares = copy_table(plan, actor.shares, actor.nshares, sizeof *actor.shares);
  copy_durations(plan, &actor.by_rows);
  copy_durations(plan, &actor.by_picks);
  ADD(plan, actors, nactors, actor);
  return plan->nactors - 1;
}

/* ---- maps ------------------------------------------------------------------ */

int32_t sl_plan_add_map(sl_plan *plan, uint32_t period, int64_t stride,
                        const sl_map_entry *entries) {
  size_t bytes = period * sizeof *entries;
  for (int32_t i = 0; i < plan->nmaps; i++)
    if (plan->maps[i].period == period && plan->maps[i].stride == stride &&
        !memcmp(plan->maps[i].entries, entries, bytes))
      return i;
  SLI_GROW(plan->maps, (size_t)plan->nmaps, plan->memory->maps);
  plan->maps[plan->nmaps] =
      (sl_map){period, stride, memcpy(sl_plan_alloc(plan, bytes), entries, bytes)};
  return plan->nmaps++;
}

int32_t sl_plan_map_each(sl_plan *plan) {
  return sl_plan_add_map(plan, 1, 1, &(sl_map_entry){0, SL_FIRST | SL_LAST});
}

int32_t sl_plan_map_hold(sl_plan *plan) {
  return sl_plan_add_map(plan, 1, 0, &(sl_map_entry){0, 0});
}

int32_t sl_plan_map_span(sl_plan *plan, uint32_t span) { return sl_plan_map_lag(plan, span, 0); }

int32_t sl_plan_map_lag(sl_plan *plan, uint32_t span, int32_t lag) {
  sl_map_entry *entries = sli_calloc(span, sizeof *entries);
  for (uint32_t i = 0; i < span; i++)
    entries[i] = (sl_map_entry){lag, (i == 0 ? SL_FIRST : 0) | (i + 1 == span ? SL_LAST : 0)};
  int32_t map = sl_plan_add_map(plan, span, 1, entries);
  free(entries);
  return map;
}

/* ---- finishing --------------------------------------------------------------- */

static sl_status check_port(const sl_plan *plan, const sl_actor *a, const sl_port *p) {
  if (p->reg < 0 || p->reg >= plan->nregs)
    return sl_fail(SL_E_INPUT, "actor %s: a port names register %d, but there are %d", a->name,
                   p->reg, plan->nregs);
  if (p->map < 0 || p->map >= plan->nmaps || !plan->maps[p->map].period)
    return sl_fail(SL_E_INPUT, "actor %s, register %s: no key map %d", a->name,
                   plan->regs[p->reg].name, p->map);
  return SL_OK;
}

static sl_status derive_ends(sl_plan *plan) {
  for (int32_t i = 0; i < plan->nregs; i++)
    plan->regs[i].producer = SL_NONE, plan->regs[i].nconsumers = 0;
  for (int32_t i = 0; i < plan->nactors; i++) {
    sl_actor *a = &plan->actors[i];
    if (a->queue < 0 || a->queue >= plan->nqueues)
      return sl_fail(SL_E_INPUT, "actor %s: queue %d, but there are %d", a->name, a->queue,
                     plan->nqueues);
    if (a->firings_per_step < 1 || a->ticks < 0 || a->ticks >= plan->nmaps)
      return sl_fail(SL_E_INPUT, "actor %s: needs a tick map and at least one firing per step",
                     a->name);
    if (a->every > 1 && !a->nin)
      return sl_fail(SL_E_INPUT, "actor %s fires every %d steps, but has no input to time it",
                     a->name, a->every);
    for (int32_t p = 0; p < a->nin; p++) {
      sl_status status = check_port(plan, a, &a->in[p]);
      if (status) return status;
      plan->regs[a->in[p].reg].nconsumers++;
    }
    for (int32_t p = 0; p < a->nout; p++) {
      sl_status status = check_port(plan, a, &a->out[p]);
      if (status) return status;
      sl_register *r = &plan->regs[a->out[p].reg];
      if (r->producer != SL_NONE)
        return sl_fail(SL_E_INPUT, "register %s has two producers, %s and %s", r->name,
                       plan->actors[r->producer].name, a->name);
      r->producer = i;
    }
    if (!a->nin) a->source = true;
  }
  return SL_OK;
}

/* Checks that a fixed order fires each actor of its queue, or of all lanes, as often as a step
 * does. The order leaves out actors that do not fire in every step. */
static sl_status check_order(const sl_plan *plan, int32_t queue) {
  const sl_queue *q = &plan->queues[queue];
  int32_t *count = sli_calloc((size_t)plan->nactors, sizeof *count);
  sl_status status = SL_OK;
  for (int32_t i = 0; i < q->norder; i++) count[q->order[i]]++;
  for (int32_t i = 0; i < plan->nactors && !status; i++) {
    const sl_actor *a = &plan->actors[i];
    bool here = sli_same_lanes(plan, a->queue, queue) && sli_every(a) == 1;
    int32_t want = here ? a->firings_per_step : 0;
    if (count[i] != want)
      status = sl_fail(
          SL_E_USAGE, "the order of queue %s lists %s %d times, but a step fires it there %d times",
          q->name, a->name, count[i], want);
  }
  free(count);
  return status;
}

static sl_status check_orders(const sl_plan *plan) {
  sl_status status = SL_OK;
  for (int32_t q = 0; q < plan->nqueues && !status; q++)
    if (plan->queues[q].order) status = check_order(plan, q);
  return status;
}

static void count_processes(sl_plan *plan) {
  plan->nprocesses = 1;
  for (int32_t d = 0; d < plan->ndevices; d++)
    plan->nprocesses = SLI_MAX(plan->nprocesses, plan->devices[d].process + 1);
}

const sl_memory_ops *sli_room_memory(const sl_device *device, sl_space space) {
  const sl_memory_ops *memory = device->room[space].memory;
  return memory ? memory : space == SL_SPACE_DISK ? &sl_memory_disk : &sl_memory_host;
}

/* `sum` plus the bytes of `slots` slots; SIZE_MAX on overflow. */
static size_t add_slots(size_t sum, int slots, size_t stride) {
  size_t bytes;
  bool over = __builtin_mul_overflow((size_t)slots, stride, &bytes) ||
              __builtin_add_overflow(sum, bytes, &sum);
  return over ? SIZE_MAX : sum;
}

static void start_rooms(sl_plan *plan) {
  for (int32_t d = 0; d < plan->ndevices; d++)
    for (int s = 0; s < SL_SPACE_COUNT; s++) {
      sl_room *room = &plan->devices[d].room[s];
      room->reserve_bytes = sli_align(room->workspace_bytes);
      room->arena_bytes = room->reserve_bytes + room->kept_bytes;
      memset(room->used_bytes, 0, sizeof room->used_bytes);
      room->used_bytes[SL_MEMORY_WORKSPACE] = room->arena_bytes;
    }
}

static bool touches_disk(const sl_plan *plan, const sl_actor *a) {
  bool any = false;
  for (int32_t p = 0; p < a->nin; p++) any |= plan->regs[a->in[p].reg].space == SL_SPACE_DISK;
  for (int32_t p = 0; p < a->nout; p++) any |= plan->regs[a->out[p].reg].space == SL_SPACE_DISK;
  return any;
}

static void set_paged(const sl_plan *plan, const sl_port *ports, int32_t count, uint8_t *paged) {
  for (int32_t p = 0; p < count; p++) {
    int32_t reg = ports[p].reg, of = sli_memory_of(&plan->regs[reg]);
    paged[of ? of - 1 : reg] = 1;
  }
}

/* Finds registers that need whole pages: those on disk, and those copied to or from disk. Indexed
 * by the register that owns the memory; the caller frees the array. */
static uint8_t *find_paged(const sl_plan *plan) {
  uint8_t *paged = sli_calloc((size_t)plan->nregs + 1, 1);
  for (int32_t i = 0; i < plan->nactors; i++) {
    const sl_actor *a = &plan->actors[i];
    if (!touches_disk(plan, a)) continue;
    set_paged(plan, a->in, a->nin, paged);
    set_paged(plan, a->out, a->nout, paged);
  }
  return paged;
}

static void set_strides(sl_plan *plan, const uint8_t *paged) {
  for (int32_t i = 0; i < plan->nregs; i++) {
    sl_register *r = &plan->regs[i];
    r->slot_stride = paged[i] ? sli_disk_pages(r->slot_bytes) : sli_align(r->slot_bytes);
    if (!sli_memory_of(r)) continue;
    sl_register *leader = &plan->regs[sli_memory_of(r) - 1];
    size_t stride = paged[sli_memory_of(r) - 1] ? sli_disk_pages(r->slot_bytes) : r->slot_stride;
    leader->slot_stride = SLI_MAX(leader->slot_stride, stride);
  }
}

static void plan_build_place(sl_room *room, sl_register *r, bool paged) {
  size_t at = room->reserve_bytes - sli_align(room->workspace_bytes);
  size_t gap = paged ? sli_disk_pages(at) - at : 0;
  r->offset = at + gap;
  room->arena_bytes = add_slots(add_slots(room->arena_bytes, 1, gap), r->quota, r->slot_stride);
  size_t *used = &room->used_bytes[r->memory];
  *used = add_slots(*used, r->quota, r->slot_stride);
  room->reserve_bytes =
      add_slots(add_slots(room->reserve_bytes, 1, gap), sli_quota_most(r), r->slot_stride);
}

/* Counts the bytes of an aliasing register under its own purpose, not under that of the register
 * whose memory it uses. */
static void count_over(sl_plan *plan, const sl_register *r, const sl_register *under) {
  size_t *used = plan->devices[r->device].room[r->space].used_bytes;
  used[under->memory] -= sl_slot_payload(r);
  used[r->memory] += sl_slot_payload(r);
}

/* Lays out registers one after another, the slots of each contiguously. */
static void lay_out(sl_plan *plan) {
  uint8_t *paged = find_paged(plan);
  start_rooms(plan);
  set_strides(plan, paged);
  for (int32_t i = 0; i < plan->nregs; i++) {
    sl_register *r = &plan->regs[i];
    if (!sli_memory_of(r)) {
      plan_build_place(&plan->devices[r->device].room[r->space], r, paged[i]);
      continue;
    }
    const sl_register *leader = &plan->regs[sli_memory_of(r) - 1];
    r->offset = leader->offset;
    r->slot_stride = leader->slot_stride;
    if (r->aliases) count_over(plan, r, leader);
  }
  free(paged);
}

size_t sli_plan_memory(const sl_plan *plan, int32_t device, sl_space space, sl_memory memory) {
  return plan->devices[device].room[space].used_bytes[memory];
}

size_t sl_plan_memory(const sl_plan *plan, int32_t device, sl_memory memory) {
  return sli_plan_memory(plan, device, SL_SPACE_DEVICE, memory);
}

/* Bytes of all registers of one name on a device, its own or those of its peers. */
typedef struct holder {
  const char *name;
  bool peer;
  size_t bytes;
} holder;

static int larger_holder(const void *a, const void *b) {
  const holder *x = a, *y = b;
  if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
  return x->peer != y->peer ? x->peer - y->peer : strcmp(x->name, y->name);
}

/* Adds up the registers of a device's space by the names that --quota uses. */
static int32_t add_holders(const sl_plan *plan, int32_t device, sl_space space, holder *to) {
  int32_t count = 0, h;
  for (int32_t i = 0; i < plan->nregs; i++) {
    const sl_register *r = &plan->regs[i];
    if (r->device != device || r->space != space || sli_memory_of(r)) continue;
    for (h = 0; h < count && (to[h].peer != r->peer || strcmp(to[h].name, r->quota_name)); h++) {}
    if (h == count) to[count++] = (holder){r->quota_name, r->peer, 0};
    to[h].bytes = add_slots(to[h].bytes, r->quota, r->slot_stride);
  }
  return count;
}

/* Lists the largest holders of a device's space: "act.b 8.3 MiB, state 1.0 MiB, ...". */
static void name_holders(const sl_plan *plan, int32_t device, sl_space space, char *text,
                         size_t size) {
  holder *all = sli_calloc((size_t)plan->nregs + 1, sizeof *all);
  int32_t count = add_holders(plan, device, space, all);
  qsort(all, (size_t)count, sizeof *all, larger_holder);
  size_t used = 0;
  text[0] = 0;
  for (int32_t i = 0; i < count && i < 4 && used < size; i++) {
    char bytes[32];
    used += (size_t)snprintf(text + used, size - used, "%s%s%s %s", i ? ", " : "", all[i].name,
                             all[i].peer ? " of its peers" : "",
                             sli_format_bytes(bytes, (double)all[i].bytes));
  }
  free(all);
}

/* Checks that sizes fit in 64 bits. */
static sl_status check_sizes(const sl_plan *plan) {
  for (int32_t d = 0; d < plan->ndevices; d++)
    for (int s = 0; s < SL_SPACE_COUNT; s++) {
      if (plan->devices[d].room[s].reserve_bytes < SIZE_MAX) continue;
      char holders[512];
      name_holders(plan, d, (sl_space)s, holders, sizeof holders);
      return sl_fail(SL_E_BUDGET, "device %s needs 2^64 bytes or more; largest holders: %s",
                     plan->devices[d].name, holders);
    }
  return SL_OK;
}

/* Formats two sizes, with all digits if they would otherwise look the same. */
static void format_both(char need[48], char have[48], size_t needed, size_t budget) {
  sli_format_bytes(need, (double)needed);
  sli_format_bytes(have, (double)budget);
  if (strcmp(need, have)) return;
  snprintf(need, 48, "%zu bytes", needed);
  snprintf(have, 48, "%zu bytes", budget);
}

static sl_status check_budget(const sl_plan *plan, int32_t d, sl_space space) {
  const sl_device *device = &plan->devices[d];
  const sl_room *room = &device->room[space];
  size_t budget = space == SL_SPACE_DEVICE ? device->budget_bytes : room->budget_bytes;
  if (!budget || room->arena_bytes <= budget) return SL_OK;
  static const char *const where[SL_SPACE_COUNT] = {
      [SL_SPACE_DEVICE] = "",
      [SL_SPACE_HOST] = " of host memory (--host-memory SIZE)",
      [SL_SPACE_DISK] = " on disk (--disk DIR:SIZE)"};
  char need[48], have[48], holders[512];
  name_holders(plan, d, space, holders, sizeof holders);
  format_both(need, have, room->arena_bytes, budget);
  return sl_fail(SL_E_BUDGET, "device %s needs %s%s but its budget is %s; largest holders: %s",
                 device->name, need, where[space], have, holders);
}

static sl_status check_budgets(const sl_plan *plan) {
  sl_status status = SL_OK;
  for (int32_t d = 0; d < plan->ndevices && !status; d++)
    for (int s = 0; s < SL_SPACE_COUNT && !status; s++) status = check_budget(plan, d, (sl_space)s);
  return status;
}

sl_status sli_plan_settle(sl_plan *plan) {
  SLI_TRY(sli_memory_check());
  SLI_TRY(derive_ends(plan));
  SLI_TRY(sli_plan_check(plan));
  SLI_TRY(check_orders(plan));
  count_processes(plan);
  sli_plan_keep(plan);
  lay_out(plan);
  SLI_TRY(check_sizes(plan));
  SLI_TRY(check_budgets(plan));
  return sli_memory_check();
}

sl_status sl_plan_finish(sl_plan *plan) {
  sl_status status = sli_plan_settle(plan);
  if (!status) plan->hash = sli_plan_hash(plan);
  return status;
}

sl_tick sl_plan_tick(const sl_plan *plan, int32_t actor, int64_t n) {
  return sli_tick_of(plan, &plan->actors[actor], n);
}
