/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/loopback.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "base/base.h"
#include "tests/support/test.h"

/* A send in progress: one wire message. */
typedef struct wire_message {
  struct wire_message *next,
      *older; /* links of the receiver's list, and of the sender's list of all */
  char message[SL_MESSAGE_BYTES];
  const void *data;
  size_t bytes;
  int from;
  atomic_bool done;
} wire_message;

typedef struct process {
  loopback *all;
  int self;
  sl_runtime *rt;
  bool has_carrier;
  pthread_t carrier;
  pthread_mutex_t lock;
  pthread_cond_t news;
  bool woken;
  wire_message *first, **last;
  sl_peers peers;
  size_t sent[MOST_PROCESSES];
  wire_message *newest; /* aborted sends that nobody receives stay here */
} process;

struct loopback {
  int count;
  process of[MOST_PROCESSES];
};

static void wake(void *ctx) {
  process *p = ctx;
  pthread_mutex_lock(&p->lock);
  p->woken = true;
  pthread_cond_signal(&p->news);
  pthread_mutex_unlock(&p->lock);
}

/* Checks that one thread makes all calls except wake(). */
static process *of_carrier(void *ctx) {
  process *p = ctx;
  if (!p->has_carrier) p->carrier = pthread_self();
  p->has_carrier = true;
  CHECK(pthread_equal(p->carrier, pthread_self()), "the carrier alone speaks to others");
  return p;
}

static void tell(void *ctx, int to, const void *message) {
  const process *p = of_carrier(ctx);
  CHECK(!sl_runtime_deliver(p->all->of[to].rt, message), "%s", sl_detail());
}

static bool send(void *ctx, int to, const void *message, const void *data, size_t bytes,
                 uint64_t *fence) {
  process *p = of_carrier(ctx), *other = &p->all->of[to];
  wire_message *x = sli_calloc(1, sizeof *x);
  memcpy(x->message, message, sizeof x->message);
  x->data = data;
  x->bytes = bytes;
  x->from = p->self;
  x->older = p->newest;
  p->newest = x;
  p->sent[to] += bytes;
  pthread_mutex_lock(&other->lock);
  *other->last = x;
  other->last = &x->next;
  pthread_mutex_unlock(&other->lock);
  wake(other);
  *fence = (uint64_t)(uintptr_t)x;
  return false;
}

static bool done(void *ctx, uint64_t fence) {
  (void)ctx;
  return atomic_load(&((wire_message *)(uintptr_t)fence)->done);
}

static bool progress(void *ctx) {
  process *p = of_carrier(ctx);
  pthread_mutex_lock(&p->lock);
  wire_message *x = p->first;
  if (x && !(p->first = x->next)) p->last = &p->first;
  pthread_mutex_unlock(&p->lock);
  if (!x) return false;
  if (x->bytes) {
    void *place = sl_runtime_place(p->rt, x->message, x->bytes);
    CHECK(place, "%s", sl_detail());
    memcpy(place, x->data, x->bytes);
  }
  CHECK(!sl_runtime_arrived(p->rt, x->message, x->bytes), "%s", sl_detail());
  process *from = &p->all->of[x->from];
  atomic_store(&x->done, true);
  wake(from);
  return true;
}

static void wait(void *ctx, uint64_t timeout_ns) {
  process *p = ctx;
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  uint64_t ns = (uint64_t)until.tv_nsec + SLI_MIN(timeout_ns, UINT64_C(1000000000));
  until.tv_sec += (time_t)(ns / 1000000000u);
  until.tv_nsec = (long)(ns % 1000000000u);
  pthread_mutex_lock(&p->lock);
  while (!p->woken && !p->first)
    if (pthread_cond_timedwait(&p->news, &p->lock, &until)) break;
  p->woken = false;
  pthread_mutex_unlock(&p->lock);
}

static uint64_t sent(void *ctx) {
  const process *p = ctx;
  uint64_t sum = 0;
  for (int i = 0; i < p->all->count; i++) sum += p->sent[i];
  return sum;
}

loopback *loopback_create(int count) {
  loopback *x = sli_calloc(1, sizeof *x);
  x->count = count;
  for (int i = 0; i < count; i++) {
    process *p = &x->of[i];
    *p = (process){.all = x, .self = i, .last = &p->first};
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->news, NULL);
    p->peers = (sl_peers){p, tell, send, done, progress, wait, wake, sent, NULL};
  }
  return x;
}

void loopback_destroy(loopback *x) {
  for (int i = 0; i < x->count; i++) {
    for (wire_message *older, *at = x->of[i].newest; at; at = older) {
      older = at->older;
      free(at);
    }
    pthread_mutex_destroy(&x->of[i].lock);
    pthread_cond_destroy(&x->of[i].news);
  }
  free(x);
}

const sl_peers *loopback_peers(loopback *x, int self) { return &x->of[self].peers; }
void loopback_attach(loopback *x, int self, sl_runtime *rt) { x->of[self].rt = rt; }
size_t loopback_bytes(loopback *x, int from, int to) { return x->of[from].sent[to]; }
