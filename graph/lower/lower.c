/* SPDX-License-Identifier: Apache-2.0 */
/* Lowering from end to end, and its results besides the plan. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "actors/plan/plan.h"
#include "graph/lower/ir.h"
#include "graph/passes/passes.h"

sli_lowering *sli_lowering_create(const sli_inputs *in, const sli_pick *pick) {
  sli_lowering *l = sli_calloc(1, sizeof *l);
  *l = (sli_lowering){.in = in, .pick = *pick, .stages = in->p * pick->v};
  return l;
}

void sli_lowering_destroy(sli_lowering *l) {
  for (int i = 0; i < l->ntasks; i++) {
    free(l->tasks[i].nodes);
    free(l->tasks[i].inputs);
    free(l->tasks[i].outputs);
  }
  free(l->tasks);
  free(l->buffers);
  sl_plan_destroy(l->plan);
  sli_arena_fini(&l->arena);
  free(l);
}

static sl_status lower_place(sli_lowering *l) {
  const sli_inputs *in = l->in;
  const char *layout = in->options->parallel.placement;
  l->stage_of = sli_arena_alloc(&l->arena, (size_t)in->g->nblocks * sizeof *l->stage_of);
  l->device_of = sli_arena_alloc(&l->arena, (size_t)l->stages * sizeof *l->device_of);
  l->chunk_of = sli_arena_alloc(&l->arena, (size_t)l->stages * sizeof *l->chunk_of);
  sl_status status = sli_place_stages(layout ? layout : l->pick.schedule->placement, in->p,
                                      l->pick.v, l->device_of, l->chunk_of);
  if (!status) status = sli_lower_check_cost(l);
  const sli_paths *paths = l->pick.paths;
  int visits[l->stages];
  if (!status && paths) status = sli_paths_check(paths, l->stages, visits);
  if (!status)
    status =
        in->block_seconds
            ? sli_pass_partition_by(in->g, in->block_seconds, paths ? visits : NULL, l->stages,
                                    l->stage_of)
            : sli_pass_partition(in->g, in->options->simulation.hardware, l->stages, l->stage_of);
  if (status && l->pick.v > 1)
    sl_fail(status, "%d chunks for each of %d devices: %s", l->pick.v, in->p, sl_detail());
  for (int b = sli_blocks_in_line(in->g); b < in->g->nblocks && !status; b++)
    for (int s = 0; s < l->stages; s++) /* with the last chunk of its device */
      if (l->device_of[s] == in->g->blocks[b].stage) l->stage_of[b] = s;
  return status;
}

sl_status sli_lower(sli_lowering *l) {
  SLI_TRY(lower_place(l));
  sli_lower_task(l);
  SLI_TRY(sli_memory_check());
  sli_lower_buffer(l);
  SLI_TRY(sli_memory_check());
  SLI_TRY(sli_lower_stage_routes(l));
  sli_lower_line(l);
  SLI_TRY(sli_lower_versions(l));
  sli_lower_store(l);
  sli_lower_scripts(l);
  sli_lower_sections(l);
  sli_lower_credits(l);
  SLI_TRY(sli_memory_check());
  SLI_TRY(sli_lower_homes(l));
  sli_lower_transfers(l);
  sli_lower_slot_pools(l);
  sli_lower_aliases(l);
  SLI_TRY(sli_memory_check());
  SLI_TRY(sli_lower_quotas(l));
  return sli_lower_emit(l);
}

sl_status sli_lower_predict(sli_lowering *l, int64_t *firings, sl_statistics *out) {
  enum { STEPS = 3 }; /* steps that a prediction simulates */
  sl_status status = sli_lower(l);
  if (status) return status;
  const sl_plan *plan = sli_lowering_plan(l);
  SLI_TRY(sli_memory_check());
  *firings += STEPS * sli_plan_firings(plan);
  return sl_plan_predict(plan, NULL, out);
}

/* ---- accessors ------------------------------------------------------------------------- */

const sl_plan *sli_lowering_plan(const sli_lowering *l) { return l->plan; }

sl_plan *sli_lowering_take_plan(sli_lowering *l) {
  sl_plan *plan = l->plan;
  l->plan = NULL;
  return plan;
}

