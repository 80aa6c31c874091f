/* SPDX-License-Identifier: Apache-2.0 */
/* actorserve's server with a stand-in model, whose answer is the prompt repeated byte by byte.
 * Every tick gives one token of each running request.
 *
 *   serve_made_up TICK_MICROSECONDS MOST_RUNNING MOST_QUEUED [PATIENCE_SECONDS [KEY [REQUEST_MIB
 * [TEMPLATE]]]]
 *
 * A prompt that begins with "stick" stops all ticks. One with "unstick", which is admitted even if
 * the queue is full, starts them again. Prints its port, and at the end what its requests have left
 * behind.
 *
 * needs: libevent */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/base.h"
#include "tools/actorserve/serve.h"

typedef struct asked_for {
  struct asked_for *next;
  uint64_t id;
  void *user;
  int32_t *prompt;
  int64_t count, told, most;
  int32_t stop[64];
  int nstop;
  bool cancelled;
} asked_for;

/* State of the engine, all guarded by the lock. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static asked_for *all; /* oldest first */
static int most_running, most_queued, tick_us;
static bool stuck, over;
static struct {
  sl_session_event *of;
  size_t first, count, capacity; /* events before `first` have been polled */
} events;
static sl_session_stats stats;
static int wake;

static void tell(asked_for *r, sl_session_event event) {
  event.id = r->id;
  event.user = r->user;
  if (events.first == events.count) eventfd_write(wake, 1);
  SLI_GROW(events.of, events.count, events.capacity);
  events.of[events.count++] = event;
}

static int64_t pages_of(const asked_for *r) {
  return (r->count + r->most + SL_SESSION_PAGE - 1) / SL_SESSION_PAGE;
}

static void count_all(void) {
  int place = 0;
  stats.queued = stats.running = 0;
  stats.pages_used = 0;
  for (const asked_for *r = all; r; r = r->next, place++) {
    bool running = place < most_running;
    stats.running += running;
    stats.queued += !running;
    if (running) stats.pages_used += pages_of(r);
  }
  if (!all) stats.waiting_since_ns = 0;
  else if (!stats.waiting_since_ns) stats.waiting_since_ns = sli_now_ns();
}

static void end(asked_for **at, sl_end why) {
  asked_for *r = *at;
  *at = r->next;
  stats.ended[why]++;
  tell(r, (sl_session_event){.kind = SL_EVENT_END, .end = why, .place = r->told});
  free(r->prompt);
  free(r);
}

static bool is_stop(const asked_for *r, int32_t token) {
  for (int i = 0; i < r->nstop; i++)
    if (r->stop[i] == token) return true;
  return false;
}

/* Advances a request by one token; returns true when it has ended. */
static bool tick_one(asked_for **at) {
  asked_for *r = *at;
  if (!r->cancelled) {
    tell(r, (sl_session_event){
                .kind = SL_EVENT_TOKEN, .place = r->told, .token = r->prompt[r->told % r->count]});
    stats.tokens++;
    int32_t token = r->prompt[r->told++ % r->count];
    bool stops = is_stop(r, token);
    if (r->told < r->most && !stops) return false;
    end(at, stops ? SL_END_STOP : SL_END_LENGTH);
  } else end(at, SL_END_CANCELLED);
  return true;
}

static void tick(void) {
  asked_for **at = &all;
  stats.ticks++;
  stats.waiting_since_ns = sli_now_ns();
  for (int place = 0; *at && place < most_running; place++)
    if (!tick_one(at)) at = &(*at)->next;
  count_all();
}

static void *run(void *arg) {
  for (bool ends = false; !ends; usleep((useconds_t)tick_us)) {
    pthread_mutex_lock(&lock);
    if (!stuck && all) tick();
    ends = over;
    pthread_mutex_unlock(&lock);
  }
  return arg;
}

/* ---- the engine ------------------------------------------------------------------------------ */

static bool begins(const sl_request *q, const char *word) {
  int64_t n = (int64_t)strlen(word);
  bool same = q->nprompt >= n;
  for (int64_t i = 0; i < n && same; i++) same = q->prompt[i] == word[i];
  return same;
}

