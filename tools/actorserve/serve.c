/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/actorserve/serve.h"

#include <malloc.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>

#include "base/descriptors.h"
#include "base/memory.h"
#include "io/journal.h"
#include "tools/actorserve/cors.h"
#include "tools/actorserve/messages.h"
#include "tools/actorserve/reply.h"
#include "tools/actorserve/request.h"

enum {
  MOST_BODY = 4 << 20,
  MOST_UNSENT = 256 << 10,
  LEAST_CONNECTIONS = 64,
  MOST_CONNECTIONS = 16384,
  EVENTS = 32,                /* events taken from the session per batch */
  CONNECTIONS_PART = 16 << 10 /* bytes of memory per possible connection */
};

/* ---- status ---------------------------------------------------------------------------------- */

static void answer(serving *s, http_exchange *x, int status, const char *type, char *body) {
  s->metrics.answers[status / 100]++;
  http_answer(x, status, type, body, strlen(body));
  free(body);
}

static void actorserve_serve_refuse(serving *s, http_exchange *x, int status, const char *code,
                                    const char *text) {
  answer(s, x, status, "application/json", reply_error(status, NULL, code, text));
}

/* Returns whether work is waiting without progress, in the model or in the tokenizing thread. */
static bool is_stuck(const serving *s, double *seconds, bool *model) {
  sl_session_stats stat = s->engine->stat(s->engine->self);
  uint64_t since = stat.waiting_since_ns, now = sli_now_ns();
  double encodes = SLI_MAX(worker_seconds(s->encoder), worker_seconds(s->reader)),
         computes = since && now > since ? (double)(now - since) * 1e-9 : 0;
  *model = computes >= encodes;
  *seconds = SLI_MAX(encodes, computes);
  return *seconds > s->options->stuck_seconds;
}

static void answer_health(serving *s, http_exchange *x, const http_request *request) {
  (void)request;
  double seconds;
  bool model, stuck = is_stuck(s, &seconds, &model);
  char *body = stuck ? sli_format("{\"status\":\"stuck\",\"part\":\"%s\",\"seconds\":%.1f}\n",
                                  model ? "model" : "tokenizer", seconds)
                     : sli_format("{\"status\":\"%s\"}\n", s->draining ? "draining" : "ok");
  answer(s, x, stuck || s->draining ? 503 : 200, "application/json", body);
}

static void answer_metrics(serving *s, http_exchange *x, const http_request *request) {
  (void)request;
  char *text;
  size_t bytes;
  FILE *out = sli_memory_stream(&text, &bytes);
  sl_session_stats stat = s->engine->stat(s->engine->self);
  metrics_print(out, &s->metrics, &stat, http_count_all(s->http), budget_held(s->budget));
  fclose(out);
  answer(s, x, 200, "text/plain; version=0.0.4", text);
}

static void answer_models(serving *s, http_exchange *x, const http_request *request) {
  (void)request;
  answer(s, x, 200, "application/json", reply_models(s, NULL));
}

static void answer_model(serving *s, http_exchange *x, const http_request *request) {
  const char *name = strrchr(request->target, '/') + 1;
  if (!chat_format_is(s->chat_format, name) && !adapters_find(s->adapters, name))
    actorserve_serve_refuse(s, x, 404, "model_not_found", "there is no such model");
  else answer(s, x, 200, "application/json", reply_models(s, name));
}

static void answer_texts(serving *s, http_exchange *x, const http_request *request) {
  request_begin(s, x, request, PARAMS_TEXTS);
}

static void answer_chat(serving *s, http_exchange *x, const http_request *request) {
  request_begin(s, x, request, PARAMS_CHAT);
}

static void answer_tokenize(serving *s, http_exchange *x, const http_request *request) {
  request_begin(s, x, request, PARAMS_TOKENIZE);
}

static void answer_detokenize(serving *s, http_exchange *x, const http_request *request) {
  request_begin(s, x, request, PARAMS_DETOKENIZE);
}

static void answer_load(serving *s, http_exchange *x, const http_request *request) {
  request_begin(s, x, request, PARAMS_LOAD);
}

