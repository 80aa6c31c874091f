/* SPDX-License-Identifier: Apache-2.0 */
/* Man pages and bash completion, written from the tables of options when Sluice is built. */
#ifndef SLUICE_TOOLS_CLI_MANUAL_H
#define SLUICE_TOOLS_CLI_MANUAL_H

#include <stdio.h>

#include "tools/cli/settings.h"

/* Prints the man page or the completion if the command line is --print-man or --print-completion.
 * Returns whether it did. A tool that is a command of another tool prints a section of its page. */
bool manual_asked(const settings *s, int argc, char **argv);

/* A command of a tool that has no settings, such as `actorrun status`. */
typedef struct manual_command {
  const char *name;  /* the tool's name and the command's: "actorrun status" */
  const char *usage; /* lines of the usage */
  const char *purpose;
  const sl_option *options; /* ends with {0} */
  const char *words;        /* words that may follow, for completion */
} manual_command;

/* Prints a section of the tool's page, or the command's completion, if argv[0] asks for it; returns
 * whether it did. */
bool manual_command_asked(const manual_command *command, int argc, char **argv);
void manual_command_help(const manual_command *command, FILE *out);

/* Parts of a man page, for tools without settings. */
void manual_begin(const char *tool, const char *purpose, const char *usage);
void manual_section(const char *title);
void manual_row(const char *name, const char *text);
void manual_options(const sl_option *options);

/* Parts of a completion: options and words of a command line that begins with `key`, and the
 * function itself. */
void completion_options(const char *key, const sl_option *options);
void completion_commands(const char *key, const char *words);
void completion_end(const char *tool);

#endif
