/* SPDX-License-Identifier: Apache-2.0 */
/* Access to the unnamed file that this process has on disk, if there is exactly one. */
#ifndef SLUICE_TESTS_SUPPORT_NAMELESS_H
#define SLUICE_TESTS_SUPPORT_NAMELESS_H

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/test.h"

/* True for the descriptor of an unnamed file that this process opened: an inherited one, such as an
 * output whose file was removed, is not closed on exec. */
static inline bool nameless_is(int fd) {
  struct stat s;
  return !fstat(fd, &s) && S_ISREG(s.st_mode) && !s.st_nlink && (fcntl(fd, F_GETFD) & FD_CLOEXEC);
}

static inline int nameless_number(void) {
  int fd = 0;
  while (!nameless_is(fd)) CHECK(fd++ < 256, "there is no file");
  return fd;
}

/* Flips a bit of each page of the file, as a bad disk would. */
static inline void nameless_flip(void) {
  enum { STEP = 4096, PLACE = 1001 };
  int fd = nameless_number(), flags = fcntl(fd, F_GETFL);
  off_t size = lseek(fd, 0, SEEK_END);
  fcntl(fd, F_SETFL, flags & ~O_DIRECT);
  for (off_t at = PLACE; at < size; at += STEP) {
    char c;
    CHECK(pread(fd, &c, 1, at) == 1, "a byte is read");
    c ^= 4;
    CHECK(pwrite(fd, &c, 1, at) == 1, "a byte is written");
  }
  fsync(fd);
  fcntl(fd, F_SETFL, flags);
}

/* Lets the file be read as it is, and no longer be written. */
static inline void nameless_close_to_writes(void) {
  int number = nameless_number();
  char path[64];
  snprintf(path, sizeof path, "/proc/self/fd/%d", number);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  CHECK(fd >= 0 && dup3(fd, number, O_CLOEXEC) >= 0, "%s is not opened again", path);
  close(fd);
}

/* Replaces the file with one whose operations fail or do nothing: /dev/full, /dev/null,
 * /proc/self/mem. */
static inline void nameless_replace(const char *other) {
  int fd = open(other, O_RDWR | O_CLOEXEC);
  CHECK(fd >= 0 && dup3(fd, nameless_number(), O_CLOEXEC) >= 0, "no %s", other);
  close(fd);
}

#endif