static void answer_unload(serving *s, http_exchange *x, const http_request *request) {
  request_begin(s, x, request, PARAMS_UNLOAD);
}

static void answer_embeddings(serving *s, http_exchange *x, const http_request *request) {
  request_begin(s, x, request, PARAMS_EMBED);
}

static void answer_rerank(serving *s, http_exchange *x, const http_request *request) {
  request_begin(s, x, request, PARAMS_RERANK);
}

static void answer_score(serving *s, http_exchange *x, const http_request *request) {
  request_begin(s, x, request, PARAMS_SCORE);
}

static void answer_responses(serving *s, http_exchange *x, const http_request *request) {
  request_begin(s, x, request, PARAMS_RESPONSES);
}

static void answer_messages(serving *s, http_exchange *x, const http_request *request) {
  request_begin(s, x, request, PARAMS_MESSAGES);
}

static void answer_count(serving *s, http_exchange *x, const http_request *request) {
  request_begin(s, x, request, PARAMS_COUNT);
}

extern const char chat_html[]; /* page/chat.html */

/* Answers with a chat page. It contacts no other server. */
static void answer_page(serving *s, http_exchange *x, const http_request *request) {
  (void)request;
  http_add_field(x, "Content-Security-Policy",
                 "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
                 "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'");
  http_add_field(x, "X-Content-Type-Options", "nosniff");
  answer(s, x, 200, "text/html; charset=utf-8", sli_strdup(chat_html));
}

/* ---- routes ---------------------------------------------------------------------------------- */

static const struct route {
  const char *path; /* a path that ends with a slash matches all paths one level below */
  const char *method;
  bool open; /* allowed without an API key */
  void (*answer)(serving *s, http_exchange *x, const http_request *request);
} routes[] = {{"/v1/completions", "POST", false, answer_texts},
              {"/v1/chat/completions", "POST", false, answer_chat},
              {"/v1/responses", "POST", false, answer_responses},
              {"/v1/messages", "POST", false, answer_messages},
              {"/v1/messages/count_tokens", "POST", false, answer_count},
              {"/v1/embeddings", "POST", false, answer_embeddings},
              {"/v1/rerank", "POST", false, answer_rerank},
              {"/rerank", "POST", false, answer_rerank},
              {"/v1/score", "POST", false, answer_score},
              {"/score", "POST", false, answer_score},
              {"/v1/load_lora_adapter", "POST", false, answer_load},
              {"/v1/unload_lora_adapter", "POST", false, answer_unload},
              {"/tokenize", "POST", false, answer_tokenize},
              {"/detokenize", "POST", false, answer_detokenize},
              {"/", "GET", true, answer_page},
              {"/v1/models", "GET", false, answer_models},
              {"/v1/models/", "GET", false, answer_model},
              {"/health", "GET", true, answer_health},
              {"/metrics", "GET", true, answer_metrics}};

static bool leads_to(const struct route *r, const char *target) {
  size_t n = strlen(r->path);
  bool below = n > 1 && r->path[n - 1] == '/';
  return below ? !strncmp(target, r->path, n) && target[n] && !strchr(target + n, '/')
               : !strcmp(target, r->path);
}

/* Compares two secrets in time that does not depend on where they differ. */
static bool same_secret(const char *a, const char *b) {
  size_t n = strlen(a), m = strlen(b);
  unsigned char differ = n != m;
  for (size_t i = 0; i < n; i++) differ |= (unsigned char)(a[i] ^ b[m ? i % m : 0]);
  return !differ;
}

/* Returns whether a request has the API key: as a bearer, or as Anthropic's clients send it. */
static bool may_ask(const serving *s, const http_request *request) {
  static const char scheme[] = "Bearer ";
  const char *authorization = http_request_field(request, "authorization"),
             *key = http_request_field(request, "x-api-key");
  if (!s->options->key || (key && same_secret(key, s->options->key))) return true;
  if (!authorization || strncasecmp(authorization, scheme, sizeof scheme - 1)) return false;
  return same_secret(authorization + sizeof scheme - 1, s->options->key);
}

static const struct route *serve_find(const char *target) {
  for (size_t i = 0; i < SLI_COUNT(routes); i++)
    if (leads_to(&routes[i], target)) return &routes[i];
  return NULL;
}