static sl_status submit(void *self, const sl_request *q, uint64_t *id) {
  (void)self;
  pthread_mutex_lock(&lock);
  bool full = stats.queued >= most_queued && stats.running >= most_running && !begins(q, "unstick");
  if (!full) {
    asked_for **at = &all, *r = sli_calloc(1, sizeof *r);
    while (*at) at = &(*at)->next;
    *r = (asked_for){
        .id = *id = ++stats.requests, .user = q->user, .count = q->nprompt, .most = q->max_tokens};
    r->nstop = SLI_MIN(q->nstop, (int)SLI_COUNT(r->stop));
    for (int i = 0; i < r->nstop; i++) r->stop[i] = q->stop[i];
    r->prompt = sli_calloc((size_t)q->nprompt, sizeof *r->prompt);
    memcpy(r->prompt, q->prompt, (size_t)q->nprompt * sizeof *r->prompt);
    *at = r;
    stuck = begins(q, "stick") || (stuck && !begins(q, "unstick"));
    count_all();
  }
  pthread_mutex_unlock(&lock);
  return full ? sl_fail(SL_E_BUSY, "the queue is full: %d requests are waiting", most_queued)
              : SL_OK;
}

static void cancel(void *self, uint64_t id) {
  (void)self;
  pthread_mutex_lock(&lock);
  for (asked_for *r = all; r; r = r->next) r->cancelled |= r->id == id;
  pthread_mutex_unlock(&lock);
}

/* Drops polled events once they are in the majority, so that each event is moved once on
 * average. */
static void drop_polled(void) {
  if (events.first <= events.count / 2) return;
  events.count -= events.first;
  memmove(events.of, events.of + events.first, events.count * sizeof *events.of);
  events.first = 0;
}

static int poll_events(void *self, sl_session_event *out, int most) {
  (void)self;
  eventfd_t drop;
  pthread_mutex_lock(&lock);
  size_t n = SLI_MIN(events.count - events.first, (size_t)most);
  if (n) memcpy(out, events.of + events.first, n * sizeof *out);
  events.first += n;
  if (n && events.first == events.count) eventfd_read(wake, &drop);
  drop_polled();
  pthread_mutex_unlock(&lock);
  return (int)n;
}

static sl_status status_of(void *self) {
  (void)self;
  return SL_OK;
}

static sl_session_stats stat_of(void *self) {
  (void)self;
  pthread_mutex_lock(&lock);
  sl_session_stats now = stats;
  pthread_mutex_unlock(&lock);
  return now;
}

int main(int argc, char **argv) {
  if (argc < 4) return 2;
  tick_us = atoi(argv[1]), most_running = atoi(argv[2]), most_queued = atoi(argv[3]);
  double patience = argc > 4 ? atof(argv[4]) : 60;
  wake = eventfd(0, EFD_NONBLOCK);
  const engine e = {.fd = wake,
                    .vocabulary = 256,
                    .context = 8192,
                    .submit = submit,
                    .cancel = cancel,
                    .poll = poll_events,
                    .stat = stat_of,
                    .status = status_of};
  chat_format v = {
      .name = "made-up", .no_chat = "it does not chat", .marks = &(sli_chat_marks){NULL}};
  if (codec_open(NULL, 256, &v.codec)) return 1;
  v.chat = argc > 7 ? sli_chat_of_template(argv[7], NULL) : sli_chat_named("chatml");
  v.answers = answer_format_of(sli_chat_text(v.chat));
  v.thinks = answer_format_thinks(sli_chat_text(v.chat));
  const serve_options options = {
      .host = "127.0.0.1",
      .key = argc > 5 && *argv[5] ? argv[5] : NULL,
      .stuck_seconds = patience / 6,
      .cors = "loopback",
      .grace_seconds = 1e6,
      .most_held_bytes = argc > 6 ? (size_t)atol(argv[6]) << 20 : (size_t)256 << 20,
      .head_seconds = patience,
      .body_seconds = patience,
      .idle_seconds = 60,
      .stall_seconds = 60};
  serving *s;
  pthread_t thread;
  if (serving_create(&options, &e, &v, &s)) {
    fprintf(stderr, "%s\n", sl_detail());
    return 1;
  }
  pthread_create(&thread, NULL, run, NULL);
  printf("%d\n", http_port(s->http));
  fflush(stdout);
  sl_status status = serving_run(s);
  pthread_mutex_lock(&lock);
  over = true;
  printf("%d pages, %zu events\n", (int)stats.pages_used, events.count - events.first);
  pthread_mutex_unlock(&lock);
  pthread_join(thread, NULL);
  serving_destroy(s);
  codec_close(&v.codec);
  sli_chat_free(v.chat);
  free(events.of);
  return status;
}
