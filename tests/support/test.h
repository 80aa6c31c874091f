/* SPDX-License-Identifier: Apache-2.0 */
/* Support for tests, which are plain programs: main() checks claims and returns 0. It calls its
 * cases through RUN(case, arguments...), and the command line can select cases:
 *
 *   test_FOLDER_NAME --list               prints the names of the cases, and runs none
 *   test_FOLDER_NAME --only CASE [...]    runs that case alone
 */
#ifndef SLUICE_TESTS_SUPPORT_TEST_H
#define SLUICE_TESTS_SUPPORT_TEST_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

/* Returns whether the case is to run. Failed claims name it from then on. */
bool test_case(const char *name);
/* Returns whether all cases run. */
bool test_whole(void);
/* Skips --list and --only CASE: sets *words to the words after them, ended by NULL, and returns
 * their number. */
int test_words(int argc, char **argv, char ***words);
/* Returns whether the test may take long: tools/test --long. */
bool test_long(void);
/* Sanitizer of the build: 1 for addresses, 2 for threads. */
#ifndef TEST_SANITIZED
#define TEST_SANITIZED 0
#endif
/* Returns a count, or a stride through a table of cases: `usual` by default, `sanitized` under a
 * sanitizer, and `whole` with --long. */
static inline int test_many(int usual, int sanitized, int whole) {
  return test_long() ? whole : TEST_SANITIZED ? sanitized : usual;
}
/* Prints the location of a failed claim. */
void test_failed_at(const char *file, int line);

#define RUN_AS(name, call) (test_case(name) ? (void)(call) : (void)0)
#define RUN(function, ...) RUN_AS(#function, function(__VA_ARGS__))

/* Ends the test if the condition does not hold, and prints the location and the failed claim. */
#define CHECK(condition, ...)             \
  do {                                    \
    if (!(condition)) {                   \
      test_failed_at(__FILE__, __LINE__); \
      fprintf(stderr, __VA_ARGS__);       \
      fputc('\n', stderr);                \
      exit(1);                            \
    }                                     \
  } while (0)

#endif
