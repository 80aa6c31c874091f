/* The processes of a job on this host: started together, ended together. */
#ifndef SLUICE_TOOLS_COMMON_LAUNCH_CHILDREN_H
#define SLUICE_TOOLS_COMMON_LAUNCH_CHILDREN_H

#include <stdbool.h>

typedef struct children_options {
  const char *tool;       /* its name, with which its messages begin */
  char *const *argv;      /* of every one of them; argv[0] is a path */
  int count, first, total; /* here; the number of the first here; of the whole job */
  const char *endpoint, *job, *key;
  int incarnation;
  int grace_ms;           /* for the others to end by themselves after one failed; 0: 1,000 */
  int stopped_ms;         /* after which one that was stopped is killed; 0: 2,000 */
} children_options;

typedef struct children_end {
  int status;             /* exit status of the job: 0 to 3 */
  int culprit;            /* process that failed first, or -1 */
  int signal;             /* that ended it, or 0 */
  int interrupted;        /* signal by which the user ended the job, or 0 */
  bool killed;            /* the user did not wait for its end */
  bool stopped;           /* it was stopped and so lost to the others */
  int lost;               /* errno of a standard output that could not be written, or 0 */
  bool said;              /* what the culprit said of its end others said too */
} children_end;

/* Runs them, passes on what they say and the user's signals, and returns when all
 * have ended. The calling process must have a single thread. */
children_end children_run(const children_options *options);

#endif
