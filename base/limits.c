/* SPDX-License-Identifier: Apache-2.0 */
/* Limits that the system sets for the process. */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/base.h"

/* Makes threads share one malloc arena if address space is limited, because each arena reserves 64
 * MiB of it. */
sl_status sli_address_room(size_t bytes, const char *what) {
  char limit[SLI_LIMIT_TEXT], text[32];
  if (!*sli_address_limit(limit)) return SL_OK;
  mallopt(M_ARENA_MAX, 1);
  void *at = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at != MAP_FAILED) {
    munmap(at, bytes);
    return SL_OK;
  }
  return sl_fail(SL_E_MEMORY, "cannot reserve %s of memory for %s%s",
                 sli_format_bytes(text, (double)bytes), what, limit);
}

/* ---- memory -------------------------------------------------------------------- */

/* Reads the number in a file. Returns SIZE_MAX if there is none, as with "max". */
static size_t limit_in(const char *path) {
  char text[64] = "";
  FILE *file = fopen(path, "r");
  char *read = file ? fgets(text, sizeof text, file) : NULL, *end = text;
  if (file) fclose(file);
  unsigned long long value = read ? strtoull(text, &end, 10) : 0;
  return end > text && value ? (size_t)value : SIZE_MAX;
}

/* Smallest limit of a cgroup and its ancestors. */
static size_t limit_of(const char *root, char *group, const char *name) {
  size_t least = SIZE_MAX;
  for (char *slash = group + strlen(group); slash; slash = strrchr(group, '/')) {
    *slash = 0;
    char *path = sli_format("%s%s/%s", root, group, name);
    least = SLI_MIN(least, limit_in(path));
    free(path);
  }
  return least;
}

/* Reads the process's memory limit. Lines of the file have the form "0::/user.slice" or, in cgroup
 * v1, "5:cpu,memory:/user.slice". */
static size_t cgroup_limit(void) {
  char line[4096];
  size_t least = SIZE_MAX;
  FILE *file = fopen("/proc/self/cgroup", "r");
  while (file && fgets(line, sizeof line, file)) {
    char *colon = strchr(line, ':'), *group = colon ? strchr(colon + 1, ':') : NULL;
    if (!group) continue;
    *group++ = 0;
    group[strcspn(group, "\n")] = 0;
    size_t limit = SIZE_MAX;
    if (!colon[1]) limit = limit_of("/sys/fs/cgroup", group, "memory.max");
    else if (strstr(colon + 1, "memory"))
      limit = limit_of("/sys/fs/cgroup/memory", group, "memory.limit_in_bytes");
    least = SLI_MIN(least, limit);
  }
  if (file) fclose(file);
  return least;
}

size_t sli_memory_bytes(void) {
  size_t here = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
  return SLI_MIN(here, cgroup_limit());
}
