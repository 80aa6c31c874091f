/* SPDX-License-Identifier: Apache-2.0 */
/* Condition variables with timed waits on CLOCK_MONOTONIC. */
#ifndef SLUICE_BASE_MONOTONIC_H
#define SLUICE_BASE_MONOTONIC_H

#include <pthread.h>
#include <time.h>

static inline void sli_cond_init(pthread_cond_t *cond) {
  pthread_condattr_t monotonic;
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_cond_init(cond, &monotonic);
  pthread_condattr_destroy(&monotonic);
}

/* Waits at most 100 ms; the caller holds the lock. The wait is limited because a run that ends for
 * another reason does not signal the condition. */
static inline void sli_cond_wait_a_while(pthread_cond_t *cond, pthread_mutex_t *lock) {
  enum { MS = 100 };
  struct timespec until;
  clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_nsec += MS * 1000000;
  if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
  pthread_cond_timedwait(cond, lock, &until);
}

#endif
