/* SPDX-License-Identifier: Apache-2.0 */
/* API of the control plane for other threads. They queue requests under the lock, wake the control
 * thread if it may be asleep, and, where needed, wait for it to signal a change. */
#include "comm/control/control.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/control/control_inner.h"

/* Wakes the control thread; under the lock. */
static void wake(sli_control *c) {
  uint64_t one = 1;
  if (c->shared.awake) return;
  c->shared.awake = true;
  (void)!write(c->sockets.wake_fd, &one, sizeof one);
}

/* ---- opening and closing --------------------------------------------------------- */

static sl_status check_options(const sli_control_options *o) {
  SLI_CHECK(o->nprocesses > 0 && o->process >= 0 && o->process < o->nprocesses, "process %d of %d",
            o->process, o->nprocesses);
  if (!o->job || !*o->job || strlen(o->job) >= SLI_FRAME_NAME_CHARS)
    return sl_fail(SL_E_USAGE, "the job's name must have 1 to %d characters: \"%s\"",
                   SLI_FRAME_NAME_CHARS - 1, o->job ? o->job : "");
  for (const char *at = o->job; *at; at++)
    if (*at < ' ' || *at > '~')
      return sl_fail(SL_E_USAGE, "the job's name must be printable ASCII: \"%s\"", o->job);
  return SL_OK;
}

static void set_options(sli_control *c, const sli_control_options *o) {
  c->options = *o;
  c->options.endpoint = c->options.job = c->options.key = NULL;
  if (!o->join_ms) c->options.join_ms = 60000;
  if (!o->heartbeat_ms) c->options.heartbeat_ms = 500;
  if (!o->lost_ms) c->options.lost_ms = 1500;
  if (!o->strangers) c->options.strangers = 256;
  c->self = o->process;
  c->nprocesses = o->nprocesses;
  c->incarnation = o->incarnation;
  randombytes_buf(&c->instance, sizeof c->instance);
  snprintf(c->job, sizeof c->job, "%s", o->job);
  gethostname(c->host, sizeof c->host - 1);
}

static void set_self(sli_control *c) {
  sli_peer *self = &c->peers[c->self];
  self->here = true;
  self->instance = c->instance;
  memcpy(self->host, c->host, sizeof self->host);
}

static sli_control *create(const sli_control_options *o) {
  size_t n = (size_t)o->nprocesses;
  sli_control *c = sli_calloc(1, sizeof *c);
  c->sockets.wake_fd = -1;
  set_options(c, o);
  c->peers = sli_calloc(n, sizeof *c->peers);
  c->outs = sli_calloc(n, sizeof *c->outs);
  c->sockets.items = sli_calloc(n + 8, sizeof *c->sockets.items);
  c->shared.watched = sli_calloc(n, sizeof *c->shared.watched);
  c->shared.offsets = sli_calloc(n, sizeof *c->shared.offsets);
  c->shared.orders_end = &c->shared.orders;
  pthread_mutex_init(&c->shared.lock, NULL);
  pthread_cond_init(&c->shared.changed, NULL);
  set_self(c);
  c->opened_ns = sli_now_ns();
  return c;
}

static void destroy_orders(sli_order *order) {
  while (order) {
    sli_order *next = order->next;
    free(order->data);
    free(order);
    order = next;
  }
}

static void destroy(sli_control *c) {
  sli_sockets_close(c);
  if (c->sockets.context) zmq_ctx_term(c->sockets.context);
  if (c->sockets.wake_fd >= 0) close(c->sockets.wake_fd);
  sli_meetings_fini(c);
  sli_parts_fini(c);
  destroy_orders(c->shared.orders);
  void *parts[] = {c->peers, c->outs, c->sockets.items, c->shared.watched, c->shared.offsets};
  for (size_t i = 0; i < SLI_COUNT(parts); i++) free(parts[i]);
  pthread_cond_destroy(&c->shared.changed);
  pthread_mutex_destroy(&c->shared.lock);
  sli_auth_fini(&c->auth);
  free(c);
}

