/* SPDX-License-Identifier: Apache-2.0 */
/* Requests: submission, cancellation, end, and the events about them. */
#include "base/memory.h"
#include "serve/serve.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

const char *sl_end_name(sl_end end) {
  static const char *const names[] = {
#define X(name, text) [SL_END_##name] = text,
      SL_END_TABLE(X)
#undef X
  };
  return (unsigned)end < SL_END_COUNT ? names[end] : "?";
}

/* ---- events -------------------------------------------------------------------------- */

static size_t unpolled(const sl_session *s) { return s->events.count - s->events.first; }

bool sli_session_is_behind(const sl_session *s) {
  return !s->simulator && !s->end.draining && unpolled(s) >= SL_SESSION_EVENTS;
}

/* Drops polled events before the array grows. Otherwise a reader that never drains it would make it
 * grow without bound. */
static void drop_polled(events *e) {
  if (!e->first || e->first < e->count / 2 || e->count < e->capacity) return;
  memmove(e->items, e->items + e->first, (e->count - e->first) * sizeof *e->items);
  e->count -= e->first;
  e->first = 0;
}

void sli_session_pass(sl_session *s, const sl_session_event *event) {
  if (s->simulator) {
    s->simulator->note(s->simulator, s, event);
    return;
  }
  if (s->steps.note) {
    s->steps.note(s->steps.ctx, event);
    return;
  }
  events *e = &s->events;
  if (!unpolled(s)) {
    e->first = e->count = 0;
    eventfd_write(s->wake, 1);
  }
  drop_polled(e);
  SLI_GROW(e->items, e->count, e->capacity);
  e->items[e->count++] = *event;
}

int sl_session_poll(sl_session *s, sl_session_event *out, int most) {
  pthread_mutex_lock(&s->lock);
  int n = (int)SLI_MIN(unpolled(s), (size_t)SLI_MAX(most, 0));
  if (n) memcpy(out, s->events.items + s->events.first, (size_t)n * sizeof *out);
  bool behind = sli_session_is_behind(s);
  s->events.first += (size_t)n;
  if (behind) pthread_cond_signal(&s->work);
  eventfd_t drop;
  if (n && !unpolled(s)) eventfd_read(s->wake, &drop);
  pthread_mutex_unlock(&s->lock);
  return n;
}

int sl_session_fd(const sl_session *s) { return s->wake; }

/* ---- end of a request ------------------------------------------------------------------- */

void sli_session_forget(request *r) {
  free(r->cache.pages);
  free(r->text.tokens);
  free(r->stop);
  free(r->sums);
  free(r->text.splice);
  free(r->text.rows);
  free(r->draft.hidden);
  sli_edits_free(r->edits);
  free(r);
}

static void count_end(sl_session *s, const request *r, sl_end end) {
  if (r->standing == RUNNING) s->stats.running--;
  else s->stats.queued--;
  s->stats.ended[end]++;
  if (s->requests) return;
  s->stats.waiting_since_ns = 0;
  pthread_cond_broadcast(&s->idle);
}

void sli_session_finish(sl_session *s, request *r, sl_end end) {
  request **at = &s->requests;
  while (*at != r) at = &(*at)->next;
  *at = r->next;
  sli_pages_free(s, r);
  sli_adapters_leave(s, r);
  if (s->speculation.drafter) s->speculation.drafter->leave(s, r);
  sli_session_pass(s,
                   &(sl_session_event){.id = r->id,
                                       .user = r->user,
                                       .kind = SL_EVENT_END,
                                       .end = end,
                                       .place = r->text.count - r->text.prompt,
                                       .cached = SLI_MAX(r->cache.cached - s->serving.sinks, 0)});
  count_end(s, r, end);
  sli_session_forget(r);
}

void sli_session_finish_all(sl_session *s, sl_end end) {
  while (s->requests) sli_session_finish(s, s->requests, end);
}

