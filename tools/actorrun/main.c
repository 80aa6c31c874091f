/* actorrun: trains a model over a pipeline of devices.
 *
 * The way of a run: command line, model graph, plan, proof, runtime, initial
 * values, steps, and then what was asked to be kept. Each part of it is a
 * function of `job`; the first that fails ends the way, and main() prints its
 * text. */
#include "tools/actorrun/actorrun.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "graph/state/state.h"
#include "io/atomic.h"
#include "placement/share.h"
#include "tools/actorrun/ctl/client.h"
#include "tools/actorrun/ctl/server.h"
#include "tools/actorrun/fit.h"
#include "tools/actorrun/launch.h"
#include "tools/actorrun/ctl/status.h"

/* When the process began: now, less the time it has computed, which until main
 * is loading and linking. (/proc counts in hundredths of a second.) */
static uint64_t process_start_ns(void) {
  struct timespec used;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return sli_now_ns() - ((uint64_t)used.tv_sec * 1000000000u + (uint64_t)used.tv_nsec);
}

/* ---- Ctrl-C ------------------------------------------------------------------------------ */

/* `running` is written by the main thread and read by the handler, on whatever
 * thread that is; release and acquire, so that the runtime behind it is seen
 * complete. `interrupted` belongs to the handler; relaxed, a flag by itself. */
static _Atomic(sl_runtime *) running;
static atomic_bool interrupted;
static bool speaks = true; /* for the job: process 0; set before `running` */

/* The first signal ends the run after its step, the second ends everything. */
static void on_signal(int signal_number) {
  sl_runtime *rt = atomic_load_explicit(&running, memory_order_acquire);
  if (!rt || atomic_exchange_explicit(&interrupted, true, memory_order_relaxed)) {
    signal(signal_number, SIG_DFL);
    raise(signal_number);
    return;
  }
  static const char text[] = "\nfinishing the step; once more to end at once\n";
  /* Nothing is to be done about it if that fails. */
  if (speaks && write(STDERR_FILENO, text, sizeof text - 1) < 0) {}
  sl_runtime_stop(rt);
}

static void catch_signals(void) {
  struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, NULL);
  sigaction(SIGTERM, &action, NULL);
  signal(SIGXFSZ, SIG_IGN); /* a file too long is an error like others: who writes it says so */
}

/* ---- plan ---------------------------------------------------------------------------------- */

size_t job_memory_bytes(const sl_plan *plan) {
  size_t bytes = 0;
  for (int32_t d = 0; d < plan->ndevices; d++) bytes += sl_device_bytes(&plan->devices[d]);
  return bytes;
}

static sl_status lower_model(job *j, const char *chosen) {
  const settings *s = j->settings;
  sl_lower_options run = {.on_step = progress_step, .ctx = &j->progress,
                          .store_every = settings_text(s, "checkpoint")
                                             ? sl_arg_int(s->run, "every") : 0,
                          .chosen = chosen,
                          .sharing = sl_arg_flag(s->run, "show-sbp") ? stdout : NULL};
  sl_checkpoints_lower(j->checkpoints, &run);
  sl_status status = plan_make(s, &run, &j->made);
  if (status == SL_E_BUDGET && strcmp(s->schedule, "auto")) fit_advise(s, &run);
  return status;
}

/* Of several processes that are to run it, the first one searches for all. */
static sl_status search_together(job *j) {
  bool first = !j->settings->process;
  char *chosen = NULL;
  sl_status status = sli_job_assemble(j->processes);
  if (!status && !first) status = sli_job_await_announcement(j->processes, &chosen);
  if (!status) status = lower_model(j, chosen && *chosen ? chosen : NULL);
  if (!status && first) sli_job_announce(j->processes, sl_lowered_chosen(j->made.lowered));
  free(chosen);
  return status;
}

static sl_status make_plan(job *j) {
  const settings *s = j->settings;
  bool searches = !strcmp(s->schedule, "auto") && !sl_arg_flag(s->run, "dry-run");
  sl_status status = searches ? search_together(j) : lower_model(j, NULL);
  if (status) return status;
  j->lowered = j->made.lowered;
  j->plan = j->made.plan;
  j->progress.items = j->made.items;
  j->progress.word = j->made.word;
  j->progress.memory_bytes = job_memory_bytes(j->plan);
  return sl_checkpoints_describe(j->checkpoints, j->made.graph, j->lowered);
}

