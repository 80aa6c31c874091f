/* SPDX-License-Identifier: Apache-2.0 */
/* Simulated tick times for devices that compute nothing. */
#include <stdlib.h>

#include "graph/cost/cost.h"
#include "serve/serve.h"

/* Interpolates between corners. Below the first corner the time is constant; beyond the last it
 * does not fall. */
static double seconds_at(const sl_rows_seconds *d, double rows) {
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
  return c->corners ? seconds_at(&corners, rows) : c->tick + c->row * rows;
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

/* A call of an op that keeps pages or states, and the number of calls of an actor that are
 * alike. */
struct sli_paged {
  sli_work work;
  int times;
};

static bool is_alike(const sli_work *a, const sli_work *b) {
  bool same = a->op == b->op && a->nout == b->nout && a->attrs->heads == b->attrs->heads &&
              a->attrs->kv_heads == b->attrs->kv_heads && a->attrs->window == b->attrs->window;
  for (int o = 0; o < a->nout && same; o++) same = sl_type_equal(&a->out[o], &b->out[o]);
  return same;
}

/* Returns the paged calls of an actor, with those that are alike counted together. */
static sli_priced find_paged(const sl_program *p) {
  sli_priced found = {.of = sli_calloc((size_t)p->ncalls + 1, sizeof *found.of)};
  for (int c = 0; c < p->ncalls; c++) {
    const sli_work work = sli_work_of_call(&p->calls[c]);
    if (!work.op->updates) continue;
    int i = 0;
    while (i < found.count && !is_alike(&found.of[i].work, &work)) i++;
    if (i == found.count) found.of[found.count++] = (sli_paged){work, 0};
    found.of[i].times++;
  }
  return found;
}

/* Returns the seconds in which a tick's rows attend to pages. */
static double paged_seconds(const sl_session *s, const sli_priced *p, const tick *t) {
  const sl_hardware *h = s->options.lower.simulation.hardware;
  sli_paged_rows spans[t->count + 1];
  double sum = 0;
  for (int i = 0; i < t->count; i++)
    spans[i] = (sli_paged_rows){t->parts[i].from, t->parts[i].rows};
  for (int i = 0; i < p->count; i++)
    sum += p->of[i].times * sli_paged_seconds(h, &p->of[i].work, t->count, spans);
  return sum;
}

/* Returns the seconds of an actor in a tick that has all rows and sees all pages. */
static double full_seconds(const sl_session *s, int32_t a) {
  const sl_hardware *h = s->options.lower.simulation.hardware;
  const sli_priced *p = &s->priced[a];
  const sli_paged_rows all = {s->about.pages * SL_PAGE - 1, 1};
  double sum = s->about.plan->actors[a].seconds;
  for (int i = 0; i < p->count; i++)
    sum += p->of[i].times * sli_paged_seconds(h, &p->of[i].work, 1, &all);
  return sum;
}

/* Returns an actor's fraction of its stage's time: the actors of a stage on one device split it in
 * proportion to their times in a full tick. Devices that share a stage compute concurrently. */
static double share_of(const sl_session *s, int32_t a) {
  const sl_plan *p = s->about.plan;
  double all = 0;
  int count = 0;
  for (int32_t i = 0; i < p->nactors; i++) {
    if (!is_pass(p, i) || !same_place(p, &p->actors[i], &p->actors[a])) continue;
    all += full_seconds(s, i);
    count++;
  }
  return all > 0 ? full_seconds(s, a) / all : 1.0 / count;
}

/* ---- firings --------------------------------------------------------------------------------- */

void sli_price_init(sl_session *s) {
  const sl_plan *p = s->about.plan;
  s->shares = sli_calloc((size_t)p->nactors, sizeof *s->shares);
  s->priced = sli_calloc((size_t)p->nactors, sizeof *s->priced);
  for (int32_t a = 0; a < p->nactors; a++)
    if (is_pass(p, a)) s->priced[a] = find_paged(p->actors[a].program);
  for (int32_t a = 0; a < p->nactors; a++)
    if (is_pass(p, a)) s->shares[a] = share_of(s, a);
}

void sli_price_fini(sl_session *s) {
  for (int32_t a = 0; s->priced && a < s->about.plan->nactors; a++) free(s->priced[a].of);
  free(s->priced);
  free(s->shares);
}

static bool brings_weights(const sl_plan *p, const sl_actor *actor) {
  return actor->nout && p->regs[actor->out[0].reg].memory == SL_MEMORY_PARAMETERS;
}

/* Returns the seconds of a pass or an exchange on described hardware. */
static double priced_seconds(const sl_session *s, int32_t a, const tick *t) {
  const sl_actor *actor = &s->about.plan->actors[a];
  const sl_hardware *h = s->options.lower.simulation.hardware;
  double host = h ? s->shares[a] * h->tick_seconds : 0;
  return seconds_at(&actor->by_rows, (double)t->load.rows) +
         seconds_at(&actor->by_picks, (double)t->load.picks) + paged_seconds(s, &s->priced[a], t) +
         host;
}

/* Returns the seconds of a firing. Stage transfers scale with the rows; weight transfers cost the
 * same every tick. */
static double seconds_of(const sl_session *s, int32_t a, const tick *t) {
  const sl_actor *actor = &s->about.plan->actors[a];
  const load *of = &t->load;
  if (brings_weights(s->about.plan, actor)) return actor->seconds;
  if (!of->rows) return 0;
  if (s->shares[a] > 0 && s->options.cost)
    return s->shares[a] * sli_price_tick(s->options.cost, of);
  if (actor->by_rows.count) return priced_seconds(s, a, t);
  return actor->seconds * (double)of->rows / (double)s->about.rows;
}

/* Returns the ratio of this firing's time to the mean. */
static double spread_of(const sl_session *s, int32_t a, int64_t at) {
  const sl_tick_cost *c = s->options.cost;
  if (!c || !c->spreads || !(s->shares[a] > 0)) return 1;
  uint64_t hash =
      sli_hash_word(sli_hash_word(SLI_HASH_SEED, s->options.lower.numbers.seed), (uint64_t)a);
  return c->spread[(hash % (uint64_t)c->spreads + (uint64_t)at) % (uint64_t)c->spreads];
}

uint64_t sli_price_firing(void *session, int32_t a, int64_t at) {
  const sl_session *s = session;
  double seconds =
      seconds_of(s, a, &s->ticks.of[(uint64_t)at % (uint64_t)s->ticks.most]) * spread_of(s, a, at);
  if (s->simulator && s->shares[a] > 0) s->simulator->compute(s->simulator, s, a, seconds);
  return (uint64_t)(seconds * 1e9 + 0.5);
}
