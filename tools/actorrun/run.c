/* SPDX-License-Identifier: Apache-2.0 */
/* The run itself: runtime, initial values, steps, and outputs. */
#include <stdlib.h>

#include "tools/actorrun/actorrun.h"
#include "tools/actorrun/certify.h"
#include "tools/actorrun/ctl/ctl.h"

/* Returns the trace's capacity: every firing of the run, up to a limit, if the trace is written or
 * the clock is virtual. */
static size_t trace_room(const job *j) {
  bool virtual = j->settings->clock == SL_CLOCK_VIRTUAL;
  if (!virtual && !settings_text(j->settings, "trace")) return 0;
  double firings = 0;
  for (int32_t a = 0; a < j->plan->nactors; a++)
    firings += (double)j->plan->actors[a].firings_per_step;
  firings *= (double)job_steps_left(j);
  size_t room = 1 << 16;
  while ((double)room < firings && room < (virtual ? 1 << 26 : 1 << 21)) room *= 2;
  return room;
}

static sl_status make_runtime(job *j) {
  const settings *s = j->settings;
  uint64_t jitter_ns = (uint64_t)(sl_arg_float(s->run, "jitter") * 1000);
  uint64_t seed = (uint64_t)sl_arg_int(s->run, "seed");
  double watchdog = sl_arg_float(s->run, "watchdog");
  if (j->rl && watchdog >= 0) watchdog += sl_arg_float(s->run, "reward-seconds");
  bool data = sl_device_computes(s->lower.devices.kind);
  sl_runtime_options options = {.clock = s->clock,
                                .workers = (int)sl_arg_int(s->run, "workers"),
                                .no_data = !data,
                                .peers = sl_job_peers(j->processes),
                                .process = s->process,
                                .first_step = sl_checkpoints_start(j->checkpoints),
                                .trace_records = trace_room(j),
                                .watchdog_seconds = watchdog,
                                .jitter_seed = jitter_ns ? seed + 1 : 0,
                                .jitter_ns = jitter_ns,
                                .bind = data ? machine_bind : NULL,
                                .bind_arg = &j->machine};
  sl_status status = sl_runtime_create(j->plan, &options, &j->rt);
  if (status) return status;
  sl_lowered_attach(j->lowered, j->rt);
  status = rl_attach(j->rl, s, options.first_step, j->rt);
  if (status) return status;
  if (!data) return SL_OK;
  if (options.first_step) return job_resumed_values(j);
  return job_initial_values(s, j->lowered, j->rt);
}

/* Names this process's devices beside its bubble, because other processes have other bubbles. */
static void name_devices(job *j) {
  const settings *s = j->settings;
  int all = j->plan->ndevices, processes = s->lower.parallel.processes, first = -1, last = -1;
  for (int d = 0; d < all; d++)
    if (sl_device_process(d, all, processes) == s->process) last = d, first = first < 0 ? d : first;
  if (processes < 2 || first < 0) return;
  char *where = j->progress.where;
  size_t room = sizeof j->progress.where;
  int n = snprintf(where, room, " of %s", j->plan->devices[first].name);
  const char *number = strrchr(j->plan->devices[last].name, ':');
  if (first < last && number) snprintf(where + n, room - (size_t)n, " to %s", number + 1);
}

static void read_values(void *ctx, const sl_step_report *report, double *out) {
  (void)ctx;
  for (int i = 0; i < report->nvalues; i++) out[i] = report->values[i].value;
}

/* Uses the numbers that each step of the graph yields (sl_step_value) as its figures. */
static void name_figures(job *j) {
  int n = 0;
  while (sl_graph_step_value(j->made.graph, n)) n++;
  if (!n || j->rl) return;
  const char **names = sli_arena_alloc(&j->settings->arena, (size_t)n * sizeof *names);
  for (int i = 0; i < n; i++) names[i] = sl_graph_step_value(j->made.graph, i);
  j->figures = (step_figures){n, names, read_values, NULL};
  j->progress.figure = names[0];
}

static sl_status run_steps(job *j) {
  const settings *s = j->settings;
  int64_t steps = job_steps_left(j);
  if (!steps) return SL_OK;
  sl_status opened = evals_init(j);
  name_figures(j);
  j->last = sli_arena_alloc(&j->settings->arena, ((size_t)j->figures.count + 1) * sizeof *j->last);
  if (!opened && !s->process)
    opened = log_open(
        s->run, sl_checkpoints_start(j->checkpoints),
        (log_columns){j->figures.count, j->figures.names, j->evals.nvalues, j->evals.names},
        &j->log);
  if (!opened) opened = logprobs_open(j);
  if (opened) return opened;
  signals_watch(j->rt, !j->settings->process);
  j->progress.rt = j->rt;
  name_devices(j);
  progress_start(&j->progress);
  /* Failure to open the control is not fatal: the run continues without it. */
  if (j->control && control_listen(j->control)) sli_log("no control socket: %s", sl_detail());
  sl_status status = certify_wanted(s) ? certify_run(j, steps) : sl_job_run(j->processes, steps);
  if (status == SL_E_STUCK) status = sl_plan_prove(j->plan); /* proves again for advice */
  signals_watch(NULL, !j->settings->process);
  control_close(j->control);
  j->control = NULL;
  progress_close(&j->progress);
  sl_status logged = log_close(j->log);
  j->log = NULL;
  if (!logged) logged = logprobs_close(j);
  if (!logged) logged = rl_finish(j->rl);
  if (!status) status = logged;
  /* process 0 decides */
  bool early = j->evals.ended || (s->process && sl_arg_int(s->run, "patience"));
  evals_step(j);
  j->stopped = status == SL_E_STOPPED && !early;
  return status == SL_E_STOPPED ? SL_OK : status;
}

/* Returns how many firings to gather from all processes: all for --trace, otherwise as many as the
 * statistics need. */
static uint64_t records_wanted(const job *j) {
  enum { ALL = 1 << 20, FEW = 1 << 14 };
  if (settings_text(j->settings, "trace")) return 0;
  return SLI_MAX(ALL / sl_job_processes(j->processes), FEW);
}

/* Runs the steps. First saves values that would be lost with the process, then process 0 gathers
 * the firings and counts of all processes. */
static sl_status run_prepared(job *j) {
  bool speaks_for_all = !j->settings->process;
  sl_status status = sl_job_attach(j->processes, j->rt, sl_checkpoints_start(j->checkpoints));
  if (!status) status = run_steps(j);
  if (!status) status = outputs_save_values(j);
  if (!status) status = sl_job_gather(j->processes, records_wanted(j));
  if (!status && speaks_for_all) print_end(j);
  if (speaks_for_all) status = outputs_write_reports(j, status);
  bool generates = sl_arg_int(j->settings->run, "generate") && !j->stopped && speaks_for_all;
  return !status && generates ? generate(j) : status;
}

sl_status job_run(job *j) {
  fingerprint *t = &j->fingerprint;
  bool alone = sl_job_processes(j->processes) == 1;
  sl_status status =
      alone ? SL_OK : fingerprint_add_plan(t, j->settings, j->made.graph, j->lowered);
  if (!status) status = sl_job_join(j->processes, j->plan, (int)t->count, t->items);
  if (!status) status = outputs_check_shared(j);
  if (!status && !j->progress.quiet && !j->settings->process) print_begin(j);
  if (!status) print_found(j);
  if (!status) status = make_runtime(j);
  j->subject = job_subject(j);
  if (!status && j->settings->clock == SL_CLOCK_REAL)
    status = control_open(&j->subject, job_topics, &j->control);
  if (!status) status = run_prepared(j);
  return sl_job_end(j->processes, status);
}