static bool is_stop(const request *r, int32_t token) {
  for (int i = 0; i < r->how.nstop; i++)
    if (r->stop[i] == token) return true;
  return false;
}

/* Passes a token to the request's constraint. Returns whether the answer is complete. */
static bool is_complete(const request *r, int32_t token) {
  const sl_constraint *c = &r->how.constraint;
  return c->allow && c->take && c->take(c->ctx, token);
}

bool sli_session_answer(sl_session *s, request *r, sl_session_event event) {
  SLI_GROW(r->text.tokens, (size_t)r->text.count, r->text.capacity);
  r->text.tokens[r->text.count++] = event.token;
  if (r->edits) sli_edits_note(r->edits, event.token);
  s->stats.tokens++;
  sli_session_pass(s, &event);
  bool stops = is_stop(r, event.token) || is_complete(r, event.token),
       ends = stops || r->text.count >= r->text.most;
  if (ends) sli_session_finish(s, r, stops ? SL_END_STOP : SL_END_LENGTH);
  return ends;
}

/* ---- submission --------------------------------------------------------------------------- */

static sl_status check_tokens(const sl_session *s, const sl_request *request) {
  const sl_session_info *a = &s->about;
  if (!request->prompt || request->nprompt < 1)
    return sl_fail(SL_E_USAGE, "the prompt is empty: at least one token is needed");
  if (request->nprompt > a->context)
    return sl_fail(SL_E_USAGE, "the prompt has %lld tokens, more than the context of %lld",
                   (long long)request->nprompt, (long long)a->context);
  for (int64_t i = 0; i < request->nprompt; i++)
    if (request->prompt[i] < 0 || request->prompt[i] >= a->vocabulary)
      return sl_fail(SL_E_USAGE,
                     "token %lld of the prompt is %d, but the vocabulary has %lld tokens",
                     (long long)i, request->prompt[i], (long long)a->vocabulary);
  return SL_OK;
}

static sl_status check_bias(const sl_session *s, const sl_bias *b) {
  if (b->token < 0 || b->token >= s->about.vocabulary)
    return sl_fail(SL_E_USAGE, "the bias for token %d: the vocabulary has only %lld tokens",
                   b->token, (long long)s->about.vocabulary);
  return isnan(b->bias) || (isinf(b->bias) && b->bias > 0)
             ? sl_fail(SL_E_USAGE, "the bias for token %d is %g: it must be finite or -inf",
                       b->token, (double)b->bias)
             : SL_OK;
}

static bool has_penalties(const sl_request *request) {
  return request->nbias || request->min_tokens || request->presence_penalty != 0 ||
         request->frequency_penalty != 0 ||
         (request->repetition_penalty != 0 && request->repetition_penalty != 1);
}

static sl_status check_penalties(const sl_session *s, const sl_request *request) {
  if (has_penalties(request) && !s->options.penalties)
    return sl_fail(SL_E_USAGE,
                   "the request has penalties or biases, which this session does not support");
  if (!isfinite(request->presence_penalty) || !isfinite(request->frequency_penalty))
    return sl_fail(SL_E_USAGE,
                   "presence_penalty is %g and frequency_penalty %g: both must be finite",
                   (double)request->presence_penalty, (double)request->frequency_penalty);
  if (!(request->repetition_penalty >= 0) || isinf(request->repetition_penalty))
    return sl_fail(SL_E_USAGE, "repetition_penalty is %g: it must be positive and finite",
                   (double)request->repetition_penalty);
  if (request->min_tokens < 0 || request->min_tokens > request->max_tokens)
    return sl_fail(SL_E_USAGE, "min_tokens is %lld: it must be from 0 to max_tokens, %lld",
                   (long long)request->min_tokens, (long long)request->max_tokens);
  if (request->nbias < 0 || (request->nbias && !request->bias) ||
      request->nbias + request->nstop > SL_SESSION_BIASES)
    return sl_fail(SL_E_USAGE, "%d biases and %d stop tokens: at most %d are allowed together",
                   request->nbias, request->nstop, SL_SESSION_BIASES);
  sl_status status = SL_OK;
  for (int i = 0; i < request->nbias && !status; i++) status = check_bias(s, &request->bias[i]);
  return status;
}

