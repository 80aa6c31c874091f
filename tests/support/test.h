/* SPDX-License-Identifier: Apache-2.0 */
/* Support for tests, which are plain programs: main() checks claims and returns 0. It calls its
 * cases by RUN(case, arguments...), and the command line may choose among them:
 *
 *   test_FOLDER_NAME --list               prints the names of the cases, and runs none
 *   test_FOLDER_NAME --only CASE [...]    runs that case alone
 */
#ifndef SLUICE_TESTS_TEST_H
#define SLUICE_TESTS_TEST_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

/* Says whether the case of that name is to run. From then on failed claims name it. */
bool test_case(const char *name);
/* Says whether all cases run. */
bool test_whole(void);
/* Skips --list and --only CASE: sets *words to those behind them, with a NULL at the end, and
 * returns their number. */
int test_words(int argc, char **argv, char ***words);
/* Says whether the test may take its time: tools/test --long. */
bool test_long(void);
/* Says whether the build has a sanitizer: 1 of addresses, 2 of threads. */
#ifndef TEST_SANITIZED
#define TEST_SANITIZED 0
#endif
/* Returns a count, or a stride through a table of cases: by default, under a sanitizer, and with
 * --long. */
static inline int test_many(int usual, int sanitized, int whole) {
  return test_long() ? whole : TEST_SANITIZED ? sanitized : usual;
}
/* Prints the place of a failed claim. */
void test_failed_at(const char *file, int line);

#define RUN_AS(name, call) (test_case(name) ? (void)(call) : (void)0)
#define RUN(function, ...) RUN_AS(#function, function(__VA_ARGS__))

/* Ends the test if the condition does not hold, and prints the place and the failed claim. */
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
