#include "tools/actorserve/encoder.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/base.h"

/* `lock` is held for the lists and `ends`. */
struct encoder {
  const codec *codec;
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t more;
  encoding *todo, *done, **last; /* last: where the next that is done goes */
  encoding *now;                 /* under way */
  uint64_t since_ns;             /* that it is */
  int fd;
  bool ends;
};

static void encode(const codec *c, encoding *x) {
  x->status = codec_encode(c, x->text, x->bytes, x->whole, &x->stop, &x->out);
  if (x->status) x->failure = sli_strdup(sl_detail());
}

/* The next text; NULL: no more are wanted. */
static encoding *wait_for_text(encoder *e) {
  pthread_mutex_lock(&e->lock);
  while (!e->todo && !e->ends) pthread_cond_wait(&e->more, &e->lock);
  encoding *x = e->ends ? NULL : e->todo;
  if (x) e->todo = x->next;
  e->now = x;
  e->since_ns = x ? sli_now_ns() : 0;
  pthread_mutex_unlock(&e->lock);
  return x;
}

/* Under the lock. */
static void add_done(encoder *e, encoding *x) {
  x->next = NULL;
  *e->last = x;
  e->last = &x->next;
  eventfd_write(e->fd, 1);
}

static void *encode_all(void *ctx) {
  encoder *e = ctx;
  for (encoding *x; (x = wait_for_text(e));) {
    encode(e->codec, x);
    pthread_mutex_lock(&e->lock);
    e->now = NULL;
    e->since_ns = 0;
    add_done(e, x);
    pthread_mutex_unlock(&e->lock);
  }
  return NULL;
}

sl_status encoder_create(const codec *c, encoder **out) {
  encoder *e = sli_calloc(1, sizeof *e);
  *e = (encoder){.codec = c, .last = &e->done, .fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  pthread_mutex_init(&e->lock, NULL);
  pthread_cond_init(&e->more, NULL);
  int error = e->fd < 0 ? errno : pthread_create(&e->thread, NULL, encode_all, e);
  if (!error) {
    *out = e;
    return SL_OK;
  }
  if (e->fd >= 0) close(e->fd);
  free(e);
  return sl_fail(SL_E_MEMORY, "no thread to make tokens of texts: %s", strerror(error));
}

void encoder_destroy(encoder *e) {
  if (!e) return;
  pthread_mutex_lock(&e->lock);
  e->ends = true;
  if (e->now) atomic_store(&e->now->stop, true);
  pthread_cond_signal(&e->more);
  pthread_mutex_unlock(&e->lock);
  pthread_join(e->thread, NULL);
  pthread_mutex_destroy(&e->lock);
  pthread_cond_destroy(&e->more);
  close(e->fd);
  free(e);
}

int encoder_fd(const encoder *e) { return e->fd; }

void encoder_put(encoder *e, encoding *x) {
  enum { BYTE_NS = 1000 }; /* that a text waits for shorter ones, at most */
  x->bytes = strlen(x->text);
  x->turn = sli_now_ns() + BYTE_NS * x->bytes;
  pthread_mutex_lock(&e->lock);
  encoding **at = &e->todo;
  while (*at && (*at)->turn <= x->turn) at = &(*at)->next;
  x->next = *at;
  *at = x;
  pthread_cond_signal(&e->more);
  pthread_mutex_unlock(&e->lock);
}

void encoder_stop(encoder *e, encoding *x) {
  pthread_mutex_lock(&e->lock);
  atomic_store(&x->stop, true);
  encoding **at = &e->todo;
  while (*at && *at != x) at = &(*at)->next;
  if (*at) {
    *at = x->next;
    x->status = SL_E_STOPPED;
    add_done(e, x);
  }
  pthread_mutex_unlock(&e->lock);
}

double encoder_seconds(encoder *e) {
  pthread_mutex_lock(&e->lock);
  uint64_t since = e->since_ns, now = sli_now_ns();
  pthread_mutex_unlock(&e->lock);
  return since && now > since ? (double)(now - since) * 1e-9 : 0;
}

encoding *encoder_take(encoder *e) {
  eventfd_t count;
  pthread_mutex_lock(&e->lock);
  encoding *x = e->done;
  if (x) e->done = x->next;
  if (!e->done) e->last = &e->done;
  if (!e->done) eventfd_read(e->fd, &count); /* what is done later counts anew */
  pthread_mutex_unlock(&e->lock);
  return x;
}
