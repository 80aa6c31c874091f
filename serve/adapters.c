/* SPDX-License-Identifier: Apache-2.0 */
/* Adapters that requests refer to: their places in the graph, and reference counts.
 *
 * A place is one slice of the tensors that hold all adapters of a linear layer. Each row is
 * multiplied by the slice of its request's adapter, as rows are routed to experts. A slice is
 * written only while no tick is in flight and no request uses it. */
#include <stdlib.h>
#include <string.h>

#include <sluice/state.h>

#include "graph/build/build.h"
#include "serve/serve.h"

typedef struct place {
  int number;    /* unique number of the adapter in it, never reused */
  bool loaded;   /* requests may name it */
  bool loads;    /* an adapter is being loaded into it */
  int requests;  /* requests that use it */
  uint64_t salt; /* salt of its prefixes, different for each load */
} place;

struct sli_adapter_places {
  int count;
  place *places;  /* [count] */
  uint64_t loads; /* number of loads since the session began */
  size_t nfolders;
  int *nmaps; /* [nfolders] number of linear layers named by each folder of the options */
  char ***maps;
};

/* ---- sizes ----------------------------------------------------------------------------------- */

/* Returns whether a linear layer has places. */
static bool adapts(void *ctx, const char *weight) {
  const sl_session *s = ctx;
  const sli_adapter_places *a = s->adapters;
  bool named = a->count > (int)a->nfolders;
  for (size_t f = 0; f < a->nfolders; f++)
    for (int i = 0; i < a->nmaps[f] && !named; i++) {
      const char *equals = strchr(a->maps[f][i], '=');
      char *pattern = sli_format("%.*s", (int)(equals - a->maps[f][i]), a->maps[f][i]);
      named = sli_pattern_finds(pattern, weight);
      free(pattern);
    }
  return named;
}

/* Reads the linear layers that a folder names, and their largest rank. */
static sl_status read_folder(sli_adapter_places *a, const char *dir, int *rank) {
  size_t f = a->nfolders;
  sl_status status = sl_adapter_modules(dir, &a->nmaps[f], &a->maps[f]);
  if (status) return status;
  a->nfolders++;
  for (int i = 0; i < a->nmaps[f]; i++) {
    int of = atoi(strchr(a->maps[f][i], '=') + 1);
    *rank = SLI_MAX(*rank, of);
  }
  return SL_OK;
}

/* Returns the place of an adapter, or -1 if none. */
static int place_index(const sli_adapter_places *a, int adapter) {
  return adapter > 0 ? (adapter - 1) % a->count : -1;
}

/* Writes the place of each row's adapter for the tick filled last, whose parts do not change
 * meanwhile. */
static void choose_adapters(void *ctx, int32_t *adapters) {
  const sl_session *s = ctx;
  const tick *t = &s->ticks.ring[(s->ticks.begun - 1) % (uint64_t)s->ticks.most];
  for (int i = 0; i < t->count; i++)
    for (int64_t row = 0; row < t->parts[i].rows; row++)
      *adapters++ = place_index(s->adapters, t->parts[i].request->how.adapter);
}

sl_status sli_adapters_read(sl_session *s) {
  enum { RANK = 16 };
  const sl_session_options *o = &s->options;
  sl_status status = SL_OK;
  int rank = 0, count = SLI_MAX(o->adapter_places, o->nadapters);
  if (!count) return SL_OK;
  sli_adapter_places *a = s->adapters = sli_calloc(1, sizeof *a);
  a->places = sli_calloc((size_t)count, sizeof *a->places);
  a->nmaps = sli_calloc((size_t)o->nadapters + 1, sizeof *a->nmaps);
  a->maps = sli_calloc((size_t)o->nadapters + 1, sizeof *a->maps);
  a->count = count;
  for (int i = 0; i < o->nadapters && !status; i++) status = read_folder(a, o->adapters[i], &rank);
  s->serving.adapters = count;
  s->serving.adapter_rank = o->adapter_rank ? o->adapter_rank : SLI_MAX(rank, rank ? 0 : RANK);
  s->serving.adapts = adapts;
  s->serving.choose_adapters = choose_adapters;
  return status;
}

