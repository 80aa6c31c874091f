/* SPDX-License-Identifier: Apache-2.0 */
/* Processes the results of a completed tick. */
#include <string.h>

#include "serve/serve.h"

static sl_session_event event_of(const sl_session *s, const request *r, const sl_sampled *x) {
  sl_session_event e = {.id = r->id,
                        .user = r->user,
                        .kind = SL_EVENT_TOKEN,
                        .place = r->text.count - r->text.prompt,
                        .cached = SLI_MAX(r->cache.cached - s->serving.sinks, 0),
                        .token = x->token,
                        .logprob = x->logprob,
                        .ntop = x->ntop,
                        .hash = (uint64_t)x->hash[1] << 32 | x->hash[0]};
  for (int i = 0; i < x->ntop; i++) e.top[i] = (sl_choice){x->top[i], x->top_logprob[i]};
  return e;
}

static void count_rows(sl_session *s, const part *p) {
  request *r = p->request;
  int64_t end = p->from + p->rows - p->drafted,
          again = SLI_MIN(end, r->progress.computed) - p->from;
  s->stats.rows += (uint64_t)p->rows;
  s->stats.rows_prompt += (uint64_t)SLI_MAX(SLI_MIN(end, r->text.prompt) - p->from, 0);
  s->stats.rows_again += (uint64_t)SLI_MAX(again, 0);
  r->progress.computed = SLI_MAX(r->progress.computed, end);
}

/* Counts the leading drafted tokens of a part that match the model's choice. */
static int count_right(const part *p, const sl_sampled *x) {
  int n = 0;
  while (n < p->drafted && x[n].finite && x[n].token == p->request->draft.tokens[n]) n++;
  return n;
}

/* Counts drafted rows that were right as computed; the next tick recomputes the rest. */
static void keep_right(sl_session *s, request *r, int right) {
  sli_drafts_note(s, r, right);
  r->draft.count = 0;
  r->progress.computed += right;
  r->progress.fed = SLI_MIN(r->progress.fed, r->text.count + right);
}

/* Delivers the tokens of a part: the one after its last known token, and one after each drafted
 * token that was right. Returns whether the request has ended. */
static bool take_tokens(sl_session *s, const part *p, const sl_sampled *x) {
  request *r = p->request;
  int right = count_right(p, x);
  if (p->drafted) keep_right(s, r, right);
  for (int i = 0; i <= right && r->text.count < r->text.until; i++) {
    bool fails = !x[i].finite || r->progress.stuck == r->text.count;
    if (fails) sli_session_finish(s, r, SL_END_FAILED);
    s->stats.accepted += i > 0;
    if (fails || sli_session_answer(s, r, event_of(s, r, &x[i]))) return true;
  }
  return false;
}

/* Completes a cancellation or preemption once no tick of the request is in flight. */
static void settle(sl_session *s, request *r) {
  if (r->cancelled) {
    sli_session_finish(s, r, SL_END_CANCELLED);
  } else if (r->standing == YIELDING) {
    r->standing = QUEUED;
    sli_pages_free(s, r);
  }
}

/* Reports the tokens of a scored prompt that follow the part's rows. Returns whether the request
 * has ended, because a logit is not finite. */
static bool take_scored(sl_session *s, const part *p, const sl_sampled *x) {
  request *r = p->request;
  for (int i = 0; i < p->scored; i++) {
    if (p->from + i + 1 != r->progress.reported) continue; /* recomputed */
    sl_session_event e = event_of(s, r, &x[i]);
    e.kind = SL_EVENT_PROMPT;
    e.place = r->progress.reported++ - s->serving.sinks;
    if (!x[i].finite) {
      sli_session_finish(s, r, SL_END_FAILED);
      return true;
    }
    sli_session_pass(s, &e);
  }
  return false;
}

static void take_part(sl_session *s, const part *p, const sl_sampled *x, bool modelled) {
  request *r = p->request;
  r->progress.ticks--;
  count_rows(s, p);
  bool ended = !modelled && !r->cancelled && take_scored(s, p, x);
  ended = ended || (p->picked && !r->cancelled && take_tokens(s, p, modelled ? x : x + p->scored));
  if (!ended && !r->progress.ticks) settle(s, r);
}

/* Returns the seconds of a tick that ran alone, measured from when work arrived; includes
 * scheduling and delivery of results. */
