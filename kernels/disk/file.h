/* SPDX-License-Identifier: Apache-2.0 */
/* Files that act as memory. Each file has an address range of its length that can be neither read
 * nor written. Address arithmetic works as on memory: byte begin + n of the range is byte n of the
 * file. */
#ifndef SLUICE_KERNELS_DISK_FILE_H
#define SLUICE_KERNELS_DISK_FILE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <sluice/status.h>

typedef struct sli_disk_file {
  char *begin;  /* start of the address range */
  size_t bytes; /* in whole pages */
  int fd;
  bool direct; /* direct I/O: whole pages only, past the page cache */
  char *folder;
  atomic_uint *sums; /* [bytes / SLI_DISK_PAGE] checksum of each written page; 0: not written */
} sli_disk_file;

/* Creates a nameless file in the folder, with `bytes` reserved and zero. */
sl_status sli_disk_file_create(const char *folder, size_t bytes, void **memory);
void sli_disk_file_destroy(void *memory);
/* Returns the file whose range contains an address, or NULL for other memory. Callable from any
 * thread; the file exists until its memory is destroyed. */
const sli_disk_file *sli_disk_file_of(const void *address);

/* Returns true if the environment variable SLUICE_DISK contains the word. The words are for tests:
 * "plain" turns off io_uring, "cached" turns off direct I/O, "named" briefly gives files a name. */
bool sli_disk_setting(const char *word);
/* Returns the bytes per second of SLUICE_DISK=rate=N, to which transfers are then limited; 0: no
 * limit. */
double sli_disk_rate(void);

#endif
