/* SPDX-License-Identifier: Apache-2.0 */
/* The texts of --help: options for a first run, one group of options, or all options. */
#ifndef SLUICE_TOOLS_CLI_HELP_H
#define SLUICE_TOOLS_CLI_HELP_H

#include "tools/cli/settings.h"

/* Names and descriptions of groups, by number. */
typedef struct help_group {
  const char *name, *help;
} help_group;
extern const help_group help_groups[OPTION_GROUPS];

/* Returns the tool's options in a group; the caller frees the array. */
sl_option *help_options(const settings *s, int group);
/* Lists the groups that have options in this tool, then "all" and NULL. */
void help_group_names(const settings *s, const char *names[OPTION_GROUPS + 2]);
/* Returns whether --help accepts the word: "all", or a group that has options in this tool. */
bool help_has_group(const settings *s, const char *word);
/* Returns SL_E_USAGE with a message that lists the groups. */
sl_status help_refuse_group(const settings *s, const char *word);
/* Prints the help of settings->help_group, for the model if one was given, otherwise for the
 * tool. */
void help_print(const settings *s);

#endif
