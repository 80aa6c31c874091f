/* SPDX-License-Identifier: Apache-2.0 */
/* The search over points. It starts with every schedule as published, then with more and with fewer
 * credits everywhere. Then it changes one credit at a time from points of the frontier, round by
 * round, until a round finds nothing new or the effort is spent.
 *
 * Points of a round are independent, so all cores evaluate them. What is tried depends only on
 * earlier rounds, so every run finds the same result. */
#include "tools/actortune/actortune.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "graph/lower/lower.h"

/* ---- a round on all cores -------------------------------------------------------------------- */

typedef struct team {
  tuning *t;
  void (*work)(tuning *t, size_t index);
  size_t end;
  atomic_size_t next, done; /* independent counters, relaxed: joining the threads orders the rest */
} team;

static void *work(void *arg) {
  team *c = arg;
  while (!interrupted()) {
    size_t i = atomic_fetch_add_explicit(&c->next, 1, memory_order_relaxed);
    if (i >= c->end) break;
    c->work(c->t, i);
    atomic_fetch_add_explicit(&c->done, 1, memory_order_relaxed);
  }
  return NULL;
}

static double seconds_since(uint64_t start) { return (double)(sli_now_ns() - start) * 1e-9; }

/* Draws the bar. The time left is estimated for the remaining effort; the search may end sooner. */
static void draw(const tuning *t, size_t done) {
  double seconds = seconds_since(t->start_ns);
  size_t least = SLI_MAX(t->effort, done);
  bar_draw("plans", done, least, done ? seconds / (double)done * (double)(least - done) : 0,
           t->note);
}

/* Processes the items in [from, end). Returns false if interrupted; the finished items may then
 * have gaps. */
static bool run_team(tuning *t, void (*item)(tuning *t, size_t index), size_t from, size_t end) {
  team c = {.t = t, .work = item, .end = end, .next = from, .done = from};
  int n = (int)SLI_MIN((size_t)t->threads, end - from);
  pthread_t *threads = sli_calloc((size_t)n + 1, sizeof *threads);
  for (int i = 0; i < n; i++)
    SLI_CHECK(!pthread_create(&threads[i], NULL, work, &c), "cannot start a thread for the search");
  for (size_t done;
       !interrupted() && (done = atomic_load_explicit(&c.done, memory_order_relaxed)) < end;) {
    if (t->progress) draw(t, done);
    usleep(end - done < 64 ? 2000 : 20000);
  }
  for (int i = 0; i < n; i++) pthread_join(threads[i], NULL);
  free(threads);
  return !interrupted();
}

/* ---- points ---------------------------------------------------------------------------------- */

/* Marks points that were not evaluated. */
static const double unknown = -1;

static bool is_good(const point *p) { return !p->status && p->seconds > 0; }

static void open_item(tuning *t, size_t i) { config_open(t, (int)i, &t->points[i]); }

static void evaluate_item(tuning *t, size_t i) {
  if (!t->points[i].status) point_evaluate(t, &t->points[i]);
}

static bool is_known(const tuning *t, int config, const int *values) {
  size_t bytes = (size_t)t->configs[config].nknobs * sizeof *values;
  for (size_t i = 0; i < t->npoints; i++)
    if (t->points[i].config == config && !memcmp(t->points[i].values, values, bytes)) return true;
  return false;
}

/* Proposes a point. Takes ownership of `values`. */
static void propose(tuning *t, int config, int *values) {
  if (t->npoints >= t->effort || is_known(t, config, values)) {
    free(values);
    return;
  }
  SLI_GROW(t->points, t->npoints, t->capacity);
  t->points[t->npoints++] = (point){.config = config, .values = values, .seconds = unknown};
}

/* ---- neighbours -------------------------------------------------------------------- */

static int *copy_values(const config *c, const int *values) {
  int *copy = sli_calloc((size_t)c->nknobs + 1, sizeof *copy);
  return c->nknobs ? memcpy(copy, values, (size_t)c->nknobs * sizeof *copy) : copy;
}

