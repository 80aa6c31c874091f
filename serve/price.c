/* SPDX-License-Identifier: Apache-2.0 */
/* Simulated tick times for devices that compute nothing. */
#include <stdlib.h>

#include "graph/cost/cost.h"
#include "serve/serve.h"

/* Interpolates between corners; below the first corner the time is constant. */
static double seconds_of_rows(const sl_tick_cost *c, double rows) {
  int n = c->corners, i = 0;
  if (!n) return c->tick + c->row * rows;
  if (n == 1 || rows <= c->rows[0]) return c->seconds[0];
  while (i + 2 < n && rows > c->rows[i + 1]) i++;
  double slope = (c->seconds[i + 1] - c->seconds[i]) / (c->rows[i + 1] - c->rows[i]);
  if (rows > c->rows[n - 1]) slope = SLI_MAX(slope, 0);
  return c->seconds[i] + slope * (rows - c->rows[i]);
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

/* Returns an actor's fraction of its stage's time: the actors of a stage on one device split it in
 * proportion to their planned times. Devices that share a stage compute concurrently. */
static double share_of(const sl_plan *p, int32_t a) {
  double all = 0;
  int count = 0;
  for (int32_t i = 0; i < p->nactors; i++) {
    if (!is_pass(p, i) || !same_place(p, &p->actors[i], &p->actors[a])) continue;
    all += p->actors[i].seconds;
    count++;
  }
  return all > 0 ? p->actors[a].seconds / all : 1.0 / count;
}

/* ---- earlier positions ----------------------------------------------------------------------- */

/* Returns the seconds in which a tick's rows attend to earlier positions. */
static double seconds_of_looking(const sl_session *s, const sl_actor *actor, const tick *t) {
  const sl_hardware *h = s->options.lower.simulation.hardware;
  double sum = 0;
  for (int c = 0; c < actor->program->ncalls; c++) {
    const sli_work work = sli_work_of_call(&actor->program->calls[c]);
    for (int i = 0; i < t->count; i++)
      sum += sli_seconds_behind(h, &work, t->parts[i].from, t->parts[i].rows);
  }
  return sum;
}

/* ---- firings --------------------------------------------------------------------------------- */

void sli_price_init(sl_session *s) {
  const sl_plan *p = s->about.plan;
  s->shares = sli_calloc((size_t)p->nactors, sizeof *s->shares);
  for (int32_t a = 0; a < p->nactors; a++)
    if (is_pass(p, a)) s->shares[a] = share_of(p, a);
}

static bool brings_weights(const sl_plan *p, const sl_actor *actor) {
  return actor->nout && p->regs[actor->out[0].reg].memory == SL_MEMORY_PARAMETERS;
}

/* Returns the seconds of a firing. Stage transfers scale with the rows; weight transfers cost the
 * same every tick. Without given costs, passes also scale with the rows, plus the time for earlier
 * positions. */
static double seconds_of(const sl_session *s, int32_t a, const tick *t) {
  const sl_actor *actor = &s->about.plan->actors[a];
  const load *of = &t->load;
  if (brings_weights(s->about.plan, actor)) return actor->seconds;
  if (!of->rows) return 0;
  if (s->shares[a] > 0 && s->options.cost)
    return s->shares[a] * sli_price_tick(s->options.cost, of);
  double rows = actor->seconds * (double)of->rows / (double)s->about.rows;
  return s->shares[a] > 0 ? rows + seconds_of_looking(s, actor, t) : rows;
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
