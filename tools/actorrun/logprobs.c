/* SPDX-License-Identifier: Apache-2.0 */
/* --logprobs: a JSON line for each row of a step's batch. */
#include <inttypes.h>
#include <math.h>

#include "tools/actorrun/actorrun.h"

void job_logprobs(void *ctx, const sl_logprobs_report *r) {
  const job *j = ctx;
  const float *of = r->logprobs;
  for (int64_t i = 0; i < r->rows && j->logprobs; i++) {
    fprintf(j->logprobs, "{\"step\": %" PRId64 ", \"row\": %" PRId64 ", \"logprobs\": [",
            r->step + 1, i);
    for (int64_t t = 0; t < r->length; t++, of++) {
      if (t) fputs(", ", j->logprobs);
      if (isfinite(*of)) fprintf(j->logprobs, "%.9g", (double)*of);
      else fputs("null", j->logprobs);
    }
    fputs("]}\n", j->logprobs);
  }
}

sl_status logprobs_open(job *j) {
  const char *path = settings_text(j->settings, "logprobs");
  if (!path || j->settings->process) return SL_OK;
  j->logprobs = fopen(path, sl_checkpoints_start(j->checkpoints) ? "a" : "w");
  return j->logprobs ? SL_OK : sl_fail(SL_E_USAGE, "--logprobs: cannot write %s", path);
}

sl_status logprobs_close(job *j) {
  FILE *f = j->logprobs;
  j->logprobs = NULL;
  if (!f || !(ferror(f) | fclose(f))) return SL_OK;
  return sl_fail(SL_E_IO, "--logprobs: %s could not be written completely",
                 settings_text(j->settings, "logprobs"));
}
