/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "tests/support/seeds.h"
#include "tests/support/test.h"

enum { MOST_CASES = 256 };

static struct {
  bool lists;
  FILE *to;         /* receives the names */
  const char *only; /* NULL: all cases */
  bool found;
  pid_t process; /* the test's process, not one that it forked */
  const char *now, *listed[MOST_CASES];
  int nlisted;
} cases;

/* Fails if --only names an unknown case. */
static void complain(void) {
  if (!cases.only || cases.found || cases.process != getpid()) return;
  fprintf(stderr, "--only %s: the test has no such case; --list names them\n", cases.only);
  _exit(2);
}

/* Reads the command line before main() does; the C library hands it over. */
__attribute__((constructor)) static void read_words(int argc, char **argv) {
  cases.process = getpid();
  cases.lists = argc > 1 && !strcmp(argv[1], "--list");
  if (cases.lists) { /* --list suppresses everything else that the test prints */
    cases.to = fdopen(dup(1), "w");
    if (!cases.to || !freopen("/dev/null", "w", stdout)) exit(1);
  }
  if (argc < 2 || strcmp(argv[1], "--only")) return;
  cases.only = argc > 2 ? argv[2] : "";
  atexit(complain);
}

/* Prints a name once, however often its case would run. */
static void list(const char *name) {
  for (int i = 0; i < cases.nlisted; i++)
    if (!strcmp(cases.listed[i], name)) return;
  if (cases.nlisted < MOST_CASES) cases.listed[cases.nlisted++] = name;
  fprintf(cases.to, "%s\n", name);
  fflush(cases.to);
}

bool test_case(const char *name) {
  cases.now = name;
  if (cases.lists) {
    list(name);
    return false;
  }
  if (cases.only && strcmp(cases.only, name)) return false;
  cases.found = true;
  return true;
}

bool test_whole(void) { return !cases.lists && !cases.only; }

int test_words(int argc, char **argv, char ***words) {
  int skipped = SLI_MIN(argc, 1 + (cases.only ? 2 : 0) + cases.lists);
  *words = argv + skipped;
  return argc - skipped;
}

bool test_long(void) { return getenv("SLUICE_LONG") != NULL; }

void test_failed_at(const char *file, int line) {
  fprintf(stderr, "%s:%d: ", file, line);
  if (cases.now) fprintf(stderr, "%s: ", cases.now);
}

/* ---- seeds ---------------------------------------------------------------------------------- */

static uint64_t number(const char *text, uint64_t otherwise) {
  return text ? strtoull(text, NULL, 0) : otherwise;
}

uint64_t seeds_times(void) { return SLI_MAX(number(getenv("SLUICE_SEEDS"), 1), 1); }

static uint64_t drawn(uint64_t first) { return first + number(getenv("SLUICE_SEED"), 0); }

uint64_t seed_of(int argc, char **argv, uint64_t usual) {
  char **words;
  int count = test_words(argc, argv, &words);
  uint64_t seed = count > 0 ? number(words[0], 0) : drawn(usual);
  printf("seed %llu\n", (unsigned long long)seed);
  fflush(stdout);
  return seed;
}

seeds seeds_of(int argc, char **argv, uint64_t first, uint64_t usual) {
  char **words;
  int count = test_words(argc, argv, &words);
  seeds s = {count > 0 ? number(words[0], 0) : drawn(first), 0};
  if (cases.lists) return (seeds){s.first, s.first + 1};
  s.end = s.first + (count > 1 ? number(words[1], 0) : count > 0 ? 1 : usual * seeds_times());
  printf("seeds %llu .. %llu\n", (unsigned long long)s.first, (unsigned long long)s.end - 1);
  fflush(stdout);
  return s;
}

uint64_t seeds_count(seeds s) { return test_whole() ? s.end - s.first : 0; }