static double seconds_waited(const sl_session *s) {
  return (double)(s->stats.last_tick_ns - s->stats.waiting_since_ns) * 1e-9;
}

/* Processes a tick's results; x is NULL if nothing was computed. */
static void take_tick(sl_session *s, const tick *t, const sl_sampled *x) {
  static const sl_sampled nothing = {.finite = 1};
  if (t->count) {
    s->stats.ticks++;
    s->stats.last_tick_ns = sli_now_ns();
    double seconds = seconds_waited(s) - t->drafting;
    if (s->ticks.most == 1) sli_fit_note(&s->prices.fit, &t->load, seconds);
    if (t->load.rows == t->load.picks)
      sli_drafts_time(&s->speculation.drafts, t->load.rows, seconds);
    s->stats.waiting_since_ns = s->stats.last_tick_ns;
  }
  for (int i = 0; i < t->count; i++) {
    const part *p = &t->parts[i];
    take_part(s, p, x ? x : &nothing, !x);
    if (x) x += p->scored + (p->picked ? p->drafted + 1 : 0);
  }
  if (!s->requests) s->stats.waiting_since_ns = 0;
}

/* ---- hidden states --------------------------------------------------------------------------- */

/* Adds the hidden states of a part's rows in order, so that the sums do not depend on how rows are
 * split into ticks. */
static void add_states(const sl_session *s, const part *p, const float *rows) {
  const request *r = p->request;
  int64_t width = s->about.width, sinks = s->serving.sinks;
  if (!p->from) memset(r->sums, 0, (size_t)width * sizeof *r->sums); /* also when recomputed */
  for (int64_t i = 0; i < SLI_MIN(p->rows, r->text.prompt - p->from); i++, rows += width) {
    bool last = p->from + i == r->text.prompt - 1;
    if (p->from + i < sinks) continue;
    for (int64_t k = 0; k < width && (last || !r->how.last); k++) r->sums[k] += (double)rows[k];
    for (int64_t k = 0; k < width && last; k++)
      r->how.embedding[k] =
          (float)(r->sums[k] / (r->how.last ? 1 : (double)(r->text.prompt - sinks)));
  }
}

static void take_hidden(const sl_session *s, const tick *t, const float *rows) {
  for (int i = 0; i < t->count && rows; i++) {
    const part *p = &t->parts[i];
    for (int64_t k = 0; k < p->rows; k++)
      sli_mirror_hidden(s, p->request, p->from + k, rows + k * s->about.width);
    if (p->request->sums && !p->request->cancelled && p->request->standing == RUNNING)
      add_states(s, p, rows);
    rows += p->rows * s->about.width;
  }
}

static tick *tick_at(const sl_session *s, uint64_t number) {
  return &s->ticks.ring[number % (uint64_t)s->ticks.most];
}

/* Processes one output of a tick. A tick is complete when all its outputs have arrived, in any
 * order. Returns the results of a tick that is now complete, else `none`. */
static const void *take_output(sl_session *s, const char *name, const void *data,
                               const void *none) {
  bool sampled = !strcmp(name, "sampled");
  uint64_t number = sampled ? s->ticks.sampled++ : s->ticks.hidden++;
  tick *t = tick_at(s, number);
  if (!sampled) take_hidden(s, t, data);
  if (!s->serving.hidden) return data;
  if (sampled && s->ticks.hidden > number) return data;
  if (sampled && data) memcpy(t->sampled, data, (size_t)s->serving.picks * sizeof *t->sampled);
  return !sampled && s->ticks.sampled > number ? t->sampled : none;
}

void sli_session_take(void *ctx, const char *name, const sl_type *type, const void *data) {
  static const char none;
  (void)type;
  sl_session *s = ctx;
  pthread_mutex_lock(&s->lock);
  const void *results = take_output(s, name, data, &none);
  if (results == &none) {
    pthread_mutex_unlock(&s->lock);
    return;
  }
  take_tick(s, tick_at(s, s->ticks.back++), results);
  if (s->steps.ticks && s->ticks.back % (uint64_t)s->steps.ticks == 0)
    sli_session_end_step(s,
                         s->ticks.first + (int64_t)(s->ticks.back / (uint64_t)s->steps.ticks) - 1);
  pthread_cond_signal(&s->work);
  if (s->paused) pthread_cond_broadcast(&s->idle);
  pthread_mutex_unlock(&s->lock);
}
