/* SPDX-License-Identifier: Apache-2.0 */
/* Damaged input does no harm: machine files, profiles, orders of passes, quotas and the values of
 * all options are accepted, or rejected with a message. The message names the file or the option
 * and contains no control characters for a terminal.
 *
 *   test_tools_fuzz [SEED [COUNT]]
 * labels: unthreaded random */
#include <cjson/cJSON.h>
#include <ctype.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "graph/compile/compile.h"
#include "graph/lower/lower.h"
#include "tests/support/command_line.h"
#include "tests/support/rng.h"
#include "tests/support/seeds.h"
#include "tests/support/test.h"

enum { MOST_TEXT = 4096, MOST_SIZE = 64 };

static char path[64];
static int taken, refused; /* cases */

/* ---- damage ------------------------------------------------------------------------------- */

typedef struct text {
  size_t count;
  char bytes[MOST_TEXT + 1];
} text;

static void set(text *t, const char *good) {
  t->count = strlen(good);
  CHECK(t->count <= MOST_TEXT / 2, "%s is short", good);
  memcpy(t->bytes, good, t->count + 1);
}

/* Replaces `count` bytes at `at` with `with`, if there is room. */
static void replace(text *t, size_t at, size_t count, const char *with, size_t bytes) {
  if (t->count - count + bytes > MOST_TEXT) return;
  memmove(t->bytes + at + bytes, t->bytes + at + count, t->count - at - count);
  memmove(t->bytes + at, with, bytes);
  t->count += bytes - count;
  t->bytes[t->count] = 0;
}

/* Advances `at` to the next number and returns its length, or 0 if there is none. */
static size_t find_number(const text *t, size_t *at) {
  while (*at < t->count && !isdigit((unsigned char)t->bytes[*at])) ++*at;
  return strspn(t->bytes + *at, "0123456789.e+-");
}

static void damage(text *t, rng *d) {
  static const char *const numbers[] = {"0",
                                        "-1",
                                        "1",
                                        "2147483647",
                                        "2147483648",
                                        "4294967297",
                                        "-9223372036854775808",
                                        "9223372036854775807",
                                        "18446744073709551616",
                                        "1e18",
                                        "8e96",
                                        "1e308",
                                        "1e999",
                                        "-1e999",
                                        "nan",
                                        "inf",
                                        "0x7fffffff",
                                        "1e-308",
                                        "00000000000000000000001",
                                        "1.5",
                                        ""};
  static const char *const pieces[] = {
      "\"", "{",  "}",       "[",       "]",       ":",        ",",  "=",           "@",
      "..", "-",  "null",    "true",    "\033[2J", "\302\233", "\n", "#",           " ",
      "%s", "S9", "\\u0000", "\\ud800", "K",       "x",        "F",  "999999999999"};
  size_t at = rng_below(d, (uint32_t)t->count + 1), span = rng_below(d, 8);
  span = SLI_MIN(span, t->count - at);
  const char *with = numbers[rng_below(d, SLI_COUNT(numbers))];
  char byte = (char)rng_below(d, 256), again[64];
  switch (rng_below(d, 9)) {
  case 0: with = pieces[rng_below(d, SLI_COUNT(pieces))]; break;
  case 1: with = pieces[rng_below(d, SLI_COUNT(pieces))], span = 0; break;
  case 2: with = ""; break;
  case 3: memcpy(again, t->bytes + at, span), again[span] = 0, with = again, span = 0; break;
  case 4: replace(t, at, SLI_MIN(span, 1), &byte, 1); return;
  default: span = find_number(t, &at);
  }
  replace(t, at, span, with, strlen(with));
}

static void damage_some(text *t, rng *d) {
  for (uint32_t n = rng_below(d, 4); n < 4; n++) damage(t, d);
}

/* ---- parsers ------------------------------------------------------------------------------ */

static void check_refusal(const char *what, const char *culprit, uint64_t seed) {
  const char *detail = sl_detail();
  refused++;
  CHECK(strstr(detail, culprit), "seed %d, %s: it names %s: %s", (int)seed, what, culprit, detail);
  for (const char *at = detail; *at; at++)
    CHECK(*at == '\n' || *at == '\t' || !iscntrl((unsigned char)*at), "seed %d, %s: %s", (int)seed,
          what, detail);
}

static void write_file(const text *t) {
  FILE *file = fopen(path, "wb");
  CHECK(file && fwrite(t->bytes, 1, t->count, file) == t->count && !fclose(file), "%s: %m", path);
}

static sl_status read_words(const char *option, const char *value) {
  char *words[] = {"test",           "--devices", "timed:2",      "--stages",    "2",
                   "--microbatches", "2",         (char *)option, (char *)value, "pipeline"};
  return command_line_read(SLI_COUNT(words), words, MOST_SIZE);
}

