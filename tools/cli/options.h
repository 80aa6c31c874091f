/* SPDX-License-Identifier: Apache-2.0 */
/* The shared options, which say what is planned and for which devices, together with a tool's
 * options. */
#ifndef SLUICE_TOOLS_CLI_OPTIONS_H
#define SLUICE_TOOLS_CLI_OPTIONS_H

#include <sluice/lower.h>
#include <sluice/model.h>

/* Groups that --help shows one at a time. */
typedef enum option_group {
  GROUP_PARALLEL,
  GROUP_MEMORY,
  GROUP_SCHEDULE,
  GROUP_TRAINING,
  GROUP_DATA,
  GROUP_OUTPUT,
  GROUP_SERVING,
  GROUP_SEARCH,
  OPTION_GROUPS
} option_group;

/* A row of a tool's table: an sl_option, and its group in --help. */
typedef struct tool_option {
  const char *name;
  sl_option_kind kind;
  const char *value, *help;
  double min, max;
  option_group group;
} tool_option;

/* Returns the shared options, each replaced by the tool's option of that name if it has one, and
 * the tool's additional options. The caller frees the array. */
sl_option *options_table(const tool_option *own);
/* Returns the group of an option in the table. */
option_group options_group(const tool_option *own, const char *name);
/* Picks from that table all of the tool's options, and the shared ones listed in `shared`
 * (NULL-terminated; NULL: all). */
sl_option *options_offered(const sl_option *table, const tool_option *own,
                           const char *const *shared);
/* Returns the words that an option accepts (NULL-terminated), in ascending order if they are
 * ordered. Returns NULL if it accepts any text. */
const char *const *options_words(const char *option);
/* Returns the words of an option for completion: those above, or names of schedules. Returns NULL
 * for the tool's `own` options. */
const char *const *options_completed(const tool_option *own, const char *option);
/* Returns SL_E_USAGE unless the option's text is one of the words (NULL-terminated). */
sl_status options_check_word(const char *option, const char *text, const char *const *words);
/* Checks all options that have words, except the tool's `own`, which it checks itself. */
sl_status options_check_words(const sl_args *args, const tool_option *own);
/* Sets the fields of lowering (sl_lower_fields) from the given options, except the tool's `own`. */
void options_lower(const sl_args *args, const tool_option *own, sl_lower_options *to);
/* Replaces field names in a text of the library with options: "parallel.data 2" becomes
 * "--data-parallel 2". The caller frees the result. */
char *options_named(const char *text);

#endif