static int clamp(const config *c, int value) {
  return SLI_MAX(1, SLI_MIN(value, c->settings.microbatches * c->settings.pieces *
                                       c->settings.lower.schedule.chunks));
}

typedef bool knob_choice(const quota_value *q, const quota_value *like);

static bool any_act(const quota_value *q, const quota_value *like) {
  (void)like;
  return sli_quota_counts_activations(q->name);
}
static bool same_name(const quota_value *q, const quota_value *like) {
  return !strcmp(q->name, like->name);
}
static bool same_stage(const quota_value *q, const quota_value *like) {
  return any_act(q, like) && q->stage == like->stage;
}
static bool itself(const quota_value *q, const quota_value *like) { return q == like; }

/* Proposes the point with `change` more slots at the chosen knobs. */
static void propose_change(tuning *t, int config, const int *values, knob_choice *choice,
                           const quota_value *like, int change) {
  const struct config *c = &t->configs[config];
  int *next = copy_values(c, values);
  for (int i = 0; i < c->nknobs; i++)
    if (choice(&c->knobs[i], like)) next[i] = clamp(c, next[i] + change);
  propose(t, config, next);
}

/* Proposes the same number of slots for all stages. */
static void propose_level(tuning *t, int config, const int *values, int slots) {
  const struct config *c = &t->configs[config];
  int *next = copy_values(c, values);
  for (int i = 0; i < c->nknobs; i++)
    if (any_act(&c->knobs[i], NULL)) next[i] = clamp(c, slots);
  propose(t, config, next);
}

static void propose_pools(tuning *t, int config, const point *p, int change) {
  const struct config *c = &t->configs[config];
  for (int i = 0; i < c->nknobs; i++)
    if (!strcmp(c->knobs[i].name, "pool")) {
      propose_change(t, config, p->values, same_name, &c->knobs[i], change);
      return;
    }
}

/* Proposes points around an unchanged schedule: more and fewer credits everywhere, and levels. */
static void propose_start(tuning *t, size_t index) {
  const point p = t->points[index];
  const struct config *c = &t->configs[p.config];
  int most = 0;
  for (int i = 0; i < c->nknobs; i++)
    if (any_act(&c->knobs[i], NULL)) most = SLI_MAX(most, p.values[i]);
  int down = SLI_MIN(most - 1, 8), up = SLI_MIN(c->settings.lower.parallel.stages, 8);
  for (int change = -down; change <= up; change++)
    propose_change(t, p.config, p.values, any_act, NULL, change);
  for (int change = -3; change <= 3; change++) propose_pools(t, p.config, &p, change);
  for (int level = 1; level <= SLI_MIN(most, 8); level++)
    propose_level(t, p.config, p.values, level);
}

/* Proposes neighbours of a good point: one slot more or less, at a knob, at a stage, at all
 * knobs of that name. */
static void propose_neighbours(tuning *t, size_t index) {
  const point p = t->points[index];
  const struct config *c = &t->configs[p.config];
  static knob_choice *const choices[] = {itself, same_stage, same_name};
  t->points[index].expanded = true;
  for (size_t w = 0; w < SLI_COUNT(choices); w++)
    for (int i = 0; i < c->nknobs; i++)
      for (int change = -1; change <= 1; change += 2)
        propose_change(t, p.config, p.values, choices[w], &c->knobs[i], change);
}

/* ---- the frontier ------------------------------------------------------------------ */

/* Returns a point's bytes; fewer than the smallest budget count as that budget. */
static size_t counted_bytes(const tuning *t, const point *p) {
  return SLI_MAX(p->bytes, t->sweep.least_bytes);
}

