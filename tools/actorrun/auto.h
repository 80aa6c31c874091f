/* --auto: the plan is chosen, and the run is that of the command line that says it. */
#ifndef SLUICE_TOOLS_ACTORRUN_AUTO_H
#define SLUICE_TOOLS_ACTORRUN_AUTO_H

#include "tools/common/common.h"

/* Chooses, says what and why, and begins this program anew with that. Returns if it fails. */
sl_status auto_run(settings *s, char *name);

#endif
