/* SPDX-License-Identifier: Apache-2.0 */
/* Limit of a disk's rate: a bucket of tokens that holds none in advance (SLUICE_DISK=rate=N). */
#ifndef SLUICE_KERNELS_DISK_RATE_H
#define SLUICE_KERNELS_DISK_RATE_H

#include <stdint.h>
#include <time.h>

#include "base/base.h"

typedef struct sli_disk_rate_limit {
  double rate;     /* bytes per second; 0: no limit */
  uint64_t due_ns; /* when a disk of that rate would have moved all bytes so far */
} sli_disk_rate_limit;

/* Returns when a disk of that rate would have moved the bytes of a transfer begun at begun_ns; 0:
 * there is no limit. */
static inline uint64_t sli_disk_rate_due(sli_disk_rate_limit *x, uint64_t begun_ns, size_t bytes) {
  if (!(x->rate > 0) || !bytes) return 0;
  return x->due_ns = SLI_MAX(x->due_ns, begun_ns) + (uint64_t)((double)bytes / x->rate * 1e9);
}

/* Waits until then. */
static inline void sli_disk_rate_keep(sli_disk_rate_limit *x, uint64_t begun_ns, size_t bytes) {
  if (!sli_disk_rate_due(x, begun_ns, bytes)) return;
  for (uint64_t now; (now = sli_now_ns()) < x->due_ns;) {
    uint64_t left = x->due_ns - now;
    nanosleep(&(struct timespec){(time_t)(left / 1000000000), (long)(left % 1000000000)}, NULL);
  }
}

#endif
