/* SPDX-License-Identifier: Apache-2.0 */
/* Search for the best placement of everything in a plan.
 *
 * A candidate chooses for each block whether its activations are kept, recomputed or offloaded, and
 * where its optimizer state lives; and how much is sharded. Its value is the simulated time of its
 * plan, and its cost is that plan's bytes. Of two candidates with equal time, the one that
 * transfers less is better.
 *
 * If few candidates differ in what a block keeps, all are tried. Otherwise the search starts from
 * choices that divide the blocks in two: the first n, or n evenly spaced, are treated one way and
 * the rest another. Bisection finds how many blocks need the way that takes less memory and more
 * time. From the best few candidates the search climbs, changing one block or exchanging two, as
 * long as that helps.
 *
 * Paths that leave out stages (--skip) are searched once, with everything kept; all candidates use
 * them.
 *
 * The effort is counted in firings, not in seconds, so every process finds the same result. */
#include "tools/planner/solver.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/planner/plan.h"

enum { MOST_FIRINGS = 3000000, MOST_EXHAUSTIVE = 256, BASIC_WAYS = 4, KEPT = 3, STEPS = 3 };
enum { MAKING = 20 }; /* work to make one actor of a plan, in firings */
enum { BASES = 8 };   /* plans kept for their graphs */

typedef struct trial {
  choice choice;
  double seconds; /* INFINITY if impossible */
  double moved;   /* bytes transferred in a step */
  size_t bytes[SL_SPACE_COUNT];
  bool fits;
} trial;

/* A plan whose graph serves all choices with the same sharding and recomputation. */
typedef struct base {
  settings settings; /* its texts are in the arena */
  sli_arena arena;
  planned planned;
  size_t used; /* latest trial that used it, counted from 1; 0: an empty place */
} base;

typedef struct search {
  choices all;
  const sl_lower_options *run;
  size_t budget[SL_SPACE_COUNT]; /* bytes of each space; 0 if unlimited */
  int64_t firings;
  size_t count, capacity;
  trial *trials;
  base bases[BASES];
} search;

/* ---- one plan ------------------------------------------------------------------------------- */

static void find_bytes(const sl_plan *plan, size_t bytes[SL_SPACE_COUNT]) {
  for (int32_t d = 0; d < plan->ndevices; d++)
    for (int s = 0; s < SL_SPACE_COUNT; s++)
      bytes[s] = SLI_MAX(bytes[s], plan->devices[d].room[s].arena_bytes);
}

static bool is_within(const search *x, const size_t bytes[SL_SPACE_COUNT]) {
  bool fits = true;
  for (int s = 0; s < SL_SPACE_COUNT; s++) fits &= !x->budget[s] || bytes[s] <= x->budget[s];
  return fits;
}

static double moved_bytes(const planned *p) {
  uint64_t(*to)[SL_TRAFFIC_COUNT] = sli_calloc((size_t)p->plan->ndevices, sizeof *to);
  double sum = 0;
  sl_lowered_moved(p->lowered, to);
  for (int32_t d = 0; d < p->plan->ndevices; d++)
    for (int t = 0; t < SL_TRAFFIC_COUNT; t++) sum += (double)to[d][t];
  free(to);
  return sum;
}

static int64_t count_firings(const sl_plan *plan) {
  int64_t sum = 0;
  for (int32_t i = 0; i < plan->nactors; i++)
    sum += MAKING + STEPS * plan->actors[i].firings_per_step;
  return sum;
}

/* Measures a trial. A plan that does not fit is not timed. */
static void weigh(search *x, const planned *p, trial *t) {
  sl_statistics f;
  x->firings += count_firings(p->plan);
  find_bytes(p->plan, t->bytes);
  t->fits = is_within(x, t->bytes);
  if (!t->fits || sl_plan_predict(p->plan, NULL, &f)) {
    t->fits = false;
    return;
  }
  t->seconds = f.step_seconds;
  t->moved = moved_bytes(p);
  free(f.devices);
}

