/* SPDX-License-Identifier: Apache-2.0 */
/* Simulated tick times for devices that compute nothing. */
#include <stdlib.h>

#include "graph/cost/cost.h"
#include "ops/ops.h"
#include "serve/serve.h"

double sli_price_rows(const sl_rows_seconds *d, double rows) {
  int n = d->count, i = 0;
  if (!n || rows <= 0) return 0;
  if (n == 1 || rows <= d->rows[0]) return d->seconds[0];
  while (i + 2 < n && rows > d->rows[i + 1]) i++;
  double slope = (d->seconds[i + 1] - d->seconds[i]) / (d->rows[i + 1] - d->rows[i]);
  if (rows > d->rows[n - 1]) slope = SLI_MAX(slope, 0);
  return d->seconds[i] + slope * (rows - d->rows[i]);
}

static double seconds_of_rows(const sl_tick_cost *c, double rows) {
  const sl_rows_seconds corners = {c->corners, c->rows, c->seconds};
  return c->corners ? sli_price_rows(&corners, rows) : c->tick + c->row * rows;
}

double sli_price_tick(const sl_tick_cost *c, const load *of) {
  if (!of->rows) return 0;
  return seconds_of_rows(c, (double)of->rows) + c->position * of->positions + c->pair * of->pairs +
         c->pick * (double)of->picks;
}

static bool is_pass(const sl_plan *p, int32_t a) {
  const sl_actor *actor = &p->actors[a];
  return actor->cls == SL_CLASS_F && actor->stage != SL_NONE &&
         p->queues[actor->queue].ops->timed && actor->program;
}

static bool same_place(const sl_plan *p, const sl_actor *a, const sl_actor *b) {
  return a->stage == b->stage && p->queues[a->queue].device == p->queues[b->queue].device;
}

/* ---- ticks of a plan on described hardware --------------------------------------------------- */

/* The different calls of ops that keep pages or states. Calls that are alike take equally long:
 * each is priced once a tick, and an actor has a number of each. */
struct sli_paged {
  int count;
  sli_work *of; /* [count] */
  int *times;   /* [plan->nactors][count] */
};

static bool is_alike(const sli_work *a, const sli_work *b) {
  bool same = a->op == b->op && a->nout == b->nout && sli_attrs_equal(a->op, a->attrs, b->attrs);
  for (int o = 0; o < a->nout && same; o++) same = sl_type_equal(&a->out[o], &b->out[o]);
  return same;
}

/* Returns the number of the call among the different ones, of which it may be a new one. */
static int number_call(sli_paged *p, const sli_work *work) {
  int i = 0;
  while (i < p->count && !is_alike(&p->of[i], work)) i++;
  if (i < p->count) return i;
  p->of = sli_realloc(p->of, (size_t)i + 1, sizeof *p->of);
  p->of[p->count++] = *work;
  return i;
}

/* Calls `visit` with each paged call of each pass. */
static void visit_paged(const sl_plan *p, sli_paged *to,
                        void (*visit)(sli_paged *to, int32_t actor, const sli_work *work)) {
  for (int32_t a = 0; a < p->nactors; a++)
    for (int c = 0; is_pass(p, a) && c < p->actors[a].program->ncalls; c++) {
      const sli_work work = sli_work_of_call(&p->actors[a].program->calls[c]);
      if (sli_op_memory(work.op)->updates) visit(to, a, &work);
    }
}

static void list_call(sli_paged *to, int32_t actor, const sli_work *work) {
  (void)actor;
  number_call(to, work);
}

static void count_call(sli_paged *to, int32_t actor, const sli_work *work) {
  to->times[actor * to->count + number_call(to, work)]++;
}

static sli_paged *find_paged(const sl_plan *p) {
  sli_paged *found = sli_calloc(1, sizeof *found);
  visit_paged(p, found, list_call);
  found->times = sli_calloc((size_t)(p->nactors * found->count) + 1, sizeof *found->times);
  visit_paged(p, found, count_call);
  return found;
}

int sli_price_paged(const sl_session *s) { return s->prices.paged->count; }

void sli_price_count(const sl_session *s, int32_t a, int *times) {
  for (int i = 0; i < s->prices.paged->count; i++)
    times[i] += s->prices.paged->times[a * s->prices.paged->count + i];
}

double sli_price_call(const sl_session *s, int call, int n, const sli_paged_rows *spans) {
  return sli_paged_seconds(s->options.lower.simulation.hardware, &s->prices.paged->of[call], n,
                           spans);
}

void sli_price_calls(const sl_session *s, const tick *t, double *seconds) {
  sli_paged_rows spans[t->count + 1];
  for (int i = 0; i < t->count; i++)
    spans[i] = (sli_paged_rows){t->parts[i].from, t->parts[i].rows};
  for (int i = 0; i < s->prices.paged->count; i++)
    seconds[i] = sli_price_call(s, i, t->count, spans);
}

void sli_price_parts(const sl_session *s, tick *t) {
  if (s->prices.paged && !s->options.cost) sli_price_calls(s, t, t->paged);
}

static double paged_seconds(const sl_session *s, int32_t a, const double *seconds) {
  double sum = 0;
  for (int i = 0; i < s->prices.paged->count; i++)
    sum += s->prices.paged->times[a * s->prices.paged->count + i] * seconds[i];
  return sum;
}

