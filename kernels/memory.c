/* SPDX-License-Identifier: Apache-2.0 */
/* Process memory: the system allocates a page on first touch, near the thread that touches it. */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include <sluice/program.h>

#include "base/base.h"

enum { PAGE = 2 << 20 }; /* size of a huge page */

static sl_status kernels_memory_refuse(size_t bytes) {
  char text[32], limit[SLI_LIMIT_TEXT];
  return sl_fail(SL_E_MEMORY, "cannot allocate %s of memory: %s%s",
                 sli_format_bytes(text, (double)bytes), strerror(errno), sli_address_limit(limit));
}

static sl_status host_create(const sl_memory_config *config, size_t bytes, void **memory) {
  (void)config;
  void *at =
      mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) return kernels_memory_refuse(bytes);
  *memory = at;
  return SL_OK;
}

/* Advises huge pages only for whole pages inside the part: a huge page that extends past it would
 * take memory outside the plan. */
static void host_use(void *part, size_t bytes) {
  uintptr_t begin = ((uintptr_t)part + PAGE - 1) / PAGE * PAGE;
  uintptr_t end = ((uintptr_t)part + bytes) / PAGE * PAGE;
  if (begin < end) madvise((void *)begin, end - begin, MADV_HUGEPAGE);
}

static void host_destroy(void *memory, size_t bytes) {
  if (memory) munmap(memory, bytes);
}

static sl_status host_copy(void *to, const void *from, size_t bytes) {
  memcpy(to, from, bytes);
  return SL_OK;
}

const sl_memory_ops sl_memory_host = {.name = "host",
                                      .create = host_create,
                                      .use = host_use,
                                      .destroy = host_destroy,
                                      .copy = host_copy};
