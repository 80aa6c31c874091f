/* SPDX-License-Identifier: Apache-2.0 */
/* Durations of a plan's stages, each as one pass: the sums of its actors' ladders by rows. A
 * session keeps the plan that they come from. */
#include <math.h>
#include <stdlib.h>

#include "graph/cost/cost.h"
#include "serve/serve.h"

/* Durations of a stage. Its ladders have the rungs of its actors', which are the same for all. */
typedef struct stage {
  sl_rows_seconds rows, picks;                /* of passes */
  sl_rows_seconds exchanges, exchanges_picks; /* among the devices of the stage */
  sl_rows_seconds least, least_picks;         /* convex hulls of both */
  double prompts;                             /* seconds of attention of all prompts */
  int *times;                                 /* [paged calls] */
  double transfer;                            /* seconds of all rows to the next stage */
} stage;

/* Sums over the requests. */
typedef struct weight {
  double prompts, answers, requests; /* tokens of prompts, of answers; number */
  double positions;                  /* that all rows of answers see */
  double longest;                    /* most positions of a sequence */
} weight;

struct sl_session_prices {
  sl_session *session; /* with the plan; it serves nobody */
  int count;
  stage *stages; /* [count] */
  weight weight;
};

int sli_stages_count(const sl_session_prices *p) { return p->count; }

/* ---- sums ------------------------------------------------------------------------------------ */

static void add_ladder(sl_rows_seconds *to, const sl_rows_seconds *of) {
  if (!of->count) return;
  double *seconds = (double *)to->seconds;
  if (!to->count) {
    seconds = sli_calloc((size_t)of->count, sizeof *seconds);
    *to = (sl_rows_seconds){of->count, of->rows, seconds};
  }
  for (int32_t i = 0; i < of->count; i++) seconds[i] += of->seconds[i];
}

static void free_hull(sl_rows_seconds *h) {
  free((double *)h->rows);
  free((double *)h->seconds);
}

static void add_actor(stage *to, const sl_session *s, int32_t a) {
  const sl_actor *actor = &s->about.plan->actors[a];
  bool passes = s->prices.shares[a] > 0;
  add_ladder(passes ? &to->rows : &to->exchanges, &actor->by_rows);
  add_ladder(passes ? &to->picks : &to->exchanges_picks, &actor->by_picks);
  if (passes) sli_price_count(s, a, to->times);
}

/* Returns the seconds of all transfers between stages, of all rows. */
static double transfers(const sl_plan *p) {
  double seconds = 0;
  for (int32_t a = 0; a < p->nactors; a++)
    if (p->actors[a].cls == SL_CLASS_C && !p->actors[a].by_rows.count)
      seconds += p->actors[a].seconds;
  return seconds;
}

/* Returns the largest convex curve below the sum of two ladders. */
static sl_rows_seconds make_hull(const sl_rows_seconds *one, const sl_rows_seconds *two) {
  sl_rows_seconds sum = {0};
  add_ladder(&sum, one);
  add_ladder(&sum, two);
  double *rows = sli_calloc((size_t)sum.count + 1, sizeof *rows), *y = (double *)sum.seconds;
  int32_t n = 0;
  for (int32_t i = 0; i < sum.count; i++) {
    double x = sum.rows[i], seconds = y[i];
    while (n > 1 && (y[n - 1] - y[n - 2]) * (x - rows[n - 1]) >=
                        (seconds - y[n - 1]) * (rows[n - 1] - rows[n - 2]))
      n--;
    rows[n] = x, y[n++] = seconds;
  }
  return (sl_rows_seconds){n, rows, y};
}

static void sum_stages(sl_session_prices *p) {
  const sl_session *s = p->session;
  const sl_plan *plan = s->about.plan;
  p->count = SLI_MAX(s->options.lower.parallel.stages, 1);
  p->stages = sli_calloc((size_t)p->count, sizeof *p->stages);
  for (int i = 0; i < p->count; i++)
    p->stages[i].times = sli_calloc((size_t)sli_price_paged(s) + 1, sizeof(int));
  for (int32_t a = 0; a < plan->nactors; a++) {
    int32_t at = plan->actors[a].stage;
    if (at >= 0 && at < p->count) add_actor(&p->stages[at], s, a);
  }
  for (int i = 0; i + 1 < p->count; i++) p->stages[i].transfer = transfers(plan) / (p->count - 1);
  for (int i = 0; i < p->count; i++) {
    stage *x = &p->stages[i];
    x->least = make_hull(&x->rows, &x->exchanges);
    x->least_picks = make_hull(&x->picks, &x->exchanges_picks);
  }
}

