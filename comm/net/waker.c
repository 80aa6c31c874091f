/* SPDX-License-Identifier: Apache-2.0 */
/* The owner changes the state from AWAKE to ASLEEP before it sleeps, and back afterwards. A waking
 * thread sets WOKEN from either state, and writes to the eventfd only if the state was ASLEEP. Both
 * are atomic exchanges on one word: either the owner sees the wake and does not sleep, or the other
 * thread sees that the owner sleeps. A write may come after the owner woke for another reason. A
 * later sleep then ends early, which the owner must expect anyway. */
#include "comm/net/waker.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { AWAKE, ASLEEP, WOKEN };

sl_status sli_waker_init(sli_waker *waker) {
  int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (fd < 0) return sl_fail(SL_E_IO, "cannot create an eventfd: %s", strerror(errno));
  waker->fd = fd;
  atomic_init(&waker->state, AWAKE);
  return SL_OK;
}

void sli_waker_fini(sli_waker *waker) { close(waker->fd); }

void sli_waker_wake(sli_waker *waker) {
  /* Releases the caller's earlier writes to the owner's acquire in take and sleep. */
  if (atomic_exchange_explicit(&waker->state, WOKEN, memory_order_acq_rel) != ASLEEP) return;
  int saved = errno;
  ssize_t written = write(waker->fd, &(uint64_t){1}, sizeof(uint64_t));
  (void)written; /* fails only if the counter is full, and then the owner is awake */
  errno = saved;
}

bool sli_waker_take(sli_waker *waker) {
  if (atomic_load_explicit(&waker->state, memory_order_relaxed) != WOKEN) return false;
  atomic_exchange_explicit(&waker->state, AWAKE, memory_order_acq_rel);
  return true;
}

void sli_waker_sleep(sli_waker *waker, const int *others, int count, uint64_t timeout_ns) {
  struct pollfd fds[5] = {{.fd = waker->fd, .events = POLLIN}};
  SLI_CHECK(count < (int)SLI_COUNT(fds), "cannot sleep on %d descriptors", count);
  for (int i = 0; i < count; i++) fds[i + 1] = (struct pollfd){.fd = others[i], .events = POLLIN};
  struct timespec timeout = {(time_t)(timeout_ns / 1000000000), (long)(timeout_ns % 1000000000)};
  uint32_t state = AWAKE;
  if (atomic_compare_exchange_strong_explicit(&waker->state, &state, ASLEEP, memory_order_acq_rel,
                                              memory_order_acquire)) {
    int ready = ppoll(fds, (nfds_t)count + 1, &timeout, NULL);
    uint64_t wakes;
    if (ready > 0 && fds[0].revents && read(waker->fd, &wakes, sizeof wakes) < 0)
      SLI_CHECK(errno == EAGAIN || errno == EINTR, "reading an eventfd failed: %s",
                strerror(errno));
  }
  atomic_exchange_explicit(&waker->state, AWAKE, memory_order_acq_rel);
}