static sl_status prove_plan(const job *j) {
  const settings *s = j->settings; /* a run on the virtual clock is its own proof */
  bool runs = s->clock == SL_CLOCK_VIRTUAL && !sl_arg_flag(s->run, "dry-run");
  return runs ? SL_OK : sl_plan_prove(j->plan);
}

static sl_status write_plan(const job *j) {
  const char *path = settings_text(j->settings, "plan");
  if (!path) return SL_OK;
  sli_atomic_file file;
  sl_status status = sli_atomic_open(path, &file);
  if (status) return status;
  sl_plan_print(j->plan, file.stream);
  return sli_atomic_commit(&file);
}

static void print_quota(void *ctx, const char *name, int stage, int slots) {
  (void)ctx;
  if (stage == SL_NONE)
    printf("  %s=%d", name, slots);
  else
    printf("  %s@%d=%d", name, stage, slots);
}

static void print_summary_of_plan(const job *j) {
  const sl_param_info *params;
  int n = sl_lowered_params(j->lowered, &params);
  double values = 0;
  for (int i = 0; i < n; i++) values += (double)sl_type_elements(&params[i].type);
  printf("model %s: %.0f values in %d parameters\n", j->settings->model->name, values, n);
  printf("plan %016" PRIx64 ": schedule %s, %d devices, %d actors, %d registers, made and proved "
         "in %.1f ms\n", j->plan->hash, sl_lowered_schedule(j->lowered), j->plan->ndevices,
         j->plan->nactors, j->plan->nregs, (double)j->plan_ns * 1e-6);
  const int64_t *lengths;
  int pieces = sl_graph_pieces(j->made.graph, &lengths);
  for (int k = 0; lengths && k < pieces; k++)
    printf("%s%lld%s", k ? " " : "pieces of ", (long long)lengths[k],
           k + 1 < pieces ? "" : " positions\n");
  printf("quotas:");
  sl_lowered_quotas(j->lowered, print_quota, NULL);
  printf("\n\n");
  sl_plan_print_memory(j->plan, stdout);
  printf("\nThe plan finishes, whatever the timing.\n");
}

/* ---- run ----------------------------------------------------------------------------------- */

/* --steps counts from the first run's first step. */
static int64_t steps_left(const job *j) {
  return SLI_MAX(sl_arg_int(j->settings->run, "steps") - sl_checkpoints_start(j->checkpoints), 0);
}

/* Room for every firing of the run, within reason, when they are to be kept, or
 * when the trace is all there is: on the virtual clock. */
static size_t trace_room(const job *j) {
  bool virtual = j->settings->clock == SL_CLOCK_VIRTUAL;
  if (!virtual && !settings_text(j->settings, "trace")) return 0;
  double firings = 0;
  for (int32_t a = 0; a < j->plan->nactors; a++)
    firings += (double)j->plan->actors[a].firings_per_step;
  firings *= (double)steps_left(j);
  size_t room = 1 << 16;
  while ((double)room < firings && room < (virtual ? 1 << 26 : 1 << 21)) room *= 2;
  return room;
}

static sl_status make_runtime(job *j) {
  const settings *s = j->settings;
  uint64_t jitter_ns = (uint64_t)(sl_arg_float(s->run, "jitter") * 1000);
  uint64_t seed = (uint64_t)sl_arg_int(s->run, "seed");
  double watchdog = sl_arg_float(s->run, "watchdog");
  bool data = sl_device_computes(s->devices.kind);
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
  if (!data) return SL_OK;
  if (options.first_step) return sl_checkpoints_load(j->checkpoints, j->lowered, j->rt);
  const char *init = settings_text(s, "init");
  if (init) status = sl_weights_load(init, j->lowered, j->rt);
  else status = sl_params_init(j->lowered, j->rt, seed);
  if (!status) status = sl_params_spread(j->lowered, j->rt);
  return status;
}

