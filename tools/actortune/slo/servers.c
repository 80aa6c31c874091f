/* SPDX-License-Identifier: Apache-2.0 */
/* One configuration of servers: its options, its bounds and its simulation. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/actortune/slo/slo_inner.h"

/* ---- options ------------------------------------------------------------------------------- */

static sl_session_options options_of(const hunt *h, const server *c, sl_tick_cost *cost) {
  sl_session_options o = serving_options(&h->of_formats[hunt_format(h, c)]);
  *cost = ticks_share(&h->cost, 1.0 / (double)c->at[SLO_STAGES]);
  o.rows = c->at[SLO_ROWS];
  o.sequences = (int)c->at[SLO_SEQUENCES];
  o.groups = (int)c->at[SLO_GROUPS];
  o.pages = c->at[SLO_PAGES];
  o.admit = (sl_admit)c->at[SLO_ADMIT];
  o.cost = h->costed ? cost : NULL;
  o.lower.parallel.stages = (int)c->at[SLO_STAGES];
  o.lower.parallel.tensor = (int)c->at[SLO_TENSOR];
  o.lower.devices.count = (int)(c->at[SLO_STAGES] * c->at[SLO_TENSOR]);
  o.lower.devices.budget_bytes = 0;
  return o;
}

void server_make(const hunt *h, const server *c, made *out) {
  const fleet_prefill before = {.servers = (int)c->at[SLO_PREFILL],
                                .stages = 1,
                                .tensor = (int)c->at[SLO_PREFILL_TENSOR],
                                .sequences = (int)c->at[SLO_SEQUENCES],
                                .rows = c->at[SLO_ROWS],
                                .pages = c->at[SLO_PAGES]};
  out->options = options_of(h, c, &out->cost);
  out->prefill = fleet_prefill_options(&before, &out->options);
  out->fleet = (sl_fleet){.servers = {&out->options, (int)c->at[SLO_REPLICAS], NULL},
                          .prefill = {&out->prefill, before.servers, NULL}};
  fleet_set_link(&out->fleet);
}

/* ---- prices -------------------------------------------------------------------------------- */

/* A shape is priced with the largest ticks. */
static void price_shape(void *ctx, size_t i) {
  hunt *h = ctx;
  shape *x = &h->shapes[i];
  server c = {.at = {[SLO_STAGES] = x->stages,
                     [SLO_TENSOR] = x->tensor,
                     [SLO_REPLICAS] = 1,
                     [SLO_DTYPE] = x->format / h->kvs.count,
                     [SLO_KV] = x->format % h->kvs.count}};
  for (size_t k = 0; k < h->count; k++) {
    c.at[SLO_ROWS] = SLI_MAX(c.at[SLO_ROWS], h->servers[k].at[SLO_ROWS]);
    c.at[SLO_SEQUENCES] = SLI_MAX(c.at[SLO_SEQUENCES], h->servers[k].at[SLO_SEQUENCES]);
  }
  c.at[SLO_GROUPS] = 1;
  c.at[SLO_PAGES] = h->least_pages;
  made m;
  sl_session_info one, two;
  server_make(h, &c, &m);
  sl_status status = sl_session_price(&m.options, &x->prices);
  if (!status) sl_session_prices_weigh(x->prices, h->came.count, h->came.items);
  enum { PAGES = 1 << 12 };
  m.options.pages = h->least_pages;
  if (!status) status = sl_session_check(&m.options, &one);
  m.options.pages += PAGES;
  if (!status) status = sl_session_check(&m.options, &two);
  if (status) x->wrong = status, x->why = options_named(sl_detail());
  if (!status) x->page_bytes = ((double)two.device_bytes - (double)one.device_bytes) / PAGES;
}

void hunt_price(hunt *h, int threads) { each(threads, interrupted, 0, h->nshapes, price_shape, h); }

/* ---- bounds -------------------------------------------------------------------------------- */

/* Returns a lower bound of the seconds in which prompts are computed. */
static double prompts_seconds(const hunt *h, const server *c) {
  int prefill = (int)c->at[SLO_PREFILL];
  const shape *x = prefill ? hunt_prompts_shape(h, c) : hunt_shape(h, c);
  return sl_session_prices_least(x->prices, SL_SERVING_PROMPTS,
                                 prefill ? prefill : (int)c->at[SLO_REPLICAS], c->at[SLO_ROWS],
                                 c->at[SLO_SEQUENCES], 1);
}

/* Returns a lower bound of the seconds in which the servers answer the requests. */
static double least_seconds(const hunt *h, const server *c) {
  const shape *x = hunt_shape(h, c);
  sl_serving_part part = c->at[SLO_PREFILL] ? SL_SERVING_ANSWERS : SL_SERVING_ALL;
  int64_t rows = c->at[SLO_ROWS], sequences = SLI_MIN(c->at[SLO_SEQUENCES], rows);
  double least = sl_session_prices_least(x->prices, part, (int)c->at[SLO_REPLICAS], rows, sequences,
                                         (int)c->at[SLO_GROUPS]);
  return c->at[SLO_PREFILL] ? fmax(least, prompts_seconds(h, c)) : least;
}

