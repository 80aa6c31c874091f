/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/actorserve/budget.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* A thread's request for memory. */
typedef struct wish {
  account *account;
  size_t bytes;
  bool answered, granted;
  struct wish *next;
} wish;

/* A budget. `lock` guards `held`, `wishes`, `closed`, and what accounts hold. */
struct budget {
  size_t most, held;
  pthread_t loop;
  pthread_mutex_t lock;
  pthread_cond_t answered;
  wish *wishes;
  bool closed;
  int fd;
  void (*make_room)(void *ctx, size_t bytes);
  void *ctx;
};

sl_status budget_create(size_t most, budget **out) {
  int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (fd < 0)
    return sl_fail(SL_E_MEMORY, "no descriptor for the memory of requests: %s", strerror(errno));
  budget *b = sli_calloc(1, sizeof *b);
  *b = (budget){.most = most, .loop = pthread_self(), .fd = fd};
  pthread_mutex_init(&b->lock, NULL);
  pthread_cond_init(&b->answered, NULL);
  *out = b;
  return SL_OK;
}

void budget_destroy(budget *b) {
  if (!b) return;
  close(b->fd);
  pthread_cond_destroy(&b->answered);
  pthread_mutex_destroy(&b->lock);
  free(b);
}

size_t budget_most(const budget *b) { return b->most; }

size_t budget_held(budget *b) {
  pthread_mutex_lock(&b->lock);
  size_t held = b->held;
  pthread_mutex_unlock(&b->lock);
  return held;
}

void budget_count(budget *b, size_t more, size_t less) {
  pthread_mutex_lock(&b->lock);
  b->held += more - less;
  pthread_mutex_unlock(&b->lock);
}

/* Returns whether `bytes` more bytes fit. Called with the lock held. */
static bool fits(const budget *b, size_t bytes) {
  return bytes <= b->most && b->held <= b->most - bytes;
}

bool budget_fits(budget *b, size_t bytes) {
  pthread_mutex_lock(&b->lock);
  bool good = fits(b, bytes);
  pthread_mutex_unlock(&b->lock);
  return good;
}

void budget_set_maker(budget *b, void (*make_room)(void *ctx, size_t bytes), void *ctx) {
  b->make_room = make_room;
  b->ctx = ctx;
}

/* ---- accounts -------------------------------------------------------------------------------- */

/* Functions up to make_room() are called with the lock held. */

static bool is_over(account *a, size_t bytes) {
  bool over = bytes > a->most || a->held > a->most - bytes;
  a->over |= over;
  return over;
}

static bool reserve(account *a, size_t bytes) {
  bool good = !is_over(a, bytes) && fits(a->budget, bytes);
  if (!good) return false;
  a->held += bytes;
  a->budget->held += bytes;
  return true;
}

static void drop(budget *b, const wish *x) {
  wish **at = &b->wishes;
  while (*at != x) at = &(*at)->next;
  *at = x->next;
}

/* Waits until the event loop has made room. */
static bool wait_for_room(account *a, size_t bytes) {
  budget *b = a->budget;
  wish mine = {.account = a, .bytes = bytes, .next = b->wishes};
  b->wishes = &mine;
  eventfd_write(b->fd, 1);
  while (!mine.answered && !b->closed) pthread_cond_wait(&b->answered, &b->lock);
  drop(b, &mine);
  return mine.granted;
}

/* Makes room, on the event loop's thread. */
static bool make_room(account *a, size_t bytes) {
  budget *b = a->budget;
  if (!b->make_room) return false;
  pthread_mutex_unlock(&b->lock);
  b->make_room(b->ctx, bytes);
  pthread_mutex_lock(&b->lock);
  return reserve(a, bytes);
}

bool account_take(account *a, size_t bytes) {
  budget *b = a->budget;
  pthread_mutex_lock(&b->lock);
  bool good = reserve(a, bytes);
  if (!good && !a->over)
    good = pthread_equal(b->loop, pthread_self()) ? make_room(a, bytes) : wait_for_room(a, bytes);
  pthread_mutex_unlock(&b->lock);
  return good;
}

void account_give(account *a, size_t bytes) {
  pthread_mutex_lock(&a->budget->lock);
  bytes = SLI_MIN(bytes, a->held);
  a->held -= bytes;
  a->budget->held -= bytes;
  pthread_mutex_unlock(&a->budget->lock);
}

void account_give_all(account *a) { account_give(a, SIZE_MAX); }

static bool budget_take(void *ctx, size_t bytes) { return account_take(ctx, bytes); }

static void give(void *ctx, size_t bytes) { account_give(ctx, bytes); }

sli_allowance account_allowance(account *a) { return (sli_allowance){budget_take, give, a}; }

/* ---- the event loop's side ------------------------------------------------------------------- */

int budget_fd(const budget *b) { return b->fd; }

static wish *next_wish(const budget *b) {
  wish *x = b->wishes;
  while (x && x->answered) x = x->next;
  return x;
}

void budget_answer(budget *b) {
  eventfd_t count;
  eventfd_read(b->fd, &count);
  pthread_mutex_lock(&b->lock);
  for (wish *x; (x = next_wish(b));) {
    x->granted = reserve(x->account, x->bytes) || make_room(x->account, x->bytes);
    x->answered = true;
  }
  pthread_cond_broadcast(&b->answered);
  pthread_mutex_unlock(&b->lock);
}

void budget_close(budget *b) {
  pthread_mutex_lock(&b->lock);
  b->closed = true;
  pthread_cond_broadcast(&b->answered);
  pthread_mutex_unlock(&b->lock);
}
