/* SPDX-License-Identifier: Apache-2.0 */
/* Command lines and the files that they name: values out of range are rejected, and the message
 * names the option, or the file and the field, and the value.
 * labels: unthreaded */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "base/number.h"
#include "tests/support/command_line.h"
#include "tests/support/test.h"
#include "tools/cli/options.h"
#include "tools/hardware/hardware.h"

enum { MOST_WORDS = 24 };

/* Parses a command line, split at spaces, and makes its plan. */
static sl_status read_line(const char *line) {
  char *text = sli_strdup(line), *words[MOST_WORDS] = {(char *)command_line_tool.name};
  int n = 1;
  for (char *word = strtok(text, " "); word; word = strtok(NULL, " ")) {
    CHECK(n < MOST_WORDS, "%s: too many words", line);
    words[n++] = word;
  }
  sl_status status = command_line_read(n, words, INFINITY);
  free(text);
  return status;
}

static void refused(sl_status want, const char *line, const char *says) {
  sl_status status = read_line(line);
  CHECK(status == want, "%s: %s, not %s: %s", line, sl_status_text(status), sl_status_text(want),
        status ? sl_detail() : "");
  char *said = options_named(sl_detail());
  CHECK(strstr(said, says), "%s: says \"%s\", not \"%s\"", line, said, says);
  free(said);
}

/* ---- names --------------------------------------------------------------------------- */

static void options_take_the_place_of_fields(void) {
  static const struct {
    const char *said, *named;
  } cases[] = {
      {"experts.parallel 3: must divide parallel.data 4",
       "--expert-parallel 3: must divide --data-parallel 4"},
      {"(memory.homes act=HOME)", "(--home act=HOME)"},
      {"memory.homes.offload: nothing", "--offload: nothing"},
      {"as parallel.data. The rest", "as --data-parallel. The rest"},
      {"in my.parallel.data and parallel.database", "in my.parallel.data and parallel.database"},
      {"/tmp/parallel.data", "/tmp/parallel.data"}};
  for (size_t i = 0; i < SLI_COUNT(cases); i++) {
    char *named = options_named(cases[i].said);
    CHECK(!strcmp(named, cases[i].named), "\"%s\", not \"%s\"", named, cases[i].named);
    free(named);
  }
}

/* ---- options ------------------------------------------------------------------------- */

static void numbers_of_options_have_their_range(void) {
  static const struct {
    const char *line, *says;
  } cases[] = {
      {"--stages 65537 pipeline", "--stages 65537: must be between 0 and 65536"},
      {"--microbatches 4294967297 pipeline", "--microbatches 4294967297: must be between"},
      {"--seed 9223372036854775808 pipeline", "--seed 9223372036854775808: not a whole number"},
      {"--look-ahead 1e999 pipeline", "--look-ahead 1e999: not a number"},
      {"--stages 65536 --chunks 65536 --devices timed:1 pipeline",
       "--stages 65536 with --chunks 65536: a model can be cut into at most 65536 parts"},
      {"--devices cpu:4294967297 pipeline", "--devices cpu:4294967297"},
      {"--devices cpu:2x99999999999999999999 pipeline", "--devices cpu:2x99999999999999999999"},
      {"--devices cuda:4294967296 pipeline", "--devices cuda:4294967296"},
      {"--quota act=4294967298 pipeline", "--quota act=4294967298"},
      {"--quota act@4294967296=2 pipeline", "--quota act@4294967296=2"},
      {"--cost F=1e300 pipeline", "--cost F=1e300"},
      {"--cost F=nan pipeline", "--cost F=nan"},
      {"--sbp w=S99,B pipeline", "--sbp w=S99,B"}};
  for (size_t i = 0; i < SLI_COUNT(cases); i++) refused(SL_E_USAGE, cases[i].line, cases[i].says);
  CHECK(!read_line("--devices timed:2 --stages 2 --cost F=1 pipeline"), "%s", sl_detail());
}

