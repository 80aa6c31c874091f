/* What is kept of parameters when a plan is made: where their values lie. */
#include <string.h>

#include "graph/lower/ir.h"

static sl_param_place place_in(const sl_tensor *t, const sli_bundle *b, size_t offset) {
  return (sl_param_place){.reg = b->reg, .offset = offset, .type = t->type, .shard = t->shard, .rank = t->rank,
                          .device = b->device, .replica = t->replica};
}

/* Does this stand in another process for parameters that nobody updates? */
static bool stands_in(const sli_lowering *l, int at, int bundle) {
  const sli_bundle *b = &l->bundles[at];
  return at != bundle && b->origin == bundle && b->producer == SL_NONE;
}

/* Where one tensor lies: returns in how many places. */
static int add_places(const sli_lowering *l, const sl_tensor *t, sl_param_place *to) {
  const sli_spot *spot = &l->spots[t->id];
  int home = sli_bundle_home(l, spot->bundle), n = 0;
  to[n++] = place_in(t, &l->bundles[home], spot->offset);
  for (int i = spot->bundle + 1; i < l->nbundles; i++)
    if (stands_in(l, i, spot->bundle)) {
      to[n] = place_in(t, &l->bundles[i], spot->offset);
      to[n++].replica = true;
    }
  return n;
}

/* What devices have of one stands together in the graph, by rank. */
static void add_tensor(const sli_lowering *l, const sl_tensor *t, sl_param_place *to, sl_param_info *p) {
  if (!p->nplaces)
    *p = (sl_param_info){.name = t->name, .rest = t->rest,
                         .type = t->rest ? t->values : t->shard ? t->shard->whole : t->type,
                         .init = t->init, .adapter = t->adapter, .stage = l->stage_of[t->home], .places = to};
  p->nplaces += add_places(l, t, to);
}

static int count_stand_ins(const sli_lowering *l) {
  int n = 0;
  for (int i = 0; i < l->nbundles; i++) n += stands_in(l, i, l->bundles[i].origin);
  return n;
}

int sli_params_keep(const sli_lowering *l, sli_arena *arena, const sl_param_info **out) {
  const sl_graph *g = l->in->g;
  size_t most = (size_t)g->nparams * (size_t)(1 + count_stand_ins(l));
  sl_param_info *params = sli_arena_alloc(arena, (size_t)g->nparams * sizeof *params);
  sl_param_place *places = sli_arena_alloc(arena, most * sizeof *places);
  int n = 0;
  for (int i = 0; i < g->nparams; i++) {
    const sl_tensor *t = g->params[i];
    if (l->spots[t->id].bundle == SL_NONE) continue; /* inference does not read it */
    if (!n || strcmp(params[n - 1].name, t->name)) n++;
    add_tensor(l, t, places, &params[n - 1]);
    places = (sl_param_place *)params[n - 1].places + params[n - 1].nplaces;
  }
  *out = params;
  return n;
}
