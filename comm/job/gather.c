/* SPDX-License-Identifier: Apache-2.0 */
/* Gathers the statistics and records of all processes in process 0, in portions. Process 0 asks one
 * process after another ("pull") until that one answers with an empty portion. At most one portion
 * is in flight, however much data there is. */
#include <stdlib.h>
#include <string.h>

#include "comm/job/job_inner.h"

enum { PORTION_BYTES = 4 << 20 };

/* ---- control plane's thread ---------------------------------------------------------- */

static void gather_put(sli_job_word *w, int from, const void *data, size_t bytes) {
  pthread_mutex_lock(&w->lock);
  if (!w->full) {
    w->full = true;
    w->from = from;
    w->data = bytes ? sli_calloc(1, bytes) : NULL;
    w->bytes = bytes;
    if (bytes) memcpy(w->data, data, bytes);
  }
  pthread_cond_broadcast(&w->come);
  pthread_mutex_unlock(&w->lock);
}

bool sli_gather_hear(sl_job *job, int from, const char *word, const void *data, size_t bytes) {
  if (strcmp(word, job->self ? "pull" : "portion")) return false;
  gather_put(&job->gathered, from, data, bytes);
  return true;
}

/* ---- owner's thread ------------------------------------------------------------------- */

/* Waits for the next word. The caller frees its data with free(). */
static sl_status gather_take(sl_job *job, int *from, void **data, size_t *bytes) {
  sli_job_word *w = &job->gathered;
  pthread_mutex_lock(&w->lock);
  while (!w->full && !sli_job_is_lost(job)) pthread_cond_wait(&w->come, &w->lock);
  bool come = w->full;
  *from = w->from;
  *data = w->data;
  *bytes = w->bytes;
  w->full = false;
  w->data = NULL;
  pthread_mutex_unlock(&w->lock);
  return come ? SL_OK : sli_job_fail_lost(job);
}

/* Other processes: sends a portion each time process 0 asks for one. */
static sl_status give(sl_job *job, uint64_t most_records) {
  sl_export *e = sl_export_open(job->rt, PORTION_BYTES, most_records);
  sl_status status = SL_OK;
  for (size_t size = 1; size && !status;) {
    int from;
    void *nothing;
    size_t none;
    const void *portion = NULL;
    status = gather_take(job, &from, &nothing, &none);
    if (status) break;
    free(nothing);
    size = sl_export_next(e, &portion);
    sli_control_say(job->control, 0, "portion", portion, size);
  }
  sl_export_close(e);
  return status;
}

/* Process 0: fetches everything from one process. */
static sl_status fetch(sl_job *job, int process) {
  sl_status status = SL_OK;
  for (size_t bytes = 1; bytes && !status;) {
    int from;
    void *portion;
    sli_control_say(job->control, process, "pull", NULL, 0);
    status = gather_take(job, &from, &portion, &bytes);
    if (status) break;
    if (from != process)
      status = sl_fail(SL_E_INPUT, "process %d sent its part before it was asked", from);
    else if (bytes)
      status = sl_runtime_import(job->rt, portion, bytes,
                                 sli_control_clock_offset(job->control, process));
    free(portion);
  }
  return status;
}

sl_status sl_job_gather(sl_job *job, uint64_t most_records) {
  if (!job->control) return SL_OK;
  if (job->self) return give(job, most_records);
  sl_status status = SL_OK;
  for (int i = 1; i < job->count && !status; i++) status = fetch(job, i);
  return status;
}