static sl_status run_steps(job *j) {
  int64_t steps = steps_left(j);
  if (!steps) return SL_OK;
  atomic_store_explicit(&running, j->rt, memory_order_release);
  j->progress.rt = j->rt;
  progress_start(&j->progress);
  /* A run that nobody can steer is still a run. */
  if (j->control && control_listen(j->control)) sli_log("no control socket: %s", sl_detail());
  sl_status status = sl_job_run(j->processes, steps);
  if (status == SL_E_STUCK) status = sl_plan_prove(j->plan); /* with advice */
  atomic_store_explicit(&running, NULL, memory_order_relaxed);
  control_close(j->control);
  j->control = NULL;
  progress_close(&j->progress);
  j->stopped = status == SL_E_STOPPED;
  return j->stopped ? SL_OK : status;
}

static sl_status keep_trace_and_report(const job *j, const char *failure) {
  const char *trace = settings_text(j->settings, "trace");
  const char *report = settings_text(j->settings, "report");
  sl_status status = trace ? sl_trace_write(trace, j->plan, j->rt, j->settings->clock) : SL_OK;
  if (!status && report) status = report_write(report, j, failure);
  return status;
}

/* A run that failed leaves its trace and report too; its first failure counts. */
static sl_status keep_figures(const job *j, sl_status status) {
  if (!status) return keep_trace_and_report(j, NULL);
  char *failure = sli_strdup(sl_detail());
  if (keep_trace_and_report(j, failure)) sli_log("%s", sl_detail());
  sl_fail(status, "%s", failure);
  free(failure);
  return status;
}

/* ---- the end ------------------------------------------------------------------------------- */

static void print_devices(const job *j, const sl_figures *figures) {
  enum { most_lines = 16, first_lines = 6 };
  int32_t n = j->plan->ndevices;
  for (int32_t d = 0; d < n; d++) {
    if (n > most_lines && d == first_lines) {
      printf("  ... %d devices\n", n - 2 * first_lines);
      d = n - first_lines;
    }
    const sl_device_figures *f = &figures->devices[d];
    char memory[32];
    sli_format_bytes(memory, (double)sl_device_bytes(&j->plan->devices[d]));
    printf("  %-8s busy %.4g s of %.4g s  bubble %.1f %%  activations %.4g  memory %s\n",
           j->plan->devices[d].name, f->busy_seconds, f->span_seconds, 100 * f->bubble_fraction,
           sl_runtime_peak_activations(j->rt, d), memory);
  }
}

static void print_end(const job *j) {
  const progress *p = &j->progress;
  int64_t steps = sl_runtime_steps(j->rt);
  if (p->quiet || !steps) return;
  if (!steps_left(j))
    printf("step %lld of %lld: nothing is left to do\n", (long long)steps, (long long)p->steps);
  if (j->stopped)
    printf("stopped after step %lld of %lld\n", (long long)steps, (long long)p->steps);
  sl_figures figures = sl_runtime_figures(j->rt);
  if (p->count)
    printf("loss %.4f -> %.4f in %lld steps\n", p->records[0].report.loss,
           p->records[p->count - 1].report.loss, (long long)p->count);
  print_step(j, &figures);
  print_devices(j, &figures);
  if (j->settings->clock == SL_CLOCK_VIRTUAL) print_modelled(j, &figures);
  free(figures.devices);
}

/* The last checkpoint and --save: if one fails, the other is tried all the same. */
static sl_status keep_values(const job *j) {
  const char *save = settings_text(j->settings, "save");
  sl_status status = sl_checkpoints_finish(j->checkpoints, j->lowered, j->rt, j->processes);
  if (!save) return status;
  if (!status) return sl_weights_save(save, j->lowered, j->rt, j->processes);
  if (sl_job_processes(j->processes) > 1) return status;
  char *failure = sli_strdup(sl_detail());
  if (sl_weights_save(save, j->lowered, j->rt, j->processes)) sli_log("%s", sl_detail());
  sl_fail(status, "%s", failure);
  free(failure);
  return status;
}

/* Of the firings that nobody has asked to see, as many as figures need are brought together. */
static uint64_t records_wanted(const job *j) {
  enum { ALL = 1 << 20, FEW = 1 << 14 };
  if (settings_text(j->settings, "trace")) return 0;
  return SLI_MAX(ALL / sl_job_processes(j->processes), FEW);
}

