/* SPDX-License-Identifier: Apache-2.0 */
#include "ops/loads.h"

#include <string.h>

#include "base/base.h"
#include "ops/place.h"

/* ---- memory --------------------------------------------------------------------------------- */

static size_t lay_out(const sli_expert_loads *s, char *memory, sli_part_loads *x) {
  int64_t parts = (int64_t)s->experts * sli_expert_parts(s);
  size_t at = 0;
  x->shape = s;
  x->state = sli_place(memory, &at, 1, sizeof *x->state);
  x->slot_of = sli_place(memory, &at, parts, sizeof *x->slot_of);
  x->part_in = sli_place(memory, &at, s->slots, sizeof *x->part_in);
  x->lent = sli_place(memory, &at, s->slots, sizeof *x->lent);
  x->heat = sli_place(memory, &at, parts, sizeof *x->heat);
  x->rows = sli_place(memory, &at, (int64_t)s->experts * s->levels, sizeof *x->rows);
  x->most = sli_place(memory, &at, s->experts, sizeof *x->most);
  x->begun = sli_place(memory, &at, s->experts, sizeof *x->begun);
  x->hoped = sli_place(memory, &at, parts, sizeof *x->hoped);
  x->late = sli_place(memory, &at, s->slots, sizeof *x->late);
  x->read = sli_place(memory, &at, s->slots, sizeof *x->read);
  return at;
}

size_t sli_loads_bytes(const sli_expert_loads *shape) {
  return lay_out(shape, NULL, &(sli_part_loads){0});
}

sli_part_loads sli_loads_view(const sli_expert_loads *shape, void *memory) {
  sli_part_loads x;
  lay_out(shape, memory, &x);
  return x;
}

/* ---- a tick --------------------------------------------------------------------------------- */

/* Parts that rows of a level need. */
static int32_t parts_for(const sli_part_loads *x, int level) { return x->shape->base + level; }

static int32_t *slots_of(const sli_part_loads *x, int32_t expert) {
  return x->slot_of + (int64_t)expert * sli_expert_parts(x->shape);
}

static int32_t rows_of(const sli_part_loads *x, int32_t expert, int level) {
  return x->rows[expert * x->shape->levels + level];
}

/* Returns the rows of an expert that want at least a level. */
static int64_t wanting(const sli_part_loads *x, int32_t expert, int level) {
  int64_t sum = 0;
  for (int v = level; v < x->shape->levels; v++) sum += rows_of(x, expert, v);
  return sum;
}

/* Parts of an expert that are held, from the first on. */
static int32_t held_parts(const sli_part_loads *x, int32_t expert) {
  int32_t n = 0;
  while (n < x->most[expert] && slots_of(x, expert)[n]) n++;
  return n;
}

static int32_t missing_parts(const sli_part_loads *x, int32_t expert) {
  int32_t n = 0;
  for (int32_t p = 0; p < x->most[expert]; p++) n += !slots_of(x, expert)[p];
  return n;
}

/* Notes rows to compute, and the parts that they want. */
static void want(sli_part_loads *x, const int32_t *rows) {
  const sli_expert_loads *s = x->shape;
  memcpy(x->rows, rows, (size_t)s->experts * (size_t)s->levels * sizeof *rows);
  memset(x->begun, 0, (size_t)s->experts * sizeof *x->begun);
  for (int32_t e = 0; e < s->experts; e++) {
    x->most[e] = 0;
    for (int v = 0; v < s->levels; v++)
      if (rows_of(x, e, v)) x->most[e] = parts_for(x, v);
  }
}

/* Compares what was guessed with what the tick wants. */
static void judge(sli_part_loads *x) {
  const float keep = 15.0f / 16;
  int32_t each = sli_expert_parts(x->shape);
  for (int32_t i = 0; i < x->shape->experts * each; i++) {
    if (!x->hoped[i]) continue;
    bool wrong = i % each >= x->most[i / each];
    x->state->doubt = keep * x->state->doubt + (wrong ? 1 - keep : 0);
    x->hoped[i] = 0;
  }
}

