/* SPDX-License-Identifier: Apache-2.0 */
/* Reserving room for file descriptors counts the open ones, even if no further one can be opened,
 * and a high limit does not make that slow.
 * labels: unthreaded smoke */
#include "base/descriptors.h"

#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "tests/support/test.h"

/* Returns the number of open descriptors, from the refusal of an excessive reservation. */
static size_t counted(void) {
  size_t got, open;
  CHECK(sli_descriptors_reserve("a test needs", SIZE_MAX / 4, 0, &got), "there is room for all");
  const char *at = strstr(sl_detail(), "in addition to the ");
  CHECK(at && sscanf(at, "in addition to the %zu already open", &open) == 1, "it says '%s'",
        sl_detail());
  return open;
}

static void set_limit(rlim_t most) {
  struct rlimit limit;
  CHECK(!getrlimit(RLIMIT_NOFILE, &limit), "the limit is known");
  limit.rlim_cur = SLI_MIN(most, limit.rlim_max);
  CHECK(!setrlimit(RLIMIT_NOFILE, &limit), "the limit can be set");
}

static void open_ones_are_counted(void) {
  size_t before = counted();
  int opened[] = {dup(0), dup(0), dup(0), open("/", O_PATH)};
  CHECK(counted() == before + SLI_COUNT(opened), "of %zu and 4 it counts %zu", before, counted());
  for (size_t i = 0; i < SLI_COUNT(opened); i++) close(opened[i]);
  CHECK(counted() == before, "of %zu it counts %zu", before, counted());
}

static uint64_t processor_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static uint64_t least_ns(void (*what)(void)) {
  uint64_t least = UINT64_MAX;
  for (int i = 0; i < 5; i++) {
    uint64_t start = processor_ns();
    what();
    least = SLI_MIN(least, processor_ns() - start);
  }
  return least;
}

enum { HIGH_LIMIT = 1 << 14 };

static void count(void) { counted(); }

static void look_at_each(void) {
  for (int fd = 0; fd < HIGH_LIMIT; fd++) (void)fcntl(fd, F_GETFD);
}

static void a_high_limit_is_cheap(void) {
  set_limit(HIGH_LIMIT);
  uint64_t ours = least_ns(count), each = least_ns(look_at_each);
  CHECK(ours < each / 4, "it takes %llu ns, and %d looks %llu", (unsigned long long)ours,
        HIGH_LIMIT, (unsigned long long)each);
}

static void all_open_are_counted(void) {
  enum { LOW_LIMIT = 64 };
  CHECK(!setrlimit(RLIMIT_NOFILE, &(struct rlimit){LOW_LIMIT, LOW_LIMIT}), "it can be lowered");
  int last = 0;
  for (int fd; (fd = dup(0)) >= 0;) last = fd;
  CHECK(counted() == LOW_LIMIT, "of %d it counts %zu", LOW_LIMIT, counted());
  for (; last > STDERR_FILENO; last--) close(last); /* leak checkers open files */
}

int main(void) {
  RUN(open_ones_are_counted);
  RUN(a_high_limit_is_cheap);
  RUN(all_open_are_counted);
}
