/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/actorserve/worker.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/base.h"

/* A worker. `lock` guards all fields except `thread` and `fd`. */
struct worker {
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t more;
  work *todo, *done, **last; /* last: where the next finished work is linked */
  work *now;                 /* the work in progress */
  uint64_t since_ns;         /* start of the work in progress */
  int fd;
  bool ends;
};

/* Waits for the next work. Returns NULL if the worker is to end. */
static work *wait_for_work(worker *w) {
  pthread_mutex_lock(&w->lock);
  while (!w->todo && !w->ends) pthread_cond_wait(&w->more, &w->lock);
  work *x = w->ends ? NULL : w->todo;
  if (x) w->todo = x->next;
  w->now = x;
  w->since_ns = x ? sli_now_ns() : 0;
  pthread_mutex_unlock(&w->lock);
  return x;
}

/* Adds finished work. Called with the lock held. */
static void add_done(worker *w, work *x) {
  x->next = NULL;
  *w->last = x;
  w->last = &x->next;
  eventfd_write(w->fd, 1);
}

static void *do_all(void *ctx) {
  worker *w = ctx;
  for (work *x; (x = wait_for_work(w));) {
    x->run(x);
    pthread_mutex_lock(&w->lock);
    w->now = NULL;
    w->since_ns = 0;
    add_done(w, x);
    pthread_mutex_unlock(&w->lock);
  }
  return NULL;
}

sl_status worker_create(worker **out) {
  worker *w = sli_calloc(1, sizeof *w);
  *w = (worker){.last = &w->done, .fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  pthread_mutex_init(&w->lock, NULL);
  pthread_cond_init(&w->more, NULL);
  int error = w->fd < 0 ? errno : pthread_create(&w->thread, NULL, do_all, w);
  if (!error) {
    *out = w;
    return SL_OK;
  }
  if (w->fd >= 0) close(w->fd);
  free(w);
  return sl_fail(SL_E_MEMORY, "cannot start a thread for reading requests: %s", strerror(error));
}

void worker_destroy(worker *w) {
  if (!w) return;
  pthread_mutex_lock(&w->lock);
  w->ends = true;
  if (w->now) atomic_store(&w->now->stop, true);
  pthread_cond_signal(&w->more);
  pthread_mutex_unlock(&w->lock);
  pthread_join(w->thread, NULL);
  pthread_mutex_destroy(&w->lock);
  pthread_cond_destroy(&w->more);
  close(w->fd);
  free(w);
}

int worker_fd(const worker *w) { return w->fd; }

void worker_put(worker *w, work *x) {
  enum { BYTE_NS = 1000 }; /* longest delay in favour of shorter work, per byte */
  x->turn = sli_now_ns() + BYTE_NS * x->bytes;
  pthread_mutex_lock(&w->lock);
  work **at = &w->todo;
  while (*at && (*at)->turn <= x->turn) at = &(*at)->next;
  x->next = *at;
  *at = x;
  pthread_cond_signal(&w->more);
  pthread_mutex_unlock(&w->lock);
}

void worker_stop(worker *w, work *x) {
  pthread_mutex_lock(&w->lock);
  atomic_store(&x->stop, true);
  work **at = &w->todo;
  while (*at && *at != x) at = &(*at)->next;
  if (*at) {
    *at = x->next;
    add_done(w, x);
  }
  pthread_mutex_unlock(&w->lock);
}

double worker_seconds(worker *w) {
  pthread_mutex_lock(&w->lock);
  uint64_t since = w->since_ns, now = sli_now_ns();
  pthread_mutex_unlock(&w->lock);
  return since && now > since ? (double)(now - since) * 1e-9 : 0;
}

work *worker_take(worker *w) {
  eventfd_t count;
  pthread_mutex_lock(&w->lock);
  work *x = w->done;
  if (x) w->done = x->next;
  if (!w->done) w->last = &w->done;
  if (!w->done) eventfd_read(w->fd, &count); /* work that finishes later signals again */
  pthread_mutex_unlock(&w->lock);
  return x;
}
