/* Nodes to groups: everything that runs on the same stage, in the same class
 * and at the same rate becomes one actor. */
#include "graph/lower.h"

static bool is_source(const sli_node *n) { return n->op == &sl_op_source; }

/* Loading, reporting and the clip run beside the passes: a pass must not wait
 * for them in its queue, nor they for a pass. */
static bool is_host(const sli_node *n) {
  return is_source(n) || n->cls == SL_CLASS_L || n->block < 0;
}

static sl_class group_class(const sli_lowering *l, const sli_node *n) {
  if (is_source(n)) return SL_CLASS_L;
  if (n->cls == SL_CLASS_W && !l->split) return SL_CLASS_B;
  return n->cls;
}

/* Sources and reports stay single; everything else joins its kin. */
static int find_group(const sli_lowering *l, const sli_node *n, int stage) {
  if (is_source(n) || n->cls == SL_CLASS_L) return SL_NONE;
  for (int i = 0; i < l->ngroups; i++) {
    const sli_group *g = &l->groups[i];
    if (g->stage == stage && g->cls == group_class(l, n) && g->phase == n->phase) return i;
  }
  return SL_NONE;
}

static const char *group_name(sli_lowering *l, const sli_node *n, int stage) {
  static const char *const phases[] = {"", "norm", "clip", "update", "pack"};
  if (is_source(n)) return sli_arena_format(&l->arena, "load:%s", n->name);
  if (n->cls == SL_CLASS_L) return n->name;
  if (n->block < 0) return phases[n->phase];
  if (n->phase) return sli_arena_format(&l->arena, "%s%d", phases[n->phase], stage);
  return sli_arena_format(&l->arena, "%c%d", sl_class_letter(group_class(l, n)), stage);
}

/* What is about all stages, reports and the clip, runs beside the first device, in
 * the process that speaks for the job. */
static int add_group(sli_lowering *l, const sli_node *n, int stage) {
  SLI_GROW(l->groups, (size_t)l->ngroups, l->group_capacity);
  bool about_all = stage < 0 || (n->cls == SL_CLASS_L && !is_source(n));
  l->groups[l->ngroups] =
      (sli_group){.name = group_name(l, n, stage), .cls = group_class(l, n), .stage = stage,
                  .device = about_all ? 0 : l->device_of[stage], .chunk = stage < 0 ? SL_NONE : l->chunk_of[stage],
                  .phase = n->phase, .rate = n->per_step ? SLI_PER_STEP : SLI_PER_TICK,
                  .host = is_host(n)};
  return l->ngroups++;
}

void sli_lower_group(sli_lowering *l) {
  sl_graph *g = l->g;
  l->group_of = sli_arena_alloc(&l->arena, (size_t)g->nnodes * sizeof *l->group_of);
  for (int i = 0; i < g->nnodes; i++) {
    sli_node *n = g->nodes[i];
    int stage = n->block < 0 ? SL_NONE : l->stage_of[n->block];
    int at = find_group(l, n, stage);
    if (at == SL_NONE) at = add_group(l, n, stage);
    sli_group *group = &l->groups[at];
    SLI_GROW(group->nodes, (size_t)group->nnodes, group->node_capacity);
    group->nodes[group->nnodes++] = n;
    l->group_of[i] = at;
  }
}