static const char *methods(const struct route *r) {
  return r->method[0] == 'P' ? "POST, OPTIONS" : "GET, HEAD, OPTIONS";
}

static void refuse_method(serving *s, http_exchange *x, const struct route *r) {
  http_add_field(x, "Allow", methods(r));
  actorserve_serve_refuse(
      s, x, 405, NULL,
      r->method[0] == 'P' ? "only POST is answered here" : "only GET is answered here");
}

/* Answers OPTIONS: the methods of a path, and whether a page of another origin may use it. */
static void answer_options(serving *s, http_exchange *x, const http_request *request,
                           const struct route *r) {
  bool asks = http_request_field(request, "access-control-request-method");
  const char *origin = http_request_field(request, "origin");
  if (asks && !cors_allows(s->options->cors, origin)) {
    actorserve_serve_refuse(s, x, 403, NULL,
                            "requests from pages of this origin are not allowed (--cors)");
    return;
  }
  http_add_field(x, "Allow", r ? methods(r) : "GET, HEAD, POST, OPTIONS");
  s->metrics.answers[2]++;
  http_answer(x, 204, NULL, "", 0);
}

static bool has_method(const struct route *r, const char *method) {
  return !strcmp(method, r->method) || (!strcmp(method, "HEAD") && !strcmp(r->method, "GET"));
}

static void refuse_key(serving *s, http_exchange *x, const struct route *r) {
  static const char text[] = "a valid API key is needed: Authorization: Bearer KEY";
  if (r->answer == answer_messages || r->answer == answer_count)
    answer(s, x, 401, "application/json", messages_error(401, text));
  else actorserve_serve_refuse(s, x, 401, "invalid_api_key", text);
}

/* Refuses unauthorized and malformed requests before the body arrives. */
static bool on_head(void *ctx, http_exchange *x, const http_request *request) {
  serving *s = ctx;
  const struct route *r = serve_find(request->target);
  bool options = !strcmp(request->method, "OPTIONS");
  cors_add_fields(x, s->options->cors, request);
  if (options && (r || !strcmp(request->target, "*"))) answer_options(s, x, request, r);
  else if (!r) actorserve_serve_refuse(s, x, 404, NULL, "there is nothing at this path");
  else if (!has_method(r, request->method)) refuse_method(s, x, r);
  else if (!r->open && !may_ask(s, request)) {
    http_add_field(x, "WWW-Authenticate", "Bearer");
    refuse_key(s, x, r);
  } else if (!r->open && !cors_takes_host(s->options->host, s->options->key,
                                          http_request_field(request, "host"))) {
    actorserve_serve_refuse(s, x, 403, "host_not_allowed",
                            "the Host field has another site's name: its page may have sent the "
                            "request; a server with a key (--api-key-file FILE) takes any name");
  } else return true;
  return false;
}

static void on_request(void *ctx, http_exchange *x, const http_request *request) {
  serve_find(request->target)->answer(ctx, x, request);
}

static void on_gone(void *ctx, void *user) {
  (void)ctx;
  request_gone(user);
}

/* Reports the first lost line at once, and tries the next ones: the disk may have room again. */
static void end_line(serving *s) {
  if (!sli_journal_end(s->options->access)) return;
  if (!s->line_lost) sli_log("warning: --access-log: %s", sl_detail());
  s->line_lost = true;
  sli_journal_retry(s->options->access);
}

/* Writes a line of the access log. */
static void on_done(void *ctx, const http_done *done) {
  serving *s = ctx;
  char when[32], target[256];
  time_t now = time(NULL);
  struct tm utc;
  gmtime_r(&now, &utc);
  strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", &utc);
  sli_escape(target, sizeof target, done->target);
  fprintf(sli_journal_stream(s->options->access), "%s %s \"%s %s\" %d %.3f\n", when, done->client,
          done->method, target, done->status, done->seconds);
  end_line(s);
}

static char *error_body(void *ctx, int status, const char *text) {
  serving *s = ctx;
  s->metrics.answers[status / 100]++;
  return reply_error(status, NULL, NULL, text);
}