/* What is lost with the process is kept first; then process 0 gets to know what all did. */
static sl_status run_prepared(job *j) {
  bool speaks_for_all = !j->settings->process;
  sl_status status = sl_job_attach(j->processes, j->rt, sl_checkpoints_start(j->checkpoints));
  if (!status) status = run_steps(j);
  if (!status) status = keep_values(j);
  if (!status) status = sl_job_gather(j->processes, records_wanted(j));
  if (!status && speaks_for_all) print_end(j);
  if (speaks_for_all) status = keep_figures(j, status);
  bool generates = sl_arg_int(j->settings->run, "generate") && !j->stopped;
  return !status && generates ? generate(j) : status;
}

static sl_status run_job(job *j) {
  terms *t = &j->terms;
  bool alone = sl_job_processes(j->processes) == 1;
  sl_status status = alone ? SL_OK : terms_add_files(t, j->settings, j->made.graph);
  if (!status) status = sl_job_join(j->processes, j->plan, (int)t->count, t->items);
  if (!status) status = make_runtime(j);
  if (!status && j->settings->clock == SL_CLOCK_REAL) status = control_open(j, &j->control);
  if (!status) status = run_prepared(j);
  return sl_job_end(j->processes, status);
}

/* ---- checkpoints ------------------------------------------------------------------------- */

static void print_start(const job *j) {
  if (sl_arg_flag(j->settings->run, "quiet") || j->settings->process) return;
  const cJSON *about = sli_checkpoints_origin(j->checkpoints);
  if (!about) {
    printf("no checkpoint in %s yet: starting anew\n", sl_arg_text(j->settings->run, "checkpoint"));
    return;
  }
  const cJSON *stages = cJSON_GetObjectItem(about, "stages");
  const cJSON *ranks = cJSON_GetObjectItem(about, "devices_per_stage");
  printf("going on from %s", sl_checkpoints_from(j->checkpoints));
  if (cJSON_IsNumber(stages)) printf(", written by %d stages", stages->valueint);
  if (cJSON_IsNumber(ranks)) printf(" of %d devices", ranks->valueint);
  putchar('\n');
}

/* For people: all options in force. */
static void describe_options(const job *j) {
  const settings *s = j->settings;
  cJSON *about = sli_checkpoints_about(j->checkpoints);
  cJSON_AddStringToObject(about, "model", s->model->name);
  options_to_json(cJSON_AddObjectToObject(about, "options"), s->options, s->run);
  options_to_json(cJSON_AddObjectToObject(about, "model_options"), s->model->options,
                  s->model_args);
}

/* The directory of --checkpoint, and, with --resume, what the run goes on from. */
static sl_status open_checkpoints(job *j) {
  const settings *s = j->settings;
  sl_checkpoint_options options = {.dir = sl_arg_text(s->run, "checkpoint"),
                                   .keep = (int)sl_arg_int(s->run, "keep"),
                                   .every = sl_arg_int(s->run, "every"),
                                   .resume = sl_arg_flag(s->run, "resume"),
                                   .nterms = (int)j->terms.nresults, .terms = j->terms.items};
  if (!*options.dir) return SL_OK;
  sl_status status = sl_checkpoints_open(&options, j->processes, &j->checkpoints);
  if (status) return status;
  if (options.resume) print_start(j);
  describe_options(j);
  return SL_OK;
}

/* A file that cannot be written is found out before the work, not after it. */
static sl_status check_files(const settings *s) {
  static const char *const names[] = {"save", "report", "trace", "plan"};
  sl_status status = SL_OK;
  for (size_t i = 0; i < SLI_COUNT(names) && !status; i++)
    if (settings_text(s, names[i]))
      status = sli_atomic_check(sl_arg_text(s->run, names[i]));
  return status;
}

static sl_status plan_job(job *j) {
  uint64_t start = sli_now_ns();
  sl_status status = make_plan(j);
  if (!status) status = write_plan(j); /* also one that cannot finish */
  if (!status) status = prove_plan(j);
  j->plan_ns = sli_now_ns() - start;
  return status;
}

