/* SPDX-License-Identifier: Apache-2.0 */
/* Meetings of all processes of a job, with their data. */
#include <stdlib.h>
#include <string.h>

#include "comm/job/job_inner.h"

static sl_status meet_alone(const void *data, size_t bytes, sl_blob **blobs) {
  if (!blobs) return SL_OK;
  *blobs = sli_calloc(1, sizeof **blobs);
  **blobs = (sl_blob){sli_calloc(1, bytes), bytes};
  if (bytes) memcpy((*blobs)->data, data, bytes);
  return SL_OK;
}

static sl_blob *take_blobs(const sl_job *job, sli_control_blob *from) {
  if (!from) return NULL;
  sl_blob *blobs = sli_calloc((size_t)job->count, sizeof *blobs);
  for (int i = 0; i < job->count; i++) blobs[i] = (sl_blob){from[i].data, from[i].bytes};
  free(from);
  return blobs;
}

sl_status sl_job_meet(sl_job *job, const char *word, const void *data, size_t bytes,
                      sl_blob **blobs) {
  if (!job->control) return meet_alone(data, bytes, blobs);
  sli_control_blob *come = NULL;
  sl_status status = sli_control_meet(job->control, word, data, bytes, blobs ? &come : NULL);
  if (blobs) *blobs = take_blobs(job, come);
  return status && sli_job_is_lost(job) ? sli_job_fail_lost(job) : status;
}