static sl_status check_settings(const sl_request *request) {
  if (request->max_tokens < 1)
    return sl_fail(SL_E_USAGE, "max_tokens is %lld: it must be positive",
                   (long long)request->max_tokens);
  if (!(request->temperature >= 0) || isinf(request->temperature))
    return sl_fail(SL_E_USAGE, "temperature is %g: it must be 0 or more",
                   (double)request->temperature);
  if (!(request->top_p >= 0 && request->top_p <= 1))
    return sl_fail(SL_E_USAGE, "top_p is %g: it must be from 0 to 1", (double)request->top_p);
  if (!(request->min_p >= 0 && request->min_p <= 1))
    return sl_fail(SL_E_USAGE, "min_p is %g: it must be from 0 to 1", (double)request->min_p);
  if (request->top_k < 0)
    return sl_fail(SL_E_USAGE, "top_k is %d: it must be 0 or more", request->top_k);
  if (request->logprobs > SL_SESSION_TOP)
    return sl_fail(SL_E_USAGE, "logprobs is %d: it must be at most %d", request->logprobs,
                   SL_SESSION_TOP);
  if (request->nstop < 0 || (request->nstop && !request->stop))
    return sl_fail(SL_E_USAGE, "the number of stop tokens is %d: it must be 0 or more",
                   request->nstop);
  return SL_OK;
}

int64_t sli_session_positions(const sl_session *s) { return s->serving.sinks + s->about.context; }

request *sli_session_make(const sl_session *s, const sl_request *q) {
  request *r = sli_calloc(1, sizeof *r);
  int64_t sinks = s->serving.sinks, prompt = sinks + q->nprompt, most = sli_session_positions(s);
  *r = (request){.cache.slot = -1,
                 .cache.resumes = -1,
                 .progress.stuck = -1,
                 .cache.known = INT64_MAX,
                 .cache.goal = INT64_MAX,
                 .user = q->user,
                 .text.prompt = prompt,
                 .progress.reported = sinks + 1,
                 .how = *q,
                 .text.count = prompt,
                 .text.capacity = (size_t)prompt,
                 .text.most = q->max_tokens > most - prompt ? most : prompt + q->max_tokens};
  r->cache.pages = sli_calloc((size_t)sli_pages_of(r->text.most), sizeof *r->cache.pages);
  r->text.tokens = sli_calloc(r->text.capacity, sizeof *r->text.tokens);
  for (int64_t i = 0; i < sinks; i++) r->text.tokens[i] = s->serving.sink + (int32_t)i;
  memcpy(r->text.tokens + sinks, q->prompt, (size_t)q->nprompt * sizeof *r->text.tokens);
  r->stop = sli_calloc((size_t)SLI_MAX(q->nstop, 1), sizeof *r->stop);
  if (q->nstop) memcpy(r->stop, q->stop, (size_t)q->nstop * sizeof *r->stop);
  r->edits = sli_edits_create(q);
  if (q->embedding) r->sums = sli_calloc((size_t)s->about.width, sizeof *r->sums);
  return r;
}

/* Checks that the session accepts a request now. */
static sl_status check_now(const sl_session *s, const sl_request *request) {
  if (s->end.status) return sl_fail(s->end.status, "%s", s->end.detail);
  sl_status status = sli_adapters_check(s, request->adapter);
  if (status) return status;
  if (s->end.draining || s->end.closing)
    return sl_fail(SL_E_BUSY, "the session accepts no more requests");
  if (s->stats.queued < s->stats.limits.queue) return SL_OK;
  return sl_fail(SL_E_BUSY, "the queue is full: %d requests are waiting", s->stats.queued);
}

