/* actorrun's parts: progress, report, generation. */
#ifndef SLUICE_TOOLS_ACTORRUN_H
#define SLUICE_TOOLS_ACTORRUN_H

#include <pthread.h>
#include <stdbool.h>

#include <sluice/sluice.h>

#include "base/base.h"
#include "comm/job/job.h"
#include "tools/actorrun/log.h"
#include "tools/actorrun/terms.h"
#include "tools/common/common.h"

extern const tool actorrun_tool;

/* ---- progress --------------------------------------------------------------------- */

typedef struct step_record {
  sl_step_report report;
  uint64_t end_ns, cpu_ns; /* at its end; what the process had computed by then */
} step_record;

/* Written by on_step on a worker's thread while a run goes on, read there, by the main
 * thread between runs, and by progress_now, for which `lock` is held while records and
 * start change. */
typedef struct progress {
  int64_t steps;          /* of the whole run */
  int64_t items;          /* per step */
  const char *word;       /* what items are: "tokens" */
  size_t memory_bytes;
  const sl_runtime *rt;   /* asked how idle its devices were */
  bool quiet, terminal;
  uint64_t start_ns;      /* of the run */
  uint64_t start_cpu_ns;
  uint64_t drawn_ns;      /* when the last line was drawn */
  bool line_open;         /* the terminal's cursor is on the live line */
  size_t count, capacity;
  step_record *records;   /* one per finished step */
  pthread_mutex_t lock;
} progress;

/* How far a run is. */
typedef struct progress_look {
  int64_t done, steps;    /* of the whole run; done: -1 before the first step's end, and where
                             nobody counts */
  double loss, rate;      /* of the last step; items per second lately */
  double step_seconds, elapsed_seconds;
} progress_look;

void progress_init(progress *p, int64_t steps, bool quiet);
void progress_fini(progress *p);
void progress_start(progress *p);
/* A step is done; on the worker's thread. */
void progress_step(progress *p, const sl_step_report *report);
/* Any thread, while the run goes on. */
progress_look progress_now(progress *p);
/* Leaves the live line, so that other text can follow. */
void progress_close(progress *p);
/* The losses so far as a line of `width` bars, the first on the left; the caller's to free. */
char *progress_history(const progress *p, int width);
double progress_step_seconds(const progress *p, size_t index);
/* Processor time of all threads during that step. */
double progress_step_cpu_seconds(const progress *p, size_t index);

/* ---- one run -------------------------------------------------------------------------- */

/* ---- evaluations ---------------------------------------------------------------------------- */

typedef struct eval_record {
  int64_t step;   /* steps that were done */
  double *values; /* [nvalues] */
} eval_record;

/* Written by callbacks on a worker's thread, and read there and between runs. */
typedef struct evals {
  int nvalues;        /* of an evaluation: the loss, then each metric */
  const char **names; /* [nvalues] */
  double *next;       /* [nvalues] of the one under way */
  size_t count, capacity;
  eval_record *records;
  int by;             /* which value says what is better, */
  bool largest;       /* and that it is better if larger */
  int64_t best_step;  /* steps that were done; 0: none yet */
  double best;
  bool pending;       /* the best is not kept yet */
  int64_t without;    /* evaluations since the best */
  bool ended;       /* the run, as --patience says */
} evals;

/* tallies.c: what the steps of a run have counted, by name. */
typedef struct tally {
  char *name;
  int64_t n;
  double *sum, *last; /* [n] over all steps, and of the last */
} tally;
typedef struct tallies {
  int count;
  tally *of;
} tallies;


typedef struct job {
  settings *settings;
  sl_checkpoints *checkpoints; /* of --checkpoint, or NULL */
  terms terms;
  sl_job *processes;         /* this one among the others; NULL before it knows its place */
  subject subject;           /* of `control` */
  control *control;          /* NULL: no real clock */
  int nlocal;                /* processes of the job on this host */
  machine machine;
  solved homes;              /* of --home auto */
  planned made;
  sl_lowered *lowered; /* of `made` */
  const sl_plan *plan; /* of `made` */
  sl_runtime *rt;
  progress progress;
  evals evals;
  tallies tallies;
  run_log *log;              /* of --log, or NULL */
  uint64_t process_start_ns; /* CLOCK_MONOTONIC */
  uint64_t plan_ns;          /* build, lower, prove */
  bool stopped;              /* by the user, before the last step */
} job;

