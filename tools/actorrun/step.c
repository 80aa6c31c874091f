/* SPDX-License-Identifier: Apache-2.0 */
/* End of a step: progress, log, report. */
#include <math.h>

#include "tools/actorrun/actorrun.h"

static void write_log(job *j, const sl_step_report *r, const double *figures) {
  double seconds = progress_step_seconds(&j->progress, j->progress.count - 1);
  log_step(j->log, &(log_line){.step = r->step + 1,
                               .loss = r->loss,
                               .grad_norm = r->grad_norm,
                               .lr = (double)r->lr,
                               .seconds = seconds,
                               .tokens_per_second = (double)j->progress.items / seconds,
                               .figures = figures});
}

/* Rewrites the report with every checkpoint, so that a run that is lost leaves a recent report. */
static void rewrite_report(const job *j, const sl_step_report *r) {
  const char *report = settings_text(j->settings, "report");
  int64_t every = sl_arg_int(j->settings->run, "every");
  if (!j->checkpoints || !report || (r->step + 1) % every) return;
  if (report_write_meanwhile(report, j)) sli_log("%s", sl_detail());
}

void job_step(void *ctx, const sl_step_report *report) {
  job *j = ctx;
  const step_figures *own = &j->figures;
  double figures[own->count + 1];
  figures[0] = NAN;
  if (own->count) own->read(own->ctx, report, figures);
  progress_step(&j->progress, report, figures[0]);
  counters_step(&j->counters, report);
  for (int i = 0; i < own->count; i++) j->last[i] = figures[i];
  write_log(j, report, figures);
  evals_step(j);
  rewrite_report(j, report);
}
