/* SPDX-License-Identifier: Apache-2.0 */
/* Any thread may submit requests to a session; each request gets its tokens and one end event.
 * labels: smoke */
#include <pthread.h>
#include <unistd.h>

#include "tests/support/session.h"

static char *const small[] = {"--layers", "2",         "--width", "32", "--heads",
                              "4",        "--context", "64",      NULL};
static const int32_t prompt[] = {3, 1, 4, 1, 5};

static sl_request ask(int64_t most) {
  return (sl_request){.prompt = prompt, .nprompt = 5, .max_tokens = most, .logprobs = -1};
}

static void each_request_has_one_end(sl_session *s) {
  enum { N = 5 };
  uint64_t ids[N];
  int64_t tokens[N] = {0};
  for (int i = 0; i < N; i++) {
    sl_request r = ask(i + 1);
    CHECK(!sl_session_submit(s, &r, &ids[i]), "%s", sl_detail());
    CHECK(ids[i] && (!i || ids[i] > ids[i - 1]), "ids grow");
  }
  for (int ended = 0; ended < N;) {
    sl_session_event e = served_next(s);
    int64_t i = (int64_t)(e.id - ids[0]);
    CHECK(e.place == tokens[i], "tokens come in order");
    if (e.kind == SL_EVENT_TOKEN) tokens[i]++;
    if (e.kind == SL_EVENT_TOKEN) continue;
    CHECK(e.end == SL_END_LENGTH && tokens[i] == i + 1, "request %d has its tokens", (int)i);
    ended++;
  }
  sl_session_stats stats = sl_session_stat(s);
  CHECK(!stats.running && !stats.queued && !stats.waiting_since_ns, "nothing is left");
}

static void a_token_can_end_it(sl_session *s) {
  sl_request r = ask(10);
  uint64_t id;
  CHECK(!sl_session_submit(s, &r, &id), "%s", sl_detail());
  int32_t second = -1;
  for (sl_session_event e; (e = served_next(s)).kind == SL_EVENT_TOKEN;)
    if (e.place == 1) second = e.token;
  r.stop = &second;
  r.nstop = 1;
  CHECK(!sl_session_submit(s, &r, &id), "%s", sl_detail());
  sl_session_event e;
  while ((e = served_next(s)).kind == SL_EVENT_TOKEN) {}
  CHECK(e.end == SL_END_STOP && e.place <= 2, "its stop token ends it");
}

static void the_context_ends_it(sl_session *s) {
  sl_request r = ask(1000);
  uint64_t id;
  CHECK(!sl_session_submit(s, &r, &id), "%s", sl_detail());
  sl_session_event e;
  while ((e = served_next(s)).kind == SL_EVENT_TOKEN) {}
  CHECK(e.end == SL_END_LENGTH && e.place == 64 - 5, "%lld tokens fit", (long long)e.place);
  int32_t all[64] = {0};
  r.prompt = all, r.nprompt = 64;
  CHECK(!sl_session_submit(s, &r, &id), "%s", sl_detail());
  while ((e = served_next(s)).kind == SL_EVENT_TOKEN) {}
  CHECK(e.end == SL_END_LENGTH && e.place == 1, "one token follows from a full context, not %lld",
        (long long)e.place);
}

static void it_is_known_before(const sl_session_options *options) {
  sl_session_info about;
  CHECK(!sl_session_check(options, &about), "%s", sl_detail());
  CHECK(about.vocabulary == 256 && about.context == 64 && !about.plan && !about.rt,
        "the sizes of it");
  sl_session_options wrong = *options;
  wrong.context = 65;
  CHECK(sl_session_check(&wrong, &about) == SL_E_USAGE && strstr(sl_detail(), "65"), "%s",
        sl_detail());
}

static void what_is_wrong_is_refused(sl_session *s) {
  int32_t far[] = {1, 256}, many[65] = {0};
  uint64_t id = 77;
  sl_request r = ask(1);
  r.prompt = far, r.nprompt = 2;
  CHECK(sl_session_submit(s, &r, &id) == SL_E_USAGE && strstr(sl_detail(), "256"), "%s",
        sl_detail());
  r = ask(1), r.prompt = many, r.nprompt = 65;
  CHECK(sl_session_submit(s, &r, &id) == SL_E_USAGE && strstr(sl_detail(), "65 tokens"), "%s",
        sl_detail());
  r = ask(0);
  CHECK(sl_session_submit(s, &r, &id) == SL_E_USAGE, "no tokens");
  r = ask(1), r.temperature = -1;
  CHECK(sl_session_submit(s, &r, &id) == SL_E_USAGE, "temperature");
  r = ask(1), r.top_p = 2;
  CHECK(sl_session_submit(s, &r, &id) == SL_E_USAGE && id == 77, "top_p");
}

