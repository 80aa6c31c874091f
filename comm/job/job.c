/* SPDX-License-Identifier: Apache-2.0 */
/* A job from start to end, on its owner's thread. */
#include "comm/job/job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/job/job_inner.h"

/* ---- opening and closing --------------------------------------------------------------- */

/* Sets environment variables for CUDA and NCCL, unless the user has set them. */
static void prepare_gpus(bool nccl) {
  /* Streams that share a hardware queue wait for each other. The default is 8 queues. */
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  if (!nccl) return;
  /* Load all kernels at the start. Loading a kernel may wait for running kernels, and an operation
   * waits for its other ends, which may be loading a kernel, too. */
  setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  /* multicast: channels of two have no use for it, and its memory is not planned */
  setenv("NCCL_NVLS_ENABLE", "0", 0);
}

sl_job *sli_job_create(const sli_cluster *cluster, const sl_job_options *options) {
  static const sl_job_options defaults;
  if (!options) options = &defaults;
  sl_job *job = sli_calloc(1, sizeof *job);
  job->cluster = *cluster;
  job->self = cluster->process;
  job->count = cluster->nprocesses;
  job->lost_ms = (int)(1000 * options->lost_seconds);
  pthread_mutex_init(&job->listening, NULL);
  pthread_mutex_init(&job->gathered.lock, NULL);
  pthread_cond_init(&job->gathered.come, NULL);
  pthread_mutex_init(&job->found.lock, NULL);
  pthread_cond_init(&job->found.come, NULL);
  prepare_gpus(!options->over_host && (job->count > 1 || options->collectives));
  return job;
}

sl_status sl_job_open(const sl_job_options *options, sl_job **out) {
  sli_cluster cluster;
  sl_status status = sli_cluster_detect((const char *(*)(const char *))getenv, &cluster);
  if (!status) *out = sli_job_create(&cluster, options);
  return status;
}

static void *move(void *arg) {
  sl_job *job = arg;
  while (!atomic_load(&job->mover_over)) sli_net_wait(job->net, 100000000);
  return NULL;
}

static void start_mover(sl_job *job) {
  atomic_store(&job->mover_over, false);
  job->moves = !pthread_create(&job->mover, NULL, move, job);
}

static void stop_mover(sl_job *job) {
  if (!job->moves) return;
  atomic_store(&job->mover_over, true);
  sli_net_wake(job->net);
  pthread_join(job->mover, NULL);
  job->moves = false;
}

void sli_job_leave(sl_job *job) {
  atomic_store(&job->closing, true);
  stop_mover(job);
  sli_job_close_planes(job);
}

void sl_job_close(sl_job *job) {
  if (!job) return;
  sli_job_leave(job);
  free(job->groups);
  free(job->gathered.data);
  pthread_cond_destroy(&job->gathered.come);
  pthread_mutex_destroy(&job->gathered.lock);
  free(job->found.data);
  pthread_cond_destroy(&job->found.come);
  pthread_mutex_destroy(&job->found.lock);
  pthread_mutex_destroy(&job->listening);
  explicit_bzero(job, sizeof *job); /* erases the key */
  free(job);
}

int sl_job_process(const sl_job *job) { return job->self; }

int sl_job_processes(const sl_job *job) { return job->count; }

const sli_cluster *sli_job_cluster(const sl_job *job) { return &job->cluster; }

/* ---- words ---------------------------------------------------------------------------- */

void sli_job_listen(sl_job *job, sli_job_listener *listener, void *ctx) {
  pthread_mutex_lock(&job->listening);
  job->listener = listener;
  job->listener_ctx = ctx;
  pthread_mutex_unlock(&job->listening);
}

void sli_job_say(sl_job *job, int process, const char *word, const void *data, size_t bytes) {
  sli_control_say(job->control, process, word, data, bytes);
}

/* ---- joining ----------------------------------------------------------------------------- */

sl_status sli_job_assemble(sl_job *job) {
  if (job->count == 1 || job->control) return SL_OK;
  sl_status status = sli_job_open_planes(job);
  return status ? status : sli_control_join(job->control);
}

sl_status sl_job_join(sl_job *job, const sl_plan *plan, int nfingerprint,
                      const sl_fingerprint_item *fingerprint) {
  job->plan = plan;
  if (job->count == 1) return SL_OK;
  sl_status status = sli_job_assemble(job);
  if (!status) sli_job_announce(job, "");
  if (!status) status = sli_fingerprint_meet(job, nfingerprint, fingerprint);
  if (!status) status = sli_groups_meet(job);
  return status ? status : sli_job_connect(job);
}

const sl_peers *sl_job_peers(sl_job *job) { return job->count > 1 ? &job->peers : NULL; }

