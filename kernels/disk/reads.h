/* SPDX-License-Identifier: Apache-2.0 */
/* Reads from disk behind a queue that does not wait for them: one thread, which rests while there
 * is nothing to read.
 *
 * Sure reads are read first, in the order in which they were asked for, and are numbered from 1.
 * Guesses are read while no sure read waits, a piece at a time, so a sure read waits for one piece
 * at most. A guess that turns out right becomes a sure read, and a wrong one is dropped. Functions
 * are called by one thread, that of the queue. */
#ifndef SLUICE_KERNELS_DISK_READS_H
#define SLUICE_KERNELS_DISK_READS_H

#include <sluice/program.h>

#include "kernels/disk/way.h"

typedef struct sli_disk_reads sli_disk_reads;

/* Memory that the host cannot address: what is read for it lands in host memory first. */
typedef struct sli_disk_far {
  const sl_memory_ops *memory, *host; /* NULL: reads go straight to host memory */
  int device;
} sli_disk_far;

sli_disk_reads *sli_disk_reads_open(sli_disk_far far);
/* Drops what has not been read yet. NULL is a no-op. */
void sli_disk_reads_close(sli_disk_reads *reads);

/* Copies what is in host memory already to where reads go. */
sl_status sli_disk_reads_copy(const sli_disk_reads *reads, void *to, const void *from,
                              size_t bytes);
/* Asks for a sure read of some transfers. Returns its number. */
uint64_t sli_disk_reads_ask(sli_disk_reads *reads, const sli_disk_way *ways, size_t count);
/* Returns the last sure read that has ended. */
uint64_t sli_disk_reads_passed(const sli_disk_reads *reads);

/* Guesses that some transfers will be wanted. Adds the bytes read so far to *bytes, unless it is
 * NULL. Returns a mark, from 1 on. */
uint64_t sli_disk_reads_guess(sli_disk_reads *reads, const sli_disk_way *ways, size_t count,
                              uint64_t *bytes);
/* Makes a guess a sure read if it is wanted, and drops it otherwise. Returns the read's number, or
 * 0 if it was dropped or, then *there, has ended. */
uint64_t sli_disk_reads_settle(sli_disk_reads *reads, uint64_t mark, bool wanted, bool *there);

/* Returns the error that ended all reads, or NULL. */
const char *sli_disk_reads_failure(const sli_disk_reads *reads);

#endif
