/* SPDX-License-Identifier: Apache-2.0 */
/* Loss of a job: the first reason is kept, and all waiting threads are woken. */
#include <stdio.h>

#include "comm/job/job_inner.h"

static void wake(sli_job_word *w) {
  pthread_mutex_lock(&w->lock);
  pthread_cond_broadcast(&w->come);
  pthread_mutex_unlock(&w->lock);
}

void sli_job_give_up(sl_job *job, const char *why) {
  if (!atomic_exchange(&job->loss.taken, true)) {
    snprintf(job->loss.why, sizeof job->loss.why, "%s", why);
    atomic_store(&job->loss.known, true);
  }
  sl_runtime *rt = atomic_load_explicit(&job->rt, memory_order_acquire);
  if (rt) sl_runtime_abort(rt, SL_E_PEER, why);
  wake(&job->gathered);
  wake(&job->found);
}

bool sli_job_is_lost(const sl_job *job) { return atomic_load(&job->loss.known); }

sl_status sli_job_fail_lost(const sl_job *job) { return sl_fail(SL_E_PEER, "%s", job->loss.why); }
