/* Files whose places stand for memory. Each is known by a range of addresses of its length where
 * nothing can be read or written, so that a place is counted with as memory is: the byte at
 * begin + n of the range is the byte n of the file. */
#ifndef SLUICE_DISK_FILE_H
#define SLUICE_DISK_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <sluice/status.h>

typedef struct sli_disk_file {
  char *begin;   /* of the range */
  size_t bytes;  /* whole pages */
  int fd;
  bool direct;   /* it takes whole pages only, which pass by the page cache */
  char *folder;
} sli_disk_file;

/* Makes a file without a name in the folder, with its bytes reserved and zero. */
sl_status sli_disk_file_create(const char *folder, size_t bytes, void **memory);
void sli_disk_file_destroy(void *memory);
/* The file that an address stands for a place of, or NULL: it is of other memory. Any thread; the
 * file is there until its memory is destroyed. */
const sli_disk_file *sli_disk_file_of(const void *address);

/* Is the word one of those that SLUICE_DISK, of the environment, has? They are for tests: "plain"
 * for no io_uring, "cached" for no direct I/O, "named" for files that a folder has for a moment. */
bool sli_disk_told(const char *word);

#endif
