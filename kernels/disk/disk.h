/* SPDX-License-Identifier: Apache-2.0 */
/* Constants of disk access for other folders. The tables sl_memory_disk and sl_queue_disk are
 * public. */
#ifndef SLUICE_KERNELS_DISK_DISK_H
#define SLUICE_KERNELS_DISK_DISK_H

#include <stddef.h>

/* Page size of disk access. Transfers of whole, aligned pages are direct; all other transfers go
 * through a buffer. */
enum { SLI_DISK_PAGE = 4096 };
static inline size_t sli_disk_pages(size_t bytes) {
  return (bytes + SLI_DISK_PAGE - 1) & ~(size_t)(SLI_DISK_PAGE - 1);
}

#endif
