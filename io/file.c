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

#include "base/base.h"

sl_status sli_file_check(const char *path, const void *begin, size_t bytes) {
  static const char pointer[] = "version https://git-lfs.github.com/spec/";
  if (bytes < sizeof pointer || memcmp(begin, pointer, sizeof pointer - 1)) return SL_OK;
  return sl_fail(SL_E_INPUT,
                 "%s is a pointer of git-lfs, not the file itself: git lfs pull fetches that",
                 path);
}

sl_status sli_file_read_bytes(const char *path, char **out, size_t *bytes) {
  FILE *file = fopen(path, "rb");
  if (!file) return sl_fail(SL_E_INPUT, "cannot open %s: %s", path, strerror(errno));
  char *text = NULL;
  size_t size = 0, got;
  do {
    text = sli_realloc(text, size + 65537, 1);
    got = fread(text + size, 1, 65536, file);
    size += got;
  } while (got);
  text[size] = 0;
  int error = ferror(file) ? errno : 0;
  fclose(file);
  sl_status status = error ? sl_fail(SL_E_INPUT, "cannot read %s: %s", path, strerror(error))
                           : sli_file_check(path, text, size);
  if (status) free(text);
  else *out = text, *bytes = size;
  return status;
}

sl_status sli_file_read(const char *path, char **out) {
  size_t bytes;
  return sli_file_read_bytes(path, out, &bytes);
}

sl_status sli_file_lines(const char *path, sli_line_reader *read, void *ctx) {
  char *text = NULL;
  size_t bytes = 0;
  sl_status status = sli_file_read_bytes(path, &text, &bytes);
  char *at = text, *end = status ? NULL : text + bytes;
  for (int line = 1; !status && at < end; line++) {
    char *newline = memchr(at, '\n', (size_t)(end - at)), *behind = newline ? newline : end;
    *behind = 0;
    status = read(ctx, line, at, (size_t)(behind - at));
    at = behind + 1;
  }
  free(text);
  return status;
}

static sl_status map_open(const char *path, int fd, void **out, size_t *bytes) {
  struct stat info;
  if (fstat(fd, &info)) return sl_fail(SL_E_INPUT, "cannot read %s: %s", path, strerror(errno));
  if (!S_ISREG(info.st_mode)) return sl_fail(SL_E_INPUT, "%s is not a regular file", path);
  *out = NULL;
  *bytes = (size_t)info.st_size;
  if (!*bytes) return SL_OK;
  void *map = mmap(NULL, *bytes, PROT_READ, MAP_PRIVATE, fd, 0);
  if (map == MAP_FAILED) return sl_fail(SL_E_INPUT, "cannot map %s: %s", path, strerror(errno));
  sl_status status = sli_file_check(path, map, *bytes);
  if (status) munmap(map, *bytes);
  else *out = map;
  return status;
}

sl_status sli_file_map(const char *path, void **out, size_t *bytes) {
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return sl_fail(SL_E_INPUT, "cannot open %s: %s", path, strerror(errno));
  sl_status status = map_open(path, fd, out, bytes);
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

sl_status sli_file_fingerprint(const char *path, uint64_t *bytes, uint64_t *hash) {
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  struct stat info;
  if (fd < 0 || fstat(fd, &info)) {
    sl_fail(SL_E_INPUT, "cannot open %s: %s", path, strerror(errno));
    if (fd >= 0) close(fd);
    return SL_E_INPUT;
  }
  size_t size = S_ISREG(info.st_mode) ? (size_t)info.st_size : 0;
  void *map = size ? mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0) : NULL;
  close(fd);
  if (map == MAP_FAILED) return sl_fail(SL_E_INPUT, "cannot map %s: %s", path, strerror(errno));
  *bytes = size;
  *hash = sli_hash_samples(map, size);
  if (map) munmap(map, size);
  return SL_OK;
}
