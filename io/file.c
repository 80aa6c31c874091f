/* SPDX-License-Identifier: Apache-2.0 */
#include "io/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"

sl_status sli_file_check(const char *path, const void *begin, size_t bytes) {
  static const char pointer[] = "version https://git-lfs.github.com/spec/";
  if (bytes < sizeof pointer || memcmp(begin, pointer, sizeof pointer - 1)) return SL_OK;
  return sl_fail(SL_E_INPUT,
                 "%s is a pointer of git-lfs, not the file itself: git lfs pull fetches that",
                 path);
}

static sl_status check_kind(const char *path, int fd, size_t *bytes) {
  struct stat info;
  if (fstat(fd, &info)) return sl_fail(SL_E_INPUT, "cannot read %s: %s", path, strerror(errno));
  if (S_ISDIR(info.st_mode))
    return sl_fail(SL_E_INPUT, "cannot read %s: %s", path, strerror(EISDIR));
  if (!S_ISREG(info.st_mode)) return sl_fail(SL_E_INPUT, "%s is not a regular file", path);
  *bytes = (size_t)info.st_size;
  return SL_OK;
}

sl_status sli_file_open(const char *path, int *fd, size_t *bytes) {
  int opened = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (opened < 0) return sl_fail(SL_E_INPUT, "cannot open %s: %s", path, strerror(errno));
  sl_status status = check_kind(path, opened, bytes);
  if (status) close(opened);
  else *fd = opened;
  return status;
}

sl_status sli_file_stream(const char *path, FILE **out) {
  int fd;
  size_t bytes;
  sl_status status = sli_file_open(path, &fd, &bytes);
  if (status) return status;
  if (bytes > SLI_FILE_MOST)
    status = sl_fail(SL_E_INPUT, "%s is longer than %d bytes", path, SLI_FILE_MOST);
  if (!status && (*out = fdopen(fd, "r"))) return SL_OK;
  close(fd);
  if (status) return status;
  return sl_fail(SL_E_MEMORY, "no memory to read %s", path);
}

sl_status sli_file_probe(const char *path) {
  int fd;
  size_t bytes;
  sl_status status = sli_file_open(path, &fd, &bytes);
  if (!status) close(fd);
  return status;
}

size_t sli_file_begin(const char *path, void *out, size_t size) {
  int fd;
  size_t bytes;
  if (sli_file_open(path, &fd, &bytes)) return 0;
  ssize_t n = pread(fd, out, size, 0);
  close(fd);
  return n > 0 ? (size_t)n : 0;
}

/* Reads to the end, which for a file that grows, or one of /proc, is not at its length. */
static sl_status read_all(const char *path, int fd, size_t length, size_t most, char **out,
                          size_t *bytes) {
  size_t room = SLI_MIN(length, most) + 2, size = 0;
  char *text;
  ssize_t got = 0;
  SLI_TRY(SLI_ALLOCATE(text, room, path));
  while (size <= most && (got = read(fd, text + size, room - size - 1)) > 0) {
    size += (size_t)got;
    if (size + 1 == room) text = sli_realloc(text, room += SLI_MIN(room, (size_t)1 << 20), 1);
  }
  text[size] = 0;
  sl_status status = SL_OK;
  if (got < 0) status = sl_fail(SL_E_INPUT, "cannot read %s: %s", path, strerror(errno));
  else if (size > most) status = sl_fail(SL_E_INPUT, "%s is longer than %zu bytes", path, most);
  *out = text;
  *bytes = size;
  return status;
}

sl_status sli_file_read_within(const char *path, size_t most, char **out, size_t *bytes) {
  int fd;
  size_t length, size = 0;
  char *text = NULL;
  sl_status status = sli_file_open(path, &fd, &length);
  if (status) return status;
  status = length > most ? sl_fail(SL_E_INPUT, "%s is longer than %zu bytes", path, most)
                         : read_all(path, fd, length, most, &text, &size);
  close(fd);
  if (!status) status = sli_file_check(path, text, size);
  if (status) free(text);
  else *out = text, *bytes = size;
  return status;
}

sl_status sli_file_read_bytes(const char *path, char **out, size_t *bytes) {
  return sli_file_read_within(path, SLI_FILE_MOST, out, bytes);
}

sl_status sli_file_read(const char *path, char **out) {
  size_t bytes;
  return sli_file_read_bytes(path, out, &bytes);
}

/* Passes one line on, copied so that a zero can follow it. */
static sl_status take_line(const char *path, const char *at, size_t bytes, int line,
                           sli_line_reader *read, void *ctx) {
  if (bytes > SLI_FILE_LINE)
    return sl_fail(SL_E_INPUT, "%s: line %d is longer than %d bytes", path, line, SLI_FILE_LINE);
  char *copy;
  SLI_TRY(SLI_ALLOCATE(copy, bytes + 1, path));
  memcpy(copy, at, bytes);
  copy[bytes] = 0;
  sl_status status = read(ctx, line, copy, bytes);
  free(copy);
  return status;
}

sl_status sli_file_lines(const char *path, sli_line_reader *read, void *ctx) {
  void *map = NULL;
  size_t bytes = 0;
  sl_status status = sli_file_map(path, &map, &bytes);
  const char *at = map, *end = at ? at + bytes : NULL;
  for (int line = 1; !status && at < end; line++) {
    size_t left = (size_t)(end - at), most = SLI_MIN(left, (size_t)SLI_FILE_LINE + 1);
    const char *newline = memchr(at, '\n', most);
    size_t length = newline ? (size_t)(newline - at) : most;
    status = take_line(path, at, length, line, read, ctx);
    at += length + 1;
  }
  if (map) munmap(map, bytes);
  return status;
}

static sl_status map_all(const char *path, int fd, void **out, size_t bytes) {
  void *map = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
  if (map == MAP_FAILED) return sl_fail(SL_E_INPUT, "cannot map %s: %s", path, strerror(errno));
  sl_status status = sli_file_check(path, map, bytes);
  if (status) munmap(map, bytes);
  else *out = map;
  return status;
}

sl_status sli_file_map(const char *path, void **out, size_t *bytes) {
  int fd;
  sl_status status = sli_file_open(path, &fd, bytes);
  if (status) return status;
  *out = NULL;
  if (*bytes) status = map_all(path, fd, out, *bytes);
  close(fd);
  return status;
}

uint64_t sli_hash_samples(const void *bytes, size_t size) {
  enum { WHOLE = 16 << 20, SAMPLES = 256, SAMPLE = 16384 };
  if (size <= WHOLE) return sli_hash(SLI_HASH_SEED, bytes, size);
  uint64_t hash = SLI_HASH_SEED;
  for (size_t i = 0; i < SAMPLES; i++) {
    size_t at = (size - SAMPLE) * i / (SAMPLES - 1);
    hash = sli_hash(hash, (const char *)bytes + at, SAMPLE);
  }
  return hash;
}

char *sli_file_cache(void) {
  const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
  if (cache && *cache == '/') return sli_format("%s/sluice", cache);
  return home && *home == '/' ? sli_format("%s/.cache/sluice", home) : NULL;
}

void sli_file_make_folders(char *path) {
  for (char *at = path + 1; (at = strchr(at, '/')); at++) {
    *at = 0;
    mkdir(path, 0777);
    *at = '/';
  }
}

sl_status sli_file_fingerprint(const char *path, uint64_t *bytes, uint64_t *hash) {
  void *map;
  size_t size;
  sl_status status = sli_file_map(path, &map, &size);
  if (status) return status;
  *bytes = size;
  *hash = sli_hash_samples(map, size);
  if (map) munmap(map, size);
  return SL_OK;
}
