/* Blocks to stages, stages to devices and chunks. */
#include "graph/lower/ir.h"
#include "graph/passes/passes.h"

#include <string.h>

/* Stages along the model: in a line each device has one; in a loop they go round
 * the devices again and again; in a vee they turn around at the ends. */
static const struct placement {
  const char *name;
  bool chunks; /* more than one per device? */
  bool turns;
} placements[] = {{"line", false, false}, {"loop", true, false}, {"vee", true, true}};

static const struct placement *find_placement(const char *name) {
  for (size_t i = 0; i < SLI_COUNT(placements); i++)
    if (!strcmp(placements[i].name, name)) return &placements[i];
  return NULL;
}

sl_status sli_lower_place(sli_lowering *l) {
  const char *name = l->in->options->placement ? l->in->options->placement : l->pick.schedule->placement;
  const struct placement *placement = find_placement(name);
  if (!placement)
    return sl_fail(SL_E_USAGE, "unknown placement '%s': line, loop and vee are known", name);
  if (l->pick.v > 1 && !placement->chunks)
    return sl_fail(SL_E_USAGE, "--placement %s puts one chunk on each device, --chunks is %d", name,
                   l->pick.v);
  l->stage_of = sli_arena_alloc(&l->arena, (size_t)l->in->g->nblocks * sizeof *l->stage_of);
  l->device_of = sli_arena_alloc(&l->arena, (size_t)l->stages * sizeof *l->device_of);
  l->chunk_of = sli_arena_alloc(&l->arena, (size_t)l->stages * sizeof *l->chunk_of);
  for (int s = 0; s < l->stages; s++) {
    int round = s / l->in->p, along = s % l->in->p;
    l->chunk_of[s] = round;
    l->device_of[s] = placement->turns && round % 2 ? l->in->p - 1 - along : along;
  }
  return sli_pass_partition(l->in->g, l->stages, l->stage_of);
}