static void sizes_have_their_range(void) {
  static const char *const bad[] = {"0", "-1", "1e300", "inf", "nan", "999999999999T",
                                    "G", "",   "1X"};
  size_t bytes;
  const char *at;
  for (size_t i = 0; i < SLI_COUNT(bad); i++)
    CHECK(!sli_number_read_size((at = bad[i], &at), &bytes) || *at, "%s is no size", bad[i]);
  at = "1.5G";
  CHECK(sli_number_read_size(&at, &bytes) && bytes == (size_t)3 << 29 && !*at, "1.5G");
  at = "512MiB..";
  CHECK(sli_number_read_size(&at, &bytes) && bytes == (size_t)512 << 20 && !strcmp(at, ".."),
        "512MiB");
}

static void what_cannot_be_counted_is_refused(void) {
  refused(SL_E_BUDGET,
          "--devices null:2 --stages 2 --microbatches 2 --quota act=16777216 gpt "
          "--layers 2 --width 1024 --heads 16 --context 1024 --batch 1048576 --vocab 2",
          "device null:0 needs 2^64 bytes or more; largest holders: act.b ");
  refused(SL_E_INPUT,
          "--devices timed:2 --stages 2 --microbatches 2 gpt --layers 2 --width 262144 "
          "--heads 4096 --context 1048576 --batch 32768 --vocab 2",
          "s: durations must be from 0 to 1e9 s");
}

/* ---- files --------------------------------------------------------------------------- */

static char path[64];

static void write_file(const char *text) {
  FILE *file = fopen(path, "w");
  CHECK(file && fputs(text, file) >= 0 && !fclose(file), "%s: %m", path);
}

static void refused_file(const char *option, const char *text, const char *says) {
  write_file(text);
  char *line = sli_format("--devices timed:2 --stages 2 --%s %s pipeline", option, path);
  char *want = sli_format("%s: %s", path, says);
  refused(SL_E_INPUT, line, want);
  free(want);
  free(line);
}

/* Returns a valid machine file with one field set to `value`, or without it if `value` is NULL. */
static char *machine_with(const char *name, const char *value) {
  static const char *const fields[][2] = {{"flops_per_second", "{\"f32\": 1e12}"},
                                          {"flops_efficiency", "0.5"},
                                          {"bytes_per_second", "1e12"},
                                          {"bytes_efficiency", "0.5"},
                                          {"op_seconds", "1e-6"},
                                          {"memory_bytes", "1e9"},
                                          {"link_seconds", "1e-6"},
                                          {"link_bytes_per_second", "1e9"}};
  char *text = NULL;
  size_t bytes;
  FILE *out = open_memstream(&text, &bytes);
  fprintf(out, "{\"source\": \"a test\"");
  for (size_t i = 0; i < SLI_COUNT(fields); i++)
    if (strcmp(fields[i][0], name)) fprintf(out, ", \"%s\": %s", fields[i][0], fields[i][1]);
  if (value) fprintf(out, ", \"%s\": %s", name, value);
  fputc('}', out);
  fclose(out);
  return text;
}

