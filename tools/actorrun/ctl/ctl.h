/* A run and those who ask it from outside: `actorrun status` and `actorrun ctl` (client.h,
 * status.h), and the run's own end of that (server.h). */
#ifndef SLUICE_TOOLS_ACTORRUN_CTL_H
#define SLUICE_TOOLS_ACTORRUN_CTL_H

#include "tools/actorrun/ctl/client.h"
#include "tools/actorrun/ctl/server.h"
#include "tools/actorrun/ctl/status.h"

#endif
