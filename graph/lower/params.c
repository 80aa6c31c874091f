/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters in a plan: the places of their values. */
#include <stdlib.h>
#include <string.h>

#include "graph/lower/ir.h"

static sl_param_place place_in(const sl_tensor *t, const sli_buffer *b, size_t offset) {
  return (sl_param_place){.reg = b->reg,
                          .offset = offset,
                          .type = t->type,
                          .shard = t->shard,
                          .rank = t->rank,
                          .device = b->device,
                          .replica = t->replica};
}

/* Copies of parameters without an update, on devices that cannot address them, in order. */
typedef struct stand_ins {
  int *first, *next; /* [nbuffers] first stand-in of a buffer, and the next stand-in of the same;
                        SL_NONE: none */
} stand_ins;

static stand_ins find_stand_ins(const sli_lowering *l) {
  size_t n = (size_t)l->nbuffers + 1;
  stand_ins s = {sli_calloc(n, sizeof *s.first), sli_calloc(n, sizeof *s.next)};
  for (int i = 0; i < l->nbuffers; i++) s.first[i] = SL_NONE;
  for (int i = l->nbuffers - 1; i >= 0; i--) {
    const sli_buffer *b = &l->buffers[i];
    if (b->origin == i || b->origin == SL_NONE || b->producer != SL_NONE) continue;
    s.next[i] = s.first[b->origin];
    s.first[b->origin] = i;
  }
  return s;
}

/* Returns the number of places that hold a tensor. */
static size_t count_places(const stand_ins *s, int buffer) {
  size_t n = 1;
  for (int i = s->first[buffer]; i != SL_NONE; i = s->next[i]) n++;
  return n;
}

/* Lists the places of a tensor; returns their number. */
static int add_places(const sli_lowering *l, const stand_ins *s, const sl_tensor *t,
                      sl_param_place *to) {
  const sli_spot *spot = &l->spots[t->id];
  int n = 0;
  to[n++] = place_in(t, &l->buffers[sli_buffer_home(l, spot->buffer)], spot->offset);
  for (int i = s->first[spot->buffer]; i != SL_NONE; i = s->next[i]) {
    to[n] = place_in(t, &l->buffers[i], spot->offset);
    to[n++].replica = true;
  }
  return n;
}

/* Adds one device's tensor. The devices' tensors of a parameter are adjacent in the graph, by
 * rank. */
static void add_tensor(const sli_lowering *l, const stand_ins *s, const sl_tensor *t,
                       sl_param_place *to, sl_param_info *p) {
  if (!p->nplaces)
    *p = (sl_param_info){.name = t->name,
                         .storage = t->storage,
                         .type = t->storage ? t->values
                                 : t->shard ? t->shard->whole
                                            : t->type,
                         .init = t->init,
                         .adapter = t->adapter,
                         .frozen = t->frozen,
                         .stage = l->stage_of[t->home],
                         .places = to};
  p->nplaces += add_places(l, s, t, to);
}

int sli_params_keep(const sli_lowering *l, sli_arena *arena, const sl_param_info **out) {
  const sl_graph *g = l->in->g;
  stand_ins s = find_stand_ins(l);
  size_t all = 0;
  for (int i = 0; i < g->nparams; i++) {
    int buffer = l->spots[g->params[i]->id].buffer;
    if (buffer != SL_NONE) all += count_places(&s, buffer);
  }
  sl_param_info *params = sli_arena_alloc(arena, (size_t)g->nparams * sizeof *params);
  sl_param_place *places = sli_arena_alloc(arena, all * sizeof *places);
  int n = 0;
  for (int i = 0; i < g->nparams; i++) {
    const sl_tensor *t = g->params[i];
    if (l->spots[t->id].buffer == SL_NONE) continue; /* inference does not read it */
    if (!n || strcmp(params[n - 1].name, t->name)) n++;
    add_tensor(l, &s, t, places, &params[n - 1]);
    places = (sl_param_place *)params[n - 1].places + params[n - 1].nplaces;
  }
  free(s.first);
  free(s.next);
  *out = params;
  return n;
}
