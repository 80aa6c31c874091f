/* SPDX-License-Identifier: Apache-2.0 */
/* Definitions shared within job/. */
#ifndef SLUICE_COMM_JOB_JOB_INNER_H
#define SLUICE_COMM_JOB_JOB_INNER_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/base.h"
#include "comm/control/control.h"
#include "comm/job/channels.h"
#include "comm/job/job.h"
#include "comm/net/net.h"

/* The first loss, set by whichever thread detects it. */
typedef struct sli_job_loss {
  atomic_bool taken; /* set by the first thread, which then writes `why` */
  atomic_bool known; /* `why` is written */
  char why[512];
} sli_job_loss;

/* Progress of a stop, in process 0, on the control plane's thread. */
typedef struct sli_job_stop {
  bool holding;
  int answers;   /* processes that have reported how many steps they have begun */
  int64_t begun; /* the largest number reported */
} sli_job_stop;

/* A message from the control plane's thread to the waiting owner: a portion of statistics, a
 * request for one, or an announcement of process 0. At most one of each kind is in flight. */
typedef struct sli_job_word {
  pthread_mutex_t lock; /* guards all fields */
  pthread_cond_t come;
  bool full;
  int from;
  void *data;
  size_t bytes;
} sli_job_word;

struct sl_job {
  sli_cluster cluster;
  int self, count;
  int lost_ms;
  const sl_plan *plan;
  sli_control *control; /* NULL: not joined, or a job of one */
  sli_net *net;
  sli_channels *channels; /* NULL: no link connects two GPUs, or not attached yet */
  sl_peers peers;
  unsigned char (*groups)[SL_GROUP_ID_BYTES]; /* ids of the plan's groups; NULL: none */
  _Atomic(sl_runtime *) rt; /* stored with release by attach, loaded with acquire by callbacks */
  pthread_t watcher, mover; /* watcher: during a run; mover: after a run, until the next */
  bool moves;
  atomic_bool run_over, mover_over, closing;
  pthread_mutex_t listening; /* guards the next two */
  sli_job_listener *listener;
  void *listener_ctx;
  sli_job_word gathered;
  sli_job_word found; /* text that process 0 has announced; kept */
  bool announced;     /* process 0: has announced */
  sli_job_stop stop;
  sli_job_loss loss;
  atomic_int gone; /* process 0: number of processes that know of the common end */
};

/* loss.c */
/* Ends the job. Any thread. The first reason is kept. */
void sli_job_give_up(sl_job *job, const char *why);
bool sli_job_is_lost(const sl_job *job);
sl_status sli_job_fail_lost(const sl_job *job);

/* planes.c */
sl_status sli_job_open_planes(sl_job *job);
void sli_job_close_planes(sl_job *job);
sl_status sli_job_connect(sl_job *job); /* connects the data plane to all other processes */
void sli_job_watch(sl_job *job);

/* stop.c */
sl_status sli_job_run_watched(sl_job *job, int64_t steps);
bool sli_stop_hear(sl_job *job, const char *word, const void *data, size_t bytes);

/* gather.c */
bool sli_gather_hear(sl_job *job, int from, const char *word, const void *data, size_t bytes);

/* found.c */
bool sli_found_hear(sl_job *job, const char *word, const void *data, size_t bytes);

/* groups.c */
sl_status sli_groups_meet(sl_job *job);

/* fingerprint.c */
sl_status sli_fingerprint_meet(sl_job *job, int nfingerprint,
                               const sl_fingerprint_item *fingerprint);

#endif
