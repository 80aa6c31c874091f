/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/comm_node.h"

#include <string.h>
#include <time.h>
#include <unistd.h>

static const char number_word[] = "number";

static void note_number(node *n, int from, const void *data, size_t bytes) {
  uint64_t number = 0;
  memcpy(&number, data, SLI_MIN(bytes, sizeof number));
  n->displaced |= bytes != sizeof number || number != n->next[from];
  n->next[from] = number + 1;
  n->total++;
}

static void note_other(node *n, int from, const char *word, const void *data, size_t bytes) {
  node_word *w = &n->words[n->nwords++ % (int)SLI_COUNT(n->words)];
  *w = (node_word){.from = from, .bytes = bytes, .hash = sli_hash(SLI_HASH_SEED, data, bytes)};
  strncpy(w->word, word, sizeof w->word - 1);
}

static void note_word(void *ctx, int from, const char *word, const void *data, size_t bytes) {
  node *n = ctx;
  pthread_mutex_lock(&n->lock);
  if (!strcmp(word, number_word)) note_number(n, from, data, bytes);
  else note_other(n, from, word, data, bytes);
  pthread_cond_broadcast(&n->changed);
  int word_ms = n->word_ms;
  pthread_mutex_unlock(&n->lock);
  if (word_ms) usleep((useconds_t)word_ms * 1000);
}

static void note_abort(void *ctx, int culprit, const char *text) {
  node *n = ctx;
  pthread_mutex_lock(&n->lock);
  n->aborts++;
  n->culprit = culprit;
  n->aborted_ns = sli_now_ns();
  strncpy(n->text, text, sizeof n->text - 1);
  pthread_cond_broadcast(&n->changed);
  pthread_mutex_unlock(&n->lock);
}

sl_status node_open(node *n, const sli_control_options *options) {
  sli_control_options o = *options;
  *n = (node){.process = o.process};
  o.ctx = n;
  o.on_word = note_word;
  o.on_abort = note_abort;
  pthread_condattr_t attr;
  pthread_condattr_init(&attr);
  pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
  pthread_mutex_init(&n->lock, NULL);
  pthread_cond_init(&n->changed, &attr);
  pthread_condattr_destroy(&attr);
  return sli_control_open(&o, &n->control);
}

void node_close(node *n) {
  sli_control_close(n->control);
  n->control = NULL;
  pthread_cond_destroy(&n->changed);
  pthread_mutex_destroy(&n->lock);
}

void node_send(node *n, int process, uint64_t number) {
  sli_control_watch(n->control, process);
  sli_control_say(n->control, process, number_word, &number, sizeof number);
}

/* Waits until *value, guarded by the lock, is at least `least`. */
static bool wait_number(node *n, const void *value, size_t size, uint64_t least, int timeout_ms) {
  struct timespec until;
  clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_sec += timeout_ms / 1000;
  until.tv_nsec += timeout_ms % 1000 * 1000000L;
  if (until.tv_nsec >= 1000000000L) {
    until.tv_sec++;
    until.tv_nsec -= 1000000000L;
  }
  pthread_mutex_lock(&n->lock);
  int late = 0;
  uint64_t now = 0;
  for (;;) {
    memcpy(&now, value, size);
    if (now >= least || late) break;
    late = pthread_cond_timedwait(&n->changed, &n->lock, &until);
  }
  pthread_mutex_unlock(&n->lock);
  return now >= least;
}

bool node_wait_numbers(node *n, uint64_t total, int timeout_ms) {
  return wait_number(n, &n->total, sizeof n->total, total, timeout_ms);
}
bool node_wait_words(node *n, int count, int timeout_ms) {
  return wait_number(n, &n->nwords, sizeof n->nwords, (uint64_t)count, timeout_ms);
}
bool node_wait_abort(node *n, int timeout_ms) {
  return wait_number(n, &n->aborts, sizeof n->aborts, 1, timeout_ms);
}