static double total_tokens(const hunt *h) {
  double sum = 0;
  for (int64_t i = 0; i < h->came.count; i++) sum += (double)h->came.items[i].answer;
  return sum;
}

/* Returns whether any level allows these seconds. */
static bool allows(const hunt *h, bool between_tokens, double seconds) {
  for (int i = 0; i < h->levels.count; i++)
    if (h->levels.items[i].between_tokens == between_tokens && h->levels.items[i].seconds < seconds)
      return false;
  return true;
}

/* Guesses whether the levels can be met: in a closed loop, by the time of a tick with all clients
 * of a server, and by the time that those wait who find no place. */
static bool may_meet(const hunt *h, const server *c, double least) {
  const shape *x = hunt_shape(h, c);
  static const double spare = 0.9;
  int64_t servers = c->at[SLO_REPLICAS], places = c->at[SLO_SEQUENCES];
  int64_t clients = (h->came.clients + servers - 1) / servers;
  int64_t together = SLI_MAX(SLI_MIN(clients, places), 1);
  double wait =
      (double)SLI_MAX(clients - places, 0) * (double)servers * least / (double)h->came.count;
  return allows(h, true, spare * sl_session_prices_tick(x->prices, together)) &&
         allows(h, false, spare * wait);
}

/* Returns an upper bound of the rate at which the first tokens come in time: even if all requests
 * come at once, their prompts must be computed within the time that the level allows. */
static double most_rate(const hunt *h, const server *c, double last) {
  double most = INFINITY, seconds = prompts_seconds(h, c);
  if (last <= 0) return most; /* all come at once */
  for (int i = 0; i < h->levels.count; i++) {
    const level *l = &h->levels.items[i];
    double over = l->share * seconds - l->seconds;
    if (!l->between_tokens && over > 0) most = fmin(most, last / over);
  }
  return most;
}

void server_bound(const hunt *h, server *c) {
  static const double busy = 0.6; /* devices also exchange, with less power */
  double least = least_seconds(h, c), tokens = total_tokens(h);
  double last =
      h->came.clients ? 0 : h->came.items[h->came.count - 1].seconds - h->came.items[0].seconds;
  c->most = c->guess = INFINITY;
  c->hopeful = true;
  if (least <= 0) return;
  const sl_hardware *hw = &h->settings->modelled.hardware;
  c->hopeful = may_meet(h, c, least);
  if (h->levels.energy) c->most = tokens / (busy * hw->busy_watts * least * c->devices);
  else if (h->goodput) c->most = most_rate(h, c, last) / c->devices;
  else c->most = tokens / fmax(least, last) / c->devices;
  c->guess = h->goodput ? last / least / c->devices : c->most;
}

/* ---- simulation ---------------------------------------------------------------------------- */

bool hunt_fits(const hunt *h, const server *c) { return !h->budget || c->bytes <= h->budget; }

/* Simulates the servers with these arrivals. A single server runs its plan if `exact`. */
static sl_status simulate(const hunt *h, const server *c, made *m, const arrivals *came, bool exact,
                          sl_session_simulation *out) {
  bool one = c->at[SLO_REPLICAS] == 1 && !c->at[SLO_PREFILL];
  if (exact && one)
    return sl_session_simulate(&m->options, came->clients, came->count, came->items, out);
  if (!exact) {
    m->options.prefixes = m->prefill.prefixes = SL_PREFIXES_APART; /* none are common */
    m->fleet.servers.prices = hunt_shape(h, c)->prices;
    if (c->at[SLO_PREFILL]) m->fleet.prefill.prices = hunt_prompts_shape(h, c)->prices;
  }
  return sl_fleet_simulate(&m->fleet, came->clients, came->count, came->items, out);
}

static double score_of(const hunt *h, const server *c) {
  if (h->levels.energy) return c->joules > 0 ? 1 / c->joules : 0;
  return (h->goodput ? c->rate : c->tokens) / c->devices;
}

/* One server at one rate, or at several in turn: the load, its simulation and the result. */
typedef struct trial {
  const hunt *hunt;
  server *server;
  made made;
  sl_arrival *arrivals; /* [came.count] */
  bool exact;
  sl_status status;
  int64_t pages; /* most in use at any time */
} trial;

/* Simulates a rate. Returns true if all levels are met. */
static bool run_at(trial *t, double rate) {
  const hunt *h = t->hunt;
  server *c = t->server;
  const arrivals came = {h->came.count, h->came.clients, t->arrivals};
  sl_session_simulation r;
  for (int64_t i = 0; i < came.count; i++) {
    came.items[i] = h->came.items[i];
    came.items[i].seconds /= rate;
  }
  t->status = simulate(h, c, &t->made, &came, t->exact, &r);
  if (t->status) return false;
  c->tried = true;
  c->rate = rate;
  c->off = levels_measure(&h->levels, &came, r.answered, c->seconds);
  c->tokens = outcome_of(&came, r.answered, r.seconds).tokens_per_second;
  c->joules = r.stats.tokens ? fleet_joules(&t->made.fleet, &r) / (double)r.stats.tokens : 0;
  c->score = score_of(h, c);
  t->pages = r.stats.pages_most;
  sl_session_simulation_fini(&r);
  return c->off <= 1;
}