static void base_fini(base *b) {
  if (!b->used) return;
  plan_free(&b->planned);
  sli_arena_fini(&b->arena);
  *b = (base){0};
}

static bool is_base_of(const base *b, const settings *s) {
  const sl_memory_options *kept = &b->settings.lower.memory, *wanted = &s->lower.memory;
  return b->used && !strcmp(kept->shard, wanted->shard) &&
         !strcmp(kept->recompute, wanted->recompute);
}

/* Returns the base for these settings, or else the place of the one that was used least recently.
 */
static base *find_base(search *x, const settings *s) {
  base *least = &x->bases[0];
  for (int i = 0; i < BASES; i++) {
    if (is_base_of(&x->bases[i], s)) return &x->bases[i];
    if (x->bases[i].used < least->used) least = &x->bases[i];
  }
  return least;
}

/* Makes settings for a choice without budgets, to learn its size. */
static settings settings_of(const search *x, const choice *c, sli_arena *arena) {
  settings s = *x->all.s;
  choice_apply(&x->all, c, arena, &s);
  s.lower.devices.budget_bytes = s.lower.memory.homes.host_bytes = s.lower.memory.homes.disk_bytes =
      0;
  return s;
}

static void make_base(search *x, base *b, trial *t) {
  sl_lower_options run = x->run ? *x->run : (sl_lower_options){0};
  run.print.sharing = NULL, run.print.after = NULL; /* no output */
  run.schedule.chosen = x->all.chosen;
  if (plan_make(&b->settings, &run, &b->planned)) sli_arena_fini(&b->arena);
  else {
    weigh(x, &b->planned, t);
    b->used = x->count + 1;
  }
}

static void make(search *x, trial *t) {
  sli_arena arena = {0};
  const settings s = settings_of(x, &t->choice, &arena);
  base *b = find_base(x, &s);
  planned p;
  t->seconds = INFINITY;
  if (!is_base_of(b, &s)) {
    base_fini(b);
    *b = (base){.settings = s, .arena = arena};
    make_base(x, b, t);
    return;
  }
  b->used = x->count + 1;
  if (!plan_again(&b->planned, &s, &p)) {
    weigh(x, &p, t);
    plan_free(&p);
  }
  sli_arena_fini(&arena);
}

/* Returns the index of a choice's trial. Every choice is made only once. */
static size_t try_choice(search *x, const choice *c) {
  for (size_t i = 0; i < x->count; i++)
    if (!memcmp(&x->trials[i].choice, c, sizeof *c)) return i;
  SLI_GROW(x->trials, x->count, x->capacity);
  x->trials[x->count] = (trial){.choice = *c};
  make(x, &x->trials[x->count]);
  return x->count++;
}

static bool fits(search *x, const choice *c) {
  size_t at = try_choice(x, c);
  return x->trials[at].fits;
}

/* Compares by time, then by bytes transferred. */
static int compare(const trial *a, const trial *b) {
  if (a->fits != b->fits) return a->fits ? -1 : 1;
  double least = 1e-9 * SLI_MIN(a->seconds, b->seconds);
  if (a->fits && fabs(a->seconds - b->seconds) > least) return a->seconds < b->seconds ? -1 : 1;
  return a->moved < b->moved ? -1 : a->moved > b->moved;
}

/* ---- starting points ------------------------------------------------------------------------- */

static bool can_go_on(const search *x, double share) {
  return (double)x->firings < share * MOST_FIRINGS;
}

/* Tries all choices that differ in a few ways. Returns false if there are too many. */
static bool try_all(search *x, choice c) {
  int n = x->all.nblocks, ways = SLI_MIN(x->all.nways, BASIC_WAYS);
  double count = pow(ways, n);
  if (count > MOST_EXHAUSTIVE) return false;
  for (int i = 0; i < (int)count; i++) {
    for (int b = 0, rest = i; b < n; b++, rest /= ways) c.way[b] = (uint8_t)(rest % ways);
    try_choice(x, &c);
  }
  return true;
}

/* Returns a choice that treats `count` blocks one way and the rest another. The blocks are the
 * first ones, or evenly spaced. */
