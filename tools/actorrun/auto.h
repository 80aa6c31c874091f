/* SPDX-License-Identifier: Apache-2.0 */
/* --auto: chooses a plan, and runs the command line that expresses it. */
#ifndef SLUICE_TOOLS_ACTORRUN_AUTO_H
#define SLUICE_TOOLS_ACTORRUN_AUTO_H

#include "tools/cli/cli.h"

/* Chooses a plan, prints it with reasons, and re-executes this program with its command line.
 * Returns only on failure. */
sl_status auto_run(settings *s, char *name);

#endif