/* ---- events ---------------------------------------------------------------------------------- */

static void end_if_drained(serving *s) {
  if (s->draining && !s->first && !http_count_all(s->http).connections)
    event_base_loopbreak(s->base);
}

static void on_engine(evutil_socket_t fd, short what, void *ctx) {
  (void)fd, (void)what;
  serving *s = ctx;
  sl_session_event events[EVENTS];
  /* limited, so that other events get their turn between batches */
  int n = s->engine->poll(s->engine->self, events, EVENTS);
  for (int i = 0; i < n; i++) request_event(&events[i]);
}

static void on_encoder(evutil_socket_t fd, short what, void *ctx) {
  (void)fd, (void)what;
  serving *s = ctx;
  for (work *x; (x = worker_take(s->encoder));) request_encoded(x);
}

static void on_budget(evutil_socket_t fd, short what, void *ctx) {
  (void)fd, (void)what;
  serving *s = ctx;
  budget_answer(s->budget);
}

static void on_reader(evutil_socket_t fd, short what, void *ctx) {
  (void)fd, (void)what;
  serving *s = ctx;
  work *x = worker_take(s->reader); /* one at a time, so that other events get their turn */
  if (x) request_read(x->user);
}

/* ---- lifetime -------------------------------------------------------------------------------- */

static sl_status listen_on(serving *s) {
  const serve_options *o = s->options;
  size_t connections;
  sl_status status = sli_descriptors_reserve("connections need", LEAST_CONNECTIONS,
                                             MOST_CONNECTIONS, &connections);
  if (status) return status;
  /* limits the memory of connections themselves to a part of the budget */
  connections = SLI_MIN(connections, budget_most(s->budget) / CONNECTIONS_PART);
  const http_options options = {.host = o->host,
                                .port = o->port,
                                .most_connections = LEAST_CONNECTIONS + connections,
                                .most_body_bytes = MOST_BODY,
                                .most_unsent_bytes = MOST_UNSENT,
                                .budget = s->budget,
                                .head_seconds = o->head_seconds,
                                .body_seconds = o->body_seconds,
                                .idle_seconds = o->idle_seconds,
                                .stall_seconds = o->stall_seconds,
                                .on_head = on_head,
                                .on_request = on_request,
                                .on_gone = on_gone,
                                .error_body = error_body,
                                .on_done = o->access ? on_done : NULL,
                                .ctx = s};
  return http_create(s->base, &options, &s->http);
}

static struct event *watch(serving *s, int fd, event_callback_fn call) {
  struct event *e = event_new(s->base, fd, EV_READ | EV_PERSIST, call, s);
  SLI_CHECK(e && !event_add(e, NULL), "no memory for an event");
  return e;
}

/* Sets the allocator to return large blocks to the system as soon as they are freed. By default the
 * threshold grows with the freed blocks, and their memory stays allocated. */
static void set_allocator(void) {
  enum { LARGE = 64 << 10, SPARE = 1 << 20 };
  mallopt(M_MMAP_THRESHOLD, LARGE);
  mallopt(M_TRIM_THRESHOLD, SPARE);
}

sl_status serving_create(const serve_options *options, const engine *e, const chat_format *v,
                         serving **out) {
  set_allocator();
  serving *s = sli_calloc(1, sizeof *s);
  *s = (serving){.options = options, .engine = e, .chat_format = v, .base = event_base_new()};
  s->out = evbuffer_new();
  s->adapters = adapters_create(e, options->adapter_dir, v->nadapters, v->adapters);
  SLI_CHECK(s->base && s->out, "no memory for events");
  if (getrandom(&s->secret, sizeof s->secret, 0) < 0) s->secret = sli_now_ns();
  sl_status status = budget_create(options->most_held_bytes, &s->budget);
  if (!status) status = worker_create(&s->encoder);
  if (!status) status = worker_create(&s->reader);
  if (!status) status = listen_on(s);
  if (!status) {
    s->of_engine = watch(s, e->fd, on_engine);
    s->of_encoder = watch(s, worker_fd(s->encoder), on_encoder);
    s->of_reader = watch(s, worker_fd(s->reader), on_reader);
    s->of_budget = watch(s, budget_fd(s->budget), on_budget);
    *out = s;
  } else serving_destroy(s);
  return status;
}

