/* actortune's parts: settings, measuring, search, and what is shown of it. */
#ifndef SLUICE_TOOLS_ACTORTUNE_H
#define SLUICE_TOOLS_ACTORTUNE_H

#include <stdio.h>

#include "base/base.h"
#include "base/json.h"
#include "tools/common/common.h"

/* ---- settings ---------------------------------------------------------------------- */

extern const tool actortune_tool;

/* A few numbers or names of an option, in the user's order. */
typedef struct numbers {
  int count;
  int *values;
} numbers;

void numbers_add(numbers *to, int value); /* unless it is there */
/* Of an option: "4", "4,8,16", "4..8" and mixtures. SL_E_USAGE names it. */
sl_status numbers_read(const settings *s, const char *option, numbers *out);

/* What is swept, from the options' texts. */
typedef struct sweep {
  numbers microbatches, pieces, chunks; /* no chunks: each schedule's own */
  int nschedules;
  const char **schedules;
  size_t least_bytes, most_bytes;       /* budgets; most 0: any */
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
  bool tried;                 /* the user did not ask for this one: it may well not be */
  settings settings;          /* a copy of the user's with these in place; owns nothing */
  const char *profile_path;   /* of its profile, if it is the user's or kept; or NULL */
  const char *homes;          /* what --home auto has it say of them, as options; or NULL */
  int nknobs;
  quota_value *knobs;         /* as the schedule sets them */
  int64_t items;              /* of a step */
  const char *word;
} config;

/* One plan: a configuration and its quotas, and what the virtual clock says of it. */
typedef struct point {
  int config;
  int *values;                /* [nknobs] of the configuration */
  bool published;             /* the schedule as it is */
  bool expanded;              /* its neighbours have been tried */
  sl_status status;
  char *failure;              /* text of a status that is not SL_OK */
  double seconds, bubble;     /* of a step */
  double scaled;              /* seconds of as many items as the reference's steps have */
  size_t bytes;               /* of the largest device, unused slots dropped */
  size_t published_bytes;     /* ... and with them */
  int nquotas;
  quota_value *quotas;        /* all that hold: unused slots are dropped */
  uint64_t plan_hash;         /* of points that were confirmed */
} point;

typedef struct tuning {
  settings *settings;
  sweep sweep;
  int nconfigs;
  config *configs;
  const config *reference;    /* the first that works */
  size_t npoints, capacity;
  point *points;
  size_t effort;              /* most points to try */
  int threads;
  bool progress;              /* draw a bar */
  uint64_t start_ns;          /* of the search */
  double search_seconds;
  char note[128];             /* what was found so far, for the bar */
  bool interrupted;
  bool same_items;            /* all steps have as many items: seconds compare as they are */
  sli_arena arena;            /* of what configurations say of homes */
} tuning;

/* Makes the configurations; durations are measured where they are needed. */
sl_status tuning_prepare(settings *s, tuning *out);
void tuning_fini(tuning *t);

/* With --home auto: the same configurations with homes. */
sl_status configs_add_homes(tuning *t);

/* ---- durations -------------------------------------------------------------------------- */

/* Gives every configuration its profile: the user's, or one that is measured now. */
sl_status measure(tuning *t);

/* ---- evaluating ------------------------------------------------------------------------- */

/* Fills in what the virtual clock says of a point; failures are its status. Any
 * thread. */
void point_evaluate(const tuning *t, point *p);
/* The configuration's knobs, items, and the point of the schedule as it is, not
 * evaluated yet. Any thread, each with its own index. */
void config_open(tuning *t, int index, point *out);
/* Once all are open, as points 0.. in their order: what one says of another. The
 * first failure if all have failed. */
sl_status configs_settle(tuning *t);
/* Finds the shortest list of quotas that makes the point's plan, and takes the
 * plan's own figures: what actorrun will have. Any thread. */
void point_confirm(const tuning *t, point *p);

/* ---- searching ---------------------------------------------------------------------------- */

/* SL_E_BUDGET if nothing fits. Ctrl-C ends it early: t->interrupted. */
sl_status search(tuning *t);

/* Indices of the points that nothing beats, by memory; the caller's to free(). Only
 * those within the budgets, of which the least holds all that is smaller. */
size_t frontier_make(const tuning *t, size_t **out);

typedef struct frontier {
  size_t count;
  point *points; /* confirmed copies, by memory; they own what they point to */
  size_t found;  /* before it was thinned */
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

/* ---- showing --------------------------------------------------------------------------------- */

/* The words after "actorrun" that make this point's plan: options that say the
 * devices, then the model and its options, around what is the point's own. */
void command_words(const tuning *t, const point *p, words *to);
char *command_line(const tuning *t, const point *p);

/* "act.b=3,3,2,1": the quotas with the name of quota i of a point, or NULL if an
 * earlier one has that name; the caller's. */
char *quota_text(const point *p, int i);

/* "act.b=3,3,2,1": the credits that the point changes in its schedule; the caller's. */
char *point_changes(const tuning *t, const point *p);

void table_print(const tuning *t, const frontier *f, FILE *out);
void plot_print(const tuning *t, const frontier *f, FILE *out);
sl_status svg_write(const char *path, const tuning *t, const frontier *f);
sl_status csv_write(const char *path, const tuning *t, const frontier *f);
sl_status json_write(const char *path, const tuning *t, const frontier *f);

/* In four digits, with a unit that suits: "2.512 MiB", "12.3 ms". */
char *format_memory(char out[32], double bytes);

/* ---- running actorrun -------------------------------------------------------------- */

/* Runs the actorrun beside this program with these words; its report is the caller's to delete. */
sl_status actorrun_run(const words *w, const char *what, sli_json *report);

/* actortune plan. */
int planner_main(int argc, char **argv);
/* actortune compare. */
int compare_main(int argc, char **argv);

sl_status verify(const tuning *t, const frontier *f, size_t count);

#endif
