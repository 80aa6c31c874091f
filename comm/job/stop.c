/* SPDX-License-Identifier: Apache-2.0 */
/* Stops a run at the same step everywhere.
 *
 * A stop takes several words, because no process knows the progress of the others. "stop": some
 * process asks process 0 for a stop. "hold", from process 0 to all: begin no further step, and
 * reply with "begun", the number of steps begun. "end", from process 0 to all: end with the largest
 * of these numbers. */
#include <string.h>
#include <unistd.h>

#include "comm/job/job_inner.h"

static void begin_hold(sl_job *job) {
  if (job->stop.holding) return;
  job->stop.holding = true;
  sli_control_say(job->control, -1, "hold", NULL, 0);
}

static void take_begun(sl_job *job, const void *data, size_t bytes) {
  int64_t begun;
  if (bytes != sizeof begun) return;
  memcpy(&begun, data, sizeof begun);
  job->stop.begun = SLI_MAX(job->stop.begun, begun);
  if (++job->stop.answers == job->count)
    sli_control_say(job->control, -1, "end", &job->stop.begun, sizeof job->stop.begun);
}

static void answer_hold(sl_job *job, sl_runtime *rt) {
  int64_t begun = sl_runtime_hold(rt);
  sli_control_say(job->control, 0, "begun", &begun, sizeof begun);
}

static void end_at(sl_runtime *rt, const void *data, size_t bytes) {
  int64_t steps;
  if (bytes != sizeof steps) return;
  memcpy(&steps, data, sizeof steps);
  sl_runtime_end_at(rt, steps);
}

bool sli_stop_hear(sl_job *job, const char *word, const void *data, size_t bytes) {
  sl_runtime *rt = atomic_load_explicit(&job->rt, memory_order_acquire);
  if (!rt) return false;
  if (!strcmp(word, "stop")) begin_hold(job);
  else if (!strcmp(word, "hold")) answer_hold(job, rt);
  else if (!strcmp(word, "begun")) take_begun(job, data, bytes);
  else if (!strcmp(word, "end")) end_at(rt, data, bytes);
  else return false;
  return true;
}

/* Polls every 20 ms whether this process wants to stop. */
static void *watch(void *arg) {
  sl_job *job = arg;
  bool said = false;
  while (!atomic_load(&job->run_over)) {
    if (!said && sl_runtime_wants_stop(job->rt)) {
      sli_control_say(job->control, 0, "stop", NULL, 0);
      said = true;
    }
    usleep(20000);
  }
  return NULL;
}

sl_status sli_job_run_watched(sl_job *job, int64_t steps) {
  atomic_store(&job->run_over, false);
  bool watches = !pthread_create(&job->watcher, NULL, watch, job);
  sl_status status = sl_runtime_run(job->rt, steps);
  atomic_store(&job->run_over, true);
  if (watches) pthread_join(job->watcher, NULL);
  return status;
}
