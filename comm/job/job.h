/* SPDX-License-Identifier: Apache-2.0 */
/* A process of a job and its peers: both planes, and what the processes do together besides
 * running the plan. sluice/job.h is the public part; the rest is for the tools. */
#ifndef SLUICE_COMM_JOB_H
#define SLUICE_COMM_JOB_H

#include <sluice/job.h>

#include "comm/start/start.h"

/* sl_job_open for a cluster that has been detected already. */
sl_job *sli_job_create(const sli_cluster *cluster, const sl_job_options *options);

/* First half of sl_job_close: the job no longer uses the runtime, which may then be destroyed
 * before the job is closed. */
void sli_job_leave(sl_job *job);

const sli_cluster *sli_job_cluster(const sl_job *job);

/* Blocks until all processes are there, a minute at most, as sl_job_join does. Call it first
 * where process 0 finds something out for all. */
sl_status sli_job_assemble(sl_job *job);
/* Announces a text to all processes; process 0, once, after sli_job_assemble. sl_job_join
 * announces an empty text if nothing else was announced. */
void sli_job_announce(sl_job *job, const char *text);
/* Blocks until process 0 has announced; *text is the caller's to free(). */
sl_status sli_job_await_announcement(sl_job *job, char **text);

/* Words between processes, as in sli_control_say; after sl_job_join. The listener runs on the
 * control plane's thread, must not wait, and returns whether the word was its own. NULL: no more
 * calls once this has returned. */
typedef bool sli_job_listener(void *ctx, int from, const char *word, const void *data,
                              size_t bytes);
void sli_job_listen(sl_job *job, sli_job_listener *listener, void *ctx);
void sli_job_say(sl_job *job, int process, const char *word, const void *data, size_t bytes);

/* Traffic of this process with all others so far; 0 in a job of one. Any thread. */
typedef struct sli_job_traffic {
  uint64_t sent_bytes, received_bytes; /* bytes of the data plane */
  uint64_t sent, received;             /* messages: slots that are ready, and slots that are free */
} sli_job_traffic;
sli_job_traffic sli_job_count(const sl_job *job);
/* Returns how far a process's clock (CLOCK_MONOTONIC) is ahead of this one's, in ns, as far as
 * known. Any thread. */
int64_t sli_job_clock_offset(const sl_job *job, int process);

#endif
