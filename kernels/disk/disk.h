/* What other folders may know of disks. The tables sl_memory_disk and sl_queue_disk are public. */
#ifndef SLUICE_DISK_H
#define SLUICE_DISK_H

#include <stddef.h>

/* Disks are written and read by pages: what starts on one and is whole ones goes there and comes
 * from there directly, all else through a buffer. */
enum { SLI_DISK_PAGE = 4096 };
static inline size_t sli_disk_pages(size_t bytes) {
  return (bytes + SLI_DISK_PAGE - 1) & ~(size_t)(SLI_DISK_PAGE - 1);
}

#endif
