/* SPDX-License-Identifier: Apache-2.0 */
/* Samples: plans of one stage with few layers, one for each grid. A sample shows what a block of
 * each kind costs on one device: seconds of passes and exchanges, and bytes. Choices that differ
 * only in stages, chunks and schedule share a sample. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "graph/compile/compile.h"
#include "tools/planner/search_inner.h"

enum { MICROBATCHES = 4 }; /* of a sample: enough to overlap */

/* Dimensions that decide a sample besides its rows. */
static const plan_dim dims[] = {PLAN_TENSOR,    PLAN_DATA,          PLAN_SEQUENCE,
                                PLAN_EXPERTS,   PLAN_EXPERT_TENSOR, PLAN_PIECES,
                                PLAN_RECOMPUTE, PLAN_SHARD,         PLAN_HOME};

typedef struct sample_key {
  int at[SLI_COUNT(dims)];
  int rows, microbatches, schedule;
} sample_key;

struct planner_sample {
  sample_key key;
  plan_choice choice; /* of one stage */
  bool wanted, made;
  planner_prices prices;
};

/* ---- keys ------------------------------------------------------------------------------------ */

/* Returns the first schedule that splits the backward pass like this one, in one chunk. */
static int alike_schedule(const planner *p, int schedule) {
  const char *backward = p->settings->lower.schedule.backward;
  bool split = sli_schedule_splits(planner_schedule(schedule), backward);
  int w = 0;
  while (w < plan_dims[PLAN_SCHEDULE].count &&
         (sl_schedule_chunks(planner_word(PLAN_SCHEDULE, w)) > 1 ||
          sli_schedule_splits(planner_schedule(w), backward) != split))
    w++;
  return w < plan_dims[PLAN_SCHEDULE].count ? w : 0;
}

/* Returns how many microbatches a sample has. */
static int microbatches_of(const planner *p, const plan_choice *c) {
  return p->batch ? SLI_MIN(MICROBATCHES, c->at[PLAN_MICROBATCHES]) : c->at[PLAN_MICROBATCHES];
}

/* Returns how many rows a microbatch has on a device; 0: not known. */
static int rows_of(const planner *p, const plan_choice *c) {
  return p->batch ? p->batch / c->at[PLAN_DATA] / c->at[PLAN_MICROBATCHES] : 0;
}

static sample_key key_of(const planner *p, const plan_choice *c) {
  sample_key key;
  memset(&key, 0, sizeof key);
  for (size_t d = 0; d < SLI_COUNT(dims); d++) key.at[d] = c->at[dims[d]];
  key.rows = rows_of(p, c);
  key.microbatches = microbatches_of(p, c);
  key.schedule = alike_schedule(p, c->at[PLAN_SCHEDULE]);
  return key;
}

const sli_schedule *planner_schedule(int word) {
  return sli_schedule_find(planner_word(PLAN_SCHEDULE, word));
}

/* Returns the choice of fewest devices whose passes cost the same: without data parallelism beyond
 * the experts' and without sharding. */
plan_choice planner_alone(const plan_choice *c) {
  plan_choice x = *c;
  bool own = c->at[PLAN_TENSOR] > 1 && c->at[PLAN_EXPERT_TENSOR] == 1;
  int data =
      own ? c->at[PLAN_EXPERTS] / (int)sli_common_divisor(c->at[PLAN_EXPERTS], c->at[PLAN_TENSOR])
          : c->at[PLAN_EXPERTS];
  int parts = c->at[PLAN_DATA] * c->at[PLAN_MICROBATCHES];
  if (parts % data) return x;
  x.at[PLAN_DATA] = data, x.at[PLAN_MICROBATCHES] = parts / data;
  x.at[PLAN_SHARD] = x.at[PLAN_HOME] = x.at[PLAN_SCHEDULE] = 0;
  return x;
}

/* Returns the choice with more rows in a microbatch, as many as the usual choices have. */
plan_choice planner_coarse(const planner *p, const plan_choice *alone, double *scale) {
  plan_choice coarse = *alone;
  int rows = rows_of(p, alone), all = rows * alone->at[PLAN_MICROBATCHES];
  *scale = 1;
  for (int more = 2 * rows; rows && more <= PLANNER_ROWS && all % more == 0; more *= 2) {
    coarse.at[PLAN_MICROBATCHES] = all / more;
    *scale = (double)rows / more;
  }
  return coarse;
}

