/* SPDX-License-Identifier: Apache-2.0 */
/* Properties of key maps: first key, displacement, and the number of keys that may be ready at the
 * same time. */
#include "actors/plan/plan.h"

#include <stdlib.h>

int64_t sli_map_first(const sl_map *map, int64_t n) {
  int64_t first = INT64_MAX;
  for (uint32_t i = 0; i < map->period; i++) {
    uint32_t flags;
    int64_t key = sl_map_key(map, n + i, &flags);
    if (!(flags & SL_SKIP)) first = SLI_MIN(first, key);
  }
  return first;
}

int64_t sli_first_key(const sl_plan *plan, int32_t reg, int64_t steps) {
  const sl_port *out = sli_plan_output(plan, reg);
  const sl_register *r = &plan->regs[reg];
  if (!out || r->held) return 0;
  int64_t fired = sli_firings(&plan->actors[r->producer], steps);
  return sli_map_first(&plan->maps[out->map], fired) - r->initial;
}

/* Largest deviation of a map's keys from a straight line, in keys. */
static int64_t displacement(const sl_map *map) {
  int64_t most = 0, period = map->period;
  for (int64_t i = 0; i < period; i++) {
    if (map->entries[i].flags & SL_SKIP) continue;
    int64_t off = llabs(map->entries[i].offset * period - i * map->stride);
    most = SLI_MAX(most, (off + period - 1) / period);
  }
  return most;
}

const sl_port *sli_plan_output(const sl_plan *plan, int32_t reg) {
  if (plan->regs[reg].producer == SL_NONE) return NULL;
  const sl_actor *producer = &plan->actors[plan->regs[reg].producer];
  for (int32_t i = 0; i < producer->nout; i++)
    if (producer->out[i].reg == reg) return &producer->out[i];
  return NULL;
}

uint32_t sli_ready_size(const sl_plan *plan, int32_t reg, const sl_map *in) {
  const sl_register *r = &plan->regs[reg];
  const sl_port *out = sli_plan_output(plan, reg);
  int64_t need = sli_quota_most(r) + r->initial + 2 + 2 * displacement(in) +
                 (out ? 2 * displacement(&plan->maps[out->map]) : 0);
  uint32_t size = 1;
  while (size < need) size *= 2;
  return size;
}

/* True if one period takes every key of its stride once, from the smallest on. */
static bool covers(const sl_map *map, int64_t first) {
  if (map->stride < 1 || map->stride > map->period) return false;
  bool *taken = sli_calloc((size_t)map->stride, sizeof *taken);
  int64_t count = 0;
  bool good = true;
  for (uint32_t i = 0; i < map->period && good; i++) {
    if (!(map->entries[i].flags & SL_FIRST)) continue;
    int64_t at = map->entries[i].offset - first;
    good = at >= 0 && at < map->stride && !taken[at];
    if (good) taken[at] = true, count++;
  }
  free(taken);
  return good && count == map->stride;
}

bool sli_map_walks(const sl_map *map) {
  int64_t key = 0;
  bool open = false;
  for (uint32_t i = 0; i < map->period; i++) {
    uint32_t flags = map->entries[i].flags;
    if (flags & SL_SKIP) {
      if (flags != SL_SKIP) return false;
      continue;
    }
    bool takes = flags & SL_FIRST;
    if (takes == open || (open && map->entries[i].offset != key)) return false;
    key = map->entries[i].offset;
    open = !(flags & SL_LAST);
  }
  return !open && covers(map, sli_map_first(map, 0));
}

int64_t sli_ticks_period(const sl_plan *plan, const sl_actor *a) {
  const sl_map *map = &plan->maps[a->ticks];
  int64_t per_step = a->own_ticks ? a->own_ticks : (int64_t)plan->microbatches * plan->pieces;
  int64_t firings = a->firings_per_step;
  if (per_step > SLI_TICKS_MOST || firings > SLI_TICKS_MOST) return SLI_TICKS_MOST + 1;
  int64_t count = map->period / sli_common_divisor(map->period, firings) * firings;
  int64_t ahead = count / map->period % per_step * (map->stride % per_step) % per_step;
  int64_t times = per_step / sli_common_divisor(ahead ? ahead : per_step, per_step);
  return times > SLI_TICKS_MOST / count ? SLI_TICKS_MOST + 1 : times * count;
}
