/* One process of a job among the others: both planes, and what the processes do together
 * besides running the plan. sluice/job.h is what programs see; the rest is for the tools. */
#ifndef SLUICE_COMM_JOB_H
#define SLUICE_COMM_JOB_H

#include <sluice/job.h>

#include "comm/start/start.h"

/* As sl_job_open, of a place that has been looked up already. */
sl_job *sli_job_create(const sli_cluster *cluster, const sl_job_options *options);

/* The first half of sl_job_close: nothing of it touches the runtime any more, which may be destroyed
 * before the job is closed. */
void sli_job_leave(sl_job *job);

const sli_cluster *sli_job_cluster(const sl_job *job);

/* Blocks until all processes are there, a minute at most, as sl_job_join does; before that, where
 * process 0 finds something out for all. */
sl_status sli_job_assemble(sl_job *job);
/* Process 0, once: what it has found. After sli_job_assemble; sl_job_join announces an empty text
 * if nothing else was announced. */
void sli_job_announce(sl_job *job, const char *text);
/* Blocks until it has; *text is the caller's to free(). */
sl_status sli_job_await_announcement(sl_job *job, char **text);

/* Words between processes, as sli_control_say; after sl_job_join. The listener is called on the
 * control plane's thread, which must not wait, and returns whether the word is one of its own.
 * NULL: no more calls once this has returned. */
typedef bool sli_job_listener(void *ctx, int from, const char *word, const void *data,
                              size_t bytes);
void sli_job_listen(sl_job *job, sli_job_listener *listener, void *ctx);
void sli_job_say(sl_job *job, int process, const char *word, const void *data, size_t bytes);

/* What this process has exchanged with all others so far; 0 in a job of one. Any thread. */
typedef struct sli_job_traffic {
  uint64_t sent_bytes, received_bytes;     /* of the data plane */
  uint64_t sent, received; /* messages: slots that are ready, and slots that are free */
} sli_job_traffic;
sli_job_traffic sli_job_count(const sl_job *job);
/* By how much the clock of a process (CLOCK_MONOTONIC) is ahead of this one's, in ns, as far as it is known. Any thread. */
int64_t sli_job_clock_offset(const sl_job *job, int process);

#endif