/* Lower limits on rows, sequences, pages and groups give the same tokens, later. */
static void limits_change_no_answer(sl_session *s) {
  int32_t tokens[2][20];
  const sl_session_limits all = sl_session_stat(s).limits,
                          few = {.rows = 1, .pages = 1, .sequences = 1, .groups = 1};
  for (int i = 0; i < 2; i++) {
    CHECK(!sl_session_limit(s, i ? &few : &all), "%s", sl_detail());
    sl_request r = ask(20);
    uint64_t id, other, before = sl_session_stat(s).ticks;
    CHECK(!sl_session_submit(s, &r, &id) && !sl_session_submit(s, &r, &other), "%s", sl_detail());
    for (int ended = 0; ended < 2;) {
      sl_session_event e = served_next(s);
      if (e.kind == SL_EVENT_TOKEN && e.id == other) tokens[i][e.place] = e.token;
      ended += e.kind == SL_EVENT_END;
    }
    CHECK(!i || sl_session_stat(s).ticks - before == 2 * (5 + 19),
          "a row a tick, one after another");
  }
  CHECK(!memcmp(tokens[0], tokens[1], sizeof tokens[0]), "the same tokens");
  sl_session_limits wrong = {.rows = all.rows + 1, .queue = 3};
  CHECK(sl_session_limit(s, &wrong) == SL_E_USAGE && strstr(sl_detail(), "rows=65"), "%s",
        sl_detail());
  CHECK(sl_session_stat(s).limits.queue == all.queue, "nothing has changed");
  CHECK(!sl_session_limit(s, &all), "%s", sl_detail());
}

static void *cancel_some(void *arg) {
  sl_session *s = arg;
  for (uint64_t id = 1; id < 100; id += 2) sl_session_cancel(s, id);
  return NULL;
}

static void cancelling_ends_it_once(sl_session *s) {
  enum { N = 20 };
  pthread_t thread;
  int ended = 0;
  uint64_t first = 0, id;
  for (int i = 0; i < N; i++) {
    sl_request r = ask(4);
    CHECK(!sl_session_submit(s, &r, &id), "%s", sl_detail());
    if (!i) first = id;
  }
  pthread_create(&thread, NULL, cancel_some, s);
  for (int i = 0; i < N; i += 3) sl_session_cancel(s, first + (uint64_t)i);
  while (ended < N) ended += served_next(s).kind == SL_EVENT_END;
  pthread_join(thread, NULL);
  sl_session_event e;
  CHECK(!sl_session_poll(s, &e, 1), "and nothing comes behind");
}

static void what_drains_lets_nothing_in(sl_session *s) {
  sl_request r = ask(3);
  uint64_t id;
  CHECK(!sl_session_submit(s, &r, &id), "%s", sl_detail());
  CHECK(!sl_session_drain(s, -1), "it ends");
  CHECK(sl_session_submit(s, &r, &id) == SL_E_BUSY, "and accepts no more requests");
  sl_session_event e[8];
  CHECK(sl_session_poll(s, e, 8) == 4 && e[3].kind == SL_EVENT_END, "its events are there");
}

/* Without polling, ticks stop before memory runs out; they continue as events are polled, though
 * never all at once. */
