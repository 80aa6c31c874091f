/* Who we are among the processes of a job, as whatever started us says. */
#ifndef SLUICE_COMM_START_H
#define SLUICE_COMM_START_H

#include "base/base.h"

typedef struct sli_cluster {
  int process, nprocesses;
  int local, nlocal;      /* among those on this host */
  int incarnation;        /* how often the job was restarted */
  char endpoint[256];     /* "HOST:PORT" of process 0; empty: there is only this process */
  char job[64];           /* equal in all processes of the job, different between jobs */
  char key[48];           /* of the control plane; empty: there is only this process */
  const char *starter;    /* "actorrun", "Open MPI's mpirun", "Slurm's srun", "torchrun" or
                             NULL: started alone */
} sli_cluster;

/* Reads the environment through `get` (getenv, or a test's own). SL_E_INPUT names
 * the variable. Makes the user's secret if one is needed and there is none yet. */
sl_status sli_cluster_detect(const char *(*get)(const char *name), sli_cluster *out);

/* "HOST:PORT"; SL_E_INPUT begins with `name`, which is what the user calls it. */
sl_status sli_cluster_check_endpoint(const char *name, const char *endpoint);

/* The key of a job that others start: SLUICE_KEY, what SLUICE_KEY_FILE holds, or one
 * that the user's secret and the job's name make. */
sl_status sli_cluster_key(const char *(*get)(const char *name), const char *job, char key[48]);

#endif
