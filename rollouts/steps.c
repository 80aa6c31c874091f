/* SPDX-License-Identifier: Apache-2.0 */
/* Steps: prompts, answers and rewards. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/monotonic.h"
#include "rollouts/rollouts.h"

static sli_rollout_step *step_at(sl_rollouts *r, int64_t step) { return &r->steps[step % r->kept]; }

/* ---- prompts ------------------------------------------------------------------------------- */

/* Returns a seed specific to this row of this step. */
static uint64_t seed_of(const sl_rollouts *r, int64_t step, int row) {
  uint64_t parts[3] = {r->options.seed, (uint64_t)step, (uint64_t)row};
  return sli_hash(SLI_HASH_SEED, parts, sizeof parts);
}

/* Submits a device's row of a step; `first` is the first step of its rollout. */
static sl_status submit(const sli_rollout_device *d, int64_t first, int64_t step, int row,
                        uint64_t *id) {
  const sl_rollouts_options *o = &d->rollouts->options;
  const sl_prompt *p = &o->prompts[sli_rollouts_prompt(d->rollouts, step, row)];
  const sl_request request = {.prompt = p->tokens,
                              .nprompt = p->count,
                              .max_tokens = o->max_tokens,
                              .temperature = sli_policy_temperature(o) > 0 ? 1 : o->temperature,
                              .top_p = o->top_p,
                              .seed = seed_of(d->rollouts, step, row),
                              .stop = o->stop,
                              .nstop = o->nstop,
                              .salt = (uint64_t)first};
  return d->rollouts->rows_of_prompt ? sli_rollouts_submit(d, p, row, &request, id)
                                     : sl_session_submit(d->session, &request, id);
}

/* Submits a device's requests of a rollout. */
static sl_status submit_all(const sli_rollout_device *d, sli_rollout_begun *b) {
  for (int64_t i = 0; i < b->steps * d->count; i++) {
    uint64_t id;
    SLI_TRY(submit(d, b->step, b->step + i / d->count, d->first + (int)(i % d->count), &id));
    if (!i) b->first_id = id;
  }
  return SL_OK;
}

/* Reuses a step's slot for another step, when the first device begins that step. */
static void renew(const sl_rollouts *r, sli_rollout_step *s, int64_t step) {
  sli_rollout *rows = s->rows;
  if (s->step == step) return;
  *s = (sli_rollout_step){.step = step, .rows = rows, .begun_ns = sli_now_ns()};
  for (int i = 0; i < r->options.batch; i++) {
    sli_rollout *x = &rows[i];
    *x = (sli_rollout){.prompt = sli_rollouts_prompt(r, step, i),
                       .tokens = x->tokens,
                       .capacity = x->capacity,
                       .logprobs = x->logprobs,
                       .logprobs_capacity = x->logprobs_capacity};
  }
}

/* Returns the slot of the device's rollout that contains a step. */
static sli_rollout_begun *begun_for(const sli_rollout_device *d, int64_t step) {
  return &d->begun[step / d->rollouts->options.updates % d->rollouts->kept];
}

static bool answers(const sli_rollout_begun *b, int64_t step) {
  return step >= b->step && step < b->step + b->steps;
}

/* Begins a rollout for this step and the following ones up to the next rollout. Submits without
 * holding the lock: the session's callbacks take it while they hold the session's lock. No answer
 * arrives before the next tick. */
void sli_rollouts_begin(void *ctx, int64_t step) {
  sli_rollout_device *d = ctx;
  sl_rollouts *r = d->rollouts;
  sli_rollout_begun *at = begun_for(d, step), b = {.step = step};
  if (answers(at, step)) return;
  b.steps = r->options.updates - step % r->options.updates;
  b.rows_before = sl_session_stat(d->session).rows;
  sl_status status = submit_all(d, &b);
  pthread_mutex_lock(&r->lock);
  for (int64_t i = 0; i < b.steps; i++) renew(r, step_at(r, step + i), step + i);
  *at = b;
  pthread_mutex_unlock(&r->lock);
  if (status) sl_rollouts_fail(r, status, sl_detail());
}

/* ---- answers ------------------------------------------------------------------------------- */

