/* SPDX-License-Identifier: Apache-2.0 */
#include "io/atomic.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"

/* Resolves a name that may be a symbolic link, perhaps to a file that does not exist yet. */
static char *follow(const char *path) {
  char *real = realpath(path, NULL);
  if (real) return real;
  struct stat info;
  char to[4096];
  if (lstat(path, &info) == 0 && S_ISLNK(info.st_mode)) {
    ssize_t n = readlink(path, to, sizeof to - 1);
    if (n > 0) {
      to[n] = 0;
      const char *slash = strrchr(path, '/');
      if (to[0] == '/' || !slash) return sli_strdup(to);
      return sli_format("%.*s/%s", (int)(slash - path), path, to);
    }
  }
  return sli_strdup(path);
}

static void release(sli_atomic_file *file) {
  free(file->path);
  free(file->target);
  free(file->temporary);
  *file = (sli_atomic_file){0};
}

/* Creates "FILE.tmp.0123456789abcdef". The name is random, so nobody can have placed a link
 * there. */
static int open_temporary(sli_atomic_file *file) {
  uint64_t number;
  int fd = -1;
  for (int tries = 0; tries < 8 && fd < 0; tries++) {
    if (getrandom(&number, sizeof number, 0) != sizeof number) return -1;
    free(file->temporary);
    file->temporary = sli_format("%s.tmp.%016" PRIx64, file->target, number);
    fd = open(file->temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd < 0 && errno != EEXIST) break;
  }
  return fd;
}

int sli_open_writable(const char *path, int flags) {
  int fd = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | flags, 0666);
  int set = fd < 0 ? -1 : fcntl(fd, F_GETFL);
  if (set >= 0 && !fcntl(fd, F_SETFL, set & ~O_NONBLOCK)) return fd;
  int error = errno;
  if (fd >= 0) close(fd);
  errno = error;
  return -1;
}

/* Opens the file to write to: the temporary file, or a device itself. */
static int open_for_writing(sli_atomic_file *file) {
  struct stat info;
  bool exists = stat(file->target, &info) == 0;
  if (exists && S_ISDIR(info.st_mode)) return errno = EISDIR, -1;
  if (exists && !S_ISREG(info.st_mode)) return sli_open_writable(file->target, 0);
  if (exists && access(file->target, W_OK) != 0) return -1;
  int fd = open_temporary(file);
  /* Fails on file systems without modes, where nothing is lost. */
  if (fd >= 0 && exists && fchmod(fd, info.st_mode & 07777) != 0) errno = 0;
  return fd;
}

sl_status sli_atomic_open(const char *path, sli_atomic_file *out) {
  sli_atomic_file file = {.path = sli_strdup(path), .target = follow(path)};
  int fd = open_for_writing(&file);
  if (fd < 0 || !(file.stream = fdopen(fd, "wb"))) {
    sl_status status = sl_fail(SL_E_IO, "cannot write %s: %s", path, strerror(errno));
    if (fd >= 0) {
      close(fd);
      if (file.temporary) unlink(file.temporary);
    }
    release(&file);
    return status;
  }
  *out = file;
  return SL_OK;
}

sl_status sli_atomic_write(sli_atomic_file *file, const void *data, size_t bytes) {
  if (file->hashed) {
    file->hash = sli_hash(file->bytes ? file->hash : SLI_HASH_SEED, data, bytes);
    file->bytes += bytes;
  }
  if (!bytes || fwrite(data, 1, bytes, file->stream) == bytes) return SL_OK;
  return sl_fail(SL_E_IO, "writing %s failed: %s", file->path, strerror(errno));
}

/* Some file systems cannot sync a directory; they promise no durability anyway. A directory that is
 * writable but not readable cannot be opened for syncing. */
bool sli_sync_folder(int fd) { return !fsync(fd) || errno == EINVAL || errno == ENOTSUP; }

bool sli_sync_folder_of(const char *path) {
  const char *slash = strrchr(path, '/');
  char *folder = slash ? sli_format("%.*s/", (int)(slash - path), path) : sli_strdup(".");
  int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  bool good = fd >= 0 ? sli_sync_folder(fd) : errno == EACCES;
  int error = errno;
  if (fd >= 0) close(fd);
  free(folder);
  errno = error;
  return good;
}

/* Writes everything so far to disk. */
static bool flush(sli_atomic_file *file) {
  if (ferror(file->stream)) return errno = errno ? errno : EIO, false;
  if (fflush(file->stream) != 0) return false;
  return !file->temporary || fsync(fileno(file->stream)) == 0;
}

sl_status sli_atomic_commit(sli_atomic_file *file) {
  bool good = flush(file);
  int error = errno;
  if (fclose(file->stream) != 0 && good) good = false, error = errno;
  file->stream = NULL;
  if (good && file->temporary && rename(file->temporary, file->target) != 0)
    good = false, error = errno;
  bool renamed = good;
  if (good && file->temporary && !sli_sync_folder_of(file->target)) good = false, error = errno;
  if (!renamed && file->temporary) unlink(file->temporary);
  sl_status status =
      good ? SL_OK : sl_fail(SL_E_IO, "writing %s failed: %s", file->path, strerror(error));
  release(file);
  return status;
}

void sli_atomic_abandon(sli_atomic_file *file) {
  if (file->stream) fclose(file->stream);
  if (file->temporary) unlink(file->temporary);
  release(file);
}

sl_status sli_atomic_text(const char *path, const char *text) {
  sli_atomic_file file;
  sl_status status = sli_atomic_open(path, &file);
  if (status) return status;
  status = sli_atomic_write(&file, text, strlen(text));
  if (!status) status = sli_atomic_write(&file, "\n", 1);
  if (!status) return sli_atomic_commit(&file);
  sli_atomic_abandon(&file);
  return status;
}

sl_status sli_atomic_check_folder(const char *path) {
  if (mkdir(path, 0777) && errno != EEXIST)
    return sl_fail(SL_E_USAGE, "cannot make the folder %s: %s", path, strerror(errno));
  struct stat info;
  if (!stat(path, &info) && !S_ISDIR(info.st_mode))
    return sl_fail(SL_E_USAGE, "%s is not a folder", path);
  char *file = sli_format("%s/try", path);
  sl_status status = sli_atomic_check(file);
  free(file);
  return status ? sl_fail(status, "cannot write to the folder %s: %s", path, strerror(errno))
                : SL_OK;
}

sl_status sli_atomic_check(const char *path) {
  sli_atomic_file file;
  sl_status status = sli_atomic_open(path, &file);
  if (status) return SL_E_USAGE; /* sl_detail() has the message */
  sli_atomic_abandon(&file);
  return SL_OK;
}