sl_status sl_session_price(const sl_session_options *options, sl_session_prices **out) {
  sl_session_prices *p = sli_calloc(1, sizeof *p);
  sl_status status = sli_session_open_driven(options, NULL, true, &p->session);
  if (!status) sum_stages(p);
  *out = p;
  if (!status) return SL_OK;
  char *detail = sli_strdup(sl_detail());
  sl_session_prices_free(p);
  *out = NULL;
  sl_fail(status, "%s", detail);
  free(detail);
  return status;
}

void sl_session_prices_free(sl_session_prices *p) {
  if (!p) return;
  for (int i = 0; i < p->count; i++) {
    free((double *)p->stages[i].rows.seconds);
    free((double *)p->stages[i].picks.seconds);
    free((double *)p->stages[i].exchanges.seconds);
    free((double *)p->stages[i].exchanges_picks.seconds);
    free_hull(&p->stages[i].least);
    free_hull(&p->stages[i].least_picks);
    free(p->stages[i].times);
  }
  free(p->stages);
  sl_session_destroy(p->session);
  free(p);
}

/* ---- ticks ----------------------------------------------------------------------------------- */

/* Returns the seconds of each stage if a tick's cost is given. */
static double given_seconds(const sl_session *s, const tick *t, int at) {
  return sli_price_tick(s->options.cost, &t->load) * sli_price_spread(s, at, s->ticks.begun - 1);
}

void sli_stages_price(const sl_session_prices *p, const sl_session *s, const tick *t,
                      sli_stage_seconds *out) {
  const sl_session *own = p->session;
  const sl_hardware *h = s->options.lower.simulation.hardware;
  double rows = (double)t->load.rows, picks = (double)t->load.picks;
  double paged[sli_price_paged(own) + 1];
  bool given = s->options.cost;
  if (!given) sli_price_calls(own, t, paged);
  for (int i = 0; i < p->count; i++) {
    const stage *x = &p->stages[i];
    out[i] = (sli_stage_seconds){
        .pass = given ? given_seconds(s, t, i)
                      : sli_price_rows(&x->rows, rows) + sli_price_rows(&x->picks, picks) +
                            (h ? h->tick_seconds : 0),
        .exchange =
            sli_price_rows(&x->exchanges, rows) + sli_price_rows(&x->exchanges_picks, picks),
        .transfer = x->transfer * rows / (double)own->about.rows};
    for (int k = 0; k < sli_price_paged(own) && !given; k++) out[i].pass += x->times[k] * paged[k];
  }
}

/* ---- bounds ---------------------------------------------------------------------------------- */

/* Returns the seconds of a stage's attention in a tick with these spans. */
static double attention(const sl_session_prices *p, const stage *x, int n,
                        const sli_paged_rows *spans) {
  double seconds = 0;
  for (int i = 0; i < sli_price_paged(p->session); i++)
    if (x->times[i]) seconds += x->times[i] * sli_price_call(p->session, i, n, spans);
  return seconds;
}

void sl_session_prices_weigh(sl_session_prices *p, int64_t n, const sl_arrival *arrivals) {
  weight *w = &p->weight;
  *w = (weight){.requests = (double)n};
  for (int k = 0; k < p->count; k++) p->stages[k].prompts = 0;
  for (int64_t i = 0; i < n; i++) {
    double prompt = (double)arrivals[i].prompt, more = (double)arrivals[i].answer - 1;
    const sli_paged_rows whole = {0, arrivals[i].prompt};
    w->prompts += prompt;
    w->answers += more + 1;
    w->positions += more * (prompt + more / 2);
    w->longest = SLI_MAX(w->longest, prompt + more);
    for (int k = 0; k < p->count; k++)
      p->stages[k].prompts += attention(p, &p->stages[k], 1, &whole);
  }
}

