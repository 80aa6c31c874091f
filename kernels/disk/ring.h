/* SPDX-License-Identifier: Apache-2.0 */
/* Concurrent transfers by io_uring. For use by one thread. */
#ifndef SLUICE_KERNELS_DISK_RING_H
#define SLUICE_KERNELS_DISK_RING_H

#include "kernels/disk/way.h"

typedef struct sli_disk_ring sli_disk_ring;

/* Opens a ring. Returns NULL on failure, with the reason in *why. */
sli_disk_ring *sli_disk_ring_open(const char **why);
void sli_disk_ring_close(sli_disk_ring *ring);

/* Runs all these transfers, piece by piece, and waits for them. They must be straight. */
sl_status sli_disk_ring_go(sli_disk_ring *ring, const sli_disk_way *ways, size_t count);

#endif
