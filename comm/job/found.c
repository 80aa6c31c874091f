/* SPDX-License-Identifier: Apache-2.0 */
/* Announcement: a result that process 0 finds for all processes, such as that of a long search.
 *
 * Process 0 sends it in one word, before or at joining. A process waits only for that word, not for
 * other processes. Processes with different options therefore still meet when they join, and learn
 * there how their options differ. */
#include <stdlib.h>
#include <string.h>

#include "comm/job/job_inner.h"

void sli_job_announce(sl_job *job, const char *text) {
  if (job->self || job->announced || !job->control) return;
  job->announced = true;
  sli_control_say(job->control, -1, "found", text, strlen(text));
}

bool sli_found_hear(sl_job *job, const char *word, const void *data, size_t bytes) {
  if (strcmp(word, "found")) return false;
  sli_job_word *w = &job->found;
  pthread_mutex_lock(&w->lock);
  if (!w->full) {
    w->data = sli_calloc(1, bytes + 1);
    if (bytes) memcpy(w->data, data, bytes);
    w->full = true;
    pthread_cond_signal(&w->come);
  }
  pthread_mutex_unlock(&w->lock);
  return true;
}

sl_status sli_job_await_announcement(sl_job *job, char **text) {
  sli_job_word *w = &job->found;
  pthread_mutex_lock(&w->lock);
  while (!w->full && !sli_job_is_lost(job)) pthread_cond_wait(&w->come, &w->lock);
  bool come = w->full;
  if (come) *text = sli_strdup(w->data);
  pthread_mutex_unlock(&w->lock);
  return come ? SL_OK : sli_job_fail_lost(job);
}
