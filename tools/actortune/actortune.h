/* SPDX-License-Identifier: Apache-2.0 */
/* Internal interface of actortune: settings, measuring, search, and output. */
#ifndef SLUICE_TOOLS_ACTORTUNE_ACTORTUNE_H
#define SLUICE_TOOLS_ACTORTUNE_ACTORTUNE_H

#include <stdio.h>

#include "base/base.h"
#include "base/json.h"
#include "tools/cli/cli.h"
#include "tools/planner/planner.h"
#include "tools/serving/serving.h"

/* ---- settings ---------------------------------------------------------------------- */

extern const tool actortune_tool;

/* A few numbers or names from an option, in the user's order. */
typedef struct numbers {
  int count;
  int *values;
} numbers;

void numbers_add(numbers *to, int value); /* unless already present */
/* Parses an option: "4", "4,8,16", "4..8" and combinations. SL_E_USAGE names it. */
sl_status numbers_read(const settings *s, const char *option, numbers *out);

/* Ranges to sweep, parsed from the options. */
typedef struct sweep {
  numbers microbatches, pieces, chunks; /* chunks empty: the default of each schedule */
  int nschedules;
  const char **schedules;
  size_t least_bytes, most_bytes; /* budgets; most 0 if unlimited */
} sweep;

sl_status sweep_read(const settings *s, sweep *out);
void sweep_fini(sweep *w);

/* ---- configurations and points --------------------------------------------------------- */

/* A number that the search may change: a quota of the schedule. */
typedef struct quota_value {
  char name[24];
  int stage, slots;
} quota_value;

/* One combination of schedule, chunks, microbatches and pieces. */
typedef struct config {
  bool tried;               /* not requested by the user, so it may be impossible */
  settings settings;        /* a copy of the user's settings with these values; owns nothing */
  const char *profile_path; /* path of its profile, if the user gave it or it is kept; or NULL */
  const char *homes;        /* placement options found by --home auto; or NULL */
  int nknobs;
  quota_value *knobs; /* quotas as set by the schedule */
  int64_t items;      /* items per step */
  const char *word;
} config;

/* One plan: a configuration with its quotas, and its simulated results. */
typedef struct point {
  int config;
  int *values;    /* [nknobs] values of the configuration's knobs */
  bool published; /* the schedule unchanged */
  bool expanded;  /* its neighbours were tried */
  sl_status status;
  char *failure;          /* text of the error, if the status is not SL_OK */
  double seconds, bubble; /* of a step */
  double scaled;          /* seconds for the number of items of a reference step */
  size_t bytes;           /* bytes of the largest device without unused slots */
  size_t published_bytes; /* the same including unused slots */
  int nquotas;
  quota_value *quotas; /* all quotas in force, without unused slots */
  uint64_t plan_hash;  /* plan hash of a confirmed point */
} point;

typedef struct tuning {
  settings *settings;
  sweep sweep;
  int nconfigs;
  config *configs;
  const config *reference; /* the first configuration that succeeds */
  size_t npoints, capacity;
  point *points;
  size_t effort; /* maximum number of points to try */
  int threads;
  bool progress;     /* draw a bar */
  uint64_t start_ns; /* start of the search */
  double search_seconds;
  char note[128]; /* results so far, for the bar */
  bool interrupted;
  bool same_items; /* all steps have equally many items, so their seconds compare directly */
  sli_arena arena; /* holds the placement texts of configurations */
} tuning;

/* Makes the configurations. Durations are measured where necessary. */
sl_status tuning_prepare(settings *s, tuning *out);
void tuning_fini(tuning *t);

/* Adds variants of each configuration with other placements, for --home auto. */
sl_status configs_add_homes(tuning *t);

/* ---- durations -------------------------------------------------------------------------- */

/* Gives every configuration a profile: the user's, or a newly measured one. */
sl_status measure(tuning *t);

/* ---- evaluating ------------------------------------------------------------------------- */

/* Simulates a point and fills in the results, with failures in its status. Any thread. */
void point_evaluate(const tuning *t, point *p);
/* Finds a configuration's knobs and items, and makes the point of the unchanged schedule, not yet
 * evaluated. Any thread, each with a different index. */
void config_open(tuning *t, int index, point *out);
/* Completes what depends on all configurations, once all are open as points 0.. in order.
 * Returns the first failure if all have failed. */
sl_status configs_settle(tuning *t);
/* Finds the shortest list of quotas that yields the point's plan, and fills in the statistics that
 * actorrun will show. Any thread. */
void point_confirm(const tuning *t, point *p);

/* ---- searching ---------------------------------------------------------------------------- */

/* Runs the search. SL_E_BUDGET: nothing fits. Ctrl-C ends it early and sets t->interrupted. */
sl_status search(tuning *t);

/* Returns the indices of the Pareto-optimal points within the budgets, by memory; the caller
 * frees them. Points below the smallest budget count as that budget. */
size_t frontier_make(const tuning *t, size_t **out);

typedef struct frontier {
  size_t count;
  point *points; /* confirmed copies, by memory; they own their data */
  size_t found;  /* number of points before thinning */
} frontier;

/* Confirms the frontier's points and thins them to `most`. */
sl_status frontier_confirm(tuning *t, size_t most, frontier *out);
void frontier_fini(frontier *f);

/* ---- progress ---------------------------------------------------------------------------- */

void bar_draw(const char *what, size_t done, size_t all, double seconds, const char *tail);
void bar_clear(void);

/* ---- interruption --------------------------------------------------------------------------- */

void interrupt_catch(void);
bool interrupted(void);

/* ---- output ---------------------------------------------------------------------------------- */

/* Makes the words after "actorrun" for a point's plan: device options, the point's options, the
 * model and its options. */
void command_words(const tuning *t, const point *p, words *to);
char *command_line(const tuning *t, const point *p);

/* Formats the quotas that share the name of quota i of a point, "act.b=3,3,2,1". Returns NULL if an
 * earlier quota has the name. The caller frees it. */
char *quota_text(const point *p, int i);

/* Formats the credits that the point changes in its schedule, "act.b=3,3,2,1"; the caller frees
 * it. */
char *point_changes(const tuning *t, const point *p);

void table_print(const tuning *t, const frontier *f, FILE *out);
void plot_print(const tuning *t, const frontier *f, FILE *out);
sl_status svg_write(const char *path, const tuning *t, const frontier *f);
sl_status csv_write(const char *path, const tuning *t, const frontier *f);
sl_status json_write(const char *path, const tuning *t, const frontier *f);

/* Format four significant digits with a suitable unit: "2.512 MiB", "12.3 ms". */
char *format_memory(char out[32], double bytes);

/* ---- running actorrun -------------------------------------------------------------- */

/* Runs the actorrun beside this program with these words. The caller deletes the report. */
sl_status actorrun_run(const words *w, const char *what, sli_json *report);

/* Runs actortune plan. */
int planner_main(int argc, char **argv);
/* Runs actortune compare. */
int compare_main(int argc, char **argv);

sl_status verify(const tuning *t, const frontier *f, size_t count);

#endif
