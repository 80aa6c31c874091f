/* SPDX-License-Identifier: Apache-2.0 */
/* `actorrun status` and `actorrun ctl` (client.h, status.h), and the answers of a training run. */
#ifndef SLUICE_TOOLS_ACTORRUN_CTL_CTL_H
#define SLUICE_TOOLS_ACTORRUN_CTL_CTL_H

#include "tools/actorrun/actorrun.h"
#include "tools/actorrun/ctl/client.h"
#include "tools/actorrun/ctl/status.h"

/* Describes a job to the control of its process. */
subject job_subject(job *j);
extern const topic job_topics[];

#endif
