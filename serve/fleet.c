/* SPDX-License-Identifier: Apache-2.0 */
/* Simulation of several servers, which take requests from one queue of arrivals.
 *
 * The servers are sessions without a runtime: the fleet chooses their ticks and completes them at
 * the times that the stages' prices give. Events come in order of time: the end of a tick, the
 * arrival of pages at a server, and that of a request. */
#include <math.h>
#include <stdlib.h>

#include "serve/serve.h"

typedef struct fleet fleet;

typedef struct server {
  sli_simulator base;
  fleet *fleet;
  sl_session *session;
  const sl_session_prices *prices;
  bool prefills;     /* computes prompts and first tokens only */
  int open;          /* requests sent here that have not ended */
  uint64_t *ends;    /* [groups] times at which the ticks in flight end, by tick number */
  uint64_t *free_at; /* [stages] times from which the stages are free */
  double *busy;      /* [stages] seconds of computation */
  uint64_t link_free_at;
} server;

/* Pages on their way to a server. */
typedef struct transfer {
  uint64_t arrives;
  int64_t request;
  server *to;
} transfer;

struct fleet {
  const sl_fleet *options;
  sli_script script;
  int nprefill, nservers; /* prefill servers come first among the servers */
  server *servers;        /* [nprefill + nservers] */
  sl_session_prices *own_prices[2];
  double position_bytes, sequence_bytes; /* that travel with a prompt */
  size_t ntransfers, capacity;
  transfer *transfers;
  uint64_t now;
  int64_t left; /* arrived requests that have not ended */
};

static uint64_t ns_of(double seconds) { return (uint64_t)llround(seconds * 1e9); }

static double now_of(const fleet *f) { return (double)f->now * 1e-9; }

/* ---- servers ------------------------------------------------------------------------------- */

/* Returns the server of a kind with the fewest open requests, the first of these. */
static server *least_busy(const fleet *f, bool prefills) {
  server *all = f->servers + (prefills ? 0 : f->nprefill), *best = all;
  for (int i = 1; i < (prefills ? f->nprefill : f->nservers); i++)
    if (all[i].open < best->open) best = &all[i];
  return best;
}

/* Gives a request to a server. If its queue is full, the request counts as refused. */
static void enter(fleet *f, server *to, int64_t i, int64_t brought) {
  const sl_arrival *a = &f->script.arrivals[i];
  sl_request q = sli_script_request(&f->script, to->session, i);
  uint64_t id;
  if (to->prefills) q.max_tokens = 1;
  if (brought) q.nprompt = a->prompt + 1, q.max_tokens = a->answer - 1;
  pthread_mutex_lock(&to->session->lock);
  bool refused = sli_session_enter(to->session, &q, brought, &id);
  pthread_mutex_unlock(&to->session->lock);
  if (refused) f->script.answered[i].tokens = 0;
  if (refused) sli_script_let_free(&f->script, brought ? now_of(f) : f->script.answered[i].came);
  if (!refused) to->open++;
  if (!refused && !brought) f->left++;
  if (refused && brought) f->left--;
}

/* Sends the pages of a prompt, after those that either server sends or receives. */
static void hand_over(fleet *f, server *v, int64_t i) {
  const sl_fleet *o = f->options;
  server *to = least_busy(f, false);
  double bytes = f->sequence_bytes + f->position_bytes * (double)(f->script.arrivals[i].prompt);
  double seconds = o->link_bytes_per_second > 0 ? bytes / o->link_bytes_per_second : 0;
  uint64_t begins = SLI_MAX(f->now, SLI_MAX(v->link_free_at, to->link_free_at));
  v->link_free_at = to->link_free_at = begins + ns_of(seconds);
  SLI_GROW(f->transfers, f->ntransfers, f->capacity);
  f->transfers[f->ntransfers++] = (transfer){v->link_free_at + ns_of(o->link_seconds), i, to};
}

/* Returns whether the answer has more than its first token. */
static bool goes_on(const fleet *f, int64_t i) {
  const sl_arrival *a = &f->script.arrivals[i];
  return a->answer > 1 && a->prompt + 1 < f->servers[f->nprefill].session->about.context;
}

