/* SPDX-License-Identifier: Apache-2.0 */
/* Key maps and ticks as rings: one firing's entry leads to the next one's, without a division or a
 * branch. */
#include "actors/run/state.h"

map_step *sli_map_ring(sl_runtime *rt, const sl_map *map) {
  map_step *ring = allot(rt, map->period, sizeof *ring);
  for (uint32_t i = 0; i < map->period; i++) {
    bool wraps = i + 1 == map->period;
    const sl_map_entry *from = &map->entries[i], *to = &map->entries[wraps ? 0 : i + 1];
    ring[i] = (map_step){.delta = to->offset - from->offset + (wraps ? map->stride : 0),
                         .next = &ring[wraps ? 0 : i + 1],
                         .flags = from->flags};
  }
  return ring;
}

typedef struct tick_ring {
  struct tick_ring *next;
  const sl_actor *actor; /* the first actor that has it */
  int64_t count;
  tick_step ring[];
} tick_ring;

/* True if the actor's rank (tick groups), duration or share (tables) depends on the tick. */
static bool differs_by_tick(const sl_actor *a) {
  return a->rank_group != 0 || a->nseconds || a->nshares;
}

static bool have_the_same_ticks(const sl_actor *a, const sl_actor *b) {
  return a->ticks == b->ticks && a->own_ticks == b->own_ticks &&
         a->firings_per_step == b->firings_per_step && sli_every(a) == sli_every(b) &&
         differs_by_tick(a) == differs_by_tick(b);
}

static tick_step make_tick(const sl_plan *plan, const sl_actor *a, int64_t firing) {
  sl_tick tick = sli_tick_of(plan, a, firing);
  bool last = (firing + 1) % a->firings_per_step == 0;
  return (tick_step){.delta = sli_tick_of(plan, a, firing + 1).number - tick.number,
                     .microbatch = tick.microbatch,
                     .piece = tick.piece,
                     .ahead = (int32_t)(tick.step - firing_step(a, firing)),
                     .last = last,
                     .turns = differs_by_tick(a) || last};
}

/* Makes a ring of an actor's ticks that covers whole periods of the map and whole steps. */
static tick_ring *make_ticks(sl_runtime *rt, const sl_actor *a) {
  const sl_plan *plan = rt->plan;
  const sl_map *m = &plan->maps[a->ticks];
  int64_t firings = a->firings_per_step, count = firings;
  int64_t per_step = a->own_ticks ? a->own_ticks : (int64_t)plan->microbatches * plan->pieces;
  while (count % m->period || count / m->period * m->stride % per_step) count += firings;
  tick_ring *t = allot(rt, 1, sizeof *t + (size_t)count * sizeof *t->ring);
  *t = (tick_ring){.next = rt->ticks, .actor = a, .count = count};
  for (int64_t i = 0; i < count; i++) {
    t->ring[i] = make_tick(plan, a, i);
    t->ring[i].next = &t->ring[i + 1 < count ? i + 1 : 0];
  }
  return rt->ticks = t;
}

const tick_step *sli_tick_ring(sl_runtime *rt, const sl_actor *a, int64_t firing) {
  tick_ring *t = rt->ticks;
  while (t && !have_the_same_ticks(t->actor, a)) t = t->next;
  if (!t) t = make_ticks(rt, a);
  return &t->ring[firing % t->count];
}
