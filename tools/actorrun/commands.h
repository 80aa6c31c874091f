/* SPDX-License-Identifier: Apache-2.0 */
/* Commands of actorrun, the first word of its command line. Most are short for options, which later
 * options override: `actorrun plan MODEL` is `actorrun --dry-run MODEL`. */
#ifndef SLUICE_TOOLS_ACTORRUN_COMMANDS_H
#define SLUICE_TOOLS_ACTORRUN_COMMANDS_H

#include <stdbool.h>

/* Usage lines and names of the commands, for the help and for completion. */
#define COMMANDS_USAGE                                                       \
  "       actorrun plan|sbp|place|data|generate|train [options] MODEL ...\n" \
  "       actorrun status [--json] [PID]\n"                                  \
  "       actorrun ctl PID quota [NAME[@STAGE]=N] | trace [FILE | off]\n"
#define COMMANDS_NAMES "plan sbp place data generate train status ctl"

/* Runs a command that is a program of its own; returns whether argv names one. */
bool commands_run(int argc, char **argv, int *exit_status);
/* Replaces a command by its options. The caller frees the new argv, not its words. */
char **commands_expand(int *argc, char **argv);

#endif
