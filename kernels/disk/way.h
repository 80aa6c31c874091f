/* SPDX-License-Identifier: Apache-2.0 */
/* Transfers (ways) between a file and host memory, and their synchronous execution. */
#ifndef SLUICE_KERNELS_DISK_WAY_H
#define SLUICE_KERNELS_DISK_WAY_H

#include <sys/types.h>

#include "kernels/disk/file.h"

typedef struct sli_disk_way {
  const sli_disk_file *file;
  char *memory;
  off_t at; /* offset in the file */
  size_t bytes;
  bool out;         /* from memory to the file */
  const char *name; /* name for messages; may be NULL */
} sli_disk_way;

/* Returns the transfer from one address to the other. Its file is NULL if neither is on disk, or
 * both are. */
sli_disk_way sli_disk_way_of(void *to, const void *from, size_t bytes);
/* Returns true if the transfer needs no buffer: it is of whole pages, whose checksums are known. */
bool sli_disk_way_straight(const sli_disk_way *way);
/* Runs a transfer of any length, at any offset, and waits for it. */
sl_status sli_disk_go(const sli_disk_way *way);

/* Note the checksums of pages that will be written. */
void sli_disk_sign(const sli_disk_way *way);
/* Compares the pages that were read with the checksums of what was written. A page that differs is
 * read once more. Returns SL_E_IO if a disk returns other bytes than it was given. */
sl_status sli_disk_verify(const sli_disk_way *way);

/* Removes `bytes` transferred bytes from the front, or fewer if the remainder would otherwise need
 * a buffer. Returns false if nothing was removed. */
bool sli_disk_way_shorten(sli_disk_way *way, size_t bytes);
/* Returns SL_E_IO with an error that names the transfer. `error`: errno, or 0 if the file ended. */
sl_status sli_disk_broke(const sli_disk_way *way, int error);
/* Notes once that transfers run one piece at a time, and why. */
void sli_disk_say_plain(const char *why);
/* Drops the transfer's pages from the page cache. */
void sli_disk_forget(const sli_disk_way *way);

#endif
