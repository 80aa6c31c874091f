/* SPDX-License-Identifier: Apache-2.0 */
/* The place of this process in its job, as the launcher describes it. */
#ifndef SLUICE_COMM_START_START_H
#define SLUICE_COMM_START_START_H

#include "base/base.h"

typedef struct sli_cluster {
  int process, nprocesses;
  int local, nlocal;  /* index and number of the job's processes on this host */
  int incarnation;    /* number of restarts of the job */
  char endpoint[256]; /* "HOST:PORT" of process 0; empty for the only process */
  char job[64];       /* equal in all processes of the job, different between jobs */
  char key[48];       /* key of the control plane; empty for the only process */
  /* launcher, such as "actorrun", "Open MPI's mpirun", "Slurm's srun" or "torchrun"; NULL if
   * none */
  const char *starter;
} sli_cluster;

/* Reads the environment through `get`, which is getenv or a test's function. The SL_E_INPUT error
 * names the variable. Creates the user's secret if it is needed and missing. */
sl_status sli_cluster_detect(const char *(*get)(const char *name), sli_cluster *out);

/* Checks "HOST:PORT". The text of the SL_E_INPUT error begins with `name`, the user's name for the
 * setting. */
sl_status sli_cluster_check_endpoint(const char *name, const char *endpoint);

/* Finds the key of a job: SLUICE_KEY, the content of SLUICE_KEY_FILE, or a key derived from the
 * user's secret and the job's name. */
sl_status sli_cluster_key(const char *(*get)(const char *name), const char *job, char key[48]);

#endif
