/* How a thread that sleeps on file descriptors is woken by others, and by signal
 * handlers. Who wakes pays a system call only if the owner sleeps. */
#ifndef SLUICE_COMM_WAKER_H
#define SLUICE_COMM_WAKER_H

#include <stdatomic.h>

#include "base/base.h"

typedef struct sli_waker {
  _Atomic uint32_t state; /* what the owner does, and whether it was woken */
  int fd;                 /* an eventfd */
} sli_waker;

sl_status sli_waker_init(sli_waker *waker);
void sli_waker_fini(sli_waker *waker);

/* Any thread, any signal handler. */
void sli_waker_wake(sli_waker *waker);
/* The owner. Was it woken since it asked last? */
bool sli_waker_take(sli_waker *waker);
/* The owner. Sleeps until it is woken, one of `fds` (up to 4) is readable, or the time is over;
 * not at all if it was woken before. Takes the wake. */
void sli_waker_sleep(sli_waker *waker, const int *fds, int count, uint64_t timeout_ns);

#endif
