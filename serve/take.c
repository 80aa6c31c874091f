/* SPDX-License-Identifier: Apache-2.0 */
/* Results of a completed tick. */
#include <string.h>

#include "serve/serve.h"

static sl_session_event event_of(const request *r, const sl_sampled *x) {
  sl_session_event e = {.id = r->id,
                        .user = r->user,
                        .kind = SL_EVENT_TOKEN,
                        .place = r->count - r->nprompt,
                        .cached = r->cached,
                        .token = x->token,
                        .logprob = x->logprob,
                        .ntop = x->ntop,
                        .hash = (uint64_t)x->hash[1] << 32 | x->hash[0]};
  for (int i = 0; i < x->ntop; i++) e.top[i] = (sl_choice){x->top[i], x->top_logprob[i]};
  return e;
}

static void count_rows(sl_session *s, const part *p) {
  request *r = p->of;
  int64_t end = p->from + p->rows, again = SLI_MIN(end, r->computed) - p->from;
  s->stats.rows += (uint64_t)p->rows;
  s->stats.rows_prompt += (uint64_t)SLI_MAX(SLI_MIN(end, r->nprompt) - p->from, 0);
  s->stats.rows_again += (uint64_t)SLI_MAX(again, 0);
  r->computed = SLI_MAX(r->computed, end);
}

/* Finishes a cancellation or preemption once no tick of the request is under way. */
static void settle(sl_session *s, request *r) {
  if (r->cancelled) {
    sli_session_finish(s, r, SL_END_CANCELLED);
  } else if (r->standing == YIELDING) {
    r->standing = QUEUED;
    sli_pages_free(s, r);
  }
}

static void take_part(sl_session *s, const part *p, const sl_sampled *x) {
  request *r = p->of;
  r->ticks--;
  count_rows(s, p);
  bool delivered = p->picked && !r->cancelled && r->count < r->until;
  if (delivered && (!x->finite || r->stuck)) sli_session_finish(s, r, SL_END_FAILED);
  else if (!delivered || !sli_session_answer(s, r, event_of(r, x)))
    if (!r->ticks) settle(s, r);
}

/* Seconds of a tick that ran alone, from when there was work; includes choosing it and
 * delivering the results. */
static double seconds_waited(const sl_session *s) {
  return (double)(s->stats.last_tick_ns - s->stats.waiting_since_ns) * 1e-9;
}

/* Takes a tick's results; x is NULL if nothing was computed. */
static void take_tick(sl_session *s, const tick *t, const sl_sampled *x) {
  static const sl_sampled nothing = {.finite = 1};
  if (t->count) {
    s->stats.ticks++;
    s->stats.last_tick_ns = sli_now_ns();
    if (s->ticks.most == 1) sli_fit_note(&s->fit, &t->load, seconds_waited(s));
    s->stats.waiting_since_ns = s->stats.last_tick_ns;
  }
  for (int i = 0; i < t->count; i++) {
    const part *p = &t->parts[i];
    take_part(s, p, x ? x : &nothing);
    if (x) x += p->picked;
  }
  if (!s->requests) s->stats.waiting_since_ns = 0;
}

void sli_session_take(void *ctx, const char *name, const sl_type *type, const void *data) {
  (void)name, (void)type;
  sl_session *s = ctx;
  pthread_mutex_lock(&s->lock);
  take_tick(s, &s->ticks.of[s->ticks.back++ % (uint64_t)s->ticks.most], data);
  if (s->steps.ticks && s->ticks.back % (uint64_t)s->steps.ticks == 0)
    sli_session_end_step(s,
                         s->ticks.first + (int64_t)(s->ticks.back / (uint64_t)s->steps.ticks) - 1);
  pthread_cond_signal(&s->work);
  pthread_mutex_unlock(&s->lock);
}