static choice divide(const search *x, choice c, int way, int other, int count, bool spread) {
  int n = x->all.nblocks;
  for (int b = 0; b < n; b++) {
    bool first = spread ? (b + 1) * count / n != b * count / n : b < count;
    c.way[b] = (uint8_t)(first ? way : other);
  }
  return c;
}

/* Finds by bisection the fewest blocks to treat one way so that the rest can go the other way,
 * which alone does not fit. */
static void try_divided(search *x, choice base, int way, int other, bool spread) {
  int enough = x->all.nblocks, few = 0;
  while (enough - few > 1) {
    int middle = (enough + few) / 2;
    choice c = divide(x, base, way, other, middle, spread);
    if (fits(x, &c)) enough = middle;
    else few = middle;
  }
}

static void try_ways(search *x, choice base) {
  bool fit[SLI_COUNT(x->all.ways)];
  int n = x->all.nways, blocks = x->all.nblocks;
  for (int w = 0; w < n; w++) {
    choice c = divide(x, base, w, w, blocks, false);
    fit[w] = fits(x, &c);
  }
  for (int w = 0; w < n; w++)
    for (int other = 0; other < n; other++)
      for (int spread = 0; spread < 2 && fit[w] && !fit[other]; spread++)
        try_divided(x, base, w, other, spread);
}

/* Tries every offload target of the optimizer state and every level of sharding, dividing the
 * effort evenly. */
static void try_starts(search *x) {
  choice first = choice_none(&x->all);
  if (!try_all(x, first) && fits(x, &first)) return; /* nothing is faster than keeping everything */
  for (int shard = x->all.shard; shard < x->all.nshards; shard++)
    for (int i = 0; i < x->all.nstates && can_go_on(x, 0.5); i++) {
      choice c = first;
      c.shard = shard;
      memset(c.state, x->all.states[i], (size_t)x->all.nblocks);
      try_ways(x, c);
    }
}

/* ---- climbing -------------------------------------------------------------------------------- */

static bool change_way(const search *x, choice *c, int i) {
  int block = i / x->all.nways, way = i % x->all.nways;
  if (c->way[block] == way) return false;
  c->way[block] = (uint8_t)way;
  return true;
}

static bool change_state(const search *x, choice *c, int i) {
  int block = i / x->all.nstates;
  sl_space space = x->all.states[i % x->all.nstates];
  if (c->state[block] == space) return false;
  c->state[block] = (uint8_t)space;
  return true;
}

static bool swap_ways(const search *x, choice *c, int i) {
  int a = i / x->all.nblocks, b = i % x->all.nblocks;
  uint8_t way = c->way[a];
  if (a >= b || way == c->way[b]) return false;
  c->way[a] = c->way[b];
  c->way[b] = way;
  return true;
}

/* Makes the i-th neighbour. Returns false if it equals the choice. *end is set after the last
 * one. */
static bool neighbour(const search *x, choice *c, int i, bool *end) {
  int n = x->all.nblocks, ways = n * x->all.nways, states = n * x->all.nstates;
  *end = i >= ways + states + n * n;
  if (*end) return false;
  if (i < ways) return change_way(x, c, i);
  return i < ways + states ? change_state(x, c, i - ways) : swap_ways(x, c, i - ways - states);
}

/* Moves to each better neighbour, until a whole round finds none. */
static void climb(search *x, size_t from) {
  bool end = false;
  for (int i = 0, since = 0; !end && can_go_on(x, 1); i++, since++) {
    choice c = x->trials[from].choice;
    if (neighbour(x, &c, i, &end)) {
      size_t at = try_choice(x, &c);
      if (compare(&x->trials[at], &x->trials[from]) < 0) from = at, since = 0;
    }
    if (end && since < i) i = -1, since = 0, end = false;
  }
}

/* ---- the search ------------------------------------------------------------------------------ */

static int by_worth(const void *a, const void *b) { return compare(a, b); }

static void sort(search *x) { qsort(x->trials, x->count, sizeof *x->trials, by_worth); }

