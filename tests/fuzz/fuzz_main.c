/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a fuzz target on its corpus and on mutations of it, as an ordinary test.
 *
 *   test_fuzz_NAME [SEED [COUNT]]         rounds of mutations, each from its seed
 *   test_fuzz_NAME --seconds N [SEED]     as many rounds as fit
 *   test_fuzz_NAME --file FILE...         these inputs as they are
 *
 * A target is a file tests/fuzz/test_NAME.c with
 *
 *   int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
 *
 * and a line `labels: random unthreaded` in its first comment. Its corpus, a few small files, is in
 * tests/fuzz/corpus/NAME; fuzz_words (fuzz.h) may list words from which inputs are built. CMake
 * finds the target, links it with this file, and adds it as a test. tests/fuzz/long.sh runs all
 * targets for longer under sanitizers. A target returns 0, frees its memory, and calls abort() if a
 * claim fails. The function has the signature of clang's libFuzzer, which cannot build all of
 * Sluice: the kernels use GCC's vector extensions.
 *
 * An input that crashes, or takes more than HANG seconds, is saved as crash-NAME in the working
 * directory. Minimize it and add it to the corpus. */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/rng.h"
#include "tests/support/seeds.h"
#include "tests/support/test.h"

enum { MOST_BYTES = 1 << 16, PER_SEED = 400, SEEDS = 4, SECONDS = 4, HANG = 30 };

typedef struct input {
  uint8_t *bytes;
  size_t count;
} input;

static struct {
  input *items;
  size_t count, capacity;
} corpus;

/* ---- the current input ----------------------------------------------------------------------- */

static char crash_path[128];
static input at_hand;

