/* SPDX-License-Identifier: Apache-2.0 */
/* Options: values are checked immediately, messages name the option, and a mistyped name suggests
 * the closest option.
 * labels: unthreaded smoke */
#include <sluice/model.h>

#include <string.h>

#include "base/base.h"
#include "tests/support/test.h"

/* clang-format off */
static const sl_option options[] = {
    {"width", SL_OPTION_INT, "64", "hidden width", 1, 128},
    {"warmup", SL_OPTION_INT, "0", "steps", 0, 0},
    {"lr", SL_OPTION_FLOAT, "1e-3", "learning rate", 0, 1},
    {"data", SL_OPTION_TEXT, NULL, "the `FILE` to learn", 0, 0},
    {"tied", SL_OPTION_FLAG, "0", "share the weight", 0, 0},
    {0}};
/* clang-format on */

static sl_args *make(void) {
  sl_args *args;
  CHECK(!sl_args_create(options, &args), "the table is good: %s", sl_detail());
  return args;
}

static int take(sl_args *args, char *a, char *b) {
  int used;
  sl_status status = sl_args_take(args, b ? 2 : 1, (char *[]){a, b}, &used);
  return status ? -1 : used;
}

static void values_come_from_the_line_or_the_table(void) {
  sl_args *args = make();
  CHECK(sl_arg_int(args, "width") == 64 && sl_arg_float(args, "lr") == 1e-3, "the defaults");
  CHECK(take(args, "--width", "32") == 2 && sl_arg_int(args, "width") == 32, "two words");
  CHECK(take(args, "--width=16", "x") == 1 && sl_arg_int(args, "width") == 16, "one word");
  CHECK(!sl_arg_flag(args, "tied"), "a flag is off");
  CHECK(take(args, "--tied", "--lr") == 1 && sl_arg_flag(args, "tied"), "and takes no value");
  CHECK(take(args, "--data", "--odd") == 2 && !strcmp(sl_arg_text(args, "data"), "--odd"),
        "a value may look like an option");
  CHECK(!strcmp(sl_arg_given(args, "width", 0), "32"), "all values are there");
  CHECK(!strcmp(sl_arg_given(args, "width", 1), "16"), "in order");
  CHECK(!sl_arg_given(args, "width", 2) && !sl_arg_given(args, "lr", 0), "and no more");
  CHECK(take(args, "--widths", "1") == 0 && take(args, "width", "1") == 0, "others are not taken");
  sl_args_destroy(args);
}

static void bad_values_are_named(void) {
  static const struct {
    char *name, *value;
    const char *word;
  } cases[] = {{"--width", "0", "--width 0: must be between 1 and 128"},
               {"--width", "129", "between 1 and 128"},
               {"--width", "12x", "--width 12x: not a whole number"},
               {"--width", "", "not a whole number"},
               {"--width", "99999999999999999999", "not a whole number"},
               {"--lr", "fast", "--lr fast: not a number"},
               {"--lr", "nan", "not a number"},
               {"--lr", "2", "between 0 and 1"},
               {"--tied=maybe", NULL, "--tied=maybe"},
               {"--width", "\033[2J", "--width \\x1b[2J: not a whole number"},
               {"--width", NULL, "--width needs a value"}};
  sl_args *args = make();
  for (size_t i = 0; i < SLI_COUNT(cases); i++) {
    CHECK(take(args, cases[i].name, cases[i].value) == -1, "case %zu is refused", i);
    CHECK(strstr(sl_detail(), cases[i].word), "case %zu says so: %s", i, sl_detail());
  }
  CHECK(sl_arg_int(args, "width") == 64, "a refused value changes nothing");
  CHECK(take(args, "--warmup", "-5") == 2, "no range, no check");
  CHECK(sl_args_complete(args) == SL_E_USAGE && strstr(sl_detail(), "--data"),
        "what is needed is asked for: %s", sl_detail());
  CHECK(sl_args_set(args, "nothing", "1") == SL_E_USAGE, "an unknown name");
  sl_args_destroy(args);
  static const sl_option bad[] = {{"n", SL_OPTION_INT, "many", "", 0, 0}, {0}};
  CHECK(sl_args_create(bad, &args) == SL_E_USAGE, "a default is checked too");
}

static void a_mistyped_name_finds_its_neighbour(void) {
  static const char *const pairs[][2] = {{"widht", "width"},    {"wdth", "width"},
                                         {"warm-up", "warmup"}, {"rl", "lr"},
                                         {"date", "data"},      {"tide", "tied"}};
  for (size_t i = 0; i < SLI_COUNT(pairs); i++) {
    const char *near = sl_options_nearest(options, pairs[i][0]);
    CHECK(near && !strcmp(near, pairs[i][1]), "%s means %s, not %s", pairs[i][0], pairs[i][1],
          near ? near : "nothing");
  }
  CHECK(!sl_options_nearest(options, "zzzzzzzz"), "nonsense means nothing");
  CHECK(!sl_options_nearest(options, ""), "neither does nothing");
}

static void help_shows_every_option(void) {
  char *text = NULL;
  size_t bytes;
  FILE *out = open_memstream(&text, &bytes);
  sl_options_print(options, out);
  fclose(out);
  CHECK(strstr(text, "--width N") && strstr(text, "hidden width [64]"), "name and default: %s",
        text);
  CHECK(strstr(text, "--data FILE") && strstr(text, "(needed)"), "what the value is: %s", text);
  CHECK(!strchr(text, '`'), "no quotes are left");
  free(text);
}

int main(void) {
  RUN(values_come_from_the_line_or_the_table);
  RUN(bad_values_are_named);
  RUN(a_mistyped_name_finds_its_neighbour);
  RUN(help_shows_every_option);
  return 0;
}
