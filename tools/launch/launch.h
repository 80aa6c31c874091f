/* SPDX-License-Identifier: Apache-2.0 */
/* Starting and restarting the processes of a job. */
#ifndef SLUICE_TOOLS_LAUNCH_LAUNCH_H
#define SLUICE_TOOLS_LAUNCH_LAUNCH_H

#include "comm/start/start.h"
#include "tools/cli/cli.h"

/* Options of a tool that starts processes. */
/* clang-format off */
#define LAUNCH_OPTIONS \
  {"processes", SL_OPTION_INT, "1", "processes of the job on this machine; short form: -n N", 1, 4096, GROUP_PARALLEL}, \
      {"restarts", SL_OPTION_INT, "0", "times to restart the job after a failure, with --checkpoint " \
       "DIR from its newest checkpoint", 0, 1e6, GROUP_PARALLEL}, \
      {"heartbeat-timeout", SL_OPTION_FLOAT, "1.5", "seconds without a heartbeat after which a " \
       "process counts as lost and the job fails", 1, 1e6, GROUP_PARALLEL}, \
      {"rdzv-endpoint", SL_OPTION_TEXT, "", "`HOST:PORT` where the processes of several hosts meet, " \
       "on the host of --node-rank 0; run the command on every host", 0, 0, GROUP_PARALLEL}, \
      {"nnodes", SL_OPTION_INT, "1", "number of hosts, each with the same --processes", 1, 65536, GROUP_PARALLEL}, \
      {"node-rank", SL_OPTION_INT, "0", "number of this host, from 0", 0, 65535, GROUP_PARALLEL}, { \
    "rdzv-id", SL_OPTION_TEXT, "", "`NAME` of the job, the same on all hosts; the endpoint if not given", 0, 0, GROUP_PARALLEL \
  }
/* clang-format on */

/* Checks --processes and its related options. SL_E_USAGE: they contradict each other. */
sl_status launch_check(const settings *s);

/* Returns the silence in milliseconds after which a process counts as lost. */
int launch_lost_ms(const settings *s);

/* If the options ask for processes, starts them with all other options, waits for their end,
 * reports which one failed, and sets *exit_status and *launched. Otherwise this process runs the
 * job, or its part of it. SL_E_USAGE: the cluster's launcher (`cluster`) already started this
 * process. The process must have a single thread. Restarted processes get the option `again` as
 * well (NULL: none); `from` says in messages where they resume. */
typedef struct launch_again {
  const char *option, *from;
} launch_again;
sl_status launch_run(const settings *s, const sli_cluster *cluster, const launch_again *again,
                     bool *launched, int *exit_status);

#endif
