/* SPDX-License-Identifier: Apache-2.0 */
#include "io/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "io/atomic.h"

struct sli_journal {
  char *path;
  int fd;
  FILE *stream; /* collects a record in `text` */
  char *text;
  size_t bytes;
  int error; /* errno of the lost record, until it is forgotten */
  int first; /* errno of the first lost record */
};

/* ---- opening -------------------------------------------------------------------------------- */

static sl_status cannot_write(const char *path) {
  return sl_fail(SL_E_IO, "cannot write %s: %s", path, strerror(errno));
}

static sl_status journal_at(int fd, const char *path, sli_journal **out) {
  if (fd < 0) return cannot_write(path);
  sli_journal *j = *out = sli_calloc(1, sizeof *j);
  *j = (sli_journal){.path = sli_strdup(path), .fd = fd};
  j->stream = sli_memory_stream(&j->text, &j->bytes);
  return SL_OK;
}

static sl_status open_with(const char *path, int flags, sli_journal **out) {
  return journal_at(sli_open_writable(path, O_CREAT | O_APPEND | flags), path, out);
}

sl_status sli_journal_to(int fd, const char *name, sli_journal **out) {
  return journal_at(fcntl(fd, F_DUPFD_CLOEXEC, 0), name, out);
}

static void release(sli_journal *j) {
  fclose(j->stream);
  free(j->text);
  free(j->path);
  free(j);
}

sl_status sli_journal_create(const char *path, sli_journal **out) {
  return open_with(path, O_TRUNC, out);
}

/* Returns the offset after the last newline of a file. */
static off_t last_line_end(int fd, off_t size) {
  char block[65536];
  while (size > 0) {
    size_t n = (size_t)SLI_MIN(size, (off_t)sizeof block);
    if (pread(fd, block, n, size - (off_t)n) != (ssize_t)n) return -1;
    const char *newline = memrchr(block, '\n', n);
    if (newline) return size - (off_t)n + (newline - block) + 1;
    size -= (off_t)n;
  }
  return 0;
}

static bool cut_last_line(const char *path) {
  struct stat info;
  if (stat(path, &info) || !S_ISREG(info.st_mode)) return true;
  int fd = open(path, O_RDWR | O_CLOEXEC);
  off_t end = fd < 0 ? -1 : last_line_end(fd, info.st_size);
  bool good = end >= 0 && (end == info.st_size || !ftruncate(fd, end));
  int error = errno;
  if (fd >= 0) close(fd);
  errno = error;
  return good;
}

sl_status sli_journal_append(const char *path, sli_journal **out) {
  return cut_last_line(path) ? open_with(path, 0, out) : cannot_write(path);
}

sl_status sli_journal_continue(const char *path, int64_t bytes, sli_journal **out) {
  sl_status status = open_with(path, 0, out);
  if (status || !ftruncate((*out)->fd, (off_t)bytes)) return status;
  status = cannot_write(path);
  close((*out)->fd);
  release(*out);
  return status;
}

/* ---- records -------------------------------------------------------------------------------- */

int64_t sli_journal_bytes(const sli_journal *j) {
  struct stat info;
  return fstat(j->fd, &info) ? 0 : (int64_t)info.st_size;
}

FILE *sli_journal_stream(sli_journal *j) { return j->stream; }

/* Writes all bytes, or cuts those that were written. */
static bool write_whole(const sli_journal *j) {
  size_t done = 0;
  while (done < j->bytes) {
    ssize_t n = write(j->fd, j->text + done, j->bytes - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    done += (size_t)n;
  }
  if (done == j->bytes) return true;
  int error = errno;
  off_t end = lseek(j->fd, 0, SEEK_CUR);
  struct stat info;
  /* Another process may have appended since. */
  bool last = done && end >= 0 && !fstat(j->fd, &info) && info.st_size == end;
  if (last && ftruncate(j->fd, end - (off_t)done)) sli_log("%s ends in a cut line", j->path);
  errno = error;
  return false;
}

static sl_status say(const sli_journal *j, int error) {
  return error ? sl_fail(SL_E_IO, "writing %s failed: %s", j->path, strerror(error)) : SL_OK;
}

static void lose(sli_journal *j, int error) {
  j->error = error ? error : EIO;
  if (!j->first) j->first = j->error;
}

sl_status sli_journal_end(sli_journal *j) {
  if (fflush(j->stream)) lose(j, errno);
  if (!j->error && !write_whole(j)) lose(j, errno);
  rewind(j->stream);
  return say(j, j->error);
}

void sli_journal_retry(sli_journal *j) { j->error = 0; }

sl_status sli_journal_close(sli_journal *j) {
  if (!j) return SL_OK;
  if (ftell(j->stream)) sli_journal_end(j);
  /* Pipes and devices cannot be synced. */
  if (fsync(j->fd) && errno != EINVAL && errno != EROFS && errno != ENOTSUP) lose(j, errno);
  if (close(j->fd)) lose(j, errno);
  sl_status status = say(j, j->first);
  release(j);
  return status;
}

sl_status sli_journal_finish(sli_journal *j, const char *option, sl_status status) {
  char *detail = sli_strdup(status ? sl_detail() : "");
  sl_status closed = sli_journal_close(j);
  if (status) sl_fail(status, "%s", detail);
  else if (closed) sl_fail(closed, "--%s: %s", option, sl_detail());
  free(detail);
  return status ? status : closed;
}
