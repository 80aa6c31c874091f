/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of a runtime: an arena for each space of each device, and host access to slots between
 * runs. */
#include "actors/run/poison.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* True if there are several NUMA nodes, or their number is unknown. */
static bool has_near_memory(void) {
  char nodes[64] = "?";
  FILE *file = fopen("/sys/devices/system/node/has_memory", "re");
  if (file && !fgets(nodes, sizeof nodes, file)) nodes[0] = '?';
  if (file) fclose(file);
  return strspn(nodes, "0123456789\n") != strlen(nodes);
}

/* Touches initial slots from the device's thread, because the system places a page near the thread
 * that first touches it. These slots are filled from outside before the run. The device's own
 * threads touch all others, in the first step. */
static void touch_initial(const sl_runtime *rt, int32_t device, sl_space space, char *arena) {
  for (int32_t i = 0; i < rt->plan->nregs; i++) {
    const sl_register *r = &rt->plan->regs[i];
    if (r->device != device || r->space != space) continue;
    size_t end = r->offset + (size_t)r->initial * r->slot_stride;
    for (size_t at = r->offset; at < end; at += 4096) arena[at] = 0;
  }
}

/* Announces the parts of an arena that will be used, in the longest possible ranges. The gaps are
 * slots that registers can gain only during a run. */
static void use_planned(const sl_runtime *rt, int32_t device, sl_space space, char *arena) {
  const sl_room *room = &rt->plan->devices[device].room[space];
  void (*use)(void *, size_t) = sli_room_memory(&rt->plan->devices[device], space)->use;
  size_t begin = 0, end = 0, workspace = sli_align(room->workspace_bytes);
  if (!use) return;
  for (int32_t i = 0; i < rt->plan->nregs; i++) {
    const sl_register *r = &rt->plan->regs[i];
    if (r->device != device || r->space != space || sli_memory_of(r)) continue;
    if (r->offset != end) use(arena + begin, end - begin), begin = r->offset;
    end = r->offset + (size_t)r->quota * r->slot_stride;
  }
  bool joined = end == room->reserve_bytes - workspace;
  if (!joined) use(arena + begin, end - begin), begin = room->reserve_bytes - workspace;
  use(arena + begin, room->reserve_bytes - begin);
}

static sl_status create(sl_runtime *rt, int32_t device, sl_space space) {
  const sl_device *d = &rt->plan->devices[device];
  size_t bytes = d->room[space].reserve_bytes;
  if (!bytes) return SL_OK;
  const sl_memory_ops *memory = sli_room_memory(d, space);
  void *arena;
  sl_memory_config config = {.device = d->number, .path = d->room[space].path};
  sl_status status = memory->create(&config, bytes, &arena);
  if (status)
    return sl_fail(status, "device %s, %s memory: %s", d->name, memory->name, sl_detail());
  rt->devices[device].arenas[space] = arena;
  use_planned(rt, device, space, arena);
  if (!memory->fixed && has_near_memory()) touch_initial(rt, device, space, arena);
  return SL_OK;
}

sl_status sli_arenas_create(sl_runtime *rt, const worker *w) {
  sl_status status = SL_OK;
  for (int32_t d = 0; d < rt->plan->ndevices && !rt->options.no_data; d++) {
    if (is_away(rt, d) || rt->devices[d].worker != w) continue;
    for (int s = 0; s < SL_SPACE_COUNT && !status; s++) status = create(rt, d, (sl_space)s);
  }
  return status;
}

static bool is_done_at_launch(const queue *q) { return q->ops->works || q->ops->blocks; }

/* Sets up poison for a register's free host slots, if nothing else uses their memory and no reader
 * releases a slot before it has been read. Also sets up the address sanitizer, if only threads of
 * this process access the slots. */
static void watch_memory(sl_runtime *rt, int32_t i) {
  reg *r = &rt->regs[i];
  contents *c = &r->contents;
  const queue *from = r->producer ? r->producer->actor->queue : NULL;
  bool waits = false, plain = from && from->ops == &sl_queue_cpu;
  for (int32_t k = 0; k < r->nconsumers; k++) {
    const queue *q = r->consumers[k]->actor->queue;
    waits |= q->ops->wait || (r->consumers[k]->early && !is_done_at_launch(q));
    plain &= q->ops == &sl_queue_cpu && q->worker->process < 0;
  }
  waits |= from && (from->ops->wait || (!r->nconsumers && !is_done_at_launch(from)));
  if (rt->plan->regs[i].rows) c->blank = rt->plan->regs[i].slot_stride;
  bool lasts = rt->plan->regs[i].held || rt->plan->regs[i].initial; /* updated in place */
  if (c->owner || waits || lasts || !r->worker || r->worker->process >= 0) return;
  c->poison = r->stride;
  c->closed = plain && !r->shared.slot_pool;
  for (int32_t s = 0; s < sli_quota_most(&rt->plan->regs[i]); s++)
    if (c->tags[s].reg == SL_NONE) close_slot(r, s);
}

