/* SPDX-License-Identifier: Apache-2.0 */
/* Characters that a terminal would act on are shown escaped: control characters, in either
 * encoding, and invalid bytes. Everything else is unchanged. Figures get a suitable unit.
 * labels: unthreaded random smoke */
#include <string.h>

#include "base/base.h"
#include "tests/support/rng.h"
#include "tests/support/seeds.h"
#include "tests/support/test.h"

static void shown(const char *text, const char *as) {
  char out[256];
  sli_escape(out, sizeof out, text);
  CHECK(!strcmp(out, as), "'%s' is to be shown as '%s'", out, as);
}

static void what_terminals_act_on_is_shown(void) {
  shown("plain, with\ttabs\nand lines", "plain, with\ttabs\nand lines");
  shown("\033[2J\033]0;title\007", "\\x1b[2J\\x1b]0;title\\x07");
  shown("\r\b\177", "\\x0d\\x08\\x7f");
  shown("Gr\303\266\303\237e \342\202\254 \360\237\230\200",
        "Gr\303\266\303\237e \342\202\254 \360\237\230\200");
  shown("\302\233[2J\302\237", "\\xc2\\x9b[2J\\xc2\\x9f");      /* 8-bit controls in UTF-8 */
  shown("\233[2J", "\\x9b[2J");                                 /* the same as bare bytes */
  shown("\303", "\\xc3");                                       /* truncated */
  shown("\300\233 \340\202\233", "\\xc0\\x9b \\xe0\\x82\\x9b"); /* overlong encodings */
  shown("\364\220\200\200\377", "\\xf4\\x90\\x80\\x80\\xff");   /* beyond the last code point */
}

static void messages_are_harmless(void) {
  sl_fail(SL_E_INPUT, "%s: no such thing", "\033[31mred");
  CHECK(!strcmp(sl_detail(), "\\x1b[31mred: no such thing"), "it is '%s'", sl_detail());
  sl_fail(SL_E_INPUT, "again: %s", sl_detail());
  CHECK(!strcmp(sl_detail(), "again: \\x1b[31mred: no such thing"), "it is '%s'", sl_detail());
}

static void figures_have_units(void) {
  static const struct {
    double seconds;
    const char *text;
  } times[] = {{1.5, "1.5 s"},       {0.0123456, "12.35 ms"}, {0.99996, "1 s"},
               {0.9999, "999.9 ms"}, {2.5e-6, "2.5 us"},      {3e-9, "3 ns"},
               {0, "0 ns"},          {123456, "1.235e+05 s"}};
  char out[32];
  for (size_t i = 0; i < SLI_COUNT(times); i++)
    CHECK(!strcmp(sli_format_seconds(out, times[i].seconds), times[i].text), "%s is to be %s", out,
          times[i].text);
  CHECK(!strcmp(sli_format_rate(out, 5.123e9, "flop/s"), "5.123 Gflop/s"), "it is %s", out);
  CHECK(!strcmp(sli_format_rate(out, 3.937e3, "flop/s"), "3.937 kflop/s"), "it is %s", out);
  CHECK(!strcmp(sli_format_rate(out, 0.5, "flop/s"), "0.5 flop/s"), "it is %s", out);
}

static void check_one(uint64_t seed) {
  rng d = {.key = seed};
  char text[40], out[64], again[64];
  size_t n = rng_below(&d, sizeof text), size = 1 + rng_below(&d, sizeof out);
  for (size_t i = 0; i < n; i++) text[i] = (char)(1 + rng_below(&d, 255));
  text[n] = 0;
  memset(out, 'x', sizeof out);
  sli_escape(out, size, text);
  CHECK(strlen(out) < size, "seed %d: it fits", (int)seed);
  for (const char *at = out; *at; at++)
    CHECK((unsigned char)*at >= 0x20 || *at == '\n' || *at == '\t', "seed %d: %d", (int)seed, *at);
  CHECK(!strcmp(sli_escape(again, sizeof again, out), out), "seed %d: once is enough", (int)seed);
}

int main(int argc, char **argv) {
  RUN(what_terminals_act_on_is_shown);
  RUN(messages_are_harmless);
  RUN(figures_have_units);
  seeds s = seeds_of(argc, argv, 1, 20000);
  for (uint64_t seed = s.first; seed < s.end; seed++) RUN(check_one, seed);
  return 0;
}