/* Orders by memory, then time, then age: earlier points are simpler. */
static int by_memory(const void *a, const void *b, void *ctx) {
  const tuning *t = ctx;
  size_t i = *(const size_t *)a, j = *(const size_t *)b;
  const point *x = &t->points[i], *y = &t->points[j];
  size_t bx = counted_bytes(t, x), by = counted_bytes(t, y);
  if (bx != by) return bx < by ? -1 : 1;
  if (x->scaled != y->scaled) return x->scaled < y->scaled ? -1 : 1;
  if (x->bytes != y->bytes) return x->bytes < y->bytes ? -1 : 1;
  return i < j ? -1 : 1;
}

/* Relative difference below which times are equal: they are sums of the same durations in a
 * different order. */
static const double same_time = 1e-9;

static size_t frontier_within(const tuning *t, size_t most_bytes, size_t **out) {
  size_t *order = sli_calloc(t->npoints + 1, sizeof *order), n = 0, kept = 0;
  for (size_t i = 0; i < t->npoints; i++)
    if (is_good(&t->points[i]) && (!most_bytes || t->points[i].bytes <= most_bytes)) order[n++] = i;
  qsort_r(order, n, sizeof *order, by_memory, (void *)t);
  double best = 1e300;
  for (size_t i = 0; i < n; i++) {
    if (t->points[order[i]].scaled >= best * (1 - same_time)) continue;
    best = t->points[order[i]].scaled;
    order[kept++] = order[i];
  }
  *out = order;
  return kept;
}

size_t frontier_make(const tuning *t, size_t **out) {
  return frontier_within(t, t->sweep.most_bytes, out);
}

/* Returns the frontier to expand, or the smallest points if nothing fits yet. */
static size_t frontier_to_expand(const tuning *t, size_t **out) {
  size_t n = frontier_make(t, out);
  if (n) return n;
  free(*out);
  n = frontier_within(t, 0, out);
  return SLI_MIN(n, 1);
}

/* ---- rounds ------------------------------------------------------------------------ */

static size_t smallest_bytes(const tuning *t) {
  size_t least = SIZE_MAX;
  for (size_t i = 0; i < t->npoints; i++)
    if (is_good(&t->points[i])) least = SLI_MIN(least, t->points[i].bytes);
  return least;
}

static void set_note(tuning *t) {
  size_t *order, n = frontier_make(t, &order);
  if (n) {
    const point *fast = &t->points[order[n - 1]], *small = &t->points[order[0]];
    char a[32], b[32], s[32];
    snprintf(t->note, sizeof t->note, "%s .. %s, best %s", format_memory(a, (double)small->bytes),
             format_memory(b, (double)fast->bytes), sli_format_seconds(s, fast->scaled));
  }
  free(order);
}

static bool evaluate_from(tuning *t, size_t from) {
  bool whole = run_team(t, evaluate_item, from, t->npoints);
  set_note(t);
  return whole;
}

/* Runs one round of neighbours. Returns false if it adds nothing new. */
static bool expand(tuning *t) {
  size_t *order, n = frontier_to_expand(t, &order), from = t->npoints;
  for (size_t i = 0; i < n; i++)
    if (!t->points[order[i]].expanded) propose_neighbours(t, order[i]);
  free(order);
  return t->npoints > from && evaluate_from(t, from);
}

static sl_status run_rounds(tuning *t) {
  size_t published = (size_t)t->nconfigs;
  t->points = sli_calloc(published + 1, sizeof *t->points);
  t->npoints = t->capacity = published;
  t->effort = SLI_MAX(t->effort, published);
  for (size_t i = 0; i < published; i++) t->points[i].seconds = unknown;
  bool whole = run_team(t, open_item, 0, published);
  if (!whole) return sl_fail(SL_E_STOPPED, "stopped before any plan was tried");
  sl_status status = configs_settle(t);
  if (status) return status;
  whole = evaluate_from(t, 0);
  for (size_t i = 0; whole && i < published; i++)
    if (is_good(&t->points[i])) propose_start(t, i);
  if (whole && t->npoints > published) whole = evaluate_from(t, published);
  while (whole && expand(t)) {}
  return SL_OK;
}

