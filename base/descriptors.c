/* SPDX-License-Identifier: Apache-2.0 */
#include "base/descriptors.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/resource.h>

enum { MOST_LOOKED_AT = 1 << 16 };

/* Counts open descriptors one by one: needs no descriptor, but is slow. */
static size_t count_each(size_t limit) {
  size_t count = 0;
  for (size_t fd = 0; fd < SLI_MIN(limit, (size_t)MOST_LOOKED_AT); fd++)
    count += fcntl((int)fd, F_GETFD) >= 0;
  return count;
}

/* Counts the open descriptors. */
static size_t count_open(size_t limit) {
  enum { NOT_COUNTED = 3 }; /* ".", ".." and the folder itself */
  DIR *folder = opendir("/proc/self/fd");
  if (!folder) return count_each(limit);
  size_t entries = 0;
  while (readdir(folder)) entries++;
  closedir(folder);
  return entries - NOT_COUNTED;
}

sl_status sli_descriptors_reserve(const char *what, size_t need, size_t wish, size_t *got) {
  struct rlimit limit;
  *got = wish;
  if (getrlimit(RLIMIT_NOFILE, &limit)) return SL_OK;
  size_t open = count_open(limit.rlim_cur), all = open + need + wish;
  rlim_t most = SLI_MIN(limit.rlim_max, (rlim_t)all);
  if (most > limit.rlim_cur && !setrlimit(RLIMIT_NOFILE, &(struct rlimit){most, limit.rlim_max}))
    limit.rlim_cur = most;
  if (limit.rlim_cur < open + need)
    return sl_fail(
        SL_E_UNSUPPORTED,
        "%s %zu open files in addition to the %zu already open, but the limit is %llu (ulimit -n)",
        what, need, open, (unsigned long long)limit.rlim_cur);
  *got = SLI_MIN(wish, (size_t)limit.rlim_cur - open - need);
  return SL_OK;
}
