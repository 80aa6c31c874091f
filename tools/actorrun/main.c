/* SPDX-License-Identifier: Apache-2.0 */
/* actorrun: trains a model over a pipeline of devices.
 *
 * The stages of a run are: command line, model graph, plan, proof, runtime, initial values,
 * steps, and outputs. Each is a function of `job`. The first failure ends the run, and main()
 * prints its text. */
#include "tools/actorrun/actorrun.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "placement/share.h"
#include "tools/actorrun/auto.h"
#include "tools/actorrun/clips.h"
#include "tools/actorrun/commands.h"
#include "tools/actorrun/objective.h"
#include "tools/actorrun/samples.h"

/* Returns the time when the process began: now minus the processor time used so far, which before
 * main is loading and linking. (/proc counts in hundredths of a second.) */
static uint64_t process_start_ns(void) {
  struct timespec used;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return sli_now_ns() - ((uint64_t)used.tv_sec * 1000000000u + (uint64_t)used.tv_nsec);
}

/* ---- what a run does --------------------------------------------------------------------------
 */

/* Places the devices, after warnings about rough numbers. */
static sl_status begin(job *j, sl_status (*place)(settings *, machine *)) {
  if (!j->settings->process) settings_warn(j->settings);
  return place(j->settings, &j->machine);
}

static sl_status make_plan(job *j) {
  sl_status status = rl_open(j->settings, &j->rl);
  if (!status && j->rl) j->figures = rl_figures(j->rl), j->progress.figure = *j->figures.names;
  return status ? status : job_plan(j);
}

static sl_status show_data(job *j) { return samples_show(j->settings); }

static sl_status show_placement(job *j) {
  sl_status status = begin(j, machine_place);
  if (!status && j->machine.placement) sl_placement_print(j->machine.placement, stdout);
  return status;
}

/* Makes the plan for its printed graph or ways of sharing, which passes print. */
static sl_status show_passes(job *j) {
  const settings *s = j->settings;
  SLI_TRY(begin(j, machine_imagine));
  if (s->process) return SL_OK; /* process 0 shows the plan */
  sl_status status = sl_job_end(j->processes, make_plan(j));
  bool alone = settings_ranks(s) == 1 && !sl_arg_flag(s->run, "vocab-parallel");
  if (!status && !settings_text(s, "print-after") && alone)
    printf(
        "each stage is on one device: nothing is shared (--data-parallel, --sequence, --tensor)\n");
  return status;
}

/* Prints the plan, and its simulated times if the run is on the virtual clock. */
static sl_status show_plan(job *j) {
  const char *report = settings_text(j->settings, "report");
  bool timed = j->settings->clock == SL_CLOCK_VIRTUAL;
  sl_statistics stats = {0};
  SLI_TRY(begin(j, machine_imagine));
  if (j->settings->process) return SL_OK; /* process 0 shows the plan */
  sl_status status = outputs_check_report(j->settings);
  if (!status) status = make_plan(j);
  if (status) return sl_job_end(j->processes, status); /* other processes may wait for the result */
  print_plan(j);
  status = timed ? predict_plan(j, &stats) : SL_OK;
  if (!status && report) status = report_write_plan(report, j, timed ? &stats : NULL);
  free(stats.devices);
  return status;
}

static sl_status make_clips(job *j) {
  bool dry = sl_arg_flag(j->settings->run, "dry-run");
  sl_status status = begin(j, dry ? machine_imagine : machine_place);
  return status ? status : clips_run(j);
}

static sl_status check(job *j) {
  const settings *s = j->settings;
  fingerprint_init(&j->fingerprint, s);
  if (!s->process) SLI_TRY(outputs_check(s));
  SLI_TRY(generate_check(s));
  return evals_check(s);
}

static sl_status only_generate(job *j) {
  SLI_TRY(begin(j, machine_place));
  sl_status status = check(j);
  return status ? sl_job_end(j->processes, status) : generate_first(j);
}

static sl_status train(job *j) {
  SLI_TRY(begin(j, machine_place));
  sl_status status = check(j);
  if (!status) status = outputs_open(j);
  if (!status) status = make_plan(j);
  return status ? sl_job_end(j->processes, status) : job_run(j);
}

static bool shows_data(const settings *s) { return sl_arg_flag(s->run, "show-data"); }
static bool shows_placement(const settings *s) { return sl_arg_flag(s->run, "show-placement"); }
static bool shows_passes(const settings *s) {
  return sl_arg_flag(s->run, "show-sbp") || settings_text(s, "print-after");
}
static bool makes_clips(const settings *s) { return settings_text(s, "clips"); }
static bool shows_plan(const settings *s) { return sl_arg_flag(s->run, "dry-run"); }

