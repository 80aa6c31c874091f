/* SPDX-License-Identifier: Apache-2.0 */
/* --logprobs: a JSON line for each row of a step's batch. */
#include <inttypes.h>
#include <math.h>

#include "tools/actorrun/actorrun.h"

void job_logprobs(void *ctx, const sl_logprobs_report *r) {
  const job *j = ctx;
  const float *of = r->logprobs;
  FILE *to = j->logprobs ? sli_journal_stream(j->logprobs) : NULL;
  for (int64_t i = 0; i < r->rows && to; i++) {
    fprintf(to, "{\"step\": %" PRId64 ", \"row\": %" PRId64 ", \"logprobs\": [", r->step + 1, i);
    for (int64_t t = 0; t < r->length; t++, of++) {
      if (t) fputs(", ", to);
      if (isfinite(*of)) fprintf(to, "%.9g", (double)*of);
      else fputs("null", to);
    }
    fputs("]}\n", to);
    sli_journal_end(j->logprobs); /* logprobs_close() reports a lost line */
  }
}

sl_status logprobs_open(job *j) {
  const char *path = settings_text(j->settings, "logprobs");
  if (!path || j->settings->process) return SL_OK;
  bool resumes = sl_checkpoints_start(j->checkpoints) > 0;
  sl_status status =
      resumes ? sli_journal_append(path, &j->logprobs) : sli_journal_create(path, &j->logprobs);
  return status ? sl_fail(SL_E_USAGE, "--logprobs: %s", sl_detail()) : SL_OK;
}

sl_status logprobs_close(job *j) {
  sl_status status = sli_journal_finish(j->logprobs, "logprobs", SL_OK);
  j->logprobs = NULL;
  return status;
}
