/* SPDX-License-Identifier: Apache-2.0 */
/* The texts of --help: what a first run needs, a group of options, or all of them. */
#ifndef SLUICE_TOOLS_COMMON_HELP_H
#define SLUICE_TOOLS_COMMON_HELP_H

#include "tools/common/settings.h"

/* Groups by number, each with its name and what it holds. */
typedef struct help_group {
  const char *name, *help;
} help_group;
extern const help_group help_groups[OPTION_GROUPS];

/* Returns the tool's options of a group, which the caller frees. */
sl_option *help_options(const settings *s, int group);
/* Lists the groups that the tool has, and "all", with a NULL behind them. */
void help_group_names(const settings *s, const char *names[OPTION_GROUPS + 2]);
/* Whether --help takes the word: it names a group of options that the tool has, or it is "all". */
bool help_has_group(const settings *s, const char *word);
/* SL_E_USAGE, which lists the groups. */
sl_status help_refuse_group(const settings *s, const char *word);
/* Prints help of settings->help_group, of the model where there is one, or of the tool. */
void help_print(const settings *s);

#endif