/* Ways to run; the first one asked for is meant, and training is what is left. */
static const struct way {
  bool (*asked)(const settings *s);
  sl_status (*run)(job *j);
} ways[] = {{shows_data, show_data},     {shows_placement, show_placement},
            {shows_passes, show_passes}, {makes_clips, make_clips},
            {shows_plan, show_plan},     {generates_only, only_generate}};

static sl_status do_job(job *j) {
  for (size_t i = 0; i < SLI_COUNT(ways); i++)
    if (ways[i].asked(j->settings)) return ways[i].run(j);
  return train(j);
}

/* ---- processes --------------------------------------------------------------------------------
 */

/* Refuses options that do not support several processes, before any work is done. */
static sl_status check_cluster(const settings *s) {
  if (s->lower.parallel.processes == 1) return SL_OK;
  if (s->clock == SL_CLOCK_VIRTUAL)
    return sl_fail(SL_E_USAGE, "--clock virtual: runs in one process, not %d",
                   s->lower.parallel.processes);
  return SL_OK;
}

/* Joins the job. Sluice's launcher has already divided the cores of a host among its processes;
 * other launchers may have done so too. */
static sl_status join_cluster(job *j, const sli_cluster *cluster) {
  settings *s = j->settings;
  j->nlocal = cluster->nlocal;
  int asked = (int)(sl_arg_int(s->run, "processes") * sl_arg_int(s->run, "nnodes"));
  s->process = cluster->process;
  s->lower.parallel.processes = cluster->nprocesses > 1 ? cluster->nprocesses : asked;
  settings_occupy(s);
  const sl_parallel_options *grid = &s->lower.parallel;
  sl_gpu_links links = s->lower.devices.links;
  bool shared = grid->data > 1 || grid->sequence > 1 || grid->tensor > 1;
  sl_job_options options = {.lost_seconds = launch_lost_ms(s) * 1e-3,
                            .over_host = links == SL_LINKS_HOST,
                            .collectives = shared && links != SL_LINKS_CHANNELS};
  j->processes = sli_job_create(cluster, &options);
  if (!getenv("SLUICE_BOUND")) sli_share_take_among(cluster->local, cluster->nlocal);
  return check_cluster(s);
}

/* Returns whether the run only examines a plan, for which a single process suffices. */
static bool only_looks(const settings *s) {
  return sl_arg_flag(s->run, "dry-run") || sl_arg_flag(s->run, "show-placement") ||
         sl_arg_flag(s->run, "show-data") || s->clock == SL_CLOCK_VIRTUAL;
}

static sl_status launch(const settings *s, const sli_cluster *cluster, bool *launched,
                        int *exit_status) {
  bool keeps = settings_text(s, "checkpoint") != NULL;
  const launch_again again = {keeps && !sl_arg_flag(s->run, "resume") ? "--resume" : NULL,
                              keeps ? ", from the newest checkpoint" : ""};
  return only_looks(s) ? SL_OK : launch_run(s, cluster, &again, launched, exit_status);
}

/* Runs the job, or starts processes that run it. */
static sl_status run_or_launch(job *j, int *exit_status) {
  settings *s = j->settings;
  sli_cluster cluster;
  bool launched = false;
  sl_status status = sli_cluster_detect((const char *(*)(const char *))getenv, &cluster);
  if (!status) status = launch(s, &cluster, &launched, exit_status);
  if (!status && !launched) status = join_cluster(j, &cluster);
  if (status || launched) return status;
  bool quiet = sl_arg_flag(s->run, "quiet") || s->process;
  progress_init(&j->progress, sl_arg_int(s->run, "steps"), quiet);
  status = do_job(j);
  if (!status && j->stopped) *exit_status = sl_status_exit(SL_E_STOPPED);
  return status;
}

int main(int argc, char **argv) {
  int exit_status = 0;
  if (commands_run(argc, argv, &exit_status)) return exit_status;
  argv = commands_expand(&argc, argv);
  job j = {.process_start_ns = process_start_ns()};
  settings s;
  signals_catch();
  faults_catch();
  sl_status status = settings_read(&actorrun_tool, argc, argv, &s);
  j.settings = &s;
  if (!status && !s.done && sl_arg_flag(s.run, "auto")) status = auto_run(&s, argv[0]);
  if (!status && !s.done) status = run_or_launch(&j, &exit_status);
  exit_status = outputs_end("actorrun", status, exit_status);
  log_close(j.log);
  evals_fini(&j.evals);
  counters_fini(&j.counters);
  control_close(j.control);
  sl_job_close(j.processes);
  sl_runtime_destroy(j.rt);
  plan_free(&j.made);
  rl_close(j.rl);
  free(j.homes.said);
  sl_checkpoints_close(j.checkpoints);
  fingerprint_fini(&j.fingerprint);
  progress_fini(&j.progress);
  machine_fini(&j.machine);
  objective_fini(&s);
  settings_fini(&s);
  free(argv);
  return exit_status;
}
