/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/actors_streams.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/base.h"
#include "tests/support/actors_plans.h"
#include "tests/support/test.h"

enum { MOST_BASES = 48, MOST_UNDER_WAY = 8, MOST_WAITS = 256 };

typedef struct stream stream;

typedef struct flight {
  const sl_program *program;
  sl_tick tick;
  void *bases[MOST_BASES];
  uint8_t first[MOST_BASES];
  int nwaits;
  struct {
    const stream *other;
    uint64_t fence;
  } waits[MOST_WAITS];
} flight;

struct stream {
  void *cpu;
  uint64_t launched, run;  /* number of firings; guarded by the lock */
  _Atomic uint64_t passed; /* number of firings known to its owner */
  flight flights[MOST_UNDER_WAY];
  stream *next;
};

/* The device: its streams, and its random state. */
static pthread_mutex_t device = PTHREAD_MUTEX_INITIALIZER;
static stream *streams;
static uint64_t state = 1;
static unsigned long waits;

static sl_status stream_open(const sl_queue_config *config, void **queue) {
  stream *s = sli_calloc(1, sizeof *s);
  CHECK(!sl_queue_cpu.open(config, &s->cpu), "%s", sl_detail());
  pthread_mutex_lock(&device);
  s->next = streams;
  streams = s;
  pthread_mutex_unlock(&device);
  *queue = s;
  return SL_OK;
}

static void stream_close(void *queue) {
  stream *s = queue, **at = &streams;
  pthread_mutex_lock(&device);
  CHECK(s->run == s->launched, "a stream is closed with firings under way");
  while (*at != s) at = &(*at)->next;
  *at = s->next;
  pthread_mutex_unlock(&device);
  sl_queue_cpu.close(s->cpu);
  free(s);
}

static bool stream_launch(void *queue, const sl_program *program, const sl_firing *firing,
                          uint64_t now_ns, uint64_t duration_ns, uint64_t *fence) {
  (void)now_ns, (void)duration_ns;
  stream *s = queue;
  size_t nbases = (size_t)program->nbases;
  pthread_mutex_lock(&device);
  CHECK(s->launched - s->run < MOST_UNDER_WAY && nbases <= MOST_BASES, "too much is under way");
  flight *f = &s->flights[s->launched++ % MOST_UNDER_WAY];
  f->program = program;
  f->tick = firing->tick;
  memcpy(f->bases, firing->bases, nbases * sizeof *firing->bases);
  memcpy(f->first, firing->first, nbases);
  *fence = s->launched;
  pthread_mutex_unlock(&device);
  return false;
}

/* Adds a wait to the firing that is launched next. */
static void stream_wait(void *queue, void *other, uint64_t fence) {
  stream *s = queue;
  pthread_mutex_lock(&device);
  const stream *of = other;
  CHECK(fence >= 1 && fence <= of->launched, "a wait for firing %llu of %llu",
        (unsigned long long)fence, (unsigned long long)of->launched);
  flight *f = &s->flights[s->launched % MOST_UNDER_WAY];
  CHECK(f->nwaits < MOST_WAITS, "too many waits");
  f->waits[f->nwaits].other = of;
  f->waits[f->nwaits++].fence = fence;
  waits++;
  pthread_mutex_unlock(&device);
}

static bool can_run(const stream *s) {
  const flight *f = &s->flights[s->run % MOST_UNDER_WAY];
  bool can = s->run < s->launched;
  for (int i = 0; can && i < f->nwaits; i++) can = f->waits[i].other->run >= f->waits[i].fence;
  return can;
}

static void run_one(stream *s) {
  flight *f = &s->flights[s->run % MOST_UNDER_WAY];
  uint64_t none;
  sl_queue_cpu.launch(s->cpu, f->program,
                      &(sl_firing){.tick = f->tick, .bases = f->bases, .first = f->first}, 0, 0,
                      &none);
  f->nwaits = 0;
  s->run++;
}

/* Advances each stream that can, with a probability of one half. */
static bool advance(void) {
  bool any = false;
  for (stream *s = streams; s; s = s->next) {
    if (!can_run(s)) continue;
    any = true;
    if (random_below(&state, 2)) run_one(s);
  }
  return any;
}

static bool stream_done(void *queue, uint64_t fence, uint64_t now_ns) {
  (void)now_ns;
  stream *s = queue;
  pthread_mutex_lock(&device);
  bool done = s->run >= fence, any = advance();
  CHECK(done || any, "every stream waits for another");
  pthread_mutex_unlock(&device);
  if (done) atomic_store_explicit(&s->passed, fence, memory_order_release);
  return done;
}

static bool stream_passed(void *queue, uint64_t fence) {
  const stream *s = queue;
  return atomic_load_explicit(&s->passed, memory_order_acquire) >= fence;
}

static uint64_t stream_due(void *queue, uint64_t fence) {
  (void)queue, (void)fence;
  return UINT64_MAX;
}

unsigned long streams_waits(void) {
  pthread_mutex_lock(&device);
  unsigned long count = waits;
  pthread_mutex_unlock(&device);
  return count;
}

const sl_queue_ops stream_queue = {.name = "stream",
                                   .open = stream_open,
                                   .close = stream_close,
                                   .launch = stream_launch,
                                   .done = stream_done,
                                   .due = stream_due,
                                   .wait = stream_wait,
                                   .passed = stream_passed};