static sl_status do_job(job *j) {
  settings *s = j->settings;
  bool sharing = sl_arg_flag(s->run, "show-sbp"), show = sl_arg_flag(s->run, "show-placement");
  bool dry = sl_arg_flag(s->run, "dry-run") || sharing;
  bool looks = dry && !show && strcmp(s->devices.kind, "cpu"); /* devices need not be here */
  if (looks) machine_imagine(s);
  sl_status status = looks ? SL_OK : machine_place(s, &j->machine);
  if (status) return status;
  if (show) {
    if (j->machine.placement) sl_placement_print(j->machine.placement, stdout);
    return SL_OK;
  }
  if (!dry) terms_init(&j->terms, s);
  if (!dry && !s->process) status = check_files(s);
  if (!dry && !status) status = open_checkpoints(j);
  if (!status) status = plan_job(j);
  if (status) return sl_job_end(j->processes, status); /* others may wait for what it finds */
  if (dry && s->process) return SL_OK;
  if (sharing) {
    if (s->data_parallel * s->tensor == 1)
      printf("each stage lies on one device: nothing is shared (--data-parallel, --tensor)\n");
    return SL_OK;
  }
  if (dry) {
    print_summary_of_plan(j);
    return s->clock == SL_CLOCK_VIRTUAL ? predict_plan(j) : SL_OK;
  }
  return run_job(j);
}

/* What does not go over several processes is said before any work is done. */
static sl_status check_cluster(const settings *s) {
  if (s->processes == 1) return SL_OK;
  if (s->clock == SL_CLOCK_VIRTUAL)
    return sl_fail(SL_E_USAGE, "--clock virtual needs no more than one process, not %d",
                   s->processes);
  if (sl_arg_int(s->run, "generate"))
    return sl_fail(SL_E_USAGE, "--generate runs in one process, not %d: --save the values, and "
                   "--init a run of one with them", s->processes);
  return SL_OK;
}

/* The place of this process in its job. Our launcher has shared out the cores of a host;
 * others may have. */
static sl_status join_cluster(job *j, const sli_cluster *cluster) {
  settings *s = j->settings;
  int asked = (int)(sl_arg_int(s->run, "processes") * sl_arg_int(s->run, "nnodes"));
  s->process = cluster->process;
  s->processes = cluster->nprocesses > 1 ? cluster->nprocesses : asked;
  int ranks = s->data_parallel * s->tensor;
  if (s->devices.count < s->processes && !sl_arg_given(s->run, "stages", 0) &&
      !sl_arg_given(s->run, "devices", 0)) {
    s->stages = (s->processes + ranks - 1) / ranks;
    s->devices.count = s->stages * ranks;
  }
  sl_job_options options = {.lost_seconds = launch_lost_ms(s) * 1e-3,
                            .over_host = s->devices.links == SL_LINKS_HOST};
  j->processes = sli_job_create(cluster, &options);
  if (!getenv("SLUICE_BOUND")) sli_share_take_among(cluster->local, cluster->nlocal);
  return check_cluster(s);
}

/* Runs the job, unless the processes that do were started here. */
static sl_status run_or_launch(job *j, int *exit_status) {
  settings *s = j->settings;
  sli_cluster cluster;
  bool launched = false;
  sl_status status = sli_cluster_detect((const char *(*)(const char *))getenv, &cluster);
  if (!status) status = launch_run(s, &cluster, &launched, exit_status);
  if (!status && !launched) status = join_cluster(j, &cluster);
  if (status || launched) return status;
  speaks = !s->process;
  bool quiet = sl_arg_flag(s->run, "quiet") || s->process;
  progress_init(&j->progress, sl_arg_int(s->run, "steps"), quiet);
  return do_job(j);
}

int main(int argc, char **argv) {
  if (argc > 1 && !strcmp(argv[1], "ctl")) return client_main_ctl(argc - 2, argv + 2);
  if (argc > 1 && !strcmp(argv[1], "status")) return status_main(argc - 2, argv + 2);
  job j = {.process_start_ns = process_start_ns()};
  settings s;
  int exit_status = 0;
  catch_signals();
  sl_status status = settings_read(&actorrun_tool, argc, argv, &s);
  j.settings = &s;
  if (!status && !s.done) status = run_or_launch(&j, &exit_status);
  if (status) fprintf(stderr, "actorrun: %s\n", sl_detail());
  control_close(j.control);
  sl_job_close(j.processes);
  sl_runtime_destroy(j.rt);
  plan_free(&j.made);
  sl_checkpoints_close(j.checkpoints);
  terms_fini(&j.terms);
  progress_fini(&j.progress);
  machine_fini(&j.machine);
  settings_fini(&s);
  return status ? sl_status_exit(status) : exit_status;
}