sl_status sli_control_open(const sli_control_options *options, sli_control **out) {
  sl_status status = check_options(options);
  if (status) return status;
  sli_control *c = create(options);
  status = sli_auth_init(&c->auth, options->key);
  if (!status) status = sli_endpoint_parse(options->endpoint, c->hub.host, &c->hub.port);
  if (!status) {
    sli_endpoint_write(c->hub.endpoint, "", c->hub.host, c->hub.port);
    status = sli_sockets_bind(c);
  }
  if (!status) {
    for (int k = 0; sli_is_hub(c) && k < c->nprocesses; k++)
      c->peers[k].hub.socket = c->sockets.hub;
    if (pthread_create(&c->thread, NULL, sli_control_run, c))
      status = sl_fail(SL_E_MEMORY, "cannot start the control plane's thread");
  }
  if (status) destroy(c);
  else *out = c;
  return status;
}

void sli_control_close(sli_control *c) {
  if (!c) return;
  pthread_mutex_lock(&c->shared.lock);
  c->shared.closing = true;
  wake(c);
  pthread_mutex_unlock(&c->shared.lock);
  pthread_join(c->thread, NULL);
  destroy(c);
}

/* ---- blocking calls ----------------------------------------------------------- */

static void check_thread(const sli_control *c, const char *what) {
  SLI_CHECK(!pthread_equal(pthread_self(), c->thread), "%s waits inside a callback", what);
}

static sl_status fail_ended(const sli_control *c) {
  return sl_fail(c->shared.end_status, "%s", c->shared.end_text);
}

sl_status sli_control_join(sli_control *c) {
  check_thread(c, "sli_control_join");
  pthread_mutex_lock(&c->shared.lock);
  while (!c->shared.joined && !c->shared.ended)
    pthread_cond_wait(&c->shared.changed, &c->shared.lock);
  sl_status status = c->shared.ended ? fail_ended(c) : SL_OK;
  pthread_mutex_unlock(&c->shared.lock);
  return status;
}

/* Queues data to be sent; copies it. Under the lock. */
static void give_order(sli_control *c, sli_data_kind kind, int target, const char *word,
                       const void *data, size_t bytes) {
  SLI_CHECK(strlen(word) < SLI_FRAME_WORD_CHARS, "\"%s\" is longer than a word", word);
  SLI_CHECK(bytes <= SLI_FRAME_DATA_BYTES, "%zu bytes with word %s", bytes, word);
  sli_order *order = sli_calloc(1, sizeof *order);
  *order =
      (sli_order){.kind = kind, .target = target, .data = sli_calloc(bytes, 1), .bytes = bytes};
  strcpy(order->word, word);
  if (bytes) memcpy(order->data, data, bytes);
  *c->shared.orders_end = order;
  c->shared.orders_end = &order->next;
  wake(c);
}

static void control_leave(sli_control *c, const sli_waiter *waiter) {
  sli_waiter **at = &c->shared.waiters;
  while (*at != waiter) at = &(*at)->next;
  *at = waiter->next;
}

/* Waits in a meeting. target: the process that gets everybody's data, or -1 for all. */
static sl_status meet(sli_control *c, int target, const char *word, const void *data, size_t bytes,
                      sli_control_blob **blobs) {
  check_thread(c, "a meeting");
  if (bytes > SLI_FRAME_DATA_BYTES)
    return sl_fail(SL_E_USAGE, "%zu bytes are too many for a meeting (%s): at most %d", bytes, word,
                   SLI_FRAME_DATA_BYTES);
  pthread_mutex_lock(&c->shared.lock);
  for (const sli_waiter *w = c->shared.waiters; w; w = w->next)
    SLI_CHECK(strcmp(w->word, word), "two threads of process %d meet at %s", c->self, word);
  sli_waiter waiter = {.next = c->shared.waiters, .word = word};
  c->shared.waiters = &waiter;
  give_order(c, SLI_DATA_MEET, target, word, data, bytes);
  while (!waiter.done && !c->shared.ended) pthread_cond_wait(&c->shared.changed, &c->shared.lock);
  control_leave(c, &waiter);
  sl_status status = waiter.done ? SL_OK : fail_ended(c);
  pthread_mutex_unlock(&c->shared.lock);
  if (blobs && !status) *blobs = waiter.blobs;
  else sli_blobs_free(waiter.blobs, c->nprocesses);
  return status;
}

