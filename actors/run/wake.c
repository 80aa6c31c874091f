/* SPDX-License-Identifier: Apache-2.0 */
/* Sleeping and waking: futexes of this process. */
#include "actors/run/state.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

void sli_futex_wait(_Atomic uint32_t *word, uint32_t value, uint64_t timeout_ns) {
  struct timespec t = {(time_t)(timeout_ns / 1000000000u), (long)(timeout_ns % 1000000000u)};
  const struct timespec *timeout = timeout_ns == UINT64_MAX ? NULL : &t;
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, timeout, NULL, 0);
}

void sli_futex_wake(_Atomic uint32_t *word) {
  int saved = errno;
  syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
  errno = saved;
}

void sli_worker_wake(worker *w) {
  if (!atomic_exchange(&w->sleeping, 0)) return;
  if (w->peers) w->peers->wake(w->peers->ctx);
  else sli_futex_wake(&w->sleeping);
}