int64_t sli_loads_begin(sli_part_loads *x, int64_t tick, const int32_t *rows) {
  const sli_expert_loads *s = x->shape;
  const float keep = 15.0f / 16;
  int64_t wanted = 0, missing = 0;
  x->state->asked = x->state->arrived = 0;
  for (int32_t i = 0; i < s->slots; i++)
    x->late[i] = x->late[i] && x->state->guessed == tick + 1 ? ++x->state->asked : 0;
  want(x, rows);
  judge(x);
  for (int32_t e = 0; e < s->experts; e++) {
    float *heat = x->heat + (int64_t)e * sli_expert_parts(s);
    for (int32_t p = 0; p < sli_expert_parts(s); p++)
      heat[p] = keep * heat[p] + (p < x->most[e] ? 1 - keep : 0);
    wanted += x->most[e];
    missing += missing_parts(x, e);
  }
  x->state->tick = tick + 1;
  x->state->nth = 0;
  x->state->waiting = (int32_t)missing;
  return wanted;
}

/* ---- slots ---------------------------------------------------------------------------------- */

static bool is_lent(const sli_part_loads *x, int32_t slot) {
  return x->lent[slot] && x->lent[slot] > x->state->firing - SLI_LENT;
}

static bool lent_now(const sli_part_loads *x, int32_t slot) {
  return x->lent[slot] == x->state->firing;
}

static int32_t expert_in(const sli_part_loads *x, int32_t slot) {
  return (x->part_in[slot] - 1) / sli_expert_parts(x->shape);
}

static bool is_wanted(const sli_part_loads *x, int32_t slot) {
  int32_t part = x->part_in[slot] - 1, expert = expert_in(x, slot);
  bool left = part >= 0 && wanting(x, expert, 0);
  return left && part % sli_expert_parts(x->shape) < x->most[expert];
}

/* True if a part may not lose its slot now. */
static bool is_kept(const sli_part_loads *x, int32_t slot) {
  if (is_lent(x, slot)) return true;
  return x->part_in[slot] && x->begun[expert_in(x, slot)] && is_wanted(x, slot);
}

/* Returns a slot for a part of an expert: an empty one, or that of the part wanted least; -1: none.
 * Parts that this tick still wants come last, and the expert's own never. */
static int32_t find_slot(const sli_part_loads *x, int32_t expert) {
  int32_t best = -1;
  float least = 0;
  for (int32_t s = 0; s < x->shape->slots; s++) {
    if (is_kept(x, s) || (x->part_in[s] && expert_in(x, s) == expert)) continue;
    float heat = !x->part_in[s] ? -1 : x->heat[x->part_in[s] - 1] + 2.0f * (float)is_wanted(x, s);
    if (best < 0 || heat < least) best = s, least = heat;
  }
  return best;
}

/* Slots that are neither lent nor promised to experts that have been begun. */
static int64_t free_slots(const sli_part_loads *x, int32_t expert) {
  const sli_expert_loads *s = x->shape;
  int64_t free = s->slots;
  for (int32_t i = 0; i < s->slots; i++) {
    bool own = x->part_in[i] && is_wanted(x, i) &&
               (x->begun[expert_in(x, i)] || expert_in(x, i) == expert);
    free -= is_lent(x, i) && !own;
  }
  for (int32_t e = 0; e < s->experts; e++) free -= x->begun[e] && e != expert ? x->most[e] : 0;
  return free;
}

/* ---- a firing ------------------------------------------------------------------------------- */

typedef struct firing {
  sli_part_loads *x;
  int nloads, nitems;
  int32_t lent; /* slots that are lent by this firing */
  sli_load *loads;
  int32_t (*items)[2];
} firing;

/* Slots that a computation would lend in addition. */
static int32_t lends(const sli_part_loads *x, int32_t expert, int level) {
  int32_t n = 0;
  for (int32_t p = 0; p < parts_for(x, level); p++) n += !lent_now(x, slots_of(x, expert)[p] - 1);
  return n;
}

/* Parts of an expert that this firing may lend, from the first on. */
static int32_t ready_parts(const sli_part_loads *x, int32_t expert) {
  int32_t n = 0, held = held_parts(x, expert);
  while (n < held && x->late[slots_of(x, expert)[n] - 1] <= x->state->arrived) n++;
  return n;
}

