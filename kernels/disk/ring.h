/* Many ways under way at a time, by io_uring. One thread. */
#ifndef SLUICE_DISK_RING_H
#define SLUICE_DISK_RING_H

#include "kernels/disk/way.h"

typedef struct sli_disk_ring sli_disk_ring;

/* NULL: refused, with errno. */
sli_disk_ring *sli_disk_ring_open(void);
void sli_disk_ring_close(sli_disk_ring *ring);

/* Goes all these ways, which are straight, piece by piece, and waits for all. */
sl_status sli_disk_ring_go(sli_disk_ring *ring, const sli_disk_way *ways, size_t count);

#endif