/* Finds the highest rate. Rates are powers of 1.01: doubling while the levels are met, or
 * halving until they are, then bisection. The last rate tried may not be the best. */
static void find_rate(trial *t) {
  enum { TWICE = 70, FURTHEST = 10 * TWICE };
  int good = 0, bad = 0;
  if (run_at(t, 1))
    for (bad = TWICE; bad <= FURTHEST && run_at(t, pow(1.01, bad)); bad += TWICE) good = bad;
  else
    for (good = -TWICE; good >= -FURTHEST && !t->status && !run_at(t, pow(1.01, good));
         good -= TWICE)
      bad = good;
  if (good < -FURTHEST || bad > FURTHEST || t->status) return;
  while (bad - good > 1) {
    int middle = good + (bad - good) / 2;
    if (run_at(t, pow(1.01, middle))) good = middle;
    else bad = middle;
  }
  run_at(t, pow(1.01, good));
}

static double page_bytes(const hunt *h, const server *c) {
  double bytes = hunt_shape(h, c)->page_bytes;
  if (!c->at[SLO_PREFILL]) return bytes;
  return fmax(bytes, hunt_prompts_shape(h, c)->page_bytes);
}

/* Finds the bytes of the largest device of a session with the pages of one sequence. They are kept,
 * because many servers differ in other ways. */
static sl_status least_bytes(hunt_bytes *known, const sl_session_options *o, int format,
                             size_t *bytes) {
  const int64_t key[] = {
      o->lower.parallel.stages, o->lower.parallel.tensor, o->rows, o->sequences, o->groups, format};
  sl_session_info about;
  pthread_mutex_lock(&known->lock);
  for (size_t i = 0; i < known->count; i++)
    if (!memcmp(known->items[i].key, key, sizeof key)) *bytes = known->items[i].bytes;
  pthread_mutex_unlock(&known->lock);
  if (*bytes) return SL_OK;
  sl_status status = sl_session_check(o, &about);
  if (status) return status;
  *bytes = about.device_bytes;
  pthread_mutex_lock(&known->lock);
  SLI_GROW(known->items, known->count, known->capacity);
  struct hunt_known *to = &known->items[known->count++];
  memcpy(to->key, key, sizeof key);
  to->bytes = *bytes;
  pthread_mutex_unlock(&known->lock);
  return SL_OK;
}

/* Finds the bytes of a server, of the larger kind if prompts have servers of their own. Each page
 * takes as much as every other. */
static sl_status find_bytes(const hunt *h, server *c) {
  made m;
  size_t own = 0, before = 0;
  server_make(h, c, &m);
  int64_t more = m.options.pages - h->least_pages;
  m.options.pages = m.prefill.pages = h->least_pages;
  sl_status status = least_bytes(h->bytes, &m.options, hunt_format(h, c), &own);
  if (!status && c->at[SLO_PREFILL])
    status = least_bytes(h->bytes, &m.prefill, hunt_format(h, c), &before);
  c->bytes = SLI_MAX(own, before) + (size_t)(page_bytes(h, c) * (double)more);
  return status;
}

/* Sets pages that are not given: all that can be in use, or as many as fit. */
static sl_status settle_pages(const hunt *h, server *c) {
  int64_t least = h->least_pages, most = SLI_MAX(space_most_pages(h, c->at[SLO_SEQUENCES]), least);
  c->at[SLO_PAGES] = least;
  sl_status status = find_bytes(h, c);
  if (status || !hunt_fits(h, c)) return status;
  double page = page_bytes(h, c);
  double room = h->budget && page > 0 ? (double)(h->budget - c->bytes) / page : INFINITY;
  c->at[SLO_PAGES] = room < (double)(most - least) ? least + (int64_t)room : most;
  return SL_OK;
}

/* Drops pages that were never in use. */
static void trim_pages(const hunt *h, server *c, int64_t used) {
  c->at[SLO_PAGES] = SLI_MAX(used, h->least_pages);
  find_bytes(h, c);
}

sl_status server_try(const hunt *h, server *c, sl_arrival *arrivals, bool exact, char **why) {
  trial t = {.hunt = h, .server = c, .arrivals = arrivals, .exact = exact};
  bool open = !c->at[SLO_PAGES];
  sl_status status = open ? settle_pages(h, c) : find_bytes(h, c);
  if (!status && hunt_fits(h, c)) {
    server_make(h, c, &t.made);
    if (h->goodput && !exact) find_rate(&t);
    else run_at(&t, exact ? c->rate : 1);
    status = t.status;
    if (open && c->tried) trim_pages(h, c, t.pages);
  }
  if (status) *why = options_named(sl_detail());
  return status;
}