static void numbers_of_machine_files_have_their_range(void) {
  static const struct {
    const char *name, *value, *says;
  } cases[] = {
      {"memory_bytes", "8e96", "memory_bytes: expected a number from 0 to 1e+18, found 8e+96"},
      {"memory_bytes", "-1", "memory_bytes: expected a number from 0 to 1e+18, found -1"},
      {"memory_bytes", "\"8G\"", "memory_bytes: expected a number from 0 to 1e+18, found a string"},
      {"memory_bytes", "null", "memory_bytes: expected a number from 0 to 1e+18, found null"},
      {"memory_bytes", NULL, "memory_bytes is missing"},
      {"flops_per_second", "{\"bf16\": 1}", "flops_per_second.f32 is missing"},
      {"flops_per_second", "{\"f32\": 1e31}",
       "flops_per_second.f32: expected a number from 0 to 1e+30, found 1e+31"},
      {"flops_efficiency", "1.5", "flops_efficiency: expected a number from 0 to 1, found 1.5"},
      {"op_seconds", "1e9", "op_seconds: expected a number from 0 to 1000000, found 1e+09"},
      {"devices_per_host", "1e10",
       "devices_per_host: expected a whole number from 0 to 1048576, found 1e+10"},
      {"host_link_seconds", "-1e-9",
       "host_link_seconds: expected a number from 0 to 1000000, found -1e-09"},
      {"copy_bytes_per_second", "-1",
       "copy_bytes_per_second: expected a number from 0 to 1e+30, found -1"},
      {"host_memory_bytes_per_second", "\"4G\"",
       "host_memory_bytes_per_second: expected a number from 0 to 1e+30, found a string"},
      {"disk_read_bytes_per_second", "1e31",
       "disk_read_bytes_per_second: expected a number from 0 to 1e+30, found 1e+31"},
      {"disk_write_bytes_per_second", "0.5",
       "disk_write_bytes_per_second is less than one byte per second"},
      {"link_seconds", "{}", "link_seconds: expected a number from 0 to 1000000, found an object"},
      {"link_seconds", "\"\033[2J\"", "not JSON at line 1, column"},
      {"link_seconds", "\"\\u001b[2J\"",
       "link_seconds: expected a number from 0 to 1000000, found a string"},
      {"flops_per_second", "{\"f32\": 1e-300}", "the device computes nothing or moves nothing"},
      {"flops_efficiency", "0", "the device computes nothing or moves nothing"},
      {"curves", "{\"add\": {\"bytes\": [1, 4, 2], \"seconds\": [1, 1, 1]}}",
       "curves.add.bytes: grid values must increase: 2 follows 4"},
      {"curves", "{\"add\": {\"bytes\": [1, 2], \"seconds\": [1, -1]}}",
       "curves.add.seconds[1]: expected a number from"},
      {"curves", "{\"linear\": {\"m\": [1, 2], \"n\": [1, 2], \"seconds\": [[1, 1], [1]]}}",
       "curves.linear: 3 seconds for the 4 points of its grid"},
      {"curves", "{\"add\": {\"seconds\": [1]}}", "curves.add: a curve needs at least one axis"},
      {"curves", "{\"add\": {\"b\\u001b\": [1], \"seconds\": [1]}}",
       "curves.add.b\\x1b: axes of a curve are m, n, k"},
      {"rows", "{\"linear\": {\"efficiency\": 1.5}}",
       "rows.linear.efficiency: expected a number from 0 to 1, found 1.5"},
      {"rows", "{\"linear\": {\"tile\": [1, 2, 3]}}", "rows.linear.tile: must be two numbers"},
      {"exchange", "{\"algorithm\": \"star\"}",
       "exchange: algorithm must be tree, ring, direct or hier"},
      {"exchange", "{\"net\": {\"all-to-all\": {\"m\": [1], \"seconds\": [1]}}}",
       "exchange.net.all-to-all: over m: the axes of an exchange must be bytes and devices"},
      {"exchange", "{\"host\": {\"all-reduce\": {\"bytes\": [1, 2], \"seconds\": [1]}}}",
       "exchange.host.all-reduce: 1 seconds for the 2 points"},
      {"process_link", "{\"head\": [64], \"seconds\": [1]}",
       "process_link: over head: the axes of a link must be bytes and devices"},
      {"links", "[{\"from\": 0, \"to\": 0}]", "links[0]: a link leads from one device to another"},
      {"links", "[{\"from\": 0, \"to\": 1, \"seconds\": -1}]",
       "links[0].seconds: expected a number from 0"},
      {"links_per_host", "-1", "links_per_host: expected a number from 0"},
      {"gradient_bytes", "16", "gradient_bytes: expected a number from 0.5 to 8"},
      {"step_seconds", "-1", "step_seconds: expected a number from 0"},
      {"slowdown_while_exchanging", "0.5", "slowdown_while_exchanging: expected a number from 1"},
      /* documents of another shape */
      {"curves", "[1]", "curves: expected an object, found an array"},
      {"curves", "{\"add\": [1]}", "curves.add: expected an object, found an array"},
      {"curves", "{\"add\": 1}", "curves.add: expected an object, found 1"},
      {"curves", "{\"add\": {\"bytes\": {\"a\": 1}, \"seconds\": [1]}}",
       "curves.add.bytes: expected an array, found an object"},
      {"curves", "{\"add\": {\"bytes\": [1]}}", "curves.add.seconds is missing"},
      {"curves", "{\"add\": {\"bytes\": [1, 2], \"seconds\": [1, \"2\"]}}",
       "curves.add.seconds[1]: expected a number"},
      {"curves", "{\"add\": {\"bytes\": [1], \"seconds\": [{}]}}",
       "curves.add.seconds[0]: expected a number"},
      {"curves", "{\"linear\": {\"m\": [1, 2], \"n\": [1, 2], \"seconds\": [[1, 1, 1], [1]]}}",
       "curves.linear.seconds[0]: 3 values for the 2 of n"},
      {"curves", "{\"linear\": {\"m\": [1, 2], \"n\": [1, 2], \"seconds\": [[[1, 1]], [[1, 1]]]}}",
       "curves.linear.seconds[0]: 1 values"},
      {"rows", "[{}]", "rows: expected an object, found an array"},
      {"rows", "{\"linear\": 1}", "rows.linear: expected an object, found 1"},
      {"rows", "{\"linear\": {\"in_turn\": 1}}",
       "rows.linear.in_turn: expected true or false, found 1"},
      {"rows", "{\"linear\": {\"eficiency\": 1}}",
       "rows.linear.eficiency: unknown key; the keys are flops_factor"},
      {"exchange", "[]", "exchange: expected an object, found an array"},
      {"exchange", "{\"host\": []}", "exchange.host: expected an object, found an array"},
      {"exchange", "{\"host\": {\"all-reduce\": 1}}",
       "exchange.host.all-reduce: expected an object, found 1"},
      {"exchange", "{\"host\": {\"all-sum\": {}}}", "exchange.host.all-sum: unknown key"},
      {"exchange", "{\"algorithm\": 1}", "exchange.algorithm: expected a string, found 1"},
      {"process_link", "[1]", "process_link: expected an object, found an array"},
      {"links", "{\"a\": 1}", "links: expected an array, found an object"},
      {"links", "[1]", "links[0]: expected an object, found 1"},
      {"links", "[{\"from\": 0.5, \"to\": 1}]", "links[0].from: expected a whole number"},
      {"links", "[{\"from\": 0}]", "links[0].to is missing"},
      {"flops_per_second", "1e12", "flops_per_second: expected an object, found 1e+12"},
      {"flops_per_second", "{\"f32\": 1e12, \"bf16\": \"2\"}",
       "flops_per_second.bf16: expected a number, found a string"},
      {"devices_per_host", "1.5", "devices_per_host: expected a whole number"},
      {"op_second", "1", "op_second: unknown key; the keys are name, source"},
      {"op_seconds", "1e-6, \"op_seconds\": 2", "op_seconds: duplicate key"}};
  for (size_t i = 0; i < SLI_COUNT(cases); i++) {
    char *text = machine_with(cases[i].name, cases[i].value);
    refused_file("machine", text, cases[i].says);
    free(text);
  }
  refused_file("machine", "{\"flops_per_second\": ", "not JSON");
  char *line = sli_format("--devices timed:2 --stages 2 --machine %s pipeline", path),
       *good = machine_with("devices_per_host", "8");
  write_file(good);
  CHECK(!read_line(line), "%s", sl_detail());
  free(good);
  free(line);
}