struct cJSON;
/* The values in force of a table of options, by name. */
void options_to_json(struct cJSON *to, const sl_option *options, const sl_args *args);

/* evals.c */
/* Is anything evaluated? */
bool settings_evaluate(const settings *s);
sl_status evals_check(const settings *s);
sl_status evals_init(job *j); /* when the model is known */
void evals_fini(evals *e);
void evals_step(job *j); /* a step is done */
/* The on_metric and the on_eval of sl_lower_options. */
void job_metric(void *ctx, int64_t step, const char *name, double value);
void job_eval(void *ctx, int64_t step, double loss);

void tallies_step(tallies *all, const sl_step_report *report);
void tallies_fini(tallies *all);

/* make.c */
/* What a run's plan is made with, of the command line; the job is not known yet. */
sl_lower_options job_options(const settings *s);
sl_status job_plan(job *j);
size_t job_memory_bytes(const sl_plan *plan);
/* --steps counts from the first run's first step. */
int64_t job_steps_left(const job *j);

/* step.c: the on_step of sl_lower_options; ctx is the job. */
void job_step(void *ctx, const sl_step_report *report);

/* run.c: joins the others, runs the plan, and keeps what was asked for. */
sl_status job_run(job *j);
/* first.c: fills in the values that a run begins with: --init, --adapter, or random ones. */
sl_status job_first_values(const settings *s, const sl_lowered *lowered, sl_runtime *rt);

/* signals.c */
void signals_catch(void);
/* What the next signal stops, or NULL; `for_all`: this process speaks for the job. */
void signals_watch(sl_runtime *rt, bool for_all);

/* faults.c: has a fault in a user's code say where it was. */
void faults_catch(void);

/* delays.c: calls fn() with each stage whose steps use weights that are one update older (--quota param=2); */
void job_delayed(const job *j, void (*fn)(void *ctx, int stage), void *ctx);
/* says which, if any. */
void job_note_delays(const job *j);

/* summary.c */
void print_plan(const job *j);
/* Which schedule --schedule auto has found; nothing where it did not search. */
void print_found(const job *j);
void print_end(const job *j);

/* ---- what it leaves --------------------------------------------------------------------- */

/* A file that cannot be written is found out before the work, not after it. */
sl_status keep_check(const settings *s);
/* The same of a dry run, which writes nothing but its report and the plan. */
sl_status keep_check_report(const settings *s);
/* What several processes write together lies where all see it. By all of them, once the job is joined. */
sl_status keep_shared(const job *j);
/* The directory of --checkpoint, and, with --resume, what the run goes on from. */
sl_status keep_open(job *j);
/* The last checkpoint and --save. */
sl_status keep_values(const job *j);
/* --trace and --report, also of a run that failed: its first failure counts. */
sl_status keep_figures(const job *j, sl_status status);

/* ---- predictions ------------------------------------------------------------------------ */

/* What a step of the plan moves between devices: all together, what the device that
 * receives most of it does, and of all what goes from host to host, where hosts are described. */
typedef struct moved_sum {
  double all[SL_TRAFFIC_COUNT], most[SL_TRAFFIC_COUNT], crossed[SL_TRAFFIC_COUNT];
} moved_sum;
moved_sum moved_in_step(const job *j);
bool has_hosts(const job *j);

/* Runs the plan on the virtual clock and prints its figures; free(out->devices). */
sl_status predict_plan(const job *j, sl_figures *out);
/* The line about a step, and those about arithmetic and links, for the end of a run. */
void print_step(const job *j, const sl_figures *figures);
void print_modelled(const job *j, const sl_figures *figures);

/* Writes --report. `failure`: the text of what ended the run early, or NULL. */
sl_status report_write(const char *path, const job *j, const char *failure);
/* The same while the run goes on, without what is known between runs only. */
sl_status report_write_meanwhile(const char *path, const job *j);
/* Of a plan that is not run; with figures of the virtual clock, or NULL. */
sl_status report_write_plan(const char *path, const job *j, const sl_figures *figures);

/* Is writing a text with the first values all that the run does? */
bool generates_only(const settings *s);
/* Before any work: can the model continue the prompt? */
sl_status generate_check(const settings *s);
/* Continues the prompt, printing as it goes: with the values that a run begins with, by all processes together;
 * and with those that the job holds, or has saved, in process 0. */
sl_status generate_first(job *j);
sl_status generate(const job *j);

#endif
