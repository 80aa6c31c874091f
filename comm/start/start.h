/* SPDX-License-Identifier: Apache-2.0 */
/* The place of this process in its job, as the launcher describes it. */
#ifndef SLUICE_COMM_START_H
#define SLUICE_COMM_START_H

#include "base/base.h"

typedef struct sli_cluster {
  int process, nprocesses;
  int local, nlocal;  /* among the processes on this host */
  int incarnation;    /* number of restarts of the job */
  char endpoint[256]; /* "HOST:PORT" of process 0; empty: the only process */
  char job[64];       /* equal in all processes of the job, different between jobs */
  char key[48];       /* key of the control plane; empty: the only process */
  /* launcher: "actorrun", "Open MPI's mpirun", "Slurm's srun", "torchrun"; NULL: none */
  const char *starter;
} sli_cluster;

/* Reads the environment through `get` (getenv, or a test's own). SL_E_INPUT names the variable.
 * Creates the user's secret if one is needed and missing. */
sl_status sli_cluster_detect(const char *(*get)(const char *name), sli_cluster *out);

/* Checks "HOST:PORT"; the SL_E_INPUT text begins with `name`, the user's name for the setting. */
sl_status sli_cluster_check_endpoint(const char *name, const char *endpoint);

/* Finds the key of a job that another launcher started: SLUICE_KEY, the content of
 * SLUICE_KEY_FILE, or a key derived from the user's secret and the job's name. */
sl_status sli_cluster_key(const char *(*get)(const char *name), const char *job, char key[48]);

#endif
