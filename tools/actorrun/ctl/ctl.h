/* `actorrun status` and `actorrun ctl` (client.h, status.h), and what a run of training tells those who
 * ask it. */
#ifndef SLUICE_TOOLS_ACTORRUN_CTL_H
#define SLUICE_TOOLS_ACTORRUN_CTL_H

#include "tools/actorrun/actorrun.h"
#include "tools/actorrun/ctl/client.h"
#include "tools/actorrun/ctl/status.h"

/* What a job is when it is asked, and about what. */
subject job_subject(job *j);
extern const topic job_topics[];

#endif