/* Grid points are counted without overflow: 65536^4 points are not 0. */
static void grids_are_counted(void) {
  enum { LONG = 1 << 16 };
  char *text = NULL;
  size_t bytes;
  FILE *out = open_memstream(&text, &bytes);
  const char *axes[] = {"m", "n", "k", "bytes"};
  fputs("{\"add\": {", out);
  for (int a = 0; a < 4; a++) {
    fprintf(out, "\"%s\": [1", axes[a]);
    for (int i = 2; i <= LONG; i++) fprintf(out, ",%d", i);
    fputs("], ", out);
  }
  fputs("\"seconds\": [1]}}", out);
  fclose(out);
  char *whole = machine_with("curves", text);
  refused_file("machine", whole,
               "curves.add: 1 seconds for the more than 18446744073709551615 points of its grid");
  free(whole);
  free(text);
}

/* Each rate is stored in its field, and a missing rate means no time. */
static void rates_of_homes_are_read(void) {
  sl_hardware h;
  double spread;
  sli_arena arena = {0};
  char *text = machine_with("flops_efficiency",
                            "1, \"copy_bytes_per_second\": 25e9, "
                            "\"host_memory_bytes_per_second\": 4e11, "
                            "\"host_updates_per_second\": 2e9, "
                            "\"disk_read_bytes_per_second\": 3e9, "
                            "\"disk_write_bytes_per_second\": 0");
  write_file(text);
  CHECK(!hardware_read(path, "f32", false, &arena, &h, &spread), "%s", sl_detail());
  CHECK(h.copy_bytes_per_second == 25e9 && h.host_memory_bytes_per_second == 4e11 &&
            h.host_updates_per_second == 2e9 && h.disk_read_bytes_per_second == 3e9 &&
            h.disk_write_bytes_per_second == 0,
        "the rates are %g, %g, %g and %g", h.copy_bytes_per_second, h.host_memory_bytes_per_second,
        h.disk_read_bytes_per_second, h.disk_write_bytes_per_second);
  free(text);
  text = machine_with("flops_efficiency", "1");
  write_file(text);
  CHECK(!hardware_read(path, "f32", false, &arena, &h, &spread), "%s", sl_detail());
  CHECK(h.copy_bytes_per_second == 0 && h.disk_read_bytes_per_second == 0, "rates from nowhere");
  free(text);
  sli_arena_fini(&arena);
}