static void ticks_wait_for_who_polls(void) {
  static char *const tiny[] = {"--layers", "1",         "--width", "8", "--heads",
                               "1",        "--context", "64",      NULL};
  enum { N = 1300, TOKENS = 58, MS = 1000 };
  served s = {0};
  served_model(&s, "gpt", tiny);
  sl_session_options options = served_options(&s);
  options.queue = N;
  served_open(&s, &options);
  for (int i = 0; i < N; i++) {
    sl_request r = ask(TOKENS);
    uint64_t id;
    CHECK(!sl_session_submit(s.session, &r, &id), "%s", sl_detail());
  }
  while (sl_session_stat(s.session).events < SL_SESSION_EVENTS) usleep(MS);
  usleep(100 * MS);
  sl_session_stats then = sl_session_stat(s.session);
  usleep(100 * MS);
  sl_session_stats now = sl_session_stat(s.session);
  CHECK(now.ticks == then.ticks && now.events < SL_SESSION_EVENTS + 2 * now.limits.sequences,
        "%d events wait", now.events);
  for (int ended = 0; ended < N;) ended += served_next(s.session).kind == SL_EVENT_END;
  CHECK(sl_session_stat(s.session).tokens == (uint64_t)N * TOKENS, "all tokens came");
  served_close(&s);
}

/* ---- comparison with a whole row ------------------------------------------------------------- */

typedef struct whole_row {
  int32_t tokens[64];
  int64_t count, vocabulary;
  int32_t next;
} whole_row;

static void feed(void *ctx, const sl_tick *tick, int32_t *tokens, int64_t count) {
  (void)tick;
  const whole_row *w = ctx;
  memcpy(tokens, w->tokens, (size_t)count * sizeof *tokens);
}

static void take(void *ctx, const char *name, const sl_type *type, const void *data) {
  (void)name;
  whole_row *w = ctx;
  int64_t n = sl_type_last(type);
  const float *logits = (const float *)data + (w->count - 1) * n;
  w->next = 0;
  for (int32_t v = 1; v < n; v++)
    if (logits[v] > logits[w->next]) w->next = v;
}

/* Compares with the continuation by the inference graph, which computes one row of the whole
 * context at a time. */
static void the_text_is_that_of_the_whole_row(const served *s) {
  whole_row w = {.count = 5};
  memcpy(w.tokens, prompt, sizeof prompt);
  sl_graph *g = sl_graph_create(&(sl_graph_options){
      .infer = true, .feed_tokens = feed, .feed_ctx = &w, .microbatches = 1, .pieces = 1});
  sl_lower_options lower = {
      .parallel.stages = 1, .devices = {.kind = "cpu"}, .report.on_output = take, .report.ctx = &w};
  sl_lowered *lowered = NULL;
  sl_runtime *rt = NULL;
  CHECK(!s->model->build(g, s->args) && !sl_lower(g, &lower, &lowered), "%s", sl_detail());
  CHECK(!sl_runtime_create(sl_lowered_plan(lowered), &(sl_runtime_options){0}, &rt), "%s",
        sl_detail());
  CHECK(!served_load(NULL, lowered, rt), "%s", sl_detail());
  sl_request r = ask(30);
  uint64_t id;
  CHECK(!sl_session_submit(s->session, &r, &id), "%s", sl_detail());
  for (sl_session_event e; (e = served_next(s->session)).kind == SL_EVENT_TOKEN;) {
    CHECK(!sl_runtime_run(rt, 1), "%s", sl_detail());
    CHECK(e.token == w.next, "token %lld is %d, of the whole row %d", (long long)e.place, e.token,
          w.next);
    w.tokens[w.count++] = e.token;
  }
  sl_runtime_destroy(rt);
  sl_lowered_destroy(lowered);
  sl_graph_destroy(g);
}

int main(void) {
  served s = {0};
  served_model(&s, "gpt", small);
  sl_session_options options = served_options(&s);
  RUN(it_is_known_before, &options);
  served_open(&s, &options);
  RUN(each_request_has_one_end, s.session);
  RUN(the_text_is_that_of_the_whole_row, &s);
  RUN(a_token_can_end_it, s.session);
  RUN(the_context_ends_it, s.session);
  RUN(what_is_wrong_is_refused, s.session);
  RUN(limits_change_no_answer, s.session);
  RUN(cancelling_ends_it_once, s.session);
  RUN(what_drains_lets_nothing_in, s.session);
  served_close(&s);
  RUN(ticks_wait_for_who_polls);
  served_model(&s, "llama", small);
  options = served_options(&s);
  served_open(&s, &options);
  RUN(the_text_is_that_of_the_whole_row, &s);
  sl_session *none = NULL;
  options.lower.parallel.data = 2;
  CHECK(sl_session_create(&options, &none) == SL_E_UNSUPPORTED && !none, "data are not shared out");
  served_close(&s);
  return 0;
}