plan_choice planner_again(const planner *p, const plan_choice *c) {
  plan_choice again = *c;
  if (p->fixed[PLAN_RECOMPUTE] < 0 && !c->at[PLAN_RECOMPUTE])
    again.at[PLAN_RECOMPUTE] = planner_value_of(PLAN_RECOMPUTE, planner_recompute_all(c));
  return again;
}

size_t planner_sample_of(planner *p, const plan_choice *c) {
  sample_key key = key_of(p, c);
  size_t i = 0;
  while (i < p->nsamples && memcmp(&p->samples[i].key, &key, sizeof key)) i++;
  if (i < p->nsamples) return i;
  planner_sample s = {.key = key, .choice = *c};
  s.choice.relaxation = NULL;
  s.choice.at[PLAN_STAGES] = s.choice.at[PLAN_CHUNKS] = 1;
  s.choice.at[PLAN_SCHEDULE] = key.schedule;
  SLI_GROW(p->samples, p->nsamples, p->sample_capacity);
  p->samples[p->nsamples++] = s;
  return i;
}

/* ---- prices ---------------------------------------------------------------------------------- */

static void keep(const sli_prices *from, planner_prices *to) {
  size_t n = (size_t)from->nblocks + 1;
  to->nblocks = from->nblocks;
  to->blocks = sli_calloc(n, sizeof *to->blocks);
  memcpy(to->blocks, from->blocks, n * sizeof *to->blocks);
  to->rest = from->bytes;
  double shared = 0;
  for (int b = 0; b < from->nblocks; b++) {
    for (int r = 0; r < SLI_ROLES; r++) to->rest -= from->blocks[b].bytes[r];
    shared = SLI_MAX(shared, from->blocks[b].shared);
  }
  to->rest = SLI_MAX(to->rest - shared, 0);
}

/* Compares the sample's time on the virtual clock with the sums of its passes and exchanges. */
static void compare(const sl_plan *plan, int microbatches, planner_prices *to) {
  double passes = 0, waits = 0, exchanges = 0, update = 0, step = 0;
  sl_statistics f;
  if (sl_plan_predict(plan, NULL, &f)) return;
  free(f.devices);
  for (int b = 0; b < to->nblocks; b++) {
    const sli_block_price *one = &to->blocks[b];
    passes += one->pass[0] + one->pass[1] + one->pass[2];
    waits += one->exchange[0] + one->exchange[1];
    exchanges += one->exchange[0] + one->exchange[1] + one->ahead;
    update += one->update, step += one->exchange_step;
  }
  double shown = f.step_seconds - update - microbatches * fmax(passes, exchanges),
         most = microbatches * fmin(passes, exchanges);
  to->step = step > 0 ? fmax(fmin(shown / step, 1), 0) : 0;
  shown -= to->step * step;
  /* exchanges ahead are hidden, unless they delay others that passes wait for */
  to->exposed = waits > 0 && most > 0 ? fmax(fmin(shown / most, 1), 0) : 0;
}

/* Samples to be made. */
typedef struct wanted {
  planner *planner;
  size_t *samples, count;
} wanted;

static void make_sample(void *ctx, size_t i) {
  const wanted *w = ctx;
  planner *p = w->planner;
  planner_sample *s = &p->samples[w->samples[i]];
  plan_made made;
  s->made = true;
  if (planner_make_with(p, &s->choice, s->key.microbatches, PLAN_ROUGH, p->blocks->layers, &made))
    return;
  const sli_prices *prices = sli_lowered_prices(made.planned.lowered);
  if (prices) keep(prices, &s->prices);
  if (prices) compare(made.planned.plan, s->key.microbatches, &s->prices);
  planner_unmake(&made);
}

void planner_sample_want(planner *p, size_t sample) { p->samples[sample].wanted = true; }

void planner_samples_make(planner *p) {
  wanted w = {p, sli_calloc(p->nsamples + 1, sizeof *w.samples), 0};
  for (size_t i = 0; i < p->nsamples; i++)
    if (p->samples[i].wanted && !p->samples[i].made) w.samples[w.count++] = i;
  planner_each(p, 0, w.count, make_sample, &w);
  free(w.samples);
}

bool planner_sample_is_made(const planner *p, size_t sample) { return p->samples[sample].made; }

const planner_prices *planner_prices_at(const planner *p, size_t sample) {
  const planner_prices *prices = &p->samples[sample].prices;
  return prices->blocks ? prices : NULL;
}

void planner_samples_forget(planner *p) {
  for (size_t i = 0; i < p->nsamples; i++) free(p->samples[i].prices.blocks);
  free(p->samples);
  p->samples = NULL;
  p->nsamples = p->sample_capacity = 0;
}