static void climb_from_best(search *x) {
  choice best[KEPT];
  sort(x);
  int n = 0;
  for (; n < KEPT && (size_t)n < x->count && x->trials[n].fits; n++) best[n] = x->trials[n].choice;
  for (int i = 0; i < n; i++) climb(x, try_choice(x, &best[i]));
  sort(x);
}

/* Returns the trial that takes the least device memory, among plans that could be made. */
static const trial *least(const search *x) {
  const trial *best = NULL;
  for (size_t i = 0; i < x->count; i++) {
    const trial *t = &x->trials[i];
    if (t->bytes[SL_SPACE_DEVICE] &&
        (!best || t->bytes[SL_SPACE_DEVICE] < best->bytes[SL_SPACE_DEVICE]))
      best = t;
  }
  return best;
}

/* Formats needs and limits: "16.8 MiB of a device's 12.0 MiB, 24.0 MiB on disk". */
static void format_needs(const search *x, const trial *t, char *text, size_t size) {
  size_t at = 0;
  for (int s = 0; s < SL_SPACE_COUNT && at < size; s++) {
    char need[32], have[32];
    if (!t->bytes[s] && !x->budget[s]) continue;
    sli_format_bytes(need, (double)t->bytes[s]);
    sli_format_bytes(have, (double)x->budget[s]);
    at += (size_t)snprintf(text + at, size - at, "%s%s of %s", at ? ", " : "", need,
                           sl_space_name((sl_space)s));
    if (x->budget[s] && at < size)
      at += (size_t)snprintf(text + at, size - at, " (there is %s)", have);
  }
}

static sl_status nothing_fits(const search *x) {
  const trial *t = least(x);
  if (!t) return SL_E_USAGE; /* plans failed for another reason, which was reported */
  char *said = choice_format(&x->all, &t->choice), needs[256] = "";
  format_needs(x, t, needs, sizeof needs);
  sl_status status =
      sl_fail(SL_E_BUDGET, "home auto: none of %zu plans fits; the smallest, %s, needs %s",
              x->count, *said ? said : "everything kept", needs);
  free(said);
  return status;
}

static sl_status solver_check(const settings *s) {
  if (!strcmp(s->lower.schedule.name, "auto"))
    return sl_fail(SL_E_USAGE,
                   "--home auto cannot be combined with --schedule auto; name a schedule");
  if (s->use != USE_TRAINING)
    return sl_fail(SL_E_USAGE,
                   "--home auto: only training keeps data that can be moved off the device");
  if (s->lower.devices.budget_bytes) return SL_OK;
  return sl_fail(SL_E_USAGE, "--home auto: needs --memory SIZE, the memory of a device");
}

static void keep(search *x, settings *s, solved *out) {
  const trial *t = &x->trials[0];
  *out = (solved){.said = choice_format(&x->all, &t->choice),
                  .seconds = t->seconds,
                  .tried = (int)x->count,
                  .chosen = sli_arena_strdup(&s->arena, x->all.chosen)};
  memcpy(out->bytes, t->bytes, sizeof out->bytes);
  choice_apply(&x->all, &t->choice, &s->arena, s);
}

sl_status solve_homes(settings *s, const sl_lower_options *run, solved *out) {
  sl_status status = solver_check(s);
  if (status) return status;
  const settings given = *s;
  search x = {.run = run,
              .budget = {[SL_SPACE_DEVICE] = s->lower.devices.budget_bytes,
                         [SL_SPACE_HOST] = s->lower.memory.homes.host_bytes,
                         [SL_SPACE_DISK] = s->lower.memory.homes.disk_bytes}};
  status = choices_init(&x.all, &given,
                        &(sl_lower_options){.schedule.chosen = run ? run->schedule.chosen : NULL});
  if (!status) try_starts(&x);
  if (!status) climb_from_best(&x);
  if (!status && x.count && x.trials[0].fits) keep(&x, s, out);
  else if (!status) status = nothing_fits(&x);
  for (int i = 0; i < BASES; i++) base_fini(&x.bases[i]);
  choices_fini(&x.all);
  free(x.trials);
  return status;
}
