/* SPDX-License-Identifier: Apache-2.0 */
/* Teams: fork and join for chunks that take microseconds.
 *
 * All chunks of one sl_team_for() are counted by a single 64-bit word, the ticket. Its high half is
 * the number of the call, its low half the number of unclaimed chunks. A claim is a
 * compare-and-swap that decrements the ticket. A claim succeeds only while its call is running,
 * because the call cannot return before the claimed chunk is done. A helper may therefore read the
 * call's function and argument after a claim, and the caller never waits for a helper that slept
 * through a call.
 *
 * A helper without work spins for a short while, then sleeps on a futex (the epoch). The caller,
 * after its own chunks, waits for the last chunk in the same way (on `unfinished`). */
#include "kernels/cpu/team.h"

#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/base.h"
#include "base/pause.h"
#include "kernels/current_call.h"

enum { SPIN_NS = 30000, SPINS_PER_LOOK = 64 };

struct helper {
  struct sl_team *team;
  pthread_t thread;
  int number;
};

struct sl_team {
  /* Written by the caller before it publishes the ticket, read after a claim. */
  void (*fn)(void *arg, int i);
  void *arg;
  int n;
  const sli_current_call *current; /* the caller's current call */

  _Alignas(SLI_CACHE_LINE) atomic_uint_fast64_t ticket; /* release store / acquire claim */
  /* chunks to finish; released by workers, acquired by the caller */
  _Alignas(SLI_CACHE_LINE) atomic_uint unfinished;
  atomic_uint caller_sleeps;
  _Alignas(SLI_CACHE_LINE) atomic_uint epoch; /* futex word of the helpers */
  atomic_uint sleepers;
  atomic_bool stop;

  int threads;
  void (*bind)(void *arg, int thread);
  void *bind_arg;
  struct helper helpers[];
};

static void futex_wait(atomic_uint *word, unsigned seen) {
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

static void futex_wake(atomic_uint *word, int count) {
  syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0);
}

/* Claims and runs chunks until the current call has none left. */
static void work(struct sl_team *team) {
  uint_fast64_t ticket = atomic_load_explicit(&team->ticket, memory_order_acquire);
  while ((uint32_t)ticket) {
    if (!atomic_compare_exchange_weak_explicit(&team->ticket, &ticket, ticket - 1,
                                               memory_order_acq_rel, memory_order_acquire))
      continue;
    sli_thread_call = team->current;
    team->fn(team->arg, team->n - (int)(uint32_t)ticket);
    if (atomic_fetch_sub(&team->unfinished, 1) == 1 && atomic_load(&team->caller_sleeps))
      futex_wake(&team->unfinished, 1);
    ticket = atomic_load_explicit(&team->ticket, memory_order_acquire);
  }
}

static bool has_work(struct sl_team *team) {
  return (uint32_t)atomic_load(&team->ticket) || atomic_load(&team->stop);
}

/* Spins until there is work; returns false after SPIN_NS. */
static bool spin_for_work(struct sl_team *team) {
  uint64_t end = sli_now_ns() + SPIN_NS;
  do {
    for (int i = 0; i < SPINS_PER_LOOK; i++) {
      if (has_work(team)) return true;
      sli_pause();
    }
  } while (sli_now_ns() < end);
  return false;
}

/* Pairs with sl_team_for(): either the caller sees the sleeper, or the sleeper
 * sees the ticket (both sides sequentially consistent). */
static void sleep_for_work(struct sl_team *team) {
  atomic_fetch_add(&team->sleepers, 1);
  unsigned seen = atomic_load(&team->epoch);
  if (!has_work(team)) futex_wait(&team->epoch, seen);
  atomic_fetch_sub(&team->sleepers, 1);
}

static void *helper_main(void *arg) {
  struct helper *self = arg;
  struct sl_team *team = self->team;
  if (team->bind) team->bind(team->bind_arg, self->number);
  while (!atomic_load(&team->stop)) {
    if (!spin_for_work(team)) sleep_for_work(team);
    work(team);
  }
  return NULL;
}

static void wake_helpers(struct sl_team *team, int count) {
  atomic_fetch_add(&team->epoch, 1);
  if (atomic_load(&team->sleepers)) futex_wake(&team->epoch, count);
}

static void stop_helpers(struct sl_team *team, int started) {
  atomic_store(&team->stop, true);
  wake_helpers(team, started);
  for (int i = 0; i < started; i++) pthread_join(team->helpers[i].thread, NULL);
}

struct sl_team *sli_team_create(int threads, void (*bind)(void *arg, int thread), void *arg) {
  int helpers = SLI_MAX(threads, 1) - 1;
  size_t bytes = sizeof(struct sl_team) + (size_t)helpers * sizeof(struct helper);
  bytes = (bytes + SLI_CACHE_LINE - 1) / SLI_CACHE_LINE * SLI_CACHE_LINE;
  struct sl_team *team = aligned_alloc(SLI_CACHE_LINE, bytes);
  if (!team) return NULL;
  memset(team, 0, bytes);
  team->threads = helpers + 1;
  team->bind = bind;
  team->bind_arg = arg;
  for (int i = 0; i < helpers; i++) {
    team->helpers[i] = (struct helper){.team = team, .number = i + 1};
    if (pthread_create(&team->helpers[i].thread, NULL, helper_main, &team->helpers[i])) {
      stop_helpers(team, i);
      free(team);
      return NULL;
    }
  }
  return team;
}

void sli_team_destroy(struct sl_team *team) {
  if (!team) return;
  stop_helpers(team, team->threads - 1);
  free(team);
}

int sl_team_size(const struct sl_team *team) { return team ? team->threads : 1; }

/* Waits until every claimed chunk is done. */
static void join(struct sl_team *team) {
  uint64_t end = 0;
  for (int i = 1; atomic_load_explicit(&team->unfinished, memory_order_acquire); i++) {
    sli_pause();
    if (i % SPINS_PER_LOOK) continue;
    uint64_t now = sli_now_ns();
    if (!end) end = now + SPIN_NS;
    if (now < end) continue;
    atomic_store(&team->caller_sleeps, 1);
    unsigned left;
    while ((left = atomic_load(&team->unfinished))) futex_wait(&team->unfinished, left);
    atomic_store(&team->caller_sleeps, 0);
  }
}

int sli_team_threads(const struct sl_team *team) { return team ? team->threads : 1; }

void sl_team_for(struct sl_team *team, int n, void (*fn)(void *arg, int i), void *arg) {
  if (!team || team->threads == 1 || n <= 1) {
    for (int i = 0; i < n; i++) fn(arg, i);
    return;
  }
  team->fn = fn;
  team->arg = arg;
  team->n = n;
  team->current = sli_thread_call;
  atomic_store(&team->unfinished, (unsigned)n);
  uint_fast64_t call = (atomic_load_explicit(&team->ticket, memory_order_relaxed) >> 32) + 1;
  atomic_store(&team->ticket, call << 32 | (uint32_t)n);
  wake_helpers(team, SLI_MIN(n, team->threads) - 1);
  work(team);
  join(team);
}
