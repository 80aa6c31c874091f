/* SPDX-License-Identifier: Apache-2.0 */
/* A process of a job and its peers: both planes, and joint operations other than running the plan.
 * sluice/job.h is the public part; the rest is for the tools. */
#ifndef SLUICE_COMM_JOB_JOB_H
#define SLUICE_COMM_JOB_JOB_H

#include <sluice/job.h>

#include "comm/start/start.h"

/* Same as sl_job_open, for a cluster that has already been detected. */
sl_job *sli_job_create(const sli_cluster *cluster, const sl_job_options *options);

/* First half of sl_job_close: the job no longer uses the runtime, which may then be destroyed
 * before the job is closed. */
void sli_job_leave(sl_job *job);

const sli_cluster *sli_job_cluster(const sl_job *job);

/* Blocks until all processes have started, at most a minute, as sl_job_join does. Call it first if
 * process 0 is to find something out for all processes. */
sl_status sli_job_assemble(sl_job *job);
/* Announces a text to all processes. Process 0 calls it once, after sli_job_assemble. sl_job_join
 * announces an empty text if nothing else was announced. */
void sli_job_announce(sl_job *job, const char *text);
/* Blocks until process 0 has made its announcement. The caller frees *text with free(). */
sl_status sli_job_await_announcement(sl_job *job, char **text);

/* Words between processes, as in sli_control_say; after sl_job_join. The listener runs on the
 * control plane's thread, must not wait, and returns whether the word was for it. After
 * sli_job_listen has returned, the previous listener is not called any more; NULL removes it. */
typedef bool sli_job_listener(void *ctx, int from, const char *word, const void *data,
                              size_t bytes);
void sli_job_listen(sl_job *job, sli_job_listener *listener, void *ctx);
void sli_job_say(sl_job *job, int process, const char *word, const void *data, size_t bytes);

/* Traffic of this process with all other processes so far; 0 in a job of one. Any thread. */
typedef struct sli_job_traffic {
  uint64_t sent_bytes, received_bytes; /* bytes of the data plane */
  uint64_t sent, received;             /* messages: slots that are ready, and slots that are free */
} sli_job_traffic;
sli_job_traffic sli_job_count(const sl_job *job);
/* Returns the known lead of a process's clock (CLOCK_MONOTONIC) over this one's, in ns. Any
 * thread. */
int64_t sli_job_clock_offset(const sl_job *job, int process);

#endif
