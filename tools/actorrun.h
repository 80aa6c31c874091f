/* actorrun's parts: settings, models, weights, progress, report, generation. */
#ifndef SLUICE_TOOLS_ACTORRUN_H
#define SLUICE_TOOLS_ACTORRUN_H

#include <stdbool.h>

#include <sluice/placement.h>
#include <sluice/sluice.h>

#include "base/base.h"
#include "tools/common_hardware.h"
#include "tools/common_profile.h"

/* ---- settings: what the command line says --------------------------------------- */

typedef struct settings {
  sl_args *run;          /* actorrun's own options */
  const char *model_word; /* as given; NULL: none was needed */
  const sl_model *model;
  sl_args *model_args;
  bool done;             /* help or the like was printed: nothing is left to do */
  /* from the options' texts: */
  sl_device_options devices;
  int stages, chunks;
  sl_clock clock;
  sl_cost cost;
  profile *profile;      /* of --profile, or NULL */
  sl_hardware hardware;  /* of --machine, all 0 without it */
  int nquotas;
  sl_quota *quotas;      /* the names belong to `run` */
  char **quota_names;
} settings;

extern const sl_option run_options[];

sl_status settings_read(int argc, char **argv, settings *out);
void settings_fini(settings *s);

/* ---- models ----------------------------------------------------------------------- */

/* A built-in name, FILE.so or FILE.c. What it finds stays for the life of the
 * process. */
sl_status model_find(const char *word, const sl_model **out);

/* ---- machine: devices, threads, cores ------------------------------------------------ */

typedef struct machine {
  sl_machine *machine;
  sl_placement *placement;
} machine;

/* Places the settings' devices, filling in their thread count if it was left
 * open. Devices that are not CPUs need no cores. */
sl_status machine_place(settings *s, machine *out);
void machine_fini(machine *m);

/* ---- weights ---------------------------------------------------------------------- */

/* Reads all parameters of the model from a file. */
sl_status weights_load(const char *path, const sl_lowered *lowered, sl_runtime *rt);
sl_status weights_save(const char *path, const sl_lowered *lowered, sl_runtime *rt);
/* Copies values by name; both models have the same parameters. */
void weights_copy(const sl_lowered *from, sl_runtime *from_rt, const sl_lowered *to,
                  sl_runtime *to_rt);

/* ---- progress --------------------------------------------------------------------- */

typedef struct step_record {
  sl_step_report report;
  uint64_t end_ns, cpu_ns; /* at its end; what the process had computed by then */
} step_record;

/* Written by on_step on a worker's thread while a run goes on, read by the main
 * thread between runs. */
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
} progress;

void progress_init(progress *p, int64_t steps, bool quiet);
void progress_fini(progress *p);
void progress_start(progress *p);
/* The on_step of sl_lower_options; ctx is the progress. */
void progress_step(void *ctx, const sl_step_report *report);
/* Leaves the live line, so that other text can follow. */
void progress_close(progress *p);
double progress_step_seconds(const progress *p, size_t index);
/* Processor time of all threads during that step. */
double progress_step_cpu_seconds(const progress *p, size_t index);

/* ---- one run -------------------------------------------------------------------------- */

typedef struct job {
  settings *settings;
  machine machine;
  sl_graph *graph;
  sl_lowered *lowered;
  const sl_plan *plan;
  sl_runtime *rt;
  progress progress;
  uint64_t process_start_ns; /* CLOCK_MONOTONIC */
  uint64_t plan_ns;          /* build, lower, prove */
  bool stopped;              /* by the user, before the last step */
} job;

size_t job_memory_bytes(const sl_plan *plan);

/* Writes --report. `failure`: the text of what ended the run early, or NULL. */
sl_status report_write(const char *path, const job *j, const char *failure);

/* Continues the prompt with the values that job holds, printing as it goes. */
sl_status generate(const job *j);

#endif
