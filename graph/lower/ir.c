/* Construction of groups and bundles, and queries about them. */
#include "graph/lower/ir.h"

int sli_add_group(sli_lowering *l, sli_group group) {
  SLI_GROW(l->groups, (size_t)l->ngroups, l->group_capacity);
  group.actor = SL_NONE;
  if (!group.hop) group.about = l->ngroups;
  l->groups[l->ngroups] = group;
  return l->ngroups++;
}

void sli_add_port(sli_group *g, int bundle, bool output) {
  int *count = output ? &g->noutputs : &g->ninputs;
  int **ports = output ? &g->outputs : &g->inputs;
  SLI_GROW(*ports, (size_t)*count, *(output ? &g->output_capacity : &g->input_capacity));
  (*ports)[(*count)++] = bundle;
}

void sli_put_bundle(sli_lowering *l, int at, sli_bundle b) {
  b.lane.leader = b.source = SL_NONE;
  b.origin = at;
  b.home = b.producer == SL_NONE ? SL_SPACE_DEVICE : sli_lower_space(l, &l->groups[b.producer]);
  l->bundles[at] = b;
  if (b.producer != SL_NONE) sli_add_port(&l->groups[b.producer], at, true);
  for (int i = 0; i < b.nconsumers; i++) sli_add_port(&l->groups[b.consumers[i]], at, false);
}

int sli_add_bundle(sli_lowering *l, sli_bundle b) {
  SLI_GROW(l->bundles, (size_t)l->nbundles, l->bundle_capacity);
  sli_put_bundle(l, l->nbundles++, b);
  return l->nbundles - 1;
}

int sli_group_port(const sli_lowering *l, const sli_group *g, int bundle, bool output) {
  const int *ports = output ? g->outputs : g->inputs;
  int count = output ? g->noutputs : g->ninputs;
  for (int i = 0; i < count; i++)
    if (sli_bundle_taken_for(l, g, ports[i]) == bundle) return i + (output ? g->ninputs : 0);
  SLI_CHECK(false, "group %s has no port for bundle %d", g->name, bundle);
  return SL_NONE;
}

int sli_group_results(const sli_group *g) {
  int n = 0;
  for (int i = 0; i < g->nnodes; i++) n += g->nodes[i]->nout;
  return n;
}

int sli_bundle_home(const sli_lowering *l, int bundle) {
  if (l->bundles[bundle].stay == SL_SPACE_DEVICE) return bundle;
  for (int i = bundle; i < l->nbundles; i++) {
    const sli_bundle *b = &l->bundles[i];
    if (b->origin != bundle || b->source == SL_NONE) continue;
    if (l->groups[b->producer].hop->route == SLI_ROUTE_SPILL) return i;
  }
  return bundle;
}

int sli_bundle_stage(const sli_lowering *l, const sli_bundle *b) {
  int maker = l->bundles[b->origin].producer;
  if (maker == SL_NONE) maker = b->producer; /* for frozen parameters: a transfer */
  return maker == SL_NONE ? SL_NONE : l->groups[maker].stage;
}

int sli_lower_turn(const sli_lowering *l, int a, int b) {
  const sli_group *x = &l->groups[a], *y = &l->groups[b];
  /* one block finishes its turn before the next */
  bool tick = x->rate < SLI_PER_STEP, blocks = l->in->layers && tick;
  if (x->back != y->back) return x->back - y->back;
  if (l->in->layers && tick != (y->rate < SLI_PER_STEP)) return tick ? -1 : 1;
  bool back = x->back || l->groups[x->about].cls == SL_CLASS_U; /* in the order of the gradients */
  int level = x->level - y->level, part = back ? y->part - x->part : x->part - y->part;
  int first = blocks ? part : level, then = blocks ? level : part;
  if (first || then) return first ? first : then;
  return x->about != y->about ? x->about - y->about : a - b;
}

sl_space sli_lower_space(const sli_lowering *l, const sli_group *g) {
  return g->host ? sli_kind_host_space(l->in->kind) : SL_SPACE_DEVICE;
}