/* Computes all rows of an expert whose parts are held, as far as this firing may lend them. */
static void compute(firing *f, int32_t expert) {
  sli_part_loads *x = f->x;
  int32_t held = ready_parts(x, expert);
  for (int v = 0; v < x->shape->levels && parts_for(x, v) <= held; v++) {
    if (!rows_of(x, expert, v)) continue;
    int32_t more = lends(x, expert, v);
    if (f->lent + more > x->shape->slots / SLI_LENT) return;
    f->lent += more;
    for (int32_t p = 0; p < parts_for(x, v); p++)
      x->lent[slots_of(x, expert)[p] - 1] = x->state->firing;
    f->items[f->nitems][0] = expert;
    f->items[f->nitems++][1] = v;
    x->rows[expert * x->shape->levels + v] = 0;
  }
  if (!wanting(x, expert, 0)) x->begun[expert] = 0;
}

/* Computes experts whose rows find everything held, those with most rows first. */
static void compute_held(firing *f) {
  sli_part_loads *x = f->x;
  for (int64_t bound = INT64_MAX;;) {
    int64_t next = 0;
    for (int32_t e = 0; e < x->shape->experts; e++) {
      int64_t rows = wanting(x, e, 0);
      if (rows && rows == bound && held_parts(x, e)) compute(f, e);
      else if (rows < bound) next = SLI_MAX(next, rows);
    }
    if (!next) return;
    bound = next;
  }
}

/* Returns the level of the next part of an expert to load; -1: none is missing. */
static int next_level(const sli_part_loads *x, int32_t expert) {
  int32_t held = held_parts(x, expert);
  if (held == x->most[expert] || !wanting(x, expert, 0)) return -1;
  return held < x->shape->base ? 0 : held - x->shape->base + 1;
}

/* Slots that nothing else needs in this tick. */
static int32_t spare_slots(const sli_part_loads *x) {
  int32_t spare = 0;
  for (int32_t s = 0; s < x->shape->slots; s++) spare += !is_kept(x, s) && !is_wanted(x, s);
  return spare;
}

/* True if all that this tick still misses has slots that nothing else needs. */
static bool fits(const sli_part_loads *x) { return x->state->waiting <= spare_slots(x); }

static bool may_load(const sli_part_loads *x, int32_t expert) {
  return x->begun[expert] || free_slots(x, expert) >= x->most[expert];
}

/* Chooses the expert whose next level is loaded, or -1. `all`: of all experts. */
static int32_t choose(const sli_part_loads *x, bool all) {
  int32_t best = -1;
  int64_t most = 0;
  for (int32_t e = 0; e < x->shape->experts; e++) {
    int level = next_level(x, e);
    int64_t rows = level < 0 ? 0 : x->shape->ascending ? 1 : wanting(x, e, level);
    if (rows > most && (all || may_load(x, e))) best = e, most = rows;
  }
  return best;
}

/* Gives a slot to a part. */
static sli_load take(sli_part_loads *x, int32_t slot, int32_t expert, int32_t part) {
  if (x->part_in[slot]) x->slot_of[x->part_in[slot] - 1] = 0;
  x->part_in[slot] = 1 + expert * sli_expert_parts(x->shape) + part;
  slots_of(x, expert)[part] = slot + 1;
  x->late[slot] = ++x->state->asked;
  return (sli_load){expert, part, slot};
}

/* Loads the missing parts of an expert's next level. Returns false if there is no slot. */
static bool load_level(firing *f, int32_t expert) {
  sli_part_loads *x = f->x;
  int level = next_level(x, expert);
  x->begun[expert] = 1;
  for (int32_t p = 0; p < parts_for(x, level); p++) {
    if (slots_of(x, expert)[p]) continue;
    int32_t slot = find_slot(x, expert);
    if (slot < 0) return false;
    x->state->waiting += x->part_in[slot] && is_wanted(x, slot);
    f->loads[f->nloads++] = take(x, slot, expert, p);
    x->state->waiting--;
  }
  compute(f, expert);
  return true;
}

/* Loads all that an expert's rows want, and computes them. Returns false if this firing has no room
 * for that. */
static bool finish(firing *f, int32_t expert) {
  sli_part_loads *x = f->x;
  if (f->lent + x->most[expert] > x->shape->slots / SLI_LENT) return false;
  while (next_level(x, expert) >= 0)
    if (!load_level(f, expert)) return false;
  compute(f, expert);
  return true;
}

