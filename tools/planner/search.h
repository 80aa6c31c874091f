/* SPDX-License-Identifier: Apache-2.0 */
/* Planner: searches all choices of a plan within the devices' memory, for actortune plan and
 * actorrun --auto. */
#ifndef SLUICE_TOOLS_PLANNER_SEARCH_H
#define SLUICE_TOOLS_PLANNER_SEARCH_H

#include "tools/cli/cli.h"

/* Dimensions of a choice. */
typedef enum plan_dim {
  PLAN_STAGES,
  PLAN_TENSOR,
  PLAN_DATA,
  PLAN_SEQUENCE,
  PLAN_EXPERTS,
  /* devices that share an expert: 1 in a separate grid, or all that share tensors */
  PLAN_EXPERT_TENSOR,
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

/* A dimension: its name in --fix and in output, its option, and its values. Without words it is a
 * number. Dimensions varied by the quick search come first, then those of the full search. The last
 * ones serve plans that would not fit. */
enum { PLAN_WORDS = 5 };
typedef struct plan_dim_info {
  const char *name, *option;
  int quick, full, count;
  const char *words[PLAN_WORDS];
} plan_dim_info;
extern const plan_dim_info plan_dims[PLAN_DIMS];

/* Relaxations: what a plan gives up of its choice to fit. It has fewer slots of activations, or
 * makes blocks recompute. */
typedef struct plan_relaxation {
  sli_arena arena;
  int stages, nblocks;
  int *slots[2];      /* [stages] slots of act.b and act.w; 0: as many as the schedule uses */
  const char **names; /* [nblocks] */
  bool *recomputed;   /* [nblocks] */
  const char *how;    /* the recompute mode: "full", "whole" */
} plan_relaxation;

/* One plan: its value in each dimension, a number or the index of a word. */
typedef struct plan_choice {
  int at[PLAN_DIMS];
  double bound, least;              /* lower bounds of seconds and bytes */
  double estimate, estimated_bytes; /* from prices of blocks; INFINITY: does not fit */
  double floor;                     /* bytes with everything given up, as estimated */
  size_t sample, sample_again;      /* prices of its blocks, and of recomputed ones */
  size_t family;                    /* choices that differ only in recompute, shard and home */
  bool bounded;                     /* its bounds are by its own rows, rather than by more rows */
  bool refined;                     /* the estimate is by a skeleton, not rough */
  bool by_slots;                    /* it fits with fewer slots, rather than by recomputation */
  double seconds;                   /* seconds of a step; INFINITY: impossible, or not examined */
  size_t bytes;                     /* bytes of the largest device; 0: impossible */
  uint64_t hash;                    /* hash of the most recent plan */
  int64_t firings;                  /* firings of a step of that plan */
  bool exact; /* seconds, bytes and hash are those of the plan as actorrun makes it */
  plan_relaxation *relaxation; /* owned by the planner; NULL if it fits unchanged */
  char *assign; /* owned by the planner: the device at each place; NULL if in order */
} plan_choice;

typedef struct planner_blocks planner_blocks;
typedef struct planner_sample planner_sample;

typedef struct planner {
  const settings *settings;
  sl_lower_options run; /* additional inputs of plan_make(): evaluations, checkpoints */
  int devices, batch, layers, experts; /* batch, layers: 0: not given by the model */
  size_t budget;                       /* bytes of each device; 0: unlimited */
  int fixed[PLAN_DIMS];                /* fixed value of a dimension; -1 if free */
  bool all;                            /* exclude no choice because of its bound */
  int effort;                          /* 0: quick, 1: full */
  bool away;                           /* consider offloading */
  int threads, points;                 /* points: number of plans to make exact */
  bool (*interrupted)(void);
  size_t count, capacity;
  plan_choice *choices;
  /* the plan with least memory, if nothing fits; 0 bytes if no plan could be made */
  plan_choice smallest;
  /* choices too large by their bounds; estimated; of these by a skeleton; plans made */
  size_t left_out, estimated, refined, tried;
  double best;    /* seconds of the best plan so far */
  double seconds; /* duration of the search */
  planner_blocks *blocks;
  size_t nsamples, sample_capacity;
  planner_sample *samples;
} planner;

/* Initializes a planner from settings: all dimensions free, the settings' budget. SL_E_USAGE:
 * CPUs without measured rates. */
sl_status planner_init(planner *p, const settings *s);
/* Fixes dimensions, such as "stages=8,recompute=full". */
sl_status planner_fix(planner *p, const char *text);
/* Finds the fastest plans that fit, and puts them first; `points` of them are exact.
 * SL_E_BUDGET: nothing fits; the message says what the smallest plan needs. */
sl_status planner_search(planner *p);
void planner_fini(planner *p);

/* Returns the word of a value, or NULL if the dimension is a number. */
const char *planner_word(plan_dim dim, int value);
/* Returns the number of layers of the samples that estimates come from. */
int planner_sample_layers(const planner *p);
/* Returns the fastest plan with another value of a dimension, or NULL if none was made. */
const plan_choice *planner_second(const planner *p, plan_dim dim);
/* Returns the best estimate with another value, among plans that were not made, or NULL. */
const plan_choice *planner_second_estimate(const planner *p, plan_dim dim);
/* Builds the actorrun command line of a choice, with the other options of the settings, except
 * those in `apart` (NULL-terminated). */
void planner_words(const planner *p, const plan_choice *choice, const char *const *apart,
                   words *to);

#endif