static void note(sli_simulator *base, const sl_session *s, const sl_session_event *event) {
  server *v = (server *)base;
  fleet *f = v->fleet;
  sl_answered *a = event->user;
  int64_t i = a - f->script.answered;
  double seen = now_of(f) + sli_script_hardware(s)->answer_seconds;
  if (event->kind == SL_EVENT_END) {
    v->open--;
    if (v->prefills && goes_on(f, i)) {
      hand_over(f, v, i);
    } else {
      f->left--;
      sli_script_let_free(&f->script, seen);
    }
    return;
  }
  a->last = seen;
  if (!a->tokens++) a->first = a->last;
}

/* Requests enter when the fleet sends them. */
static uint64_t go_on(sli_simulator *base, sl_session *s) {
  (void)base, (void)s;
  return UINT64_MAX;
}

/* ---- ticks ----------------------------------------------------------------------------------- */

/* Sends the newest tick through the stages, each of which takes one tick at a time. */
static void run_tick(server *v) {
  const sl_session *s = v->session;
  uint64_t number = s->ticks.begun - 1, at = v->fleet->now;
  int stages = sli_stages_count(v->prices);
  sli_stage_seconds took[stages];
  sli_stages_price(v->prices, s, &s->ticks.ring[number % (uint64_t)s->ticks.most], took);
  for (int i = 0; i < stages; i++) {
    at = SLI_MAX(at, v->free_at[i]) + ns_of(took[i].pass) + ns_of(took[i].exchange);
    v->free_at[i] = at;
    v->busy[i] += took[i].pass;
    if (i + 1 < stages) at += ns_of(took[i].transfer);
  }
  v->ends[number % (uint64_t)s->ticks.most] = at;
}

/* Begins ticks while there is work and a place for them. */
static void begin_ticks(server *v) {
  const ticks *t = &v->session->ticks;
  while (t->begun - t->back < (uint64_t)t->most && !sli_session_await(v->session, NULL))
    run_tick(v);
}

/* Returns when the oldest tick in flight ends. */
static uint64_t tick_end(const server *v) {
  const ticks *t = &v->session->ticks;
  return t->begun > t->back ? v->ends[t->back % (uint64_t)t->most] : UINT64_MAX;
}

/* ---- events ---------------------------------------------------------------------------------- */

/* Returns when the servers have the next request. */
static uint64_t next_arrival(const fleet *f) {
  uint64_t at = sli_script_next(&f->script, f->servers->session);
  return SLI_MAX(at, f->now);
}

static uint64_t next_event(const fleet *f) {
  uint64_t at = next_arrival(f);
  for (size_t i = 0; i < f->ntransfers; i++) at = SLI_MIN(at, f->transfers[i].arrives);
  for (int i = 0; i < f->nprefill + f->nservers; i++) at = SLI_MIN(at, tick_end(&f->servers[i]));
  return at;
}

static void end_ticks(const fleet *f) {
  for (int i = 0; i < f->nprefill + f->nservers; i++)
    while (tick_end(&f->servers[i]) <= f->now)
      sli_session_take(f->servers[i].session, "sampled", NULL, NULL);
}

/* Lets in the pages that have arrived, in the order in which they were sent. */
static void end_transfers(fleet *f) {
  size_t kept = 0;
  for (size_t i = 0; i < f->ntransfers; i++) {
    const transfer t = f->transfers[i];
    if (t.arrives > f->now) f->transfers[kept++] = t;
    else enter(f, t.to, t.request, f->script.arrivals[t.request].prompt);
  }
  f->ntransfers = kept;
}

static void let_come(fleet *f) {
  while (next_arrival(f) <= f->now)
    enter(f, least_busy(f, f->nprefill > 0), sli_script_take(&f->script), 0);
}

static void run_all(fleet *f) {
  while (f->script.next < f->script.count || f->left) {
    f->now = next_event(f);
    end_ticks(f);
    end_transfers(f);
    let_come(f);
    for (int i = 0; i < f->nprefill + f->nservers; i++) begin_ticks(&f->servers[i]);
  }
}

/* ---- setup ----------------------------------------------------------------------------------- */