/* Fails because nothing works, with the reason of the schedules if there is one. */
static sl_status nothing_found(const tuning *t) {
  if (smallest_bytes(t) < SIZE_MAX) {
    char need[32], have[32];
    return sl_fail(
        SL_E_BUDGET,
        "no plan fits in %s per device: the smallest plan found needs %s; more stages, or more and smaller microbatches, need less",
        format_memory(have, (double)t->sweep.most_bytes),
        format_memory(need, (double)smallest_bytes(t)));
  }
  if (interrupted()) return sl_fail(SL_E_STOPPED, "stopped before any plan was tried");
  for (size_t i = 0; i < t->npoints; i++)
    if (t->points[i].status) return sl_fail(t->points[i].status, "%s", t->points[i].failure);
  return sl_fail(SL_E_USAGE, "no plan takes any time, so there is nothing to tune");
}

sl_status search(tuning *t) {
  t->start_ns = sli_now_ns();
  sl_status status = run_rounds(t);
  t->interrupted = interrupted();
  t->search_seconds = seconds_since(t->start_ns);
  if (t->progress) bar_clear();
  if (status) return status;
  size_t *order, n = frontier_make(t, &order);
  free(order);
  return n ? SL_OK : nothing_found(t);
}

/* ---- confirming and thinning ------------------------------------------------------- */

static void copy_point(const tuning *t, const point *p, point *out) {
  *out = *p;
  out->failure = NULL;
  out->values = copy_values(&t->configs[p->config], p->values);
  out->quotas = sli_calloc((size_t)p->nquotas + 1, sizeof *out->quotas);
  if (p->nquotas) memcpy(out->quotas, p->quotas, (size_t)p->nquotas * sizeof *out->quotas);
}

static void drop(frontier *f, size_t index) {
  free(f->points[index].values);
  free(f->points[index].quotas);
  free(f->points[index].failure);
  f->count--;
  memmove(&f->points[index], &f->points[index + 1], (f->count - index) * sizeof *f->points);
}

/* Returns the inner point whose removal costs least: the relative loss of a budget that falls
 * back to the point before it. */
static size_t least_missed(const frontier *f) {
  const point *p = f->points;
  size_t best = 1;
  double least = 1e300;
  for (size_t i = 1; i + 1 < f->count; i++) {
    double loss = (p[i - 1].scaled - p[i].scaled) * (double)(p[i + 1].bytes - p[i].bytes);
    if (loss < least) least = loss, best = i;
  }
  return best;
}

/* Removes points that confirmed results have made worse than others. The estimates of the search
 * may differ from those. */
static void keep_monotone(frontier *f) {
  double best = 1e300;
  for (size_t i = 0; i < f->count;) {
    const point *p = &f->points[i];
    bool worse = p->status || p->scaled >= best * (1 - same_time);
    if (i && !worse && p->bytes <= f->points[i - 1].bytes) drop(f, i - 1), i--, worse = false;
    if (worse) {
      drop(f, i);
      continue;
    }
    best = f->points[i].scaled;
    i++;
  }
}

sl_status frontier_confirm(tuning *t, size_t most, frontier *out) {
  size_t *order, n = frontier_make(t, &order);
  frontier f = {.count = n, .found = n, .points = sli_calloc(n + 1, sizeof *f.points)};
  for (size_t i = 0; i < n; i++) copy_point(t, &t->points[order[i]], &f.points[i]);
  free(order);
  while (f.count > most) drop(&f, least_missed(&f));
  for (size_t i = 0; i < f.count; i++) point_confirm(t, &f.points[i]);
  keep_monotone(&f);
  *out = f;
  return f.count ? SL_OK : sl_fail(SL_E_STUCK, "no plan that was found can be reproduced");
}
