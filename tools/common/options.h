/* SPDX-License-Identifier: Apache-2.0 */
/* The options that say what is planned and for which devices, and those of a tool beside them. */
#ifndef SLUICE_TOOLS_COMMON_OPTIONS_H
#define SLUICE_TOOLS_COMMON_OPTIONS_H

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

/* A row of a tool's table: an sl_option, and the group that it is shown with. */
typedef struct tool_option {
  const char *name;
  sl_option_kind kind;
  const char *value, *help;
  double min, max;
  option_group group;
} tool_option;

/* The shared options, each replaced by the tool's of that name if it has one, and the rest of the
 * tool's; the caller's to free. */
sl_option *options_table(const tool_option *own);
/* The group of an option that the table has. */
option_group options_group(const tool_option *own, const char *name);
/* Picks from that table the tool's own options, and the shared ones listed in `shared`
 * (NULL-terminated; NULL: all). */
sl_option *options_offered(const sl_option *table, const tool_option *own,
                           const char *const *shared);
/* What an option can say (NULL-terminated), each saying more than the one before where that has a
 * meaning; NULL: anything. */
const char *const *options_words(const char *option);
/* Words of an option for completion: those above, or names of schedules; NULL: a tool's `own`
 * options. */
const char *const *options_completed(const tool_option *own, const char *option);
/* SL_E_USAGE unless the option's text is one of the words (NULL-terminated). */
sl_status options_check_word(const char *option, const char *text, const char *const *words);
/* Checks so all options that have words, but for the tool's `own`, which it checks itself. */
sl_status options_check_words(const sl_args *args, const tool_option *own);
/* Sets the fields of lowering (sl_lower_fields) to what is given, but for options that are the
 * tool's `own`. */
void options_lower(const sl_args *args, const tool_option *own, sl_lower_options *to);
/* Puts options in place of the fields that a text of the library names: "parallel.data 2" becomes
 * "--data-parallel 2". For free(). */
char *options_named(const char *text);

#endif
