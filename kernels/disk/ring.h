/* SPDX-License-Identifier: Apache-2.0 */
/* Many transfers in flight at once, by io_uring. For use by one thread. */
#ifndef SLUICE_DISK_RING_H
#define SLUICE_DISK_RING_H

#include "kernels/disk/way.h"

typedef struct sli_disk_ring sli_disk_ring;

/* Returns NULL on failure, with the reason in *why. */
sli_disk_ring *sli_disk_ring_open(const char **why);
void sli_disk_ring_close(sli_disk_ring *ring);

/* Runs all these transfers, which must be straight, piece by piece, and waits for all. */
sl_status sli_disk_ring_go(sli_disk_ring *ring, const sli_disk_way *ways, size_t count);

#endif
