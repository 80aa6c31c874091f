/* SPDX-License-Identifier: Apache-2.0 */
/* Helpers about plans, shared within actors/. */
#ifndef SLUICE_ACTORS_PLAN_PLAN_H
#define SLUICE_ACTORS_PLAN_PLAN_H

#include <sluice/plan.h>

#include "actors/plan/flow.h"
#include "base/base.h"

/* Every slot, and every array in a slot, starts on a cache line. */
enum { SLI_ALIGN = 64 };
static inline size_t sli_align(size_t bytes) {
  return (bytes + SLI_ALIGN - 1) & ~(size_t)(SLI_ALIGN - 1);
}

/* True if two queues are lanes of one device, or the same queue. */
static inline bool sli_same_lanes(const sl_plan *plan, int32_t a, int32_t b) {
  const sl_queue *x = &plan->queues[a], *y = &plan->queues[b];
  return a == b || (x->lane && y->lane && x->device == y->device);
}

/* Share that an actor asks for in a tick. */
static inline sl_share sli_share_of(const sl_actor *a, int64_t tick) {
  return a->nshares ? a->shares[tick % a->nshares] : (sl_share){1, 1};
}

/* Smallest key of a map from firing n on. */
int64_t sli_map_first(const sl_map *map, int64_t n);

/* Key of a register's first initial slot before a firing of its producer: 0 at the start, plus the
 * number of keys written since. */
int64_t sli_first_key(const sl_plan *plan, int32_t reg, int64_t steps);

/* An actor fires in one of this many steps; and the largest such number. */
enum { SLI_EVERY_MOST = 1 << 24 };
static inline int64_t sli_every(const sl_actor *a) { return SLI_MAX(a->every, 1); }

/* Firings of an actor in the first `steps` steps. */
static inline int64_t sli_firings(const sl_actor *a, int64_t steps) {
  return steps / sli_every(a) * a->firings_per_step;
}

/* Firings of all actors in a step, at most. */
static inline int64_t sli_plan_firings(const sl_plan *plan) {
  int64_t sum = 0;
  for (int32_t i = 0; i < plan->nactors; i++) sum += plan->actors[i].firings_per_step;
  return sum;
}

/* Memory of the fullest device. */
static inline size_t sli_plan_most_bytes(const sl_plan *plan) {
  size_t most = 0;
  for (int32_t d = 0; d < plan->ndevices; d++)
    most = SLI_MAX(most, sl_device_bytes(&plan->devices[d]));
  return most;
}

/* True if a port with this map takes every key once, from the first on, and releases it before it
 * takes the next. */
bool sli_map_walks(const sl_map *map);

/* Number of firings after which an actor's ticks return to the same place in the step and in their
 * map. Above SLI_TICKS_MOST the exact number is not computed. */
enum { SLI_TICKS_MOST = 1 << 22 };
int64_t sli_ticks_period(const sl_plan *plan, const sl_actor *a);

/* Size of a ready table in which this register's keys never collide at this port. */
uint32_t sli_ready_size(const sl_plan *plan, int32_t reg, const sl_map *in);

/* Slots of its pool that are reserved for a register. */
static inline int32_t sli_register_kept(const sl_register *r) {
  int32_t taken = r->held ? 1 : r->initial;
  return SLI_MAX(SLI_MAX(r->kept, 1), taken);
}

/* 1 + the register whose memory it uses; 0 if it has its own. */
static inline int32_t sli_memory_of(const sl_register *r) {
  return r->shares ? r->shares : r->aliases;
}

/* Checks the registers and pools of a plan whose ends are derived (check.c). The error names the
 * culprit. */
sl_status sli_plan_check(const sl_plan *plan);
/* Checks that everything an actor's calls read has been written (reads.c). */
sl_status sli_plan_check_reads(const sl_plan *plan, const sl_actor *a);

/* Derives the size of the state that devices keep for their calls, and the device of each
 * program. */
void sli_plan_keep(sl_plan *plan);

/* Finishes a plan except for its hash, which candidates of a search do not need. */
sl_status sli_plan_settle(sl_plan *plan);

/* Hashes all fields that can change a run. The plan's ends must be derived. */
uint64_t sli_plan_hash(const sl_plan *plan);

/* Memory ops of a device's space. */
const sl_memory_ops *sli_room_memory(const sl_device *device, sl_space space);
/* Bytes of a device's space for one purpose. */
size_t sli_plan_memory(const sl_plan *plan, int32_t device, sl_space space, sl_memory memory);

/* Output port of a register's producer, or NULL. */
const sl_port *sli_plan_output(const sl_plan *plan, int32_t reg);

/* Adds the traffic of an actor in `steps` steps in which it fires. read[input]: rows read at inputs
 * whose slots have rows; NULL if there are none. */
void sli_plan_add_moved(const sli_flow *flow, const sl_plan *plan, int32_t actor, uint64_t steps,
                        const _Atomic uint64_t *read, uint64_t bytes[SL_TRAFFIC_COUNT]);

/* Tick by its number. */
static inline sl_tick sli_tick(const sl_plan *plan, int64_t number) {
  int64_t pieces = plan->pieces, per_step = plan->microbatches * pieces;
  return (sl_tick){.number = number,
                   .step = number / per_step,
                   .microbatch = (int32_t)(number % per_step / pieces),
                   .piece = (int32_t)(number % pieces)};
}

/* Tick of an actor's firing n. */
static inline sl_tick sli_tick_of(const sl_plan *plan, const sl_actor *a, int64_t n) {
  uint32_t flags;
  int64_t number = sl_map_key(&plan->maps[a->ticks], n, &flags);
  if (!a->own_ticks) return sli_tick(plan, number);
  int64_t step = (number / a->own_ticks + 1) * sli_every(a) - 1, in = number % a->own_ticks;
  return (sl_tick){.number = step * plan->microbatches * plan->pieces + in,
                   .step = step,
                   .microbatch = (int32_t)(in / plan->pieces),
                   .piece = (int32_t)(in % plan->pieces)};
}

/* Returns the number of groups of queues. */
int32_t sli_plan_groups(const sl_plan *plan);
/* Returns the number of a queue's group's members before it in the plan: its rank. */
int32_t sli_queue_rank(const sl_plan *plan, int32_t queue);

/* True if two actors of a group make the same calls for their devices: of the same ops, with the
 * same types and names. A name on a device other than the first ends with '#' and its rank. */
bool sli_actors_alike(const sl_actor *a, const sl_actor *b);

/* Most slots a register may have. */
static inline int32_t sli_quota_most(const sl_register *r) {
  return SLI_MAX(r->quota, r->quota_most);
}

/* True if a register's memory is not addressable by the host. */
static inline bool sli_register_far(const sl_plan *plan, const sl_register *r) {
  return sli_room_memory(&plan->devices[r->device], r->space)->far;
}

#endif