static sl_status meet_at_step(sl_job *job, int64_t first_step) {
  sl_blob *blobs = NULL;
  sl_status status = sl_job_meet(job, "steps", &first_step, sizeof first_step, &blobs);
  for (int i = 1; blobs && i < job->count && !status; i++)
    if (blobs[i].bytes != blobs[0].bytes || memcmp(blobs[i].data, blobs[0].data, blobs[0].bytes))
      status = sl_fail(
          SL_E_INPUT,
          "process %d would resume from a different step than process 0: do all processes see "
          "the same checkpoints?",
          i);
  for (int i = 0; blobs && i < job->count; i++) free(blobs[i].data);
  free(blobs);
  return status;
}

/* Channel callbacks: a message for another process, and a failure. */
static void on_channel_lost(void *ctx, const char *text) {
  sl_job *job = ctx;
  sli_job_give_up(job, text);
  sli_control_abort(job->control, text);
}

static void say_for_channels(void *ctx, int process, const void *data, size_t bytes) {
  sli_control_say(((sl_job *)ctx)->control, process, "channel", data, bytes);
}

/* Connects until all channels between GPUs are open, then all groups. */
static sl_status connect_gpus(sl_job *job) {
  bool channels = false, groups = false;
  sl_status status = SL_OK;
  while (!status && !groups) {
    if (sli_job_is_lost(job)) return sli_job_fail_lost(job);
    if (channels) status = sl_runtime_connect(atomic_load(&job->rt), &groups);
    else status = sli_channels_connect(job->channels, &channels);
    if (!groups) usleep(200);
  }
  return status;
}

sl_status sl_job_attach(sl_job *job, sl_runtime *rt, int64_t first_step) {
  if (!job->control) {
    atomic_store(&job->rt, rt);
    return SL_OK;
  }
  sli_channels_events events = {job, say_for_channels, on_channel_lost};
  sl_status status = sli_channels_open(job->plan, rt, job->self, job->net, &events, &job->channels);
  if (status) return status;
  atomic_store_explicit(&job->rt, rt, memory_order_release);
  sli_job_watch(job);
  status = meet_at_step(job, first_step);
  if (!status) status = connect_gpus(job);
  return status ? status : sl_job_meet(job, "ready", NULL, 0, NULL);
}

/* ---- running and ending -------------------------------------------------------------------- */

sl_status sl_job_run(sl_job *job, int64_t steps) {
  if (!job->control) return sl_runtime_run(job->rt, steps);
  stop_mover(job);
  sl_status status = sli_job_run_watched(job, steps);
  start_mover(job);
  return status;
}

/* All words of the last stop have arrived once the processes have met, because they precede the
 * words of the meeting. */
sl_status sl_job_resume(sl_job *job) {
  sl_status status = job->control ? sl_job_meet(job, "resume", NULL, 0, NULL) : SL_OK;
  if (!status) status = sl_runtime_resume(job->rt);
  if (status || !job->control) return status;
  job->stop = (sli_job_stop){0};
  return sl_job_meet(job, "resumed", NULL, 0, NULL);
}

/* Leaves the job. Process 0, which forwards all words, leaves last. */
static void job_leave(sl_job *job) {
  if (job->self) sli_control_say(job->control, 0, "gone", NULL, 0);
  for (int ms = 0; !job->self && atomic_load(&job->gone) < job->count - 1 && ms < 1000; ms++)
    usleep(1000);
}

/* Waits for the reason of a loss, because an interrupted meeting ends before the reason is
 * known. */
static void await_reason(const sl_job *job) {
  enum { PATIENCE_MS = 2000 };
  for (int ms = 0; ms < PATIENCE_MS && !sli_job_is_lost(job); ms++) usleep(1000);
}

/* Fails after a short delay. The launcher takes the first process that fails for the culprit, so
 * the culprit must end before the other processes, which learn of the failure immediately. */
static sl_status end_after_culprit(const sl_job *job) {
  enum { AHEAD_MS = 200 };
  usleep(AHEAD_MS * 1000);
  return sli_job_fail_lost(job);
}

sl_status sl_job_end(sl_job *job, sl_status status) {
  if (!job->control) return status;
  if (status == SL_E_STOPPED) await_reason(job);
  if (sli_job_is_lost(job)) return end_after_culprit(job);
  if (status) {
    sli_control_abort(job->control, sl_detail());
    return status;
  }
  atomic_store(&job->closing, true); /* from now on, a peer that leaves is not lost */
  status = sli_control_meet(job->control, "end", NULL, 0, NULL);
  if (!status) job_leave(job);
  return status;
}
