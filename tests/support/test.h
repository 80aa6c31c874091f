/* SPDX-License-Identifier: Apache-2.0 */
/* Support for tests, which are plain programs: main() checks claims and returns 0. */
#ifndef SLUICE_TESTS_TEST_H
#define SLUICE_TESTS_TEST_H

#include <stdio.h>
#include <stdlib.h>

/* Ends the test if the condition does not hold, and prints the place and the failed claim. */
#define CHECK(condition, ...)                                                  \
  do {                                                                         \
    if (!(condition)) {                                                        \
      fprintf(stderr, "%s:%d: ", __FILE__, __LINE__);                          \
      fprintf(stderr, __VA_ARGS__);                                            \
      fputc('\n', stderr);                                                     \
      exit(1);                                                                 \
    }                                                                          \
  } while (0)

#endif
