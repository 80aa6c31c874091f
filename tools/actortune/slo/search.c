/* SPDX-License-Identifier: Apache-2.0 */
/* The search: every server is a session, simulated with the requests of the file.
 *
 * Latency is not monotonic in any dimension: more pages admit more requests at once, which then
 * wait for each other. All values of a server are therefore tried, except pages. A simulation with
 * the most pages that can ever be used shows how many are used, and all numbers in between give the
 * same result. The set of servers does not depend on the budget, so more memory only adds
 * choices. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/actortune/slo/slo_inner.h"

sl_session_options hunt_options(const hunt *h, const server *server, sl_tick_cost *cost) {
  sl_session_options o = serving_options(h->settings);
  double share = 1.0 / (double)server->at[SLO_STAGES];
  *cost = ticks_share(&h->cost, share);
  o.rows = server->at[SLO_ROWS];
  o.sequences = (int)server->at[SLO_SEQUENCES];
  o.groups = (int)server->at[SLO_GROUPS];
  o.pages = server->at[SLO_PAGES];
  o.admit = (sl_admit)server->at[SLO_ADMIT];
  o.cost = h->costed ? cost : NULL;
  o.lower.parallel.stages = (int)server->at[SLO_STAGES];
  o.lower.devices.count = (int)server->at[SLO_STAGES];
  o.lower.devices.budget_bytes = 0;
  return o;
}

/* ---- one server ----------------------------------------------------------------------------- */

/* Work of one thread: a number of stages, of groups, of rows and of sequences, with all pages and
 * admissions. */
typedef struct job {
  hunt *hunt;
  server first; /* pages and admission are set later */
  int count;
  server tried[2 * SPACE_MOST];
  sl_arrival *arrivals; /* [came.count] arrivals at the rate being tried */
  sl_status wrong;
  char *why;
} job;

static void note_wrong(job *j, sl_status status) {
  if (j->wrong) return;
  j->wrong = status;
  j->why = options_named(sl_detail());
}

static bool find_bytes(job *j, server *server, sl_session_info *about) {
  sl_tick_cost cost;
  sl_session_options o = hunt_options(j->hunt, server, &cost);
  sl_status status = sl_session_check(&o, about);
  if (status) note_wrong(j, status);
  else server->bytes = about->device_bytes;
  return !status;
}

/* Simulates a rate. Returns true if all levels are met. *pages is the most pages in use at any
 * time. */
static bool run_at(job *j, server *server, double rate, int64_t *pages) {
  const hunt *h = j->hunt;
  const arrivals came = {h->came.count, h->came.clients, j->arrivals};
  sl_tick_cost cost;
  sl_session_options o = hunt_options(h, server, &cost);
  sl_session_simulation r;
  for (int64_t i = 0; i < came.count; i++) {
    came.items[i] = h->came.items[i];
    came.items[i].seconds /= rate;
  }
  sl_status status = sl_session_simulate(&o, came.clients, came.count, came.items, &r);
  if (status) note_wrong(j, status);
  if (status) return false;
  server->tried = true;
  server->rate = rate;
  server->off = levels_measure(&h->levels, &came, r.answered, server->seconds);
  server->tokens = outcome_of(&came, r.answered, r.seconds).tokens_per_second;
  *pages = r.stats.pages_most;
  sl_session_simulation_fini(&r);
  return server->off <= 1;
}

/* Finds the highest rate. Rates are powers of 1.01: doubling while the levels are met, or
 * halving until they are, then bisection. The last rate tried may not be the best. */
static void find_rate(job *j, server *server, int64_t *pages) {
  enum { TWICE = 70, FURTHEST = 10 * TWICE };
  int good = 0, bad = 0;
  if (run_at(j, server, 1, pages))
    for (bad = TWICE; bad <= FURTHEST && run_at(j, server, pow(1.01, bad), pages); bad += TWICE)
      good = bad;
  else
    for (good = -TWICE; good >= -FURTHEST && !run_at(j, server, pow(1.01, good), pages);
         good -= TWICE)
      bad = good;
  if (good < -FURTHEST || bad > FURTHEST) return;
  while (bad - good > 1) {
    int middle = good + (bad - good) / 2;
    if (run_at(j, server, pow(1.01, middle), pages)) good = middle;
    else bad = middle;
  }
  run_at(j, server, pow(1.01, good), pages);
}

bool hunt_fits(const hunt *h, const server *server) {
  return !h->budget || server->bytes <= h->budget;
}