/* Finishes experts one by one, those begun first: sli_expert_each() of them in each firing, except
 * in the first, which may find slots lent. */
static void finish_some(firing *f) {
  sli_part_loads *x = f->x;
  for (int begun = 1; begun >= 0; begun--)
    for (int32_t e = 0; e < x->shape->experts; e++)
      if (x->begun[e] == begun && wanting(x, e, 0) && !finish(f, e)) return;
}

static bool must_finish(const sli_part_loads *x) {
  int32_t each = sli_expert_each(x->shape), left = 0;
  for (int32_t e = 0; e < x->shape->experts; e++) left += wanting(x, e, 0) > 0;
  return x->shape->firings - x->state->nth <= SLI_LENT + (left + each - 1) / each;
}

/* Returns how many parts this firing should load, so that loads are spread over the firings. */
static int quota_of(const sli_part_loads *x) {
  int left = x->shape->firings - x->state->nth;
  return left > 0 ? (x->state->waiting + left - 1) / left : x->state->waiting;
}

/* Computes what is held, and loads what has spare slots, a share of what is missing, or the last of
 * it. */
static void load_some(firing *f, bool last) {
  sli_part_loads *x = f->x;
  compute_held(f);
  int quota = last ? x->state->waiting : x->state->nth || !f->nitems ? quota_of(x) : 0;
  while (f->nloads < quota || spare_slots(x)) {
    int32_t expert = choose(x, fits(x));
    if (expert < 0 || !load_level(f, expert)) break;
  }
}

/* Lets a firing compute what comes: in the tick's first nothing, then a share of what has been
 * asked for, and in the last ones all. */
static void arrive(sli_part_loads *x, bool last) {
  struct sli_loads_state *s = x->state;
  int32_t left = SLI_MAX(x->shape->firings - s->nth, 1), coming = s->asked - s->arrived;
  if (last) s->arrived = INT32_MAX;
  else if (s->nth && coming > 0) s->arrived += (coming + left - 1) / left;
}

int sli_loads_next(sli_part_loads *x, sli_load *loads, int32_t (*items)[2], int *nitems) {
  firing f = {.x = x, .loads = loads, .items = items};
  x->state->firing++;
  bool last = must_finish(x);
  arrive(x, last);
  if (last && !fits(x)) finish_some(&f);
  else load_some(&f, last);
  x->state->nth++;
  *nitems = f.nitems;
  return f.nloads;
}

/* ---- guesses -------------------------------------------------------------------------------- */

bool sli_loads_wants(const sli_part_loads *x, int32_t slot) {
  return x->part_in[slot] && is_wanted(x, slot);
}

void sli_loads_forget(sli_part_loads *x, int32_t slot) {
  if (x->part_in[slot]) x->slot_of[x->part_in[slot] - 1] = 0;
  x->part_in[slot] = 0;
}

/* Returns the slot of the coldest part that is not guessed, or an empty one; -1: none. */
static int32_t find_unguessed(const sli_part_loads *x) {
  int32_t best = -1;
  float least = 0;
  for (int32_t s = 0; s < x->shape->slots; s++) {
    if (is_lent(x, s) || sli_loads_wants(x, s)) continue;
    float heat = x->part_in[s] ? x->heat[x->part_in[s] - 1] : -1;
    if (best < 0 || heat < least) best = s, least = heat;
  }
  return best;
}

int sli_loads_guess(sli_part_loads *x, int64_t tick, const int32_t *rows, sli_load *loads) {
  int n = 0;
  memset(x->late, 0, (size_t)x->shape->slots * sizeof *x->late);
  want(x, rows);
  x->state->guessed = tick + 1;
  for (int32_t e = 0; e < x->shape->experts; e++)
    for (int32_t p = 0; p < x->most[e]; p++)
      x->hoped[e * sli_expert_parts(x->shape) + p] = !slots_of(x, e)[p];
  if (x->state->doubt > 0.5f) return 0;
  for (int32_t e, slot; (e = choose(x, true)) >= 0 && (slot = find_unguessed(x)) >= 0; n++) {
    loads[n] = take(x, slot, e, held_parts(x, e));
  }
  return n;
}