static void keep(void) {
  int fd = open(crash_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  bool good = fd >= 0 && write(fd, at_hand.bytes, at_hand.count) == (ssize_t)at_hand.count;
  if (fd >= 0) close(fd);
  static const char kept[] = "the input lies in ",
                    not_kept[] = "the input could not be written to ";
  const char *text = good ? kept : not_kept;
  if (write(2, text, strlen(text)) < 0 || write(2, crash_path, strlen(crash_path)) < 0 ||
      write(2, "\n", 1) < 0)
    _exit(1);
}

static void crashed(int signal_number) {
  static const char hang[] = "one input takes too long\n";
  signal(SIGABRT, SIG_DFL);
  if (signal_number == SIGALRM && write(2, hang, sizeof hang - 1) < 0) _exit(1);
  keep();
  if (signal_number == SIGALRM) abort();
  signal(signal_number, SIG_DFL);
  raise(signal_number);
}

#if defined(__SANITIZE_ADDRESS__)
void __sanitizer_set_death_callback(void (*call)(void));
/* The undefined behaviour sanitizer has no death callback; with this option it aborts, which raises
 * a signal. */
const char *__ubsan_default_options(void);
const char *__ubsan_default_options(void) { return "abort_on_error=1:print_stacktrace=1"; }
#endif

static void watch(const char *name) {
  snprintf(crash_path, sizeof crash_path, "crash-%s", name);
  const int signals[] = {SIGABRT, SIGALRM};
  for (size_t i = 0; i < SLI_COUNT(signals); i++) signal(signals[i], crashed);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_set_death_callback(keep);
#else
  signal(SIGSEGV, crashed), signal(SIGBUS, crashed), signal(SIGFPE, crashed);
#endif
}

/* Copies the bytes to a separate allocation, so that reads past the end are detected. */
static void run(const uint8_t *bytes, size_t count) {
  at_hand = (input){malloc(count ? count : 1), count};
  CHECK(at_hand.bytes, "memory for an input");
  memcpy(at_hand.bytes, bytes, count);
  alarm(HANG);
  LLVMFuzzerTestOneInput(at_hand.bytes, count);
  alarm(0);
  free(at_hand.bytes);
}

/* ---- the corpus ------------------------------------------------------------------------------ */

static void add_file(const char *path) {
  FILE *file = fopen(path, "rb");
  CHECK(file, "%s cannot be read", path);
  SLI_GROW(corpus.items, corpus.count, corpus.capacity);
  input *in = &corpus.items[corpus.count++];
  in->bytes = sli_calloc(1, MOST_BYTES);
  in->count = fread(in->bytes, 1, MOST_BYTES, file);
  CHECK(!ferror(file) && fgetc(file) == EOF, "%s is longer than %d bytes", path, MOST_BYTES);
  fclose(file);
}

static int is_visible(const struct dirent *entry) { return entry->d_name[0] != '.'; }

static void add_folder(const char *path) {
  struct dirent **all;
  int n = scandir(path, &all, is_visible, alphasort);
  CHECK(n > 0, "%s has inputs", path);
  for (int i = 0; i < n; i++) {
    char *file = sli_format("%s/%s", path, all[i]->d_name);
    add_file(file);
    free(file);
    free(all[i]);
  }
  free(all);
}

/* ---- mutations ------------------------------------------------------------------------------- */

static size_t place(rng *d, size_t end) { return end ? rng_below(d, (uint32_t)end) : 0; }

static void put_in(input *in, size_t at, const void *bytes, size_t count) {
  count = SLI_MIN(count, MOST_BYTES - in->count);
  memmove(in->bytes + at + count, in->bytes + at, in->count - at);
  memcpy(in->bytes + at, bytes, count);
  in->count += count;
}

static void take_out(input *in, size_t at, size_t count) {
  count = SLI_MIN(count, in->count - at);
  memmove(in->bytes + at, in->bytes + at + count, in->count - at - count);
  in->count -= count;
}

static void flip(rng *d, input *in) {
  if (in->count) in->bytes[place(d, in->count)] ^= (uint8_t)(1u << rng_below(d, 8));
}

static void any_byte(rng *d, input *in) {
  if (in->count) in->bytes[place(d, in->count)] = (uint8_t)rng_below(d, 256);
}

static void number(rng *d, input *in) {
  static const int64_t likely[] = {0,         1,         -1,         2,         127,      128,
                                   255,       256,       32767,      32768,     65535,    65536,
                                   INT32_MAX, INT32_MIN, UINT32_MAX, INT64_MAX, INT64_MIN};
  static const size_t widths[] = {1, 2, 4, 8};
  size_t width = widths[rng_below(d, SLI_COUNT(widths))];
  int64_t value = likely[rng_below(d, SLI_COUNT(likely))];
  if (in->count >= width) memcpy(in->bytes + place(d, in->count - width + 1), &value, width);
}

static void digits(rng *d, input *in) {
  static const char *const likely[] = {"0",
                                       "-1",
                                       "1",
                                       "1e9",
                                       "1e308",
                                       "1e400",
                                       "-0",
                                       "0.5",
                                       "2147483648",
                                       "4294967296",
                                       "9223372036854775807",
                                       "18446744073709551616",
                                       "null",
                                       "true",
                                       "[]",
                                       "{}",
                                       "\"\""};
  size_t at = place(d, in->count), n = 0;
  while (at < in->count && (in->bytes[at] < '0' || in->bytes[at] > '9')) at++;
  while (at + n < in->count && in->bytes[at + n] >= '0' && in->bytes[at + n] <= '9') n++;
  const char *text = likely[rng_below(d, SLI_COUNT(likely))];
  take_out(in, at, n);
  put_in(in, at, text, strlen(text));
}

static void word(rng *d, input *in) {
  const char *const *words = fuzz_words;
  uint32_t n = 0;
  while (words && words[n]) n++;
  if (!n) return any_byte(d, in);
  const char *text = words[rng_below(d, n)];
  size_t at = place(d, in->count + 1);
  if (rng_below(d, 2)) take_out(in, at, strlen(text));
  put_in(in, at, text, strlen(text));
}

static void drop(rng *d, input *in) {
  take_out(in, place(d, in->count), 1 + rng_below(d, rng_below(d, 8) ? 8 : 1024));
}

static void cut_short(rng *d, input *in) { in->count = place(d, in->count + 1); }

static void twice(rng *d, input *in) {
  static uint8_t copy[MOST_BYTES];
  size_t from = place(d, in->count), some = 1 + rng_below(d, rng_below(d, 8) ? 32 : 4096);
  size_t n = SLI_MIN(some, in->count - from);
  memcpy(copy, in->bytes + from, n);
  put_in(in, place(d, in->count + 1), copy, n);
}

/* Joins the beginning of this input with the end of another. */
static void cross(rng *d, input *in) {
  const input *other = &corpus.items[rng_below(d, (uint32_t)corpus.count)];
  size_t from = place(d, other->count);
  cut_short(d, in);
  put_in(in, in->count, other->bytes + from, other->count - from);
}

static void mutate(rng *d, input *in) {
  static void (*const ways[])(rng *, input *) = {flip, any_byte, number, digits, word,
                                                 word, drop,     twice,  cross,  cut_short};
  for (uint32_t times = 1 + rng_below(d, rng_below(d, 4) ? 3 : 12); times; times--)
    ways[rng_below(d, SLI_COUNT(ways))](d, in);
}

static double now(void) { return 1e-9 * (double)sli_now_ns(); }

static void run_seed(uint64_t seed, double end) {
  static uint8_t room[MOST_BYTES];
  rng d = {.key = seed};
  for (int i = 0; i < PER_SEED && now() < end; i++) {
    const input *base = &corpus.items[rng_below(&d, (uint32_t)corpus.count)];
    input in = {room, base->count};
    memcpy(room, base->bytes, base->count);
    mutate(&d, &in);
    run(in.bytes, in.count);
  }
}

/* ---- the test -------------------------------------------------------------------------------- */

static int run_files(int argc, char **argv) {
  for (int i = 2; i < argc; i++) add_file(argv[i]);
  for (size_t i = 0; i < corpus.count; i++) run(corpus.items[i].bytes, corpus.items[i].count);
  return 0;
}

static void run_mutations(int argc, char **argv) {
  if (argc > 2 && !strcmp(argv[1], "--seconds")) {
    uint64_t seed = argc > 3 ? strtoull(argv[3], NULL, 0) : (uint64_t)time(NULL);
    double end = now() + strtod(argv[2], NULL);
    for (; now() < end; seed++) run_seed(seed, end);
    printf("seeds up to %llu\n", (unsigned long long)seed);
    return;
  }
  seeds s = seeds_of(argc, argv, 1, SEEDS);
  double end = now() + (double)SECONDS * (double)seeds_times();
  for (uint64_t seed = s.first; seed < s.end && now() < end; seed++)
    run_seed(seed, argc > 1 ? 1e300 : end);
}

int main(int argc, char **argv) {
  const char *base = strrchr(argv[0], '/'), *source = getenv("SLUICE_SOURCE");
  const char *name = (base ? base + 1 : argv[0]) + strlen("test_fuzz_");
  watch(name);
  if (argc > 2 && !strcmp(argv[1], "--file")) return run_files(argc, argv);
  char *folder = sli_format("%s/tests/fuzz/corpus/%s", source ? source : ".", name);
  add_folder(folder);
  for (size_t i = 0; i < corpus.count; i++) run(corpus.items[i].bytes, corpus.items[i].count);
  run_mutations(argc, argv);
  for (size_t i = 0; i < corpus.count; i++) free(corpus.items[i].bytes);
  free(corpus.items);
  free(folder);
  return 0;
}