static void check_file(const char *option, const char *good, rng *d, uint64_t seed) {
  text t;
  set(&t, good);
  damage_some(&t, d);
  write_file(&t);
  sl_status status = read_words(option, path);
  if (status) check_refusal(option, status == SL_E_BUDGET ? "budget" : path, seed);
  else taken++;
}

static void check_machine(rng *d, uint64_t seed) {
  check_file(
      "--machine",
      "{\"flops_per_second\": {\"f32\": 19.5e12, \"bf16\": 312e12}, "
      "\"flops_efficiency\": 0.6, \"bytes_per_second\": 2.039e12, \"bytes_efficiency\": 0.8, "
      "\"op_seconds\": 5e-6, \"memory_bytes\": 85899345920, \"link_seconds\": 5e-6, "
      "\"link_bytes_per_second\": 25e9, \"devices_per_host\": 8, "
      "\"host_link_seconds\": 3e-6, \"host_link_bytes_per_second\": 300e9, "
      "\"link_efficiency\": 0.8, \"copy_bytes_per_second\": 25e9, "
      "\"disk_read_bytes_per_second\": 3e9}",
      d, seed);
}

static void check_profile(rng *d, uint64_t seed) {
  check_file("--profile",
             "{\"model\": \"pipeline\", \"ops\": [{\"name\": \"chunk.0/linear.1\", "
             "\"seconds\": 1.5e-3}, {\"name\": \"chunk.1/linear.1\", \"seconds\": 2e-3}, "
             "{\"name\": \"chunk.1/linear.1\", \"seconds\": 0}]}",
             d, seed);
}

static void check_order(rng *d, uint64_t seed) {
  check_file("--order", "# passes\n0: F0 F0 B0 B0\n\n1: F1 B1 F1 B1 # as they come\n", d, seed);
}

static void check_quota(rng *d, uint64_t seed) {
  static const char *const good[] = {"act.b=4", "act.b@2=4", "act=4,3,2,1", "fwd@1=3,-,2", "h2d=1"};
  text t;
  int count;
  sl_quota *read;
  set(&t, good[rng_below(d, SLI_COUNT(good))]);
  damage_some(&t, d);
  if (sli_quota_read(t.bytes, &count, &read)) {
    check_refusal("a quota", "quota ", seed);
    return;
  }
  for (int i = 0; i < count; i++)
    CHECK(read[i].slots >= 1 && read[i].stage >= SL_NONE && *read[i].name,
          "seed %d: %s gives %s@%d=%d", (int)seed, t.bytes, read[i].name, read[i].stage,
          read[i].slots);
  free(read);
  taken++;
}

static void check_option(rng *d, uint64_t seed) {
  static const char *const good[] = {"1",
                                     "2",
                                     "0.5",
                                     "timed:4",
                                     "cpu:2x2",
                                     "cuda:0,1",
                                     "512M",
                                     "F=1,B=1,W=1,comm=0",
                                     "act.b@1=3,-,2",
                                     "w.0.0=S0,B",
                                     "zb-h1",
                                     "auto",
                                     "vee",
                                     "split",
                                     "virtual",
                                     "full",
                                     "layer",
                                     "bf16"};
  sl_option *options = options_table(command_line_options);
  size_t n = 0;
  while (options[n].name) n++;
  const sl_option *o = &options[rng_below(d, (uint32_t)n)];
  text t;
  set(&t, good[rng_below(d, SLI_COUNT(good))]);
  if (rng_below(d, 4)) damage_some(&t, d);
  char *name = sli_format("--%s", o->name);
  if (o->kind == SL_OPTION_FLAG) {
  } /* would show the help or the version */
  else if (read_words(name, t.bytes))
    check_refusal(name, "", seed);
  else taken++;
  free(name);
  free(options);
}

int main(int argc, char **argv) {
  static void (*const checks[])(rng *, uint64_t) = {check_machine, check_profile, check_order,
                                                    check_quota, check_option};
  const char *folder = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp"; /* the faster one */
  snprintf(path, sizeof path, "%s/sluice-test-fuzz-%ld", folder, (long)getpid());
  seeds s = seeds_of(argc, argv, 1, TEST_SANITIZED ? 1000 : 4000);
  for (uint64_t seed = s.first; seed < s.end; seed++) {
    rng d = {.key = seed};
    checks[seed % SLI_COUNT(checks)](&d, seed);
  }
  unlink(path);
  printf("%d taken, %d refused\n", taken, refused);
  CHECK(seeds_count(s) < 1000 ||
            (taken > (int)seeds_count(s) / 80 && refused > (int)seeds_count(s) / 80),
        "some are good, some are not");
  return 0;
}