/* Finds the turn of a request: after the tokens of its client's other requests, and not before that
 * of any request that was admitted. Clients therefore get equal numbers of tokens while they wait
 * for each other, and a client alone keeps its order. */
static double find_turn(const sl_session *s, const request *r) {
  double turn = s->turn;
  for (const request *x = s->requests; x; x = x->next)
    if (x->how.client == r->how.client) turn = SLI_MAX(turn, x->turn + (double)x->text.most);
  return turn;
}

uint64_t sli_session_queue(sl_session *s, request *r) {
  request **at = &s->requests;
  r->turn = find_turn(s, r);
  while (*at && ((*at)->standing != QUEUED || (*at)->turn <= r->turn)) at = &(*at)->next;
  if (!s->requests) s->stats.waiting_since_ns = sli_now_ns();
  r->next = *at;
  *at = r;
  s->stats.queued++;
  pthread_cond_signal(&s->work);
  r->id = ++s->last_id;
  r->step = s->ticks.step;
  r->how.salt = sli_adapters_use(s, r);
  r->text.until = sli_log_until(s, r->id);
  return r->id;
}

sl_status sli_session_check(const sl_session *s, const sl_request *request) {
  sl_status status = check_tokens(s, request);
  if (!status && request->constraint.allow && !s->serving.allow)
    return sl_fail(SL_E_USAGE, "the request has a constraint, which this session does not support");
  if (!status && request->constraint.allow && request->scored)
    return sl_fail(SL_E_USAGE, "a request whose prompt is scored cannot have a constraint");
  if (!status && request->scored && s->serving.prompt_blocks.chunk > s->serving.picks)
    return sl_fail(
        SL_E_USAGE,
        "a prompt is scored in chunks of %lld tokens, but ticks have room for %d scores: "
        "sequences must be at least %lld",
        (long long)s->serving.prompt_blocks.chunk, s->serving.picks,
        (long long)s->serving.prompt_blocks.chunk);
  if (!status && request->embedding && !s->about.width)
    return sl_fail(SL_E_USAGE,
                   "the request asks for an embedding, which this session does not make");
  if (!status) status = check_settings(request);
  return status ? status : check_penalties(s, request);
}

sl_status sli_session_enter(sl_session *s, const sl_request *request, int64_t brought,
                            uint64_t *id) {
  sl_status status = check_now(s, request);
  if (status) return status;
  struct request *r = sli_session_make(s, request);
  if (brought) r->cache.brought = s->serving.sinks + brought;
  *id = sli_session_queue(s, r);
  return SL_OK;
}

sl_status sli_session_may_submit(const sl_session *s, const sl_request *request) {
  SLI_TRY(sli_memory_check());
  if (s->options.lower.parallel.processes > 1 && s->options.job && sl_job_process(s->options.job))
    return sl_fail(SL_E_USAGE, "requests must be submitted to process 0");
  return sli_session_check(s, request);
}

sl_status sli_session_append(sl_session *s, request *r, uint64_t *id) {
  pthread_mutex_lock(&s->lock);
  sl_status status = sli_memory_check();
  if (!status) status = check_now(s, &r->how);
  if (!status) *id = sli_session_queue(s, r);
  pthread_mutex_unlock(&s->lock);
  if (status) sli_session_forget(r);
  return status;
}

sl_status sl_session_submit(sl_session *s, const sl_request *request, uint64_t *id) {
  SLI_TRY(sli_session_may_submit(s, request));
  return sli_session_append(s, sli_session_make(s, request), id);
}

void sli_session_hang_up(sl_session *s, request *r) {
  if (r->cancelled) return;
  sli_log_cancel(s, r);
  r->cancelled = true;
  if (!r->progress.ticks) sli_session_finish(s, r, SL_END_CANCELLED);
}

void sli_session_end_step(sl_session *s, int64_t step) {
  for (request *r = s->requests, *next; r; r = next) {
    next = r->next;
    if (r->step <= step) sli_session_hang_up(s, r);
  }
}

