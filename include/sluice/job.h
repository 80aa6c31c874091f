/* A job: several processes that run one plan together.
 *
 * Every process builds the same graph, lowers it to the same plan for as many processes as
 * there are, and runs the actors of its own devices. Which process it is it learns from the
 * environment that its starter has set: actorrun, torchrun, Open MPI, Slurm, or anything
 * that sets the same variables (docs/launching.md).
 *
 *     sl_job *job = NULL;
 *     sl_job_open(NULL, &job);
 *     ... sl_lower() with .processes = sl_job_processes(job)
 *     status = sl_job_join(job, plan, nterms, terms);
 *     ... sl_runtime_create() with .peers = sl_job_peers(job), .process = sl_job_process(job)
 *     if (!status) status = sl_job_attach(job, rt, first_step);
 *     if (!status) status = sl_job_run(job, steps);
 *     if (!status) status = sl_job_gather(job, 0);
 *     status = sl_job_end(job, status);
 *     sl_job_close(job);     before the runtime
 *
 * A program that nobody has started in several processes is a job of one: everything below
 * works there too, with nobody to wait for.
 *
 * All processes make these calls in the same order. One that fails ends the job everywhere,
 * and its name and reason are the error of all others (SL_E_PEER).
 *
 * Threads: one thread owns a job. It has threads of its own, for the words between
 * processes and for data; nothing of the program is called on them. */
#ifndef SLUICE_JOB_H
#define SLUICE_JOB_H

#include <sluice/runtime.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sl_job sl_job;

typedef struct sl_job_options {
  double lost_seconds; /* a process that is not heard for so long is lost, and the job with it;
                          0: 1.5 */
  bool over_host;      /* what GPUs of several processes exchange goes over the host
                          (SL_LINKS_HOST): nothing has to be set for NCCL */
} sl_job_options;

/* Reads the environment; SL_E_INPUT names the variable that is missing or wrong. Meets nobody
 * yet. Call it before GPUs are touched and other threads run: it sets variables that CUDA and
 * NCCL read (docs/cuda.md). `options` may be NULL. */
sl_status sl_job_open(const sl_job_options *options, sl_job **out);
/* Leaves the others, who do not wait for it. Before sl_runtime_destroy of what is attached. */
void sl_job_close(sl_job *job);

/* Which process this is, from 0, and of how many. */
int sl_job_process(const sl_job *job);
int sl_job_processes(const sl_job *job);

/* What must be the same in all processes, since results or files depend on it: "--seed", "1".
 * Whatever is in the plan needs no term. */
typedef struct sl_term {
  const char *name, *value;
} sl_term;

/* Meets the others: blocks until all are there, a minute at most. All must have the same
 * terms and the same plan. SL_E_PEER says who is missing; SL_E_INPUT which process has
 * another value for which term, and both values. The plan must outlive the job; terms are
 * read during the call. */
sl_status sl_job_join(sl_job *job, const sl_plan *plan, int nterms, const sl_term *terms);

/* For sl_runtime_options; NULL in a job of one. The runtime must not run before sl_job_attach. */
const sl_peers *sl_job_peers(sl_job *job);

/* From here on what comes from other processes goes to this runtime. Blocks until all have
 * one that begins with the same step (sl_runtime_options.first_step), else SL_E_INPUT. */
sl_status sl_job_attach(sl_job *job, sl_runtime *rt, int64_t first_step);

/* As sl_runtime_run, which it calls. Ends after the same step in all processes, also where one
 * of them is stopped (sl_runtime_stop; SL_E_STOPPED in all). SL_E_PEER names a process that
 * was lost. May be called again, by all with the same steps. */
sl_status sl_job_run(sl_job *job, int64_t steps);

/* All processes tell process 0 of their part of the run, so that sl_runtime_figures and _trace
 * there are the whole job's: of each process about most_records firings of the newest whole
 * steps, 0: all that it has. In portions, so it needs little memory but at process 0. */
sl_status sl_job_gather(sl_job *job, uint64_t most_records);

/* Blocks until all have come here with the same word, up to 15 characters. Process 0 gets what
 * they bring, up to 64 MiB each: (*blobs)[processes], each .data and all the caller's to
 * free(). Elsewhere *blobs becomes NULL. `blobs` may be NULL. */
typedef struct sl_blob {
  void *data;
  size_t bytes;
} sl_blob;
sl_status sl_job_meet(sl_job *job, const char *word, const void *data, size_t bytes,
                      sl_blob **blobs);

/* The end of this process's part, which was `status` (its text in sl_detail): after a failure
 * it ends the job everywhere, else it blocks until all are here. Returns how the job ended. */
sl_status sl_job_end(sl_job *job, sl_status status);

#ifdef __cplusplus
}
#endif
#endif