/* Returns an actor's firings in a tick, over which its time is spread: several for experts that are
 * computed as they arrive. */
static double firings_of(const sl_plan *p, const sl_actor *actor) {
  const sl_map *ticks = &p->maps[actor->ticks];
  return SLI_MAX((double)ticks->period / (double)SLI_MAX(ticks->stride, 1), 1);
}

/* Returns the seconds of an actor in a tick that has all rows and sees all pages, which take
 * paged[count]. */
static double full_seconds(const sl_session *s, int32_t a, const double *paged) {
  const sl_actor *actor = &s->about.plan->actors[a];
  return actor->seconds * firings_of(s->about.plan, actor) + paged_seconds(s, a, paged);
}

/* Returns the fraction of its stage's time that a firing of an actor takes: the actors of a stage
 * on one device split it in proportion to their times in a full tick. Devices that share a stage
 * compute concurrently. */
static double share_of(const sl_session *s, int32_t a, const double *paged) {
  const sl_plan *p = s->about.plan;
  double all = 0;
  int count = 0;
  for (int32_t i = 0; i < p->nactors; i++) {
    if (!is_pass(p, i) || !same_place(p, &p->actors[i], &p->actors[a])) continue;
    all += full_seconds(s, i, paged);
    count++;
  }
  double share = all > 0 ? full_seconds(s, a, paged) / all : 1.0 / count;
  return share / firings_of(p, &p->actors[a]);
}

/* ---- firings --------------------------------------------------------------------------------- */

void sli_price_init(sl_session *s) {
  const sl_plan *p = s->about.plan;
  const sli_paged_rows all = {s->about.pages * SL_PAGE - 1, 1};
  s->prices.shares = sli_calloc((size_t)p->nactors, sizeof *s->prices.shares);
  s->prices.paged = find_paged(p);
  double full[s->prices.paged->count + 1];
  for (int i = 0; i < s->prices.paged->count; i++)
    full[i] =
        sli_paged_seconds(s->options.lower.simulation.hardware, &s->prices.paged->of[i], 1, &all);
  for (int32_t a = 0; a < p->nactors; a++)
    if (is_pass(p, a)) s->prices.shares[a] = share_of(s, a, full);
  for (int i = 0; i < s->ticks.most; i++)
    s->ticks.ring[i].paged = sli_calloc((size_t)s->prices.paged->count + 1, sizeof(double));
}

void sli_price_fini(sl_session *s) {
  if (s->prices.paged) free(s->prices.paged->of), free(s->prices.paged->times);
  free(s->prices.paged);
  free(s->prices.shares);
}

/* True for a transfer of all weights of a block. Loads of what rows want are priced by rows. */
static bool brings_weights(const sl_plan *p, const sl_actor *actor) {
  return !actor->by_rows.count && actor->nout &&
         p->regs[actor->out[0].reg].memory == SL_MEMORY_PARAMETERS;
}

/* Returns the seconds of a pass or an exchange on described hardware. */
static double priced_seconds(const sl_session *s, int32_t a, const tick *t) {
  const sl_actor *actor = &s->about.plan->actors[a];
  const sl_hardware *h = s->options.lower.simulation.hardware;
  double host = h ? s->prices.shares[a] * h->tick_seconds : 0;
  return sli_price_rows(&actor->by_rows, (double)t->load.rows) +
         sli_price_rows(&actor->by_picks, (double)t->load.picks) + paged_seconds(s, a, t->paged) +
         host;
}

/* Returns the seconds of a firing. Stage transfers scale with the rows; weight transfers cost the
 * same every tick. */
static double seconds_of(const sl_session *s, int32_t a, const tick *t) {
  const sl_actor *actor = &s->about.plan->actors[a];
  const load *of = &t->load;
  if (brings_weights(s->about.plan, actor)) return actor->seconds;
  if (!of->rows) return 0;
  if (s->prices.shares[a] > 0 && s->options.cost)
    return s->prices.shares[a] * sli_price_tick(s->options.cost, of);
  if (actor->by_rows.count) return priced_seconds(s, a, t);
  return actor->seconds * (double)of->rows / (double)s->about.rows;
}

double sli_price_spread(const sl_session *s, int32_t a, uint64_t at) {
  const sl_tick_cost *c = s->options.cost;
  if (!c || !c->spreads) return 1;
  uint64_t hash =
      sli_hash_word(sli_hash_word(SLI_HASH_SEED, s->options.lower.numbers.seed), (uint64_t)a);
  return c->spread[(hash % (uint64_t)c->spreads + at) % (uint64_t)c->spreads];
}

uint64_t sli_price_firing(void *session, int32_t a, int64_t at) {
  const sl_session *s = session;
  double seconds = seconds_of(s, a, &s->ticks.ring[(uint64_t)at % (uint64_t)s->ticks.most]);
  if (s->prices.shares[a] > 0) seconds *= sli_price_spread(s, a, (uint64_t)at);
  if (s->simulator && s->prices.shares[a] > 0) s->simulator->compute(s->simulator, s, a, seconds);
  return (uint64_t)(seconds * 1e9 + 0.5);
}
