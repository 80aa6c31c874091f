/* What is kept of parameters when a plan is made: where their values lie. */
#include <string.h>

#include "graph/lower/ir.h"

/* What devices have of one stands together in the graph, by rank. */
static void add_place(const sli_lowering *l, const sl_tensor *t, sl_param_place *to,
                      sl_param_info *p) {
  const sli_spot *spot = &l->spots[t->id];
  const sli_bundle *b = &l->bundles[sli_bundle_home(l, spot->bundle)];
  if (!p->nplaces)
    *p = (sl_param_info){.name = t->name, .rest = t->rest,
                         .type = t->rest ? t->values : t->shard ? t->shard->whole : t->type,
                         .init = t->init, .adapter = t->adapter, .stage = l->stage_of[t->home], .places = to};
  *to = (sl_param_place){.reg = b->reg, .offset = spot->offset, .type = t->type,
                         .shard = t->shard, .rank = t->rank, .device = b->device,
                         .replica = t->replica};
  p->nplaces++;
}

int sli_params_keep(const sli_lowering *l, sli_arena *arena, const sl_param_info **out) {
  const sl_graph *g = l->in->g;
  sl_param_info *params = sli_arena_alloc(arena, (size_t)g->nparams * sizeof *params);
  sl_param_place *places = sli_arena_alloc(arena, (size_t)g->nparams * sizeof *places);
  int n = 0;
  for (int i = 0; i < g->nparams; i++) {
    const sl_tensor *t = g->params[i];
    if (l->spots[t->id].bundle == SL_NONE) continue; /* inference does not read it */
    if (!n || strcmp(params[n - 1].name, t->name)) n++;
    add_place(l, t, &places[i], &params[n - 1]);
  }
  *out = params;
  return n;
}