const sli_pick *sli_lowering_pick(const sli_lowering *l) { return &l->pick; }

void sli_lowering_seconds(const sli_lowering *l, int stage, double seconds[SL_CLASS_COUNT]) {
  memset(seconds, 0, SL_CLASS_COUNT * sizeof *seconds);
  for (int i = 0; i < l->ncomputing; i++) {
    const sli_task *g = &l->tasks[i];
    if (g->stage == stage && !g->phase && !g->rank) seconds[g->cls] += g->seconds;
  }
}

static bool is_same_name(const sl_quota *a, const sl_quota *b) {
  return a->stage == b->stage && !strcmp(a->name, b->name);
}

static bool is_kept(const sli_quota_found *all, int n, const sli_quota_found *one) {
  for (int i = 0; i < n; i++)
    if (is_same_name(&all[i].quota, &one->quota) && all[i].quota.slots == one->quota.slots)
      return true;
  return false;
}

/* Part of the plan that a buffer belongs to, if it is not the pipeline itself. */
static const char *part_of(const sli_lowering *l, const sli_buffer *b) {
  static const char *const paces[] = {"", "evaluation", "rollouts", "encoder"};
  if (b->pace) return paces[b->pace];
  return sli_is_sharded_task(l, &l->tasks[b->producer]) ? "vocabulary" : NULL;
}

/* Keeps the part only of quotas whose names are not unique. */
static void name_parts(sli_quota_found *all, int n) {
  for (int i = 0; i < n; i++) {
    bool alone = true;
    for (int k = 0; k < n; k++) alone &= k == i || !is_same_name(&all[i].quota, &all[k].quota);
    if (alone) all[i].part = NULL;
  }
}

int sli_lowering_quotas(const sli_lowering *l, sli_arena *arena, sli_quota_found **out) {
  size_t most = (size_t)(l->nbuffers + 2 * l->in->p);
  sli_quota_found *all = *out = sli_arena_alloc(arena, most * sizeof *all);
  int n = 0;
  for (int d = 0; d < l->in->p; d++) { /* stage d is on device d */
    if (l->pools[d]) all[n++].quota = (sl_quota){"pool", d, l->pools[d]};
    if (l->watermarks[d] > 0) all[n++].quota = (sl_quota){"watermark", d, l->watermarks[d]};
  }
  for (int i = 0; i < l->nbuffers; i++) {
    const sli_buffer *b = &l->buffers[i];
    bool versions = b->role == SLI_ROLE_PARAM && b->quota > 1; /* otherwise one slot everywhere */
    if ((b->rate >= SLI_PER_STEP && !versions) || b->producer == SL_NONE || b->held) continue;
    bool kept =
        b->source == SL_NONE || sli_transfer_kinds[l->tasks[b->producer].transfer->kind].homes;
    if (b->role == SLI_ROLE_TURN || !kept) continue;
    if (l->tasks[b->producer].rank) continue; /* same as on the first device of the stage */
    sli_quota_found found = {{sli_roles[b->role].name, l->tasks[b->producer].stage, b->quota},
                             part_of(l, b)};
    if (!is_kept(all, n, &found)) all[n++] = found;
  }
  name_parts(all, n);
  return n;
}

char *sli_lowering_cut(const sli_lowering *l, sli_arena *arena) {
  const sl_graph *g = l->in->g;
  char *text = "";
  for (int s = 0; s < l->stages; s++) {
    if (s) text = sli_arena_format(arena, "%s |", text);
    for (int b = 0; b < sli_blocks_in_line(g); b++)
      if (l->stage_of[b] == s)
        text = sli_arena_format(arena, "%s%s%s", text, *text ? " " : "", g->blocks[b].name);
  }
  return text;
}

int sli_lowering_versions(const sli_lowering *l, int stage) {
  int slots = 0;
  for (int i = 0; i < l->nbuffers; i++) {
    const sli_buffer *b = &l->buffers[i];
    if (b->role == SLI_ROLE_PARAM && b->producer != SL_NONE && sli_buffer_stage(l, b) == stage)
      slots = SLI_MAX(slots, SLI_MAX(b->initial, 1));
  }
  return slots;
}