void sli_adapters_free(sl_session *s) {
  sli_adapter_places *a = s->adapters;
  if (!a) return;
  for (size_t f = 0; f < a->nfolders; f++) free(a->maps[f]);
  free(a->maps);
  free(a->nmaps);
  free(a->places);
  free(a);
}

/* ---- loading --------------------------------------------------------------------------------- */

static void note_loaded(sli_adapter_places *a, int i) {
  a->places[i].loads = false;
  a->places[i].loaded = true;
  a->places[i].number = (int)a->loads * a->count + i + 1;
  a->places[i].salt = sli_hash_word(SLI_HASH_SEED, (uint64_t)a->places[i].number);
}

sl_status sli_adapters_load(sl_session *s) {
  sl_status status = SL_OK;
  for (int i = 0; i < s->options.nadapters && !status; i++) {
    status = sl_adapter_place(s->options.adapters[i], s->about.lowered, s->about.rt, i);
    note_loaded(s->adapters, i);
  }
  return status;
}

static int find_free(const sli_adapter_places *a) {
  for (int i = 0; a && i < a->count; i++)
    if (!a->places[i].loaded && !a->places[i].loads && !a->places[i].requests) return i;
  return -1;
}

/* Waits until no tick is in flight. No tick begins while the session is paused. */
static void pause_ticks(sl_session *s) {
  s->paused = true;
  while ((s->ticks.begun != s->ticks.back || s->speculation.drafting) && !s->end.closing)
    pthread_cond_wait(&s->idle, &s->lock);
}

static sl_status load_place(sl_session *s, const char *dir, int i) {
  sl_status status = SL_OK;
  s->adapters->places[i].loads = true;
  pause_ticks(s);
  if (s->end.closing) status = sl_fail(SL_E_BUSY, "the session accepts no more requests");
  pthread_mutex_unlock(&s->lock);
  if (!status) status = sl_adapter_place(dir, s->about.lowered, s->about.rt, i);
  pthread_mutex_lock(&s->lock);
  s->paused = false;
  pthread_cond_signal(&s->work);
  s->adapters->places[i].loads = false;
  if (status) return status;
  s->adapters->loads++;
  note_loaded(s->adapters, i);
  return status;
}

sl_status sl_session_load_adapter(sl_session *s, const char *dir, int *adapter) {
  if (s->options.lower.parallel.processes > 1)
    return sl_fail(SL_E_UNSUPPORTED,
                   "a session of several processes can load adapters only at its start");
  pthread_mutex_lock(&s->lock);
  int i = s->paused ? -1 : find_free(s->adapters);
  sl_status status = i < 0 ? sl_fail(SL_E_BUSY, "no free place for an adapter; the session has %d",
                                     s->adapters ? s->adapters->count : 0)
                           : load_place(s, dir, i);
  if (!status) *adapter = s->adapters->places[i].number;
  pthread_mutex_unlock(&s->lock);
  return status;
}

sl_status sl_session_unload_adapter(sl_session *s, int adapter) {
  pthread_mutex_lock(&s->lock);
  sl_status status = adapter ? sli_adapters_check(s, adapter) : SL_OK;
  if (!status && adapter) s->adapters->places[place_index(s->adapters, adapter)].loaded = false;
  pthread_mutex_unlock(&s->lock);
  return status;
}

/* ---- requests -------------------------------------------------------------------------------- */

sl_status sli_adapters_check(const sl_session *s, int adapter) {
  const sli_adapter_places *a = s->adapters;
  if (!adapter) return SL_OK;
  const place *p = a && adapter > 0 ? &a->places[place_index(a, adapter)] : NULL;
  if (p && p->loaded && p->number == adapter) return SL_OK;
  return sl_fail(SL_E_USAGE, "adapter %d is not loaded", adapter);
}

static place *place_of(const sl_session *s, const request *r) {
  return r->how.adapter ? &s->adapters->places[place_index(s->adapters, r->how.adapter)] : NULL;
}

uint64_t sli_adapters_use(const sl_session *s, const request *r) {
  place *p = place_of(s, r);
  if (!p) return r->how.salt;
  p->requests++;
  return SLI_MAX(sli_hash_word(p->salt, r->how.salt), 1);
}

void sli_adapters_leave(const sl_session *s, const request *r) {
  place *p = place_of(s, r);
  if (p) p->requests--;
}
