/* SPDX-License-Identifier: Apache-2.0 */
/* A job: several processes that run one plan together.
 *
 * Every process builds the same graph, lowers it to the same plan for the job's number of
 * processes, and runs the actors of its own devices. It learns its number from the environment that
 * the launcher sets: actorrun, torchrun, Open MPI, Slurm, or anything that sets the same variables
 * (docs/launching.md).
 *
 *     sl_job *job = NULL;
 *     sl_job_open(NULL, &job);
 *     ... sl_lower() with .processes = sl_job_processes(job)
 *     status = sl_job_join(job, plan, n, fingerprint);
 *     ... sl_runtime_create() with .peers = sl_job_peers(job), .process = sl_job_process(job)
 *     if (!status) status = sl_job_attach(job, rt, first_step);
 *     if (!status) status = sl_job_run(job, steps);
 *     if (!status) status = sl_job_gather(job, 0);
 *     status = sl_job_end(job, status);
 *     sl_job_close(job);     before the runtime
 *
 * A program started without a launcher is a job of one process: every function below works in it
 * and waits for nothing.
 *
 * All processes make these calls in the same order. A process that fails ends the job everywhere;
 * all other processes report its name and reason as their error (SL_E_PEER).
 *
 * Threads: one thread owns a job. The job starts threads for control messages and for data; they
 * never call the program's code. */
#ifndef SLUICE_JOB_H
#define SLUICE_JOB_H

#include <sluice/runtime.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sl_job sl_job;

typedef struct sl_job_options {
  double lost_seconds; /* silence after which a process counts as lost and the job fails; 0: 1.5 */
  bool over_host;      /* GPUs of different processes communicate through host memory
                          (SL_LINKS_HOST): NCCL is then not needed */
  bool collectives;    /* GPUs of one process, too, make collectives over NCCL (sl_gpu_links) */
} sl_job_options;

/* Reads the environment; SL_E_INPUT names a variable that is missing or wrong. Does not contact
 * other processes yet. Call it before any use of GPUs and before starting threads: it sets
 * variables that CUDA and NCCL read (docs/cuda.md). `options` may be NULL. */
sl_status sl_job_open(const sl_job_options *options, sl_job **out);
/* Leaves the job; the other processes do not wait. Call it before sl_runtime_destroy of an attached
 * runtime. */
void sl_job_close(sl_job *job);

/* Number of this process, from 0, and number of processes. */
int sl_job_process(const sl_job *job);
int sl_job_processes(const sl_job *job);

/* One item of the run fingerprint: a setting, such as "--seed", "1", that must be the same in all
 * processes because results or files depend on it. The plan is compared separately. */
typedef struct sl_fingerprint_item {
  const char *name, *value;
} sl_fingerprint_item;

/* Joins the other processes: blocks until all have joined, at most a minute. All must have the same
 * fingerprint and the same plan. SL_E_PEER names the missing processes; SL_E_INPUT names a process
 * with a different value for an item, and both values. The plan must outlive the job; the
 * fingerprint is read during the call. */
sl_status sl_job_join(sl_job *job, const sl_plan *plan, int nfingerprint,
                      const sl_fingerprint_item *fingerprint);

/* Returns the transport for sl_runtime_options; NULL in a job of one process. The runtime must not
 * run before sl_job_attach. */
const sl_peers *sl_job_peers(sl_job *job);

/* From here on, routes input from other processes to this runtime. Blocks until all processes have
 * a runtime. All must begin with the same step (sl_runtime_options.first_step), else SL_E_INPUT. */
sl_status sl_job_attach(sl_job *job, sl_runtime *rt, int64_t first_step);

/* Calls sl_runtime_run. All processes end after the same step, even if one of them is stopped
 * (sl_runtime_stop; all return SL_E_STOPPED). SL_E_PEER names a lost process. May be called again,
 * by all processes with the same number of steps. */
sl_status sl_job_run(sl_job *job, int64_t steps);

/* Calls sl_runtime_resume, so that a stopped job can run again. All processes call it. */
sl_status sl_job_resume(sl_job *job);

/* Sends each process's part of the run to process 0, where sl_runtime_statistics and _trace then
 * cover the whole job. Each process sends about most_records firings of its newest whole steps (0:
 * all firings). Data is sent in portions, so only process 0 needs much memory. */
sl_status sl_job_gather(sl_job *job, uint64_t most_records);

/* Barrier with data: blocks until all processes have called it with the same word of up to 15
 * characters. Process 0 gets their data, up to 64 MiB each, in (*blobs)[processes]. The caller
 * frees the array and each .data with free(). Elsewhere *blobs becomes NULL. `blobs` may be
 * NULL. */
typedef struct sl_blob {
  void *data;
  size_t bytes;
} sl_blob;
sl_status sl_job_meet(sl_job *job, const char *word, const void *data, size_t bytes,
                      sl_blob **blobs);

/* Ends this process's part with `status` (text in sl_detail). A failure ends the job everywhere;
 * otherwise the call blocks until all processes have called it. Returns the job's final status. */
sl_status sl_job_end(sl_job *job, sl_status status);

#ifdef __cplusplus
}
#endif
#endif
