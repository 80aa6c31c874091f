/* A session: graph, plan, and the thread that runs it. */
#include "serve/serve.h"

#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "graph/graph.h"

/* Fills the row with the request's tokens from its start; what stands behind the last one cannot be
 * seen from there. */
static void feed(void *ctx, const sl_tick *tick, int32_t *tokens, int64_t count) {
  (void)tick;
  sl_session *s = ctx;
  const request *r = s->served.of;
  memset(tokens, 0, (size_t)count * sizeof *tokens);
  if (r) memcpy(tokens, r->tokens, r->count * sizeof *tokens);
  s->served.row = r ? (int64_t)r->count - 1 : 0;
}

static void take_output(void *ctx, const char *name, const sl_type *type, const void *data) {
  sl_session *s = ctx;
  if (strcmp(name, "logits") || s->served.row >= sl_type_rows(type)) return;
  memcpy(s->served.logits, (const float *)data + s->served.row * s->about.vocabulary,
         (size_t)s->about.vocabulary * sizeof(float));
  s->served.answered = true;
}

/* ---- the thread ------------------------------------------------------------------------ */

/* The next in turn; waits while there is none. NULL: the session is to end. */
static request *take_turn(sl_session *s) {
  while (!s->requests && !s->closing) pthread_cond_wait(&s->work, &s->lock);
  if (s->closing) return NULL;
  request *r = s->requests; /* whoever has had a turn goes behind the others */
  if (r->next) {
    request **at = &s->requests;
    s->requests = r->next;
    while (*at) at = &(*at)->next;
    *at = r;
    r->next = NULL;
  }
  if (r->standing == QUEUED) {
    r->standing = RUNNING;
    s->stats.queued--;
    s->stats.running++;
    s->stats.requests++;
  }
  return r;
}

static void take_token(sl_session *s, request *r) {
  s->stats.ticks++;
  s->stats.last_tick_ns = s->stats.waiting_since_ns = sli_now_ns();
  sl_session_event event = {.id = r->id, .user = r->user, .kind = SL_EVENT_TOKEN,
                            .place = (int64_t)r->count - r->nprompt};
  if (r->cancelled) {
    sli_session_finish(s, r, SL_END_CANCELLED);
    return;
  }
  sli_session_sample(r, s->served.logits, s->about.vocabulary, &event);
  sli_session_answer(s, r, &event);
}

static sl_status tick(sl_session *s, request *r) {
  s->served.of = r;
  s->served.answered = false;
  pthread_mutex_unlock(&s->lock);
  sl_status status = sl_runtime_run(s->about.rt, 1);
  pthread_mutex_lock(&s->lock);
  if (!status && !s->served.answered)
    status = sl_fail(SL_E_UNSUPPORTED, "the model's logits have no row per token");
  if (!status) take_token(s, r);
  return status;
}

static void *run(void *arg) {
  sl_session *s = arg;
  sl_status status = SL_OK;
  pthread_mutex_lock(&s->lock);
  for (request *r; !status && (r = take_turn(s));) status = tick(s, r);
  s->status = status;
  s->detail = sli_strdup(status ? sl_detail() : "");
  sli_session_finish_all(s, status ? SL_END_FAILED : SL_END_CANCELLED);
  pthread_mutex_unlock(&s->lock);
  return NULL;
}

/* ---- create and destroy ------------------------------------------------------------------- */

static sl_status find_vocabulary(sl_session *s) {
  const sl_graph *g = s->graph;
  for (int i = 0; i < g->noutputs; i++) {
    const sl_type *type = &g->outputs[i].tensor->type;
    if (strcmp(g->outputs[i].name, "logits") || type->dtype != SL_F32 || type->ndim < 2) continue;
    s->about.vocabulary = sl_type_last(type);
    s->about.context = s->about.rows = sl_type_rows(type);
    s->about.pages = (s->about.context + SL_SESSION_PAGE - 1) / SL_SESSION_PAGE;
    s->about.sequences = s->about.groups = 1;
    s->served.logits = sli_calloc((size_t)s->about.vocabulary, sizeof(float));
    return SL_OK;
  }
  return sl_fail(SL_E_UNSUPPORTED, "model %s has no f32 output \"logits\"", s->options.model->name);
}

static sl_status build(sl_session *s) {
  const sl_session_options *o = &s->options;
  s->graph = sl_graph_create(&(sl_graph_options){.microbatches = 1, .pieces = 1, .infer = true,
                                                 .training = o->training, .feed_tokens = feed,
                                                 .feed_ctx = s});
  sl_status status = o->model->build(s->graph, o->args);
  sl_status misuse = sl_args_status(o->args);
  if (misuse) return misuse;
  if (!status) status = sl_graph_status(s->graph);
  return status ? status : find_vocabulary(s);
}

static sl_status start_plan(sl_session *s) {
  sl_lower_options lower = s->options.lower;
  lower.on_output = take_output;
  lower.ctx = s;
  sl_lowered *lowered = NULL;
  sl_status status = sl_lower(s->graph, &lower, &lowered);
  if (status) return status;
  s->about.lowered = lowered;
  s->about.plan = sl_lowered_plan(lowered);
  status = sl_plan_prove(s->about.plan);
  if (!status) status = sl_runtime_create(s->about.plan, &s->options.run, &s->about.rt);
  if (status) return status;
  sl_lowered_attach(lowered, s->about.rt);
  return s->options.load(s->options.load_ctx, lowered, s->about.rt);
}

static sl_status start_thread(sl_session *s) {
  s->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (s->wake < 0) return sl_fail(SL_E_IO, "no file descriptor for a session's events");
  s->started = !pthread_create(&s->thread, NULL, run, s);
  return s->started ? SL_OK : sl_fail(SL_E_MEMORY, "no thread for a session");
}

static void make_lock(sl_session *s) {
  pthread_condattr_t monotonic;
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_mutex_init(&s->lock, NULL);
  pthread_cond_init(&s->work, &monotonic);
  pthread_cond_init(&s->idle, &monotonic);
  pthread_condattr_destroy(&monotonic);
}

sl_status sl_session_create(const sl_session_options *options, sl_session **out) {
  enum { QUEUE = 1024 };
  sl_session *s = sli_calloc(1, sizeof *s);
  s->options = *options;
  if (!s->options.queue) s->options.queue = QUEUE;
  s->wake = -1;
  make_lock(s);
  sl_status status = build(s);
  if (!status) status = start_plan(s);
  if (!status) status = start_thread(s);
  if (status) sl_session_destroy(s);
  else *out = s;
  return status;
}

static void stop_thread(sl_session *s) {
  if (!s->started) return;
  pthread_mutex_lock(&s->lock);
  s->closing = true;
  pthread_cond_signal(&s->work);
  pthread_mutex_unlock(&s->lock);
  pthread_join(s->thread, NULL);
}

void sl_session_destroy(sl_session *s) {
  if (!s) return;
  stop_thread(s);
  sl_runtime_destroy(s->about.rt);
  sl_lowered_destroy((sl_lowered *)s->about.lowered);
  sl_graph_destroy(s->graph);
  if (s->wake >= 0) close(s->wake);
  pthread_cond_destroy(&s->work);
  pthread_cond_destroy(&s->idle);
  pthread_mutex_destroy(&s->lock);
  free(s->served.logits);
  free(s->events.of);
  free(s->detail);
  free(s);
}

sl_status sl_session_wait(sl_session *s) {
  if (s->started) {
    pthread_join(s->thread, NULL);
    s->started = false;
  }
  return sl_session_status(s);
}

sl_session_info sl_session_about(const sl_session *s) { return s->about; }
