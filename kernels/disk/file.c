/* SPDX-License-Identifier: Apache-2.0 */
/* Files that act as memory: creation, limits, and the table of their address ranges. */
#include "kernels/disk/file.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/base.h"
#include "kernels/disk/disk.h"

typedef struct entry {
  struct entry *next;
  sli_disk_file file;
} entry;

static entry *all_files; /* all files of the process, guarded by the lock */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

bool sli_disk_setting(const char *word) {
  const char *setting = getenv("SLUICE_DISK");
  return setting && strstr(setting, word);
}

double sli_disk_rate(void) {
  const char *setting = getenv("SLUICE_DISK"), *rate = setting ? strstr(setting, "rate=") : NULL;
  return rate ? SLI_MAX(strtod(rate + strlen("rate="), NULL), 0) : 0;
}

const sli_disk_file *sli_disk_file_of(const void *address) {
  const char *at = address;
  pthread_mutex_lock(&lock);
  const entry *e = all_files;
  while (e && !(at >= e->file.begin && at < e->file.begin + e->file.bytes)) e = e->next;
  pthread_mutex_unlock(&lock);
  return e ? &e->file : NULL;
}

/* ---- creation -------------------------------------------------------------------------- */

static const char *choose_folder(const char *folder) {
  if (!folder) folder = getenv("TMPDIR");
  return folder && *folder ? folder : "/var/tmp";
}

/* Returns the name of a file system that keeps its files in memory, or NULL. */
static const char *memory_system(long type) {
  switch (type) {
  case TMPFS_MAGIC: return "tmpfs";
  case RAMFS_MAGIC: return "ramfs";
  case HUGETLBFS_MAGIC: return "hugetlbfs";
  default: return NULL;
  }
}

static sl_status check_folder(const char *folder) {
  struct statfs s;
  int fd = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC), error = 0;
  if (fd < 0 || fstatfs(fd, &s)) error = errno;
  if (fd >= 0) close(fd);
  if (error) return sl_fail(SL_E_INPUT, "folder %s: %s", folder, strerror(error));
  const char *name = memory_system((long)s.f_type);
  if (!name) return SL_OK;
  return sl_fail(SL_E_INPUT, "folder %s is in memory (%s), not on a disk: use another folder",
                 folder, name);
}

/* Opens a nameless file. If the file system lacks O_TMPFILE, creates the file and unlinks it
 * immediately. */
static int open_nameless(const char *folder) {
  int fd = sli_disk_setting("named") ? -1 : open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (fd >= 0) return fd;
  char *path = sli_format("%s/sluice-XXXXXX", folder);
  fd = mkostemp(path, O_CLOEXEC);
  if (fd >= 0) unlink(path);
  free(path);
  return fd;
}

static sl_status no_room(const char *folder, size_t bytes, size_t available, const char *why) {
  char want[32], have[32];
  return sl_fail(SL_E_MEMORY, "no room for %s in %s: %s%s", sli_format_bytes(want, (double)bytes),
                 folder, sli_format_bytes(have, (double)available), why);
}

/* Checks limits and free space, which would otherwise show up too late or as a signal. */
static sl_status check_room(const char *folder, int fd, size_t bytes) {
  struct rlimit limit;
  struct statvfs s;
  if (!getrlimit(RLIMIT_FSIZE, &limit) && limit.rlim_cur < bytes)
    return no_room(folder, bytes, limit.rlim_cur,
                   " is the limit on the size of a file (ulimit -f)");
  if (fstatvfs(fd, &s) || s.f_bavail >= bytes / s.f_frsize) return SL_OK;
  return no_room(folder, bytes, s.f_bavail * s.f_frsize, " are available");
}

static sl_status reserve(const char *folder, int fd, size_t bytes) {
  sl_status status = check_room(folder, fd, bytes);
  if (status) return status;
  int error;
  while ((error = fallocate(fd, 0, 0, (off_t)bytes) ? errno : 0) == EINTR) {}
  /* blocks are allocated on first use */
  if (error == EOPNOTSUPP) error = ftruncate(fd, (off_t)bytes) ? errno : 0;
  if (!error) return SL_OK;
  struct statvfs s;
  if (error == ENOSPC && !fstatvfs(fd, &s))
    return no_room(folder, bytes, s.f_bavail * s.f_frsize, " are available");
  return no_room(folder, bytes, 0, strerror(error));
}

/* Turns on direct I/O. Reads one page to verify it: some file systems accept the flag and then
 * fail. */
static bool make_direct(int fd) {
  _Alignas(SLI_DISK_PAGE) char page[SLI_DISK_PAGE];
  int flags = fcntl(fd, F_GETFL);
  if (sli_disk_setting("cached") || fcntl(fd, F_SETFL, flags | O_DIRECT)) return false;
  if (pread(fd, page, sizeof page, 0) == sizeof page) return true;
  fcntl(fd, F_SETFL, flags);
  return false;
}

static void say_cached(const char *folder) {
  static pthread_mutex_t saying = PTHREAD_MUTEX_INITIALIZER;
  static bool said;
  pthread_mutex_lock(&saying);
  if (!said)
    sli_log(
        "note: no direct I/O in %s: transfers to disk go through the page cache, and are dropped "
        "from it afterwards",
        folder);
  said = true;
  pthread_mutex_unlock(&saying);
}

static sl_status fill_in(sli_disk_file *f) {
  sl_status status = reserve(f->folder, f->fd, f->bytes);
  if (status) return status;
  void *at = mmap(NULL, f->bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED)
    return sl_fail(SL_E_MEMORY, "no address space for %zu bytes on disk: %s", f->bytes,
                   strerror(errno));
  f->begin = at;
  f->sums = sli_calloc(f->bytes / SLI_DISK_PAGE, sizeof *f->sums);
  f->direct = make_direct(f->fd);
  if (!f->direct) {
    posix_fadvise(f->fd, 0, 0, POSIX_FADV_RANDOM); /* what is read ahead would stay in the cache */
    say_cached(f->folder);
  }
  return SL_OK;
}

static void enter(const sli_disk_file *f) {
  entry *e = sli_calloc(1, sizeof *e);
  pthread_mutex_lock(&lock);
  *e = (entry){all_files, *f};
  all_files = e;
  pthread_mutex_unlock(&lock);
}

sl_status sli_disk_file_create(const char *where, size_t bytes, void **memory) {
  const char *folder = choose_folder(where);
  sl_status status = check_folder(folder);
  if (status) return status;
  sli_disk_file f = {.fd = open_nameless(folder), .bytes = sli_disk_pages(SLI_MAX(bytes, 1))};
  if (f.fd < 0) return sl_fail(SL_E_IO, "cannot create a file in %s: %s", folder, strerror(errno));
  f.folder = sli_strdup(folder);
  status = fill_in(&f);
  if (!status) {
    enter(&f);
    *memory = f.begin;
    return SL_OK;
  }
  close(f.fd);
  free(f.folder);
  return status;
}

/* Removes an entry from the table and returns it to the caller, who then owns it. */
static entry *disk_file_leave(const void *memory) {
  pthread_mutex_lock(&lock);
  entry **at = &all_files;
  while (*at && (*at)->file.begin != memory) at = &(*at)->next;
  entry *e = *at;
  if (e) *at = e->next;
  pthread_mutex_unlock(&lock);
  return e;
}

void sli_disk_file_destroy(void *memory) {
  entry *e = memory ? disk_file_leave(memory) : NULL;
  if (!e) return;
  close(e->file.fd);
  munmap(e->file.begin, e->file.bytes);
  free(e->file.folder);
  free(e->file.sums);
  free(e);
}