static void numbers_of_profiles_have_their_range(void) {
  static const struct {
    const char *text, *says;
  } cases[] = {{"{\"ops\": [{\"name\": \"a\", \"seconds\": 1e300}]}",
                "ops[0].seconds: expected a number from 0 to 1000000, found 1e+300"},
               {"{\"ops\": [{\"name\": \"a\", \"seconds\": -1}]}",
                "ops[0].seconds: expected a number from 0 to 1000000, found -1"},
               {"{\"ops\": [{\"name\": \"a\"}]}", "ops[0].seconds is missing"},
               {"{\"ops\": [7]}", "ops[0]: expected an object, found 7"},
               {"{}", "not a report with measured ops"},
               {"[]", "expected an object, found an array"},
               {"", "not JSON at line 1, column 1"}};
  for (size_t i = 0; i < SLI_COUNT(cases); i++)
    refused_file("profile", cases[i].text, cases[i].says);
}

int main(void) {
  snprintf(path, sizeof path, "/tmp/sluice-test-settings-%ld", (long)getpid());
  RUN(options_take_the_place_of_fields);
  RUN(numbers_of_options_have_their_range);
  RUN(sizes_have_their_range);
  RUN(what_cannot_be_counted_is_refused);
  RUN(numbers_of_machine_files_have_their_range);
  RUN(grids_are_counted);
  RUN(rates_of_homes_are_read);
  RUN(numbers_of_profiles_have_their_range);
  unlink(path);
  return 0;
}
