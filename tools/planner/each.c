/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/planner/each.h"

#include <pthread.h>
#include <stdatomic.h>

#include "base/base.h"

enum { MOST_THREADS = 64 };

typedef struct work {
  bool (*stopped)(void);
  size_t end;
  atomic_size_t next;
  void (*fn)(void *ctx, size_t i);
  void *ctx;
} work;

static void *work_on(void *arg) {
  work *w = arg;
  while (!w->stopped || !w->stopped()) {
    size_t i = atomic_fetch_add_explicit(&w->next, 1, memory_order_relaxed);
    if (i >= w->end) break;
    w->fn(w->ctx, i);
  }
  return NULL;
}

void each(int threads, bool (*stopped)(void), size_t from, size_t end,
          void (*fn)(void *ctx, size_t i), void *ctx) {
  work w = {.stopped = stopped, .end = end, .next = from, .fn = fn, .ctx = ctx};
  pthread_t started[MOST_THREADS];
  int n = SLI_MAX(SLI_MIN(threads, MOST_THREADS), 1);
  for (int i = 0; i < n; i++)
    SLI_CHECK(!pthread_create(&started[i], NULL, work_on, &w),
              "cannot start a thread for the search");
  for (int i = 0; i < n; i++) pthread_join(started[i], NULL);
}
