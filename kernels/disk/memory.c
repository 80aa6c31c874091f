/* SPDX-License-Identifier: Apache-2.0 */
/* Disk as a memory table. */
#include <stdlib.h>
#include <string.h>

#include <sluice/program.h>

#include "base/base.h"
#include "kernels/disk/disk.h"
#include "kernels/disk/way.h"

static sl_status disk_create(const sl_memory_config *config, size_t bytes, void **memory) {
  return sli_disk_file_create(config->path, bytes, memory);
}

static void disk_destroy(void *memory, size_t bytes) {
  (void)bytes;
  sli_disk_file_destroy(memory);
}

static sl_status move(void *to, const void *from, size_t bytes) {
  sli_disk_way way = sli_disk_way_of(to, from, bytes);
  return sli_disk_go(&way);
}

/* Copies from one place on disk to another. */
static sl_status move_within(char *to, const char *from, size_t bytes) {
  enum { BUFFER = 1 << 20 };
  char *buffer = aligned_alloc(SLI_DISK_PAGE, BUFFER);
  if (!buffer) return sl_fail(SL_E_MEMORY, "out of memory: a buffer of %d bytes", BUFFER);
  sl_status status = SL_OK;
  for (size_t done = 0; done < bytes && !status; done += BUFFER) {
    size_t n = SLI_MIN(bytes - done, (size_t)BUFFER);
    status = move(buffer, from + done, n);
    if (!status) status = move(to + done, buffer, n);
  }
  free(buffer);
  return status;
}

static sl_status disk_copy(void *to, const void *from, size_t bytes) {
  bool in = sli_disk_file_of(from), out = sli_disk_file_of(to);
  if (in && out) return move_within(to, from, bytes);
  if (in || out) return move(to, from, bytes);
  memcpy(to, from, bytes);
  return SL_OK;
}

const sl_memory_ops sl_memory_disk = {.name = "disk",
                                      .fixed = true,
                                      .far = true,
                                      .create = disk_create,
                                      .destroy = disk_destroy,
                                      .copy = disk_copy};
