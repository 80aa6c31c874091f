/* SPDX-License-Identifier: Apache-2.0 */
/* Wakes a thread that sleeps on file descriptors, from other threads and from signal handlers. A
 * wake costs a system call only if the owner sleeps. */
#ifndef SLUICE_COMM_NET_WAKER_H
#define SLUICE_COMM_NET_WAKER_H

#include <stdatomic.h>

#include "base/base.h"

typedef struct sli_waker {
  _Atomic uint32_t state; /* AWAKE, ASLEEP or WOKEN (waker.c) */
  int fd;                 /* an eventfd */
} sli_waker;

sl_status sli_waker_init(sli_waker *waker);
void sli_waker_fini(sli_waker *waker);

/* Wakes the owner. Any thread, any signal handler. */
void sli_waker_wake(sli_waker *waker);
/* Returns whether the owner was woken since its last call, and clears the wake. Owner only. */
bool sli_waker_take(sli_waker *waker);
/* Sleeps until the owner is woken, one of `fds` (up to 4) is readable, or the timeout expires.
 * Returns immediately if the owner has already been woken. Clears the wake. Owner only. */
void sli_waker_sleep(sli_waker *waker, const int *fds, int count, uint64_t timeout_ns);

#endif