void serving_destroy(serving *s) {
  if (!s) return;
  if (s->budget) budget_close(s->budget);
  worker_destroy(s->reader);
  worker_destroy(s->encoder);
  request_end_guided(s);
  while (s->first) request_destroy(s->first);
  http_destroy(s->http);
  if (s->of_engine) event_free(s->of_engine);
  if (s->of_encoder) event_free(s->of_encoder);
  if (s->of_reader) event_free(s->of_reader);
  if (s->of_budget) event_free(s->of_budget);
  evbuffer_free(s->out);
  event_base_free(s->base);
  budget_destroy(s->budget);
  adapters_destroy(s->adapters);
  free(s);
}

static void drain(serving *s) {
  s->draining = true;
  http_drain(s->http);
}

static void on_signal(evutil_socket_t number, short what, void *ctx) {
  (void)number, (void)what;
  serving *s = ctx;
  if (s->draining) event_base_loopbreak(s->base);
  else if (s->first) fprintf(stderr, "\nfinishing open requests; press Ctrl-C again to quit now\n");
  drain(s);
  s->end_ns = sli_now_ns() + (uint64_t)(s->options->grace_seconds * 1e9);
}

static int count_open(const serving *s) {
  int n = 0;
  for (const request *r = s->first; r; r = r->next) n++;
  return n;
}

/* Ends the server when open requests had their time (--grace). */
static void end_if_late(serving *s) {
  if (!s->end_ns || sli_now_ns() < s->end_ns) return;
  sli_log("%d open requests are cut off after %g s (--grace)", count_open(s),
          s->options->grace_seconds);
  event_base_loopbreak(s->base);
}

/* Returns free memory, including that of small blocks, to the system when there are no requests, or
 * when there is much of it. */
static void give_memory_back(serving *s) {
  enum { PART = 16 };
  const uint64_t pause = UINT64_C(2000000000); /* because trimming takes some milliseconds */
  uint64_t now = sli_now_ns();
  s->busy |= s->first != NULL;
  if (!s->busy || now - s->trimmed_ns < pause) return;
  s->trimmed_ns = now;
  if (!s->first || mallinfo2().fordblks > budget_most(s->budget) / PART) malloc_trim(0);
  s->busy = s->first;
}

static void note_rates(serving *s) {
  if (!s->options->rates) return;
  sl_session_stats stat = s->engine->stat(s->engine->self);
  rates_note(s->options->rates, &stat);
}

static void note_progress(serving *s) {
  if (s->options->quiet || !progress_is_due(&s->progress)) return;
  sl_session_stats stat = s->engine->stat(s->engine->self);
  progress_note(&s->progress, &stat);
}

/* Runs periodically: ends the server if the model has failed, and while draining once all requests
 * are over. */
static void on_moment(evutil_socket_t fd, short what, void *ctx) {
  (void)fd, (void)what;
  serving *s = ctx;
  if (!s->draining && s->engine->status(s->engine->self)) drain(s);
  note_rates(s);
  note_progress(s);
  give_memory_back(s);
  end_if_drained(s);
  end_if_late(s);
}

sl_status serving_run(serving *s) {
  static const int numbers[] = {SIGINT, SIGTERM};
  static const struct timeval moment = {0, 50000};
  struct event *signals[SLI_COUNT(numbers)],
      *moments = event_new(s->base, -1, EV_PERSIST, on_moment, s);
  signal(SIGPIPE, SIG_IGN);
  for (size_t i = 0; i < SLI_COUNT(numbers); i++) {
    signals[i] = evsignal_new(s->base, numbers[i], on_signal, s);
    event_add(signals[i], NULL);
  }
  event_add(moments, &moment);
  int result = event_base_dispatch(s->base);
  for (size_t i = 0; i < SLI_COUNT(numbers); i++) event_free(signals[i]);
  event_free(moments);
  return result < 0 ? sl_fail(SL_E_IO, "the event loop of libevent failed")
                    : s->engine->status(s->engine->self);
}
