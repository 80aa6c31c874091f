/* Starting the processes of a job, and starting them again. */
#ifndef SLUICE_TOOLS_ACTORRUN_LAUNCH_H
#define SLUICE_TOOLS_ACTORRUN_LAUNCH_H

#include "comm/start/start.h"
#include "tools/common/common.h"

/* What options such as --processes ask for; SL_E_USAGE if they contradict each other. */
sl_status launch_check(const settings *s);

/* How long a process may be silent before it is lost. */
int launch_lost_ms(const settings *s);

/* If the options ask for processes: starts them, each with all other options, waits
 * for their end, says who failed, and sets *exit_status and *launched. Else this
 * process is to run the job, or its part of it. SL_E_USAGE if what started this
 * process (`cluster`) leaves nothing to start. The process must have a single thread. */
sl_status launch_run(const settings *s, const sli_cluster *cluster, bool *launched,
                     int *exit_status);

#endif
