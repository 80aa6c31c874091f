/* SPDX-License-Identifier: Apache-2.0 */
/* Both planes of a process, and the dispatch of messages that arrive on them.
 *
 * Three threads are involved. The runtime's carrier owns the data plane during a run. After a run
 * the job's mover owns it, so that peers can still fetch data. The control plane's thread
 * dispatches words. */
#include <stdlib.h>
#include <string.h>

#include "base/descriptors.h"
#include "comm/job/job_inner.h"

/* ---- sending: the peers of a runtime ----------------------------------------------------- */

static void tell(void *ctx, int process, const void *message) {
  uint64_t fence;
  bool done = sli_net_send(((sl_job *)ctx)->net, process, message, NULL, 0, &fence);
  SLI_CHECK(done, "a message without data to process %d blocks its sender", process);
}

static bool send_data(void *ctx, int process, const void *message, const void *data, size_t bytes,
                      uint64_t *fence) {
  sl_job *job = ctx;
  if (sli_channels_send(job->channels, process, message, data, fence)) return false;
  return sli_net_send(job->net, process, message, data, bytes, fence);
}

static bool is_done(void *ctx, uint64_t fence) {
  sl_job *job = ctx;
  return sli_channels_own(fence) ? sli_channels_done(job->channels, fence)
                                 : sli_net_done(job->net, fence);
}

static bool progress(void *ctx) {
  sl_job *job = ctx;
  bool moved = sli_net_progress(job->net);
  return sli_channels_progress(job->channels) || moved;
}

static void wait(void *ctx, uint64_t ns) {
  sl_job *job = ctx;
  uint64_t patience = sli_channels_patience_ns(job->channels);
  sli_net_wait(job->net, SLI_MIN(ns, patience));
}

static void wake(void *ctx) { sli_net_wake(((sl_job *)ctx)->net); }

static uint64_t sent(void *ctx) { return sli_job_count(ctx).sent_bytes; }

int64_t sli_job_clock_offset(const sl_job *job, int process) {
  return job->control && process != job->self ? sli_control_clock_offset(job->control, process) : 0;
}

sli_job_traffic sli_job_count(const sl_job *job) {
  if (!job->control || !job->net) return (sli_job_traffic){0};
  sli_job_traffic all = {0};
  for (int i = 0; i < job->count; i++) {
    if (i == job->self) continue;
    sli_net_traffic_counts one = sli_net_traffic(job->net, i);
    all.sent_bytes += one.sent_bytes;
    all.received_bytes += one.received_bytes;
    all.sent += one.sent;
    all.received += one.received;
  }
  sli_nccl_traffic channels = sli_channels_count(job->channels);
  all.sent_bytes += channels.sent_bytes;
  all.received_bytes += channels.received_bytes;
  return all;
}

/* ---- receiving ----------------------------------------------------------------------------- */

static sl_runtime *runtime_of(sl_job *job) {
  return atomic_load_explicit(&job->rt, memory_order_acquire);
}

/* Ends the job because of an invalid message. */
static void planes_refuse(sl_job *job, int from) {
  char *text = sli_format("process %d sent an invalid message: %s", from, sl_detail());
  sli_control_abort(job->control, text);
  free(text);
}

static void *on_place(void *ctx, int from, const void *message, size_t bytes) {
  (void)from;
  sl_runtime *rt = runtime_of(ctx);
  return rt ? sl_runtime_place(rt, message, bytes) : NULL;
}

static void on_arrived(void *ctx, int from, const void *message, size_t bytes) {
  sl_job *job = ctx;
  sl_runtime *rt = runtime_of(job);
  bool announced = false;
  sl_status status = bytes ? SL_OK : sli_channels_hear_of(job->channels, from, message, &announced);
  if (announced) return;
  if (!rt || status || sl_runtime_arrived(rt, message, bytes)) planes_refuse(job, from);
}

/* Returns whether the listener took the word. */
static bool listener_hears(sl_job *job, int from, const char *word, const void *data,
                           size_t bytes) {
  pthread_mutex_lock(&job->listening);
  bool heard = job->listener && job->listener(job->listener_ctx, from, word, data, bytes);
  pthread_mutex_unlock(&job->listening);
  return heard;
}

static void on_word(void *ctx, int from, const char *word, const void *data, size_t bytes) {
  sl_job *job = ctx;
  if (listener_hears(job, from, word, data, bytes) || sli_stop_hear(job, word, data, bytes) ||
      sli_gather_hear(job, from, word, data, bytes) || sli_found_hear(job, word, data, bytes))
    return;
  if (!strcmp(word, "gone")) atomic_fetch_add(&job->gone, 1);
  if (!strcmp(word, "channel") && sli_channels_hear(job->channels, from, data, bytes))
    planes_refuse(job, from);
}

static void on_abort(void *ctx, int culprit, const char *text) {
  (void)culprit;
  sli_job_give_up(ctx, text);
}

static void on_lost(void *ctx, int peer, const char *why) {
  sl_job *job = ctx;
  if (atomic_load(&job->closing) || sli_job_is_lost(job)) return;
  char *text = sli_format("process %d is gone: %s", peer, why);
  sli_job_give_up(job, text);
  sli_control_abort(job->control, text);
  free(text);
}

