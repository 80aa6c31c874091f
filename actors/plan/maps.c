/* What follows from key maps: where they begin, how far they stray, what may be ready at once. */
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

int64_t sli_map_displacement(const sl_map *map) {
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
  int64_t need = sli_quota_most(r) + r->initial + 2 + 2 * sli_map_displacement(in) +
                 (out ? 2 * sli_map_displacement(&plan->maps[out->map]) : 0);
  uint32_t size = 1;
  while (size < need) size *= 2;
  return size;
}