void sli_arenas_point(sl_runtime *rt) {
  const sl_plan *plan = rt->plan;
  for (int32_t i = 0; i < plan->nregs; i++) {
    const sl_register *r = &plan->regs[i];
    uintptr_t arena = (uintptr_t)rt->devices[r->device].arenas[r->space];
    if (!arena) continue;
    rt->regs[i].base = arena + r->offset;
    bool here = !sli_room_memory(&plan->devices[r->device], r->space)->far;
    if (rt->options.check && here) watch_memory(rt, i);
  }
  for (int32_t i = 0; i < plan->nactors; i++) {
    actor *a = &rt->actors[i];
    const sl_queue *q = a->queue->plan;
    const sl_room *room = &plan->devices[q->device].room[q->space];
    char *arena = a->queue->device->arenas[q->space];
    if (arena && a->queue->worker->process < 0)
      a->bound.bases[a->plan->nin + a->plan->nout] =
          arena + room->reserve_bytes - sli_align(room->workspace_bytes);
  }
}

void sli_arenas_destroy(sl_runtime *rt) {
  for (int32_t i = 0; i < rt->plan->ndevices; i++) {
    const sl_device *d = &rt->plan->devices[i];
    for (int s = 0; s < SL_SPACE_COUNT; s++) {
      if (rt->options.check && !sli_room_memory(d, (sl_space)s)->far && rt->devices[i].arenas[s])
        ASAN_UNPOISON_MEMORY_REGION(rt->devices[i].arenas[s], d->room[s].reserve_bytes);
      sli_room_memory(d, (sl_space)s)->destroy(rt->devices[i].arenas[s], d->room[s].reserve_bytes);
    }
  }
}

/* ---- slots ----------------------------------------------------------------------- */

void *sl_runtime_slot(sl_runtime *rt, int32_t r, int32_t slot) {
  const reg *from = &rt->regs[r];
  return from->base ? slot_address(from, slot) : NULL;
}

int32_t sl_runtime_newest_slot(const sl_runtime *rt, int32_t r) {
  const out_port *p = rt->regs[r].producer;
  return p && p->slot >= 0 ? p->slot : rt->regs[r].newest;
}

void *sl_runtime_newest(sl_runtime *rt, int32_t r) {
  return sl_runtime_slot(rt, r, sl_runtime_newest_slot(rt, r));
}

static sl_status copy(const sl_runtime *rt, int32_t reg, void *to, const void *from, size_t bytes) {
  const sl_register *r = &rt->plan->regs[reg];
  if (!rt->regs[reg].base)
    return sl_fail(SL_E_UNSUPPORTED, "register %s has no values in this process", r->name);
  return bytes ? sli_room_memory(&rt->plan->devices[r->device], r->space)->copy(to, from, bytes)
               : SL_OK;
}

static char *arenas_place(const sl_runtime *rt, int32_t reg, int32_t slot, size_t offset,
                          size_t bytes) {
  const sl_register *r = &rt->plan->regs[reg];
  SLI_CHECK(slot >= 0 && slot < sli_quota_most(r) && offset <= r->slot_bytes &&
                bytes <= r->slot_bytes - offset,
            "register %s: bytes %zu to %zu of slot %d", r->name, offset, offset + bytes, slot);
  return (char *)slot_address(&rt->regs[reg], slot) + offset;
}

sl_status sl_runtime_read(const sl_runtime *rt, int32_t reg, int32_t slot, size_t offset,
                          size_t bytes, void *to) {
  return copy(rt, reg, to, arenas_place(rt, reg, slot, offset, bytes), bytes);
}

sl_status sl_runtime_write(sl_runtime *rt, int32_t reg, int32_t slot, size_t offset, size_t bytes,
                           const void *from) {
  return copy(rt, reg, arenas_place(rt, reg, slot, offset, bytes), from, bytes);
}
