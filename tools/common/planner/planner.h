/* Everything there is to choose of a plan, within the memory of the devices: for actortune plan and
 * actorrun --auto. */
#ifndef SLUICE_TOOLS_COMMON_PLANNER_H
#define SLUICE_TOOLS_COMMON_PLANNER_H

#include "tools/common/settings.h"
#include "tools/common/words.h"

/* The dimensions of the choice. */
typedef enum plan_dim {
  PLAN_STAGES,
  PLAN_TENSOR,
  PLAN_DATA,
  PLAN_SEQUENCE,
  PLAN_EXPERTS,
  PLAN_EXPERT_TENSOR, /* devices that an expert lies on: 1 of a grid of their own, or all that share tensors */
  PLAN_MICROBATCHES,
  PLAN_PIECES,
  PLAN_CHUNKS,
  PLAN_SCHEDULE,
  PLAN_RECOMPUTE,
  PLAN_QUOTAS,
  PLAN_HOME,
  PLAN_SHARD,
  PLAN_DIMS
} plan_dim;

/* Of each: its name, as --fix has it and people read it, the option that says it, and what it can be; no
 * words: it is a number. Those that quick looks at come first, then those that full does; what is behind
 * them is what becomes of a plan that would not fit. */
typedef struct plan_dim_info {
  const char *name, *option;
  int quick, full, count;
  const char *words[5];
} plan_dim_info;
extern const plan_dim_info plan_dims[PLAN_DIMS];

/* What a plan has less of than its choice says, to fit: slots of activations, and blocks that keep theirs. */
typedef struct plan_less {
  sli_arena arena;
  int stages, nblocks;
  int *slots[2];      /* [stages] of act.b and act.w; 0: the schedule's own */
  const char **names; /* [nblocks] */
  bool *again;        /* [nblocks] computed again, */
  const char *how;    /* and how: "full", "whole" */
} plan_less;

/* One plan: its value of each dimension, a number or the index of a word. */
typedef struct plan_choice {
  int at[PLAN_DIMS];
  double bound, least, floor; /* seconds and bytes that no such plan can do without; bytes, if it gives up all it may */
  double seconds;  /* of a step; INFINITY: it cannot be, or was not looked at */
  size_t bytes;    /* of the largest device; 0: it cannot be */
  uint64_t hash;   /* of the plan that was made last */
  bool exact;      /* all three are those of the plan as actorrun makes it */
  plan_less *less; /* the planner's; NULL: it fits as it is */
  char *assign;    /* likewise: which device takes each place; NULL: that of its number */
} plan_choice;

typedef struct planner {
  const settings *settings;
  sl_lower_options run;      /* what else the plans are made with, for plan_make(): evaluations, checkpoints */
  int devices, batch, layers, experts; /* batch, layers: 0: the model does not say */
  size_t budget;             /* 0: any number of bytes */
  int fixed[PLAN_DIMS];      /* -1: free */
  bool all;                  /* leave nothing out for its bound */
  int effort;                /* 0 quick, 1 full */
  bool away;                 /* homes are looked at */
  int threads, points;       /* points: plans that are to be exact */
  bool (*interrupted)(void);
  size_t count, capacity;
  plan_choice *choices;
  plan_choice smallest;      /* where nothing fits: what takes least; 0 bytes: none could be made */
  size_t left_out, tried;    /* too large by what is known beforehand; made */
  double best;               /* seconds of the best so far */
  double seconds;            /* that the search took */
} planner;

/* As the settings say: all is free, and the budget is theirs. SL_E_USAGE on CPUs of which nothing is
 * known. */
sl_status planner_init(planner *p, const settings *s);
/* What is given, such as "stages=8,recompute=full". */
sl_status planner_fix(planner *p, const char *text);
/* Finds the fastest plans that fit: the first choices then, exact as far as `points`. SL_E_BUDGET: nothing
 * fits, and what the smallest plan needs. */
sl_status planner_search(planner *p);
void planner_fini(planner *p);

const char *planner_word(plan_dim dim, int value); /* NULL: it is a number */
/* The fastest plan that has another value of a dimension; NULL: none was made. */
const plan_choice *planner_second(const planner *p, plan_dim dim);
/* The command line of actorrun that makes a choice: with what else the settings were given, but for the
 * options in `apart`, NULL-terminated. */
void planner_words(const planner *p, const plan_choice *c, const char *const *apart, words *to);

#endif