static sl_answer answer_of(const sl_rollouts *r, const sli_rollout_step *s, int row) {
  const sli_rollout *x = &s->rows[row];
  return (sl_answer){.id = (uint64_t)(s->step * r->options.batch + row),
                     .step = s->step,
                     .prompt = x->prompt,
                     .row = row,
                     .member = row % r->options.group,
                     .tokens = x->tokens,
                     .logprobs = x->logprobs,
                     .count = (int64_t)x->count,
                     .truncated = x->truncated};
}

/* Finds the step and row of a device's request. Returns NULL if its step is not kept. */
static sli_rollout_step *find(const sli_rollout_device *d, uint64_t id, int *row) {
  for (int i = 0; i < d->rollouts->kept; i++) {
    const sli_rollout_begun *b = &d->begun[i];
    uint64_t at = id - b->first_id, count = (uint64_t)d->count;
    if (!b->steps || id < b->first_id || at >= (uint64_t)b->steps * count) continue;
    *row = d->first + (int)(at % count);
    return step_at(d->rollouts, b->step + (int64_t)(at / count));
  }
  return NULL;
}

static void add_token(sli_rollout *x, const sl_session_event *e) {
  SLI_GROW(x->tokens, x->count, x->capacity);
  x->tokens[x->count++] = e->token;
  SLI_GROW(x->logprobs, x->nlogprobs, x->logprobs_capacity);
  x->logprobs[x->nlogprobs++] = e->logprob;
}

static sl_answer end_answer(const sl_rollouts *r, sli_rollout_step *s, int row, sl_end end) {
  s->rows[row].ended = true;
  s->rows[row].truncated = end != SL_END_STOP;
  if (++s->ended == r->options.batch) s->answered_ns = sli_now_ns();
  return answer_of(r, s, row);
}

void sli_rollouts_note(void *ctx, const sl_session_event *e) {
  const sli_rollout_device *d = ctx;
  sl_rollouts *r = d->rollouts;
  sl_answer answer = {0};
  int row = 0;
  pthread_mutex_lock(&r->lock);
  sli_rollout_step *s = find(d, e->id, &row);
  SLI_CHECK(s, "answer %llu belongs to no step", (unsigned long long)e->id);
  if (e->kind == SL_EVENT_TOKEN) add_token(&s->rows[row], e);
  else answer = end_answer(r, s, row, e->end);
  pthread_mutex_unlock(&r->lock);
  if (e->kind == SL_EVENT_TOKEN) return;
  if (e->end == SL_END_FAILED)
    sl_rollouts_fail(r, SL_E_NUMERIC, "rollouts: the model's logits are not finite");
  else if (r->options.answered) r->options.answered(r->options.ctx, &answer);
  else sl_rollouts_reward(r, answer.id, 0);
}

/* ---- rewards ------------------------------------------------------------------------------- */

/* Computes the advantages of a group. */
static void compare_group(sli_rollout *of, int n, sl_rollouts_report *report) {
  double rewards[n], advantages[n];
  for (int i = 0; i < n; i++) rewards[i] = of[i].reward;
  report->flat += sl_grpo_advantages(n, rewards, advantages) == 0;
  for (int i = 0; i < n; i++) of[i].advantage = advantages[i];
}

static void count_answers(const sl_rollouts *r, const sli_rollout_step *s, sl_rollouts_report *to) {
  double sum = 0, squares = 0, length = 0, surprise = 0;
  int n = 0;
  for (int i = 0; i < r->options.batch; i++) {
    const sli_rollout *x = &s->rows[i];
    for (size_t t = 0; t < x->nlogprobs; t++) surprise -= (double)x->logprobs[t];
    to->dropped += isnan(x->reward);
    to->truncated += x->truncated;
    length += (double)x->count;
    if (!isnan(x->reward)) sum += x->reward, n++;
  }
  to->answers = (int)r->options.batch;
  to->length = length / to->answers;
  to->entropy = surprise / fmax(length, 1);
  to->reward = n ? sum / n : NAN;
  for (int i = 0; i < r->options.batch; i++) {
    double off = s->rows[i].reward - to->reward;
    if (!isnan(off)) squares += off * off;
  }
  to->reward_std = n > 1 ? sqrt(squares / (n - 1)) : 0;
}