/* ---- opening ---------------------------------------------------------------------------- */

/* Raises the descriptor limit for both planes: up to five for each other process, some for
 * libraries, and one for each unauthenticated connection. A few of the last are always needed,
 * because members start unauthenticated, too. Called before either plane is open, so that their
 * descriptors are not counted twice. */
static sl_status reserve_descriptors(int nprocesses, int *strangers) {
  enum { LIBRARIES = 32, EACH = 5, LEAST_STRANGERS = 8, MOST_STRANGERS = 256 };
  size_t got;
  char *what = sli_format("a job of %d processes needs", nprocesses);
  sl_status status = sli_descriptors_reserve(
      what, LIBRARIES + LEAST_STRANGERS + EACH * (size_t)nprocesses, MOST_STRANGERS, &got);
  free(what);
  *strangers = LEAST_STRANGERS + (int)got;
  return status;
}

/* Opens the data plane, before the control plane, because no other thread may run while it
 * opens. */
static sl_status open_net(sl_job *job) {
  sli_net_options options = {.self = job->self,
                             .npeers = job->count,
                             .key = job->cluster.key,
                             .transports = getenv("SLUICE_TRANSPORTS"),
                             .events = {job, on_place, on_arrived, on_lost}};
  return sli_net_open(&options, &job->net);
}

sl_status sli_job_open_planes(sl_job *job) {
  const sli_cluster *c = &job->cluster;
  int strangers;
  sl_status status = reserve_descriptors(job->count, &strangers);
  if (!status) status = open_net(job);
  if (status) return status;
  /* Plans are compared with the fingerprint, after all processes have joined. */
  sli_control_options options = {.process = job->self,
                                 .nprocesses = job->count,
                                 .endpoint = c->endpoint,
                                 .job = c->job,
                                 .key = c->key,
                                 .incarnation = c->incarnation,
                                 .lost_ms = job->lost_ms,
                                 .strangers = strangers,
                                 .ctx = job,
                                 .on_abort = on_abort,
                                 .on_word = on_word};
  job->peers = (sl_peers){job, tell, send_data, is_done, progress, wait, wake, sent, NULL};
  return sli_control_open(&options, &job->control);
}

static void free_blobs(const sl_job *job, sli_control_blob *blobs) {
  for (int i = 0; blobs && i < job->count; i++) free(blobs[i].data);
  free(blobs);
}

/* Connects until all connections are established. */
static sl_status connect_net(sl_job *job, const sli_control_blob *addresses) {
  sl_status status = SL_OK;
  for (int i = 0; i < job->count && !status; i++) {
    char host[SLI_CONTROL_HOST_CHARS];
    if (i == job->self) continue;
    sli_control_host_of(job->control, i, host);
    status = sli_net_connect(job->net, i, host, addresses[i].data, addresses[i].bytes);
  }
  while (!status && !sli_net_ready(job->net)) {
    if (sli_job_is_lost(job)) return sli_job_fail_lost(job);
    sli_net_wait(job->net, 10000000);
  }
  return status;
}

/* Watches the processes with which this one has groups. */
static void watch_groups(const sl_job *job) {
  const sl_plan *plan = job->plan;
  for (int32_t i = 0; i < plan->nqueues; i++)
    for (int32_t k = 0; plan->queues[i].group && k < plan->nqueues; k++) {
      int here = plan->devices[plan->queues[i].device].process;
      int there = plan->devices[plan->queues[k].device].process;
      if (plan->queues[k].group == plan->queues[i].group && here == job->self && there != here)
        sli_control_watch(job->control, there);
    }
}

/* Watches the processes that send data to this one. */
void sli_job_watch(sl_job *job) {
  const sl_plan *plan = job->plan;
  watch_groups(job);
  for (int32_t i = 0; i < plan->nactors; i++) {
    const sl_actor *a = &plan->actors[i];
    const sl_queue *q = &plan->queues[a->queue];
    if (!q->ops->link) continue;
    int from = plan->devices[q->device].process;
    int to = plan->devices[plan->regs[a->out[0].reg].device].process;
    if (to == job->self && from != to) sli_control_watch(job->control, from);
  }
}

/* Connects the data plane, which listens at the control plane's address. */
sl_status sli_job_connect(sl_job *job) {
  const char *here = sli_control_here(job->control);
  sli_control_blob *addresses = NULL;
  size_t bytes;
  sl_status status = here ? sli_net_listen(job->net, here) : SL_OK;
  if (status) return status;
  const void *address = sli_net_address(job->net, &bytes);
  status = sli_control_share(job->control, "data plane", address, bytes, &addresses);
  if (!status) status = connect_net(job, addresses);
  free_blobs(job, addresses);
  return status;
}

void sli_job_close_planes(sl_job *job) {
  sli_control_close(job->control);
  sli_channels_close(job->channels);
  sli_net_close(job->net);
  job->control = NULL;
  job->channels = NULL;
  job->net = NULL;
}
