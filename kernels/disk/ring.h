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

/* Reads that are under way while their thread does something else: no other thread has to wake for
 * them. Each has a number, from 1 on, and they end in this order. */
typedef struct sli_disk_flights sli_disk_flights;

/* Opens a ring for flights. Returns NULL on failure, with the reason in *why. */
sli_disk_flights *sli_disk_flights_open(const char **why);
/* Waits for what is under way. NULL is a no-op. */
void sli_disk_flights_close(sli_disk_flights *flights);
/* Begins reads, all at once, which must be straight. Returns their number; 0: there is no room for
 * them now, or ever. */
uint64_t sli_disk_flights_begin(sli_disk_flights *flights, const sli_disk_way *ways, size_t count);
/* Looks at what has ended. Returns the last number that has, with all before. */
uint64_t sli_disk_flights_passed(sli_disk_flights *flights);
/* Returns the error that ended a read, or NULL. */
const char *sli_disk_flights_failure(const sli_disk_flights *flights);

#endif
