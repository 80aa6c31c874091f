/* SPDX-License-Identifier: Apache-2.0 */
/* Internal interface of actorrun: progress, report, generation. */
#ifndef SLUICE_TOOLS_ACTORRUN_ACTORRUN_H
#define SLUICE_TOOLS_ACTORRUN_ACTORRUN_H

#include <pthread.h>
#include <stdbool.h>

#include <sluice/sluice.h>

#include "base/base.h"
#include "comm/job/job.h"
#include "io/journal.h"
#include "tools/actorrun/fingerprint.h"
#include "tools/actorrun/log.h"
#include "tools/actorrun/rl/rl.h"
#include "tools/cli/cli.h"
#include "tools/control/control.h"
#include "tools/planner/planner.h"

extern const tool actorrun_tool;

/* ---- progress --------------------------------------------------------------------- */

typedef struct step_record {
  sl_step_report report;
  uint64_t end_ns, cpu_ns; /* time at its end; processor time of the process until then */
  double figure;           /* the first of the step's figures; NaN if none */
} step_record;

/* Figures of a step in addition to its loss, for --log. The first is also shown in the progress. */
typedef struct step_figures {
  int count;
  const char *const *names;                                           /* [count] */
  void (*read)(void *ctx, const sl_step_report *report, double *out); /* NaN if not known */
  void *ctx;
} step_figures;

/* Progress of a run. on_step writes and reads it on a worker's thread during a run. The main thread
 * reads it between runs, and progress_now() at any time. `lock` is held while records and start
 * change. */
typedef struct progress {
  int64_t steps;      /* steps of the whole run */
  int64_t items;      /* items per step */
  const char *word;   /* unit of the items: "tokens" */
  const char *figure; /* name of a step's first figure; NULL if it has none */
  size_t memory_bytes;
  int devices;          /* devices of the plan; with one device no bubble is shown */
  char where[64];       /* " of cpu:0", the devices of this process, if there are other processes */
  const sl_runtime *rt; /* source of the devices' idle times */
  bool quiet, terminal;
  uint64_t start_ns; /* start of the run */
  uint64_t start_cpu_ns;
  uint64_t drawn_ns; /* time the last line was drawn */
  bool line_open;    /* the terminal's cursor is on the live line */
  size_t count, capacity;
  step_record *records; /* one per finished step */
  pthread_mutex_t lock;
} progress;

/* Status of a run. */
typedef struct progress_status {
  /* steps of the whole run; done: -1 before the first step's end, or if steps are not counted */
  int64_t done, steps;
  double loss, rate; /* loss of the last step; recent items per second */
  double step_seconds, elapsed_seconds;
} progress_status;

void progress_init(progress *p, int64_t steps, bool quiet);
void progress_fini(progress *p);
void progress_start(progress *p);
/* Records a finished step, on the worker's thread. */
void progress_step(progress *p, const sl_step_report *report, double figure);
/* Returns the status of a run in progress. Any thread. */
progress_status progress_now(progress *p);
/* Ends the live line, so that other text can follow. */
void progress_close(progress *p);
/* Draws the losses so far as `width` bars, the oldest on the left; the caller frees it. */
char *progress_history(const progress *p, int width);
double progress_step_seconds(const progress *p, size_t index);
/* Returns the processor time of all threads during a step. */
double progress_step_cpu_seconds(const progress *p, size_t index);

/* ---- one run -------------------------------------------------------------------------- */

/* ---- evaluations ---------------------------------------------------------------------------- */

typedef struct eval_record {
  int64_t step;   /* number of steps done */
  double *values; /* [nvalues] */
} eval_record;

/* Results of evaluations. Callbacks write and read them on a worker's thread; they are also read
 * between runs. */
typedef struct evals {
  int nvalues;        /* number of values in an evaluation: the loss, then each metric */
  const char **names; /* [nvalues] */
  double *next;       /* [nvalues] values of the evaluation in progress */
  size_t count, capacity;
  eval_record *records;
  int by;            /* index of the value that --best compares */
  bool largest;      /* larger values are better */
  int64_t best_step; /* steps done at the best evaluation; 0: none yet */
  double best;
  bool pending;    /* the best checkpoint is still to be kept */
  int64_t without; /* evaluations since the best one */
  bool ended;      /* --patience has ended the run */
} evals;

/* Counters of a run's steps, by name: counters.c. */
typedef struct counter {
  char *name;
  int64_t n;
  double *sum, *last; /* [n] sums over all steps, and values of the last step */
} counter;
typedef struct counters {
  int count;
  counter *items;
} counters;

typedef struct job {
  settings *settings;
  sl_checkpoints *checkpoints; /* --checkpoint, or NULL */
  fingerprint fingerprint;
  sl_job *processes; /* the job's processes and the rank of this one; NULL before it is known */
  subject subject;   /* subject of `control` */
  control *control;  /* NULL if the run has no real clock */
  int nlocal;        /* processes of the job on this host */
  machine machine;
  solved homes;       /* result of --home auto */
  const char *chosen; /* paths found by the first of these plans, in the settings' arena */
  planned made;
  sl_lowered *lowered; /* part of `made` */
  const sl_plan *plan; /* part of `made` */
  sl_runtime *rt;
  progress progress;
  evals evals;
  counters counters;
  step_figures figures;
  double *last;              /* [figures.count] figures of the last step */
  rl *rl;                    /* --rl, or NULL */
  run_log *log;              /* --log, or NULL */
  sli_journal *logprobs;     /* --logprobs, or NULL */
  uint64_t process_start_ns; /* CLOCK_MONOTONIC */
  uint64_t plan_ns;          /* time to build, lower and prove */
  bool stopped;              /* the user stopped the run before the last step */
} job;

