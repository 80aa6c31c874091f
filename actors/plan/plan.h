/* What the folder actors/ shares about plans. */
#ifndef SLUICE_ACTORS_PLAN_H
#define SLUICE_ACTORS_PLAN_H

#include <sluice/plan.h>

#include "actors/plan/flow.h"
#include "base/base.h"

/* Every slot and every place in one starts on a cache line. */
enum { SLI_ALIGN = 64 };
static inline size_t sli_align(size_t bytes) {
  return (bytes + SLI_ALIGN - 1) & ~(size_t)(SLI_ALIGN - 1);
}

/* The smallest key of a map from firing n on. */
int64_t sli_map_first(const sl_map *map, int64_t n);

/* The key of a register's first initial slot before a firing of its producer: 0
 * at the start, and as many more as have been written since. */
int64_t sli_first_key(const sl_plan *plan, int32_t reg, int64_t steps);

/* Steps from one in which an actor fires to the next, and the most of them. */
enum { SLI_EVERY_MOST = 1 << 24 };
static inline int64_t sli_every(const sl_actor *a) { return SLI_MAX(a->every, 1); }

/* Firings of an actor in so many steps from the start. */
static inline int64_t sli_firings(const sl_actor *a, int64_t steps) {
  return steps / sli_every(a) * a->firings_per_step;
}

/* Does a port with this map take every key from the first on once, and give it up before it
 * takes the next? */
bool sli_map_walks(const sl_map *map);

/* Firings after which an actor's ticks are at the same place of a step and of their map again;
 * more than SLI_TICKS_MOST: never mind how many. */
enum { SLI_TICKS_MOST = 1 << 22 };
int64_t sli_ticks_period(const sl_plan *plan, const sl_actor *a);


/* Slots of a ready table that can never collide for this register and port. */
uint32_t sli_ready_size(const sl_plan *plan, int32_t reg, const sl_map *in);

/* Slots of its pool that are kept for a register. */
static inline int32_t sli_register_kept(const sl_register *r) {
  int32_t taken = r->held ? 1 : r->initial;
  return SLI_MAX(SLI_MAX(r->kept, 1), taken);
}

/* 1 + the register whose memory it has, 0: its own. */
static inline int32_t sli_memory_of(const sl_register *r) {
  return r->shares ? r->shares : r->over;
}

/* Goes on with what an op of so many inputs is told to do (hash.c). */
uint64_t sli_hash_attrs(uint64_t hash, const sl_op *op, const sl_attrs *attrs, int nin);

/* Whether the registers and pools of a plan whose ends are derived can be
 * (check.c); names the culprit. */
sl_status sli_plan_check(const sl_plan *plan);
/* Whether all that an actor's calls read is there when they do (reads.c). */
sl_status sli_plan_check_reads(const sl_plan *plan, const sl_actor *a);

/* Derives what devices keep for their calls, and whose programs are. */
void sli_plan_keep(sl_plan *plan);

/* Of all fields by which a run could differ; of a plan whose ends are derived. */
uint64_t sli_plan_hash(const sl_plan *plan);

/* What a device's memory of that space is made by. */
const sl_memory_ops *sli_room_memory(const sl_device *device, sl_space space);
/* Bytes a device gives to one use in one space. */
size_t sli_plan_memory(const sl_plan *plan, int32_t device, sl_space space, sl_memory memory);

/* The output port of a register's producer, or NULL. */
const sl_port *sli_plan_output(const sl_plan *plan, int32_t reg);

/* Adds what an actor moves between devices in so many steps in which it fires, and has read so many
 * rows at each of its inputs, as far as their slots have rows; NULL: none has. */
void sli_plan_add_moved(const sl_plan *plan, int32_t actor, uint64_t steps,
                        const _Atomic uint64_t *read, uint64_t bytes[SL_TRAFFIC_COUNT]);

/* A tick by its number. */
static inline sl_tick sli_tick(const sl_plan *plan, int64_t number) {
  int64_t pieces = plan->pieces, per_step = plan->microbatches * pieces;
  return (sl_tick){.number = number, .step = number / per_step,
                   .microbatch = (int32_t)(number % per_step / pieces),
                   .piece = (int32_t)(number % pieces)};
}

/* Of an actor's firing n. */
static inline sl_tick sli_tick_of(const sl_plan *plan, const sl_actor *a, int64_t n) {
  uint32_t flags;
  int64_t number = sl_map_key(&plan->maps[a->ticks], n, &flags);
  if (!a->own_ticks) return sli_tick(plan, number);
  int64_t step = (number / a->own_ticks + 1) * sli_every(a) - 1, in = number % a->own_ticks;
  return (sl_tick){.number = step * plan->microbatches * plan->pieces + in, .step = step,
                   .microbatch = (int32_t)(in / plan->pieces), .piece = (int32_t)(in % plan->pieces)};
}

/* The most slots a register may have. */
static inline int32_t sli_quota_most(const sl_register *r) {
  return SLI_MAX(r->quota, r->quota_most);
}

/* Does a register lie in memory that the host does not address? */
static inline bool sli_register_far(const sl_plan *plan, const sl_register *r) {
  return sli_room_memory(&plan->devices[r->device], r->space)->far;
}

#endif
