/* What the system lets the process have. */
#include <malloc.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "base/base.h"

const char *sli_address_limit(char out[SLI_LIMIT_TEXT]) {
  struct rlimit limit;
  char text[32];
  out[0] = 0;
  if (getrlimit(RLIMIT_AS, &limit) || limit.rlim_cur == RLIM_INFINITY) return out;
  snprintf(out, SLI_LIMIT_TEXT, "; this process is limited to %s of addresses (ulimit -v)",
           sli_format_bytes(text, (double)limit.rlim_cur));
  return out;
}

/* Where addresses are scarce, threads share one heap: one of its own takes 64 MiB of them. */
sl_status sli_address_room(size_t bytes, const char *what) {
  char limit[SLI_LIMIT_TEXT], text[32];
  if (!*sli_address_limit(limit)) return SL_OK;
  mallopt(M_ARENA_MAX, 1);
  void *at = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at != MAP_FAILED) {
    munmap(at, bytes);
    return SL_OK;
  }
  return sl_fail(SL_E_MEMORY, "no %s of memory for %s%s", sli_format_bytes(text, (double)bytes),
                 what, limit);
}
