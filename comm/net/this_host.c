/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/net/this_host.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static uint64_t add_file(uint64_t hash, const char *path) {
  struct stat st = {0};
  if (stat(path, &st)) return hash;
  hash = sli_hash(hash, &st.st_dev, sizeof st.st_dev);
  return sli_hash(hash, &st.st_ino, sizeof st.st_ino);
}

/* Hashes the kernel's boot id, or the host name if there is no /proc. */
static uint64_t add_boot(uint64_t hash) {
  char text[256] = "";
  int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
  if (fd < 0 || read(fd, text, sizeof text - 1) <= 0) gethostname(text, sizeof text - 1);
  if (fd >= 0) close(fd);
  return sli_hash(hash, text, sizeof text);
}

uint64_t sli_this_host(void) {
  uid_t user = geteuid();
  uint64_t hash = add_boot(sli_hash(SLI_HASH_SEED, &user, sizeof user));
  hash = add_file(hash, "/dev/shm");
  hash = add_file(hash, "/proc/self/ns/pid");
  return add_file(hash, "/proc/self/ns/net");
}
