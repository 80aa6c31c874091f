/* SPDX-License-Identifier: Apache-2.0 */
/* Rotary frequencies match Hugging Face transformers (tests/reference/rope.txt), and an invalid
 * scaling text is refused with the reason.
 * labels: unthreaded */
#include <math.h>
#include <string.h>

#include <sluice/ops.h>

#include "base/base.h"
#include "ops/layout.h"
#include "tests/support/reference_file.h"
#include "tests/support/test.h"

static double next_number(char **at) {
  char *end;
  double value = strtod(*at, &end);
  CHECK(end > *at, "a number is missing before \"%.20s\"", *at);
  *at = end;
  return value;
}

/* Checks a line of the reference, which transformers computed in fp32 with intermediate
 * rounding. */
static void check_line(char *line) {
  char *text = strsep(&line, " ");
  sl_rope rope;
  CHECK(!sl_rope_parse(text, &rope), "%s: %s", text, sl_detail());
  sl_attrs attrs = {.rotary.theta = (float)next_number(&line), .user = &rope};
  int64_t pairs = (int64_t)next_number(&line);
  double scale = next_number(&line), frequency[pairs];
  CHECK(fabs(sli_rope_frequencies(&attrs, pairs, frequency) - scale) < 1e-12, "%s: the scale is %g",
        text, scale);
  for (int64_t j = 0; j < pairs; j++) {
    double want = next_number(&line);
    CHECK(fabs(frequency[j] - want) <= 2e-6 * want, "%s: pair %d turns by %.9g, not %.9g", text,
          (int)j, want, frequency[j]);
  }
}

static void check_plain(void) {
  sl_rope rope;
  double frequency[8];
  CHECK(!sl_rope_parse("", &rope) && rope.kind == SL_ROPE_PLAIN, "nothing is none");
  CHECK(!sl_rope_parse("none", &rope) && rope.kind == SL_ROPE_PLAIN, "none is none");
  CHECK(sli_rope_frequencies(&(sl_attrs){0}, 8, frequency) == 1, "nothing is scaled");
  CHECK(rope.part == 1 && sli_rotary_turned(&(sl_attrs){.user = &rope}, 80) == 80, "all turns");
  CHECK(!sl_rope_parse("none:partial_rotary_factor=0.4", &rope) &&
            sli_rotary_turned(&(sl_attrs){.user = &rope}, 80) == 32,
        "32 numbers of 80 turn");
  for (int j = 0; j < 8; j++)
    CHECK(frequency[j] == pow(10000, -(double)j / 8), "pair %d as ever", j);
}

static void check_refusals(void) {
  static const struct {
    const char *text, *named;
  } bad[] = {
      {"dynamic:factor=2", "dynamic"},
      {"linear", "factor"},
      {"linear:factor=0", "factor"},
      {"linear:factor=x", "factor"},
      {"linear:factor", "factor"},
      {"linear:factor=2,low_freq_factor=1", "low_freq_factor"},
      {"llama3:factor=8,low_freq_factor=1,high_freq_factor=4", "original_max"},
      {"llama3:factor=8,low_freq_factor=4,high_freq_factor=4,"
       "original_max_position_embeddings=64",
       "lower bound"},
      {"yarn:factor=inf,original_max_position_embeddings=64", "factor"},
      {"longrope:factor=2,original_max_position_embeddings=64,short_factor=1/2", "long_factor"},
      {"longrope:factor=2,original_max_position_embeddings=64,short_factor=1/2,long_factor=1",
       "same length"},
      {"longrope:factor=2,original_max_position_embeddings=64,short_factor=1/x,long_factor=1/2",
       "short_factor must be positive numbers"},
      {"longrope:factor=2,original_max_position_embeddings=64,short_factor=1/-1,long_factor=1/2",
       "short_factor must be positive numbers"},
      {"proportional:partial_rotary_factor=2", "partial_rotary_factor=2 must not exceed 1"},
      {"none:factor=2", "factor"},
      {"none:partial_rotary_factor=1.5", "partial_rotary_factor=1.5 must not exceed 1"},
      {"linear:factor=2,partial_rotary_factor=0", "partial_rotary_factor"}};
  for (size_t i = 0; i < SLI_COUNT(bad); i++) {
    sl_rope rope;
    CHECK(sl_rope_parse(bad[i].text, &rope) == SL_E_USAGE, "%s is refused", bad[i].text);
    CHECK(strstr(sl_detail(), bad[i].named), "%s: \"%s\" names %s", bad[i].text, sl_detail(),
          bad[i].named);
  }
}

int main(void) {
  const char *source = getenv("SLUICE_SOURCE");
  char *path = sli_format("%s/tests/reference/rope.txt", source ? source : ".");
  CHECK(reference_lines(path, check_line) == 11, "all cases are there");
  free(path);
  RUN(check_plain);
  RUN(check_refusals);
  return 0;
}
