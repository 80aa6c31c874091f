/* Parameters of a lowered graph: where their values lie, and how they get there. */
#include <stdlib.h>
#include <string.h>

#include "graph/lower.h"

/* ---- what is kept of them ---------------------------------------------------------- */

/* The parameter of this name among n, or n. What devices have of one stands together in
 * the graph, or device by device in one order: it is the last one found or the next. */
static int find_param(const sl_param_info *params, int n, int last, const char *name) {
  for (int i = 0; i < n; i++) {
    int at = (last + i) % n;
    if (!strcmp(params[at].name, name)) return at;
  }
  return n;
}

static int by_rank(const void *a, const void *b) {
  const sl_param_place *x = a, *y = b;
  return x->rank - y->rank;
}

static void add_place(const sli_lowering *l, const sl_tensor *t, sl_param_place *places,
                      sl_param_info *p) {
  const sli_home *home = &l->homes[t->id];
  const sli_bundle *b = &l->bundles[home->bundle];
  if (!p->nplaces)
    *p = (sl_param_info){.name = t->name, .type = t->shard ? t->shard->whole : t->type,
                         .init = t->init, .stage = l->stage_of[t->home], .places = places};
  places[p->nplaces++] = (sl_param_place){b->reg, home->offset, t->shard, t->rank, b->device,
                                          l->replica[t->id]};
  qsort(places, (size_t)p->nplaces, sizeof *places, by_rank);
}

int sli_params_keep(const sli_lowering *l, sli_arena *arena, const sl_param_info **out) {
  const sl_graph *g = l->g;
  size_t most = (size_t)g->nparams, ranks = (size_t)l->ranks;
  sl_param_info *params = sli_arena_alloc(arena, most * sizeof *params);
  sl_param_place *places = sli_arena_alloc(arena, most * ranks * sizeof *places);
  int n = 0, last = 0;
  for (int i = 0; i < g->nparams; i++) {
    const sl_tensor *t = g->params[i];
    if (l->homes[t->id].bundle == SL_NONE) continue; /* inference does not read it */
    last = l->ranks == 1 ? n : find_param(params, n, last, t->name);
    if (last == n) n++;
    SLI_CHECK((size_t)params[last].nplaces < ranks, "parameter %s is in more than %zu places",
              t->name, ranks);
    add_place(l, t, places + (size_t)last * ranks, &params[last]);
  }
  *out = params;
  return n;
}

/* ---- values ---------------------------------------------------------------------------- */

static const sl_param_info *param_at(const sl_lowered *l, int index) {
  const sl_param_info *params;
  int n = sl_lowered_params(l, &params);
  SLI_CHECK(index >= 0 && index < n, "parameter %d of %d", index, n);
  return &params[index];
}

float *sl_param_place_data(const sl_param_place *place, sl_runtime *rt) {
  char *slot = sl_runtime_newest(rt, place->reg);
  return slot ? (float *)(slot + place->offset) : NULL;
}

float *sl_param_data(const sl_lowered *l, sl_runtime *rt, int index) {
  const sl_param_info *p = param_at(l, index);
  float *data = NULL;
  for (int i = 0; i < p->nplaces && !data; i++)
    if (!p->places[i].shard) data = sl_param_place_data(&p->places[i], rt);
  return data;
}

/* Has a place before i, of this process too, the same? */
static bool seen(const sl_param_info *p, sl_runtime *rt, int i) {
  for (int k = 0; k < i; k++)
    if (sli_shard_equal(p->places[k].shard, p->places[i].shard) &&
        sl_param_place_data(&p->places[k], rt))
      return true;
  return false;
}

bool sl_param_get(const sl_lowered *l, sl_runtime *rt, int index, float *whole) {
  const sl_param_info *p = param_at(l, index);
  const float *all = sl_param_data(l, rt, index);
  if (all) {
    memcpy(whole, all, sl_type_bytes(&p->type));
    return true;
  }
  int64_t found = 0;
  for (int i = 0; i < p->nplaces; i++) {
    const sl_param_place *place = &p->places[i];
    const float *data = sl_param_place_data(place, rt);
    if (!data || seen(p, rt, i)) continue;
    sl_shard_put(place->shard, data, whole);
    sl_type part = sl_shard_type(place->shard);
    found += sl_type_elements(&part);
  }
  return found == sl_type_elements(&p->type);
}

void sl_param_set(const sl_lowered *l, sl_runtime *rt, int index, const float *whole) {
  const sl_param_info *p = param_at(l, index);
  for (int i = 0; i < p->nplaces; i++) {
    float *data = sl_param_place_data(&p->places[i], rt);
    if (!data || data == whole) continue;
    if (p->places[i].shard) sl_shard_take(p->places[i].shard, whole, data);
    else memcpy(data, whole, sl_type_bytes(&p->type));
  }
}

/* ---- beginnings ---------------------------------------------------------------------- */

static bool is_here(const sl_param_info *p, sl_runtime *rt) {
  for (int i = 0; i < p->nplaces; i++)
    if (sl_param_place_data(&p->places[i], rt)) return true;
  return false;
}

/* One that lies here in parts only: its values are made elsewhere, one at a time. */
static void init_parts(const sl_lowered *l, sl_runtime *rt, int index, uint64_t seed) {
  const sl_param_info *p = param_at(l, index);
  float *whole = sli_calloc((size_t)sl_type_elements(&p->type), sizeof *whole);
  sli_init_all(1, &(sli_init_item){&p->type, p->init, p->name, whole}, seed);
  sl_param_set(l, rt, index, whole);
  free(whole);
}

void sl_params_init(const sl_lowered *l, sl_runtime *rt, uint64_t seed) {
  const sl_param_info *params;
  int n = sl_lowered_params(l, &params), count = 0;
  sli_init_item *items = sli_calloc((size_t)n, sizeof *items);
  for (int i = 0; i < n; i++) {
    const sl_param_info *p = &params[i];
    float *data = sl_param_data(l, rt, i);
    if (data) items[count++] = (sli_init_item){&p->type, p->init, p->name, data};
  }
  sli_init_all(count, items, seed);
  free(items);
  for (int i = 0; i < n; i++) {
    const float *data = sl_param_data(l, rt, i);
    if (data) sl_param_set(l, rt, i, data);
    else if (is_here(&params[i], rt)) init_parts(l, rt, i, seed);
  }
}

static void spread_register(const sl_register *r, sl_runtime *rt, int32_t reg) {
  const void *newest = sl_runtime_newest(rt, reg);
  for (int32_t s = 0; s < r->initial; s++) {
    void *slot = sl_runtime_slot(rt, reg, s);
    if (slot && slot != newest) memcpy(slot, newest, r->slot_bytes);
  }
}

void sl_params_spread(const sl_lowered *l, sl_runtime *rt) {
  const sl_plan *plan = sl_lowered_plan(l);
  for (int32_t i = 0; i < plan->nregs; i++)
    if (plan->regs[i].memory == SL_MEMORY_PARAMETERS) spread_register(&plan->regs[i], rt, i);
}