struct cJSON;
/* Adds the values in force of a table of options, by name. */
void options_to_json(struct cJSON *to, const sl_option *options, const sl_args *args);

/* evals.c */
/* Returns whether the run evaluates anything. */
bool settings_evaluate(const settings *s);
sl_status evals_check(const settings *s);
sl_status evals_init(job *j); /* called once the model is known */
void evals_fini(evals *e);
void evals_step(job *j); /* called after each step */
/* Callbacks on_metric and on_eval of sl_lower_options. */
void job_metric(void *ctx, int64_t step, const char *name, double value);
void job_eval(void *ctx, int64_t step, double loss);

void counters_step(counters *all, const sl_step_report *report);
void counters_fini(counters *all);

/* make.c */
/* Returns the lowering options of a run, from the command line only: the job is not known yet. */
sl_lower_options job_options(const settings *s);
sl_status job_plan(job *j);
size_t job_memory_bytes(const sl_plan *plan);
/* Returns the number of steps left. --steps counts from the first run's first step. */
int64_t job_steps_left(const job *j);

/* rl.c: figures of a step with --rl. */
step_figures rl_figures(rl *x);

/* step.c: callback on_step of sl_lower_options; ctx is the job. */
void job_step(void *ctx, const sl_step_report *report);

/* logprobs.c: callback on_logprobs, and its output file. */
void job_logprobs(void *ctx, const sl_logprobs_report *report);
sl_status logprobs_open(job *j);
sl_status logprobs_close(job *j);

/* run.c: joins the other processes, runs the plan, and saves the results. */
sl_status job_run(job *j);
/* initial_values.c: fills in the initial values: --init, --adapter, or random ones. */
sl_status job_initial_values(const settings *s, const sl_lowered *lowered, sl_runtime *rt);

/* Fills in the values of the checkpoint that the run resumes from. */
sl_status job_resumed_values(const job *j);

/* signals.c */
void signals_catch(void);
/* Sets the runtime that the next signal stops, or NULL. `for_all`: this process speaks for the
 * job. */
void signals_watch(sl_runtime *rt, bool for_all);

/* faults.c: reports where a fault in user code happened. */
void faults_catch(void);

/* delays.c: calls fn() for each stage whose steps use weights that are one update old (--quota
 * param=2). */
void job_delayed(const job *j, void (*fn)(void *ctx, int stage), void *ctx);
/* Prints a note about such stages, if there are any. */
void job_note_delays(const job *j);

/* begin.c: prints parameters, tokens, and the blocks and memory of each device. */
void print_begin(const job *j);

/* summary.c */
void print_plan(const job *j);
/* Prints the schedule that --schedule auto found, if it searched. */
void print_found(const job *j);
void print_end(const job *j);

/* ---- outputs ---------------------------------------------------------------------------- */

/* Checks before any work that the outputs can be written. */
sl_status outputs_check(const settings *s);
/* Checks the outputs of a dry run: its report and the plan. */
sl_status outputs_check_report(const settings *s);
/* Checks that files written by several processes are in a folder visible to all of them. All
 * processes call it, once they have joined the job. */
sl_status outputs_check_shared(const job *j);
/* Opens the directory of --checkpoint, and with --resume finds the checkpoint to continue from. */
sl_status outputs_open(job *j);
/* Saves the last checkpoint and --save. */
sl_status outputs_save_values(const job *j);
/* Writes --trace and --report, even if the run failed. Returns the first failure. */
sl_status outputs_write_reports(const job *j, sl_status status);

/* ---- predictions ------------------------------------------------------------------------ */

/* Bytes that a step of the plan transfers between devices: in total, to the device that receives
 * most, and between hosts, if hosts are described. */
typedef struct moved_sum {
  double all[SL_TRAFFIC_COUNT], most[SL_TRAFFIC_COUNT], crossed[SL_TRAFFIC_COUNT];
} moved_sum;
moved_sum moved_in_step(const job *j);
bool has_hosts(const job *j);

/* Simulates the plan on the virtual clock and prints its statistics (figures); the caller frees
 * out->devices. */
sl_status predict_plan(const job *j, sl_statistics *out);
/* Prints the lines at the end of a run about its steps, arithmetic and links. */
void print_step(const job *j, const sl_statistics *stats);
void print_modelled(const job *j, const sl_statistics *stats);
/* Returns the joules of a step on modelled devices; 0 if not known. */
double step_joules(const job *j, const sl_statistics *stats);

/* Writes --report. `failure` is the reason why the run ended early, or NULL. */
sl_status report_write(const char *path, const job *j, const char *failure);
/* Writes --report during the run, without values known only between runs. */
sl_status report_write_meanwhile(const char *path, const job *j);
/* Writes the report of a plan that is not run, with statistics of a simulation, or NULL. */
sl_status report_write_plan(const char *path, const job *j, const sl_statistics *stats);

/* Returns whether the run only generates text from its initial values. */
bool generates_only(const settings *s);
/* Checks before any work that the model can continue the prompt. */
sl_status generate_check(const settings *s);
/* Continue the prompt, printing the text as it is generated. generate_first() uses the run's
 * initial values and all processes. generate() runs in process 0 and uses the values that the job
 * holds or has saved. */
sl_status generate_first(job *j);
sl_status generate(const job *j);

#endif