static void tell(const sl_rollouts *r, const sli_rollout_step *s) {
  const sl_rollouts_options *o = &r->options;
  size_t n = (size_t)o->batch;
  sl_answer *answers = sli_calloc(n, sizeof *answers);
  double *numbers = sli_calloc(2 * n, sizeof *numbers);
  for (size_t i = 0; i < n; i++) {
    answers[i] = answer_of(r, s, (int)i);
    numbers[i] = s->rows[i].reward, numbers[n + i] = s->rows[i].advantage;
  }
  o->rewarded(o->ctx, &s->report, (int)n, answers, numbers, numbers + n);
  free(answers);
  free(numbers);
}

/* Computes a step's advantages and report once all rewards have arrived. */
static void judge(const sl_rollouts *r, sli_rollout_step *s, int64_t rows) {
  const sl_rollouts_options *o = &r->options;
  sl_rollouts_report *to = &s->report;
  uint64_t now = sli_now_ns();
  *to = (sl_rollouts_report){.step = s->step,
                             .rows = rows,
                             .answer_seconds = (double)(s->answered_ns - s->begun_ns) * 1e-9,
                             .reward_seconds = (double)(now - s->answered_ns) * 1e-9};
  for (int i = 0; i < o->batch; i += o->group) compare_group(&s->rows[i], o->group, to);
  to->flat /= (double)(o->batch / o->group);
  count_answers(r, s, to);
  for (int i = 0; i < o->batch; i++)
    if (!isnan(s->rows[i].reward)) s->tokens += (int64_t)s->rows[i].count;
  s->known = true;
  if (o->rewarded) tell(r, s);
}

void sl_rollouts_reward(sl_rollouts *r, uint64_t id, double reward) {
  int64_t step = (int64_t)id / r->options.batch, row = (int64_t)id % r->options.batch;
  pthread_mutex_lock(&r->lock);
  sli_rollout_step *s = step_at(r, step);
  if (s->step == step && !s->rows[row].rewarded) {
    s->rows[row].rewarded = true;
    s->rows[row].reward = reward;
    s->rewarded++;
    pthread_cond_broadcast(&r->changed);
  }
  pthread_mutex_unlock(&r->lock);
}

void sl_rollouts_fail(sl_rollouts *r, sl_status status, const char *why) {
  pthread_mutex_lock(&r->lock);
  sl_runtime *rt = r->failed ? NULL : r->rt;
  r->failed = true;
  pthread_cond_broadcast(&r->changed);
  pthread_mutex_unlock(&r->lock);
  if (rt) sl_runtime_abort(rt, status, why);
}

/* Returns the rows that the devices have computed since a rollout began, if `step` is its first
 * step. Call without the lock: session callbacks take it while they hold the session's lock. */
static int64_t rows_since(const sl_rollouts *r, int64_t step) {
  uint64_t rows = 0;
  for (int i = 0; i < r->options.devices; i++) {
    const sli_rollout_device *d = &r->devices[i];
    const sli_rollout_begun *b = begun_for(d, step);
    if (b->step == step) rows += sl_session_stat(d->session).rows - b->rows_before;
  }
  return (int64_t)rows;
}

const sli_rollout_step *sli_rollouts_wait(sl_rollouts *r, int64_t step) {
  sli_rollout_step *s = step_at(r, step);
  pthread_mutex_lock(&r->lock);
  while (!r->failed && s->rewarded < r->options.batch && !sl_runtime_aborted(r->rt))
    sli_cond_wait_a_while(&r->changed, &r->lock);
  bool whole = s->rewarded == r->options.batch;
  pthread_mutex_unlock(&r->lock);
  int64_t rows = rows_since(r, step);
  pthread_mutex_lock(&r->lock);
  if (whole && !s->known) judge(r, s, rows);
  pthread_mutex_unlock(&r->lock);
  return whole ? s : NULL;
}

bool sl_rollouts_about(sl_rollouts *r, int64_t step, sl_rollouts_report *out) {
  pthread_mutex_lock(&r->lock);
  const sli_rollout_step *s = step_at(r, step);
  bool known = s->step == step && s->known;
  if (known) *out = s->report;
  pthread_mutex_unlock(&r->lock);
  return known;
}