/* Returns the seconds of attention to `positions` positions in all, by ticks of `sequences`
 * sequences. Many long sequences take the least time for each position. */
static double answers_seconds(const sl_session_prices *p, const stage *x, int64_t sequences) {
  enum { MOST = 4096 };
  static const double spare = 0.9; /* measured times are not smooth */
  int n = (int)SLI_MIN(SLI_MAX(sequences, 1), MOST);
  const weight *w = &p->weight;
  sli_paged_rows spans[n];
  int64_t longest = SLI_MAX((int64_t)w->longest, 1);
  for (int i = 0; i < n; i++) spans[i] = (sli_paged_rows){longest - 1, 1};
  return spare * attention(p, x, n, spans) * w->positions / ((double)n * (double)longest);
}

static double stage_least(const sl_session_prices *p, const stage *x, sl_serving_part part,
                          int servers, int64_t rows, int64_t sequences) {
  const weight *w = &p->weight;
  const sl_hardware *h = p->session->options.lower.simulation.hardware;
  bool prompts = part != SL_SERVING_ANSWERS, answers = part != SL_SERVING_PROMPTS;
  double more = answers ? w->answers - w->requests : 0;
  double all = more + (prompts ? w->prompts : 0), picks = more + (prompts ? w->requests : 0);
  double ticks = SLI_MAX(more / (double)sequences, all / (double)rows);
  double seconds = (prompts ? x->prompts : 0) + (answers ? answers_seconds(p, x, sequences) : 0);
  if (ticks <= 0) return 0;
  seconds += ticks * (sli_price_rows(&x->least, all / ticks) +
                      sli_price_rows(&x->least_picks, picks / ticks) + (h ? h->tick_seconds : 0));
  return seconds / servers;
}

/* Returns the seconds of a tick with `answers` rows of answers on a stage. */
static double answers_tick(const sl_session_prices *p, const stage *x, double answers,
                           int64_t sequences) {
  const weight *w = &p->weight;
  double more = SLI_MAX(w->answers - w->requests, 1);
  return sli_price_rows(&x->least, answers) + sli_price_rows(&x->least_picks, answers) +
         answers / more * answers_seconds(p, x, sequences);
}

/* Returns a lower bound of the seconds of answers in a pipeline. Ticks of x answers go through one
 * stage after another, each sequence through one tick at a time: they take at least the time of all
 * stages for as many sequences, and that of the slowest stage for each tick. */
static double pipeline_least(const sl_session_prices *p, int servers, int64_t sequences,
                             int groups) {
  enum { STEPS = 12 };
  double more = p->weight.answers - p->weight.requests, n = (double)sequences, least = INFINITY;
  for (int k = 0; k < STEPS; k++) {
    double lower = n * pow(groups, -(double)(k + 1) / STEPS),
           upper = n * pow(groups, -(double)k / STEPS), all = 0, slowest = 0;
    for (int i = 0; i < p->count; i++) {
      all += answers_tick(p, &p->stages[i], lower, sequences);
      slowest = SLI_MAX(slowest, answers_tick(p, &p->stages[i], upper, sequences));
    }
    least = SLI_MIN(least, SLI_MAX(more / n * all, more / upper * slowest));
  }
  return least / servers;
}

double sl_session_prices_least(const sl_session_prices *p, sl_serving_part part, int servers,
                               int64_t rows, int64_t sequences, int groups) {
  double most = 0;
  if (p->session->options.cost) return 0;
  for (int i = 0; i < p->count; i++)
    most = SLI_MAX(most, stage_least(p, &p->stages[i], part, servers, rows, sequences));
  if (part == SL_SERVING_PROMPTS || p->count == 1) return most;
  return SLI_MAX(most, pipeline_least(p, servers, sequences, groups));
}

double sl_session_prices_tick(const sl_session_prices *p, int64_t sequences) {
  double seconds = 0;
  if (p->session->options.cost) return 0;
  for (int i = 0; i < p->count; i++)
    seconds += answers_tick(p, &p->stages[i], (double)sequences, sequences);
  return seconds;
}
