/* SPDX-License-Identifier: Apache-2.0 */
/* Processes of a job on this host: started together, ended together. */
#ifndef SLUICE_TOOLS_LAUNCH_CHILDREN_H
#define SLUICE_TOOLS_LAUNCH_CHILDREN_H

#include <stdbool.h>

typedef struct children_options {
  const char *tool;        /* the tool's name, the prefix of its messages */
  char *const *argv;       /* arguments of every process; argv[0] is a path */
  int count, first, total; /* processes here; rank of the first one; processes of the whole job */
  const char *endpoint, *job, *key;
  int incarnation;
  int grace_ms;   /* time for the other processes to end by themselves after a failure; 0: 1,000 */
  int stopped_ms; /* time after which a stopped process is killed; 0: 2,000 */
} children_options;

typedef struct children_end {
  int status;      /* exit status of the job: 0 to 3 */
  int culprit;     /* process that failed first, or -1 */
  int signal;      /* signal that ended the culprit, or 0 */
  int interrupted; /* signal by which the user ended the job, or 0 */
  bool killed;     /* the user killed the job before it ended */
  bool stopped;    /* the culprit was stopped, so the other processes lost it */
  int lost;        /* errno of a failed write to standard output, or 0 */
  bool said;       /* other processes gave the same reason as the culprit */
} children_end;

/* Runs the processes, passes on their output and the user's signals, and returns when all have
 * ended. The calling process must have a single thread. */
children_end children_run(const children_options *options);

#endif