/* Tries a server. With `trim` its pages are then reduced to the number in use. */
static void try_server(job *j, server c, bool trim) {
  const hunt *h = j->hunt;
  sl_session_info about;
  int64_t used = 0;
  if (!find_bytes(j, &c, &about)) return;
  if (trim || hunt_fits(h, &c)) {
    if (h->goodput) find_rate(j, &c, &used);
    else run_at(j, &c, 1, &used);
  }
  if (trim) {
    c.at[SLO_PAGES] = SLI_MAX(used, (about.context + SL_SESSION_PAGE - 1) / SL_SESSION_PAGE);
    find_bytes(j, &c, &about);
    c.tried &= hunt_fits(h, &c);
  }
  j->tried[j->count++] = c;
}

/* Tries numbers of pages in descending order, and skips those that are not below the number ever
 * used. */
static void try_pages(job *j, server c) {
  int64_t pages[SPACE_MOST];
  sl_session_info about;
  bool given = j->hunt->space.pages.count;
  if (given) c.at[SLO_PAGES] = j->hunt->space.pages.values[0];
  if (!find_bytes(j, &c, &about)) return;
  int n = space_pages(j->hunt, &about, pages), first = j->count;
  for (int i = n - 1; i >= 0; i--) {
    c.at[SLO_PAGES] = pages[i];
    if (given || j->count == first || pages[i] < j->tried[first].at[SLO_PAGES])
      try_server(j, c, !given && i == n - 1);
  }
}

static void do_job(void *ctx, size_t i) {
  job *j = (job *)ctx + i;
  const hunt *h = j->hunt;
  j->arrivals = sli_calloc((size_t)h->came.count, sizeof *j->arrivals);
  for (int a = 0; a < h->space.admits.count; a++) {
    server c = j->first;
    c.at[SLO_ADMIT] = h->space.admits.values[a];
    try_pages(j, c);
  }
  free(j->arrivals);
}

/* ---- all servers ---------------------------------------------------------------------------- */

/* Orders by the result, then by memory, then by creation. */
static int better_first(const void *a, const void *b) {
  const server *x = a, *y = b;
  if (x->tried != y->tried) return x->tried ? -1 : 1;
  if (!x->tried) return (x->bytes > y->bytes) - (x->bytes < y->bytes);
  bool good = x->off <= 1, other = y->off <= 1;
  if (good != other) return good ? -1 : 1;
  if (!good && x->off != y->off) return x->off < y->off ? -1 : 1;
  if (x->rate != y->rate) return x->rate > y->rate ? -1 : 1;
  if (x->rate == 1 && x->tokens != y->tokens) return x->tokens > y->tokens ? -1 : 1;
  if (x->bytes != y->bytes) return x->bytes < y->bytes ? -1 : 1;
  return memcmp(x->at, y->at, sizeof x->at);
}

static void keep_job(hunt *h, job *j) {
  for (int i = 0; i < j->count; i++) {
    SLI_GROW(h->servers, h->count, h->capacity);
    h->servers[h->count++] = j->tried[i];
  }
  if (!h->wrong) h->wrong = j->wrong, h->why = j->why, j->why = NULL;
  free(j->why);
}

static job *make_jobs(hunt *h, size_t *count) {
  const space *s = &h->space;
  job *jobs = sli_calloc((size_t)s->stages.count * SPACE_MOST * (size_t)s->rows.count * SPACE_MOST,
                         sizeof *jobs);
  int64_t groups[SPACE_MOST], sequences[SPACE_MOST];
  *count = 0;
  for (int p = 0; p < s->stages.count; p++)
    for (int g = 0, n = space_groups(h, s->stages.values[p], groups); g < n; g++)
      for (int r = 0; r < s->rows.count; r++)
        for (int q = 0, m = space_sequences(h, s->rows.values[r], sequences); q < m; q++)
          jobs[(*count)++] = (job){.hunt = h,
                                   .first = {.at = {[SLO_STAGES] = s->stages.values[p],
                                                    [SLO_GROUPS] = groups[g],
                                                    [SLO_ROWS] = s->rows.values[r],
                                                    [SLO_SEQUENCES] = sequences[q]},
                                             .off = INFINITY}};
  return jobs;
}

void hunt_search(hunt *h, int threads) {
  size_t count;
  uint64_t begun = sli_now_ns();
  job *jobs = make_jobs(h, &count);
  each(threads, interrupted, 0, count, do_job, jobs);
  for (size_t i = 0; i < count; i++) keep_job(h, &jobs[i]);
  free(jobs);
  if (h->count) qsort(h->servers, h->count, sizeof *h->servers, better_first);
  h->took = (double)(sli_now_ns() - begun) * 1e-9;
}

const server *hunt_second(const hunt *h, slo_dim dim) {
  for (size_t i = 1; i < h->count; i++) {
    const server *c = &h->servers[i];
    if (!c->tried || c->off > 1) break;
    if (c->at[dim] != h->servers[0].at[dim]) return c;
  }
  return NULL;
}

void hunt_fini(hunt *h) {
  space_fini(&h->space);
  words_fini(&h->model);
  free(h->servers);
  free(h->why);
}