sl_status sli_control_meet(sli_control *c, const char *word, const void *data, size_t bytes,
                           sli_control_blob **blobs) {
  return meet(c, 0, word, data, bytes, blobs);
}

sl_status sli_control_share(sli_control *c, const char *word, const void *data, size_t bytes,
                            sli_control_blob **blobs) {
  return meet(c, -1, word, data, bytes, blobs);
}

/* ---- calls that do not block -------------------------------------------------- */

void sli_control_watch(sli_control *c, int process) {
  SLI_CHECK(process >= 0 && process < c->nprocesses && process != c->self,
            "process %d watches process %d", c->self, process);
  pthread_mutex_lock(&c->shared.lock);
  int known = 0;
  while (known < c->shared.nwatched && c->shared.watched[known] != process) known++;
  if (known == c->shared.nwatched) {
    c->shared.watched[c->shared.nwatched++] = process;
    wake(c);
  }
  pthread_mutex_unlock(&c->shared.lock);
}

sl_status sli_control_say(sli_control *c, int process, const char *word, const void *data,
                          size_t bytes) {
  SLI_CHECK(process >= -1 && process < c->nprocesses, "a word to process %d", process);
  if (bytes > SLI_FRAME_DATA_BYTES)
    return sl_fail(SL_E_USAGE, "%zu bytes are too many for a message (%s): at most %d", bytes, word,
                   SLI_FRAME_DATA_BYTES);
  pthread_mutex_lock(&c->shared.lock);
  if (!c->shared.ended) give_order(c, SLI_DATA_WORD, process, word, data, bytes);
  pthread_mutex_unlock(&c->shared.lock);
  return SL_OK;
}

void sli_control_abort(sli_control *c, const char *text) {
  pthread_mutex_lock(&c->shared.lock);
  if (!c->shared.aborting) {
    c->shared.aborting = true;
    snprintf(c->shared.abort_text, sizeof c->shared.abort_text, "%s", text);
    wake(c);
  }
  pthread_mutex_unlock(&c->shared.lock);
}

/* ---- queries ------------------------------------------------------------------ */

const char *sli_control_endpoint(const sli_control *c) { return c->hub.endpoint; }

const char *sli_control_here(const sli_control *c) {
  return c->sockets.here[0] ? c->sockets.here : NULL;
}

/* Finds a process's host. A peer with a port but no host is on the host of process 0. */
void sli_control_host_of(const sli_control *c, int process, char host[SLI_CONTROL_HOST_CHARS]) {
  const char *direct = c->peers[process].direct, *hub = sli_is_hub(c) ? "127.0.0.1" : c->hub.ip;
  int port;
  if (process == 0 || *direct == ':' || sli_endpoint_parse(direct, host, &port))
    snprintf(host, SLI_CONTROL_HOST_CHARS, "%s", hub);
}

int64_t sli_control_clock_offset(const sli_control *c, int process) {
  pthread_mutex_t *lock = (pthread_mutex_t *)&c->shared.lock;
  pthread_mutex_lock(lock);
  int64_t offset_ns = c->shared.offsets[process];
  pthread_mutex_unlock(lock);
  return offset_ns;
}

static uint64_t get(const _Atomic uint64_t *count) {
  return atomic_load_explicit(count, memory_order_relaxed);
}

sli_control_counts sli_control_count(const sli_control *c) {
  return (sli_control_counts){.frames_sent = get(&c->counts.frames_sent),
                              .frames_received = get(&c->counts.frames_received),
                              .bytes_sent = get(&c->counts.bytes_sent),
                              .bytes_received = get(&c->counts.bytes_received),
                              .refused = get(&c->counts.refused)};
}