static sl_status open_server(fleet *f, server *v, const sl_servers *of,
                             const sl_session_prices *prices) {
  *v = (server){.base = {go_on, note, NULL}, .fleet = f, .prices = prices};
  v->prefills = of == &f->options->prefill;
  sl_status status = sli_session_open_driven(of->options, &v->base, false, &v->session);
  if (status) return status;
  int stages = sli_stages_count(prices);
  v->ends = sli_calloc((size_t)v->session->ticks.most, sizeof *v->ends);
  v->free_at = sli_calloc((size_t)stages, sizeof *v->free_at);
  v->busy = sli_calloc((size_t)stages, sizeof *v->busy);
  return sli_script_check(&f->script, v->session);
}

static sl_status open_servers(fleet *f, const sl_servers *of, server *to) {
  sl_session_prices **own = &f->own_prices[of == &f->options->prefill];
  sl_status status = of->count && !of->prices ? sl_session_price(of->options, own) : SL_OK;
  for (int i = 0; i < of->count && !status; i++)
    status = open_server(f, &to[i], of, of->prices ? of->prices : *own);
  return status;
}

static sl_status open_all(fleet *f) {
  sl_status status = open_servers(f, &f->options->prefill, f->servers);
  if (!status) status = open_servers(f, &f->options->servers, f->servers + f->nprefill);
  if (status) return status;
  const sl_session *s = f->servers[f->nprefill].session;
  f->position_bytes = (double)sli_session_page_bytes(s) / SL_PAGE;
  f->sequence_bytes = (double)s->about.state_bytes;
  return SL_OK;
}

static void add_stats(sl_session_stats *to, const sl_session_stats *of) {
  to->pages += of->pages;
  to->pages_most = SLI_MAX(to->pages_most, of->pages_most);
  to->ticks += of->ticks;
  to->rows += of->rows;
  to->rows_prompt += of->rows_prompt;
  to->rows_again += of->rows_again;
  to->rows_shared += of->rows_shared;
  to->tokens += of->tokens;
  to->requests += of->requests;
  to->preemptions += of->preemptions;
  for (int e = 0; e < SL_END_COUNT; e++) to->ended[e] += of->ended[e];
}

/* Adds what servers of a kind did; their stages follow those that `out` has. */
static void add_servers(const server *all, int count, sl_session_simulation *out) {
  int stages = count ? sli_stages_count(all->prices) : 0;
  for (int i = 0; i < count; i++) {
    for (int k = 0; k < stages; k++) out->busy[out->nstages + k] += all[i].busy[k] / count;
    add_stats(&out->stats, &all[i].session->stats);
  }
  out->nstages += stages;
}

static void finish(const fleet *f, sl_session_simulation *out) {
  const server *last = &f->servers[f->nprefill];
  int stages =
      sli_stages_count(last->prices) + (f->nprefill ? sli_stages_count(f->servers->prices) : 0);
  *out = (sl_session_simulation){.narrivals = f->script.count,
                                 .answered = f->script.answered,
                                 .about = last->session->about,
                                 .seconds = sli_script_seconds(&f->script),
                                 .busy = sli_calloc((size_t)stages, sizeof *out->busy)};
  add_servers(f->servers, f->nprefill, out);
  add_servers(last, f->nservers, out);
}

static void close_all(fleet *f) {
  for (int i = 0; i < f->nprefill + f->nservers; i++) {
    server *v = &f->servers[i];
    if (v->session) sli_session_finish_all(v->session, SL_END_CANCELLED);
    sl_session_destroy(v->session);
    free(v->ends);
    free(v->free_at);
    free(v->busy);
  }
  for (int i = 0; i < 2; i++) sl_session_prices_free(f->own_prices[i]);
  free(f->servers);
  free(f->transfers);
  sli_script_fini(&f->script);
}

sl_status sl_fleet_simulate(const sl_fleet *fleet_options, int64_t clients, int64_t n,
                            const sl_arrival *arrivals, sl_session_simulation *out) {
  fleet f = {.options = fleet_options,
             .nprefill = fleet_options->prefill.count,
             .nservers = fleet_options->servers.count};
  sli_script_init(&f.script, clients, n, arrivals);
  f.servers = sli_calloc((size_t)(f.nprefill + f.nservers), sizeof *f.servers);
  sl_status status = open_all(&f);
  if (!status) run_all(&f);
  if (!status) finish(&f, out);
  else free(f.script.answered);
  char *detail = sli_strdup(status ? sl_detail() : "");
  close_all(&f);
  if (status) sl_fail(status, "%s", detail);
  free(detail);
  return status;
}
