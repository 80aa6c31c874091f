/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SLUICE_TESTS_SUPPORT_PROCESSOR_TIME_H
#define SLUICE_TESTS_SUPPORT_PROCESSOR_TIME_H

#include <time.h>

/* Returns this thread's processor time, which excludes other load on the machine. */
static inline double thread_seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#endif