void sli_session_end_unwanted(sl_session *s) {
  for (request *r = s->requests, *next; r; r = next) {
    next = r->next;
    if (r->unwanted) sli_session_hang_up(s, r);
  }
}

void sl_session_cancel(sl_session *s, uint64_t id) {
  pthread_mutex_lock(&s->lock);
  request *r = s->requests;
  while (r && r->id != id) r = r->next;
  if (r) r->unwanted = true;
  if (!s->log.from) sli_session_end_unwanted(s);
  pthread_cond_signal(&s->work);
  pthread_mutex_unlock(&s->lock);
}

/* ---- status ------------------------------------------------------------------------------- */

static uint64_t counted(const uint64_t *counter) {
  return __atomic_load_n(counter, __ATOMIC_RELAXED);
}

sl_session_stats sl_session_stat(const sl_session *s) {
  sl_session *open = (sl_session *)s; /* const except for the lock */
  pthread_mutex_lock(&open->lock);
  sl_session_stats stats = s->stats;
  stats.events = (int)unpolled(s);
  pthread_mutex_unlock(&open->lock);
  const sl_expert_reads *reads = &s->reads.experts;
  stats.experts = (sl_expert_reads){.wanted = counted(&reads->wanted),
                                    .read = counted(&reads->read),
                                    .bytes = counted(&reads->bytes),
                                    .guessed = counted(&reads->guessed),
                                    .guessed_bytes = counted(&reads->guessed_bytes),
                                    .right = counted(&reads->right),
                                    .right_bytes = counted(&reads->right_bytes)};
  stats.tables = (sl_row_reads){counted(&s->reads.rows.rows), counted(&s->reads.rows.bytes)};
  stats.choices =
      (sl_block_choices){counted(&s->reads.blocks.heads), counted(&s->reads.blocks.recall)};
  stats.replayed = s->about.rt ? sl_runtime_replayed(s->about.rt) : 0;
  return stats;
}

static sl_tick_cost cost_of(const sl_session *s, bool corners) {
  sl_session *open = (sl_session *)s;
  pthread_mutex_lock(&open->lock);
  sl_tick_cost cost = sli_fit_cost(&s->prices.fit, corners);
  pthread_mutex_unlock(&open->lock);
  return cost;
}

sl_tick_cost sl_session_cost(const sl_session *s) { return cost_of(s, false); }

sl_tick_cost sl_session_corners(const sl_session *s) { return cost_of(s, true); }

sl_status sl_session_status(const sl_session *s) {
  sl_session *open = (sl_session *)s;
  pthread_mutex_lock(&open->lock);
  sl_status status = s->end.status ? sl_fail(s->end.status, "%s", s->end.detail) : SL_OK;
  pthread_mutex_unlock(&open->lock);
  return status;
}

static struct timespec moment(double seconds) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  double whole = floor(seconds);
  t.tv_sec += (time_t)whole;
  t.tv_nsec += (long)((seconds - whole) * 1e9);
  if (t.tv_nsec >= 1000000000) t.tv_sec++, t.tv_nsec -= 1000000000;
  return t;
}

sl_status sl_session_drain(sl_session *s, double seconds) {
  enum { LONG = 1000000000 };
  struct timespec until = moment(SLI_MIN(SLI_MAX(seconds, 0), LONG));
  int late = 0;
  pthread_mutex_lock(&s->lock);
  s->end.draining = true;
  pthread_cond_signal(&s->work);
  while (s->requests && late != ETIMEDOUT)
    late = seconds < 0 ? pthread_cond_wait(&s->idle, &s->lock)
                       : pthread_cond_timedwait(&s->idle, &s->lock, &until);
  bool done = !s->requests;
  pthread_mutex_unlock(&s->lock);
  return done ? SL_OK : sl_fail(SL_E_STOPPED, "not all requests have ended in time");
}
