/* actortune plan: everything there is to choose of a plan, within the memory of the devices. */
#ifndef SLUICE_TOOLS_ACTORTUNE_PLANNER_H
#define SLUICE_TOOLS_ACTORTUNE_PLANNER_H

#include "tools/actortune/actortune.h"

/* The dimensions of the choice, as the options that say them are called. */
typedef enum plan_dim {
  PLAN_STAGES,
  PLAN_TENSOR,
  PLAN_DATA,
  PLAN_MICROBATCHES,
  PLAN_CHUNKS,
  PLAN_SCHEDULE,
  PLAN_RECOMPUTE,
  PLAN_SHARD,
  PLAN_DIMS
} plan_dim;

/* One plan: its value of each dimension, a number or the index of a word. */
typedef struct plan_choice {
  int at[PLAN_DIMS];
  double bound;    /* seconds that no such plan can do without */
  bool tried;
  double seconds;  /* of a step; INFINITY: it cannot be, or was not looked at */
  size_t bytes;    /* of the largest device; 0: it cannot be */
  int64_t items;
  const char *word;
} plan_choice;

typedef struct planner {
  const settings *settings;
  int devices, batch;        /* batch 0: the model does not say */
  size_t budget;             /* 0: any number of bytes */
  int fixed[PLAN_DIMS];      /* -1: free */
  bool all;                  /* leave nothing out for its bound */
  int effort;                /* 0 quick, 1 full */
  int threads;
  size_t count, capacity;
  plan_choice *choices;      /* in order of their bounds */
  size_t tried;
  double seconds;            /* that the search took */
  bool interrupted;
} planner;

const char *plan_word(plan_dim dim, int value); /* NULL: it is a number */
/* What --fix says. */
sl_status planner_fix(planner *p, const char *text);
/* Lists what could be and bounds it. */
sl_status planner_list(planner *p);
/* Tries plans in that order until none that is left can be better. SL_E_BUDGET: nothing fits, and what
 * the smallest needs. The best come first then. */
sl_status planner_search(planner *p);
void planner_fini(planner *p);
/* The settings of a choice, for plan_make(); `to` owns nothing. */
void planner_apply(const planner *p, const plan_choice *c, settings *to);

void planner_show(const planner *p, int most, FILE *out);
int planner_main(int argc, char **argv);

#endif
