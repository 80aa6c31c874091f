/* SPDX-License-Identifier: Apache-2.0 */
/* Internal interface of the files of planner/. */
#ifndef SLUICE_TOOLS_PLANNER_PLANNER_INNER_H
#define SLUICE_TOOLS_PLANNER_PLANNER_INNER_H

#include "graph/lower/lower.h"
#include "tools/planner/plan.h"
#include "tools/planner/search.h"

/* Number of microbatches beyond which a step's time grows linearly with their number. */
enum { PLANNER_FEW = 16 };
/* Most rows of a microbatch that the quick search considers with very many devices. */
enum { PLANNER_ROWS = 8 };

/* Lists all choices whose sizes divide evenly. */
sl_status planner_list(planner *p);
/* Returns whether microbatches skip stages: --paths, --skip. */
bool planner_leaves_out(const planner *p);
/* Bounds the listed choices roughly, excludes those known not to fit, and sorts the rest. */
void planner_bound(planner *p);
/* Bounds the choices in [from, end) by samples of their own rows, and all others that share these
 * samples; excludes and sorts again. Returns false if they were bounded so before. */
bool planner_bound_again(planner *p, size_t from, size_t end);
/* Returns whether optimizer state, or activations, are offloaded. */
bool planner_state_is_away(const plan_choice *choice);
bool planner_acts_are_away(const plan_choice *choice);
/* Returns the seconds to copy offloaded data of a stage out and in, by the sum of its prices. */
double planner_copy_seconds(const planner *p, const plan_choice *c, const sli_block_price *sum);

/* ---- estimates ------------------------------------------------------------------------------- */

/* Blocks of the model, and their stand-ins in a sample of the model with few layers. */
struct planner_blocks {
  sl_graph *graph;  /* before any pass */
  int count, *like; /* [count] block of the sample */
  int layers;       /* of the sample; 0: the whole model */
};
sl_status planner_blocks_find(planner *p);
void planner_blocks_forget(planner *p);

/* Prices of a sample's blocks; bytes of a device that belong to no block. */
typedef struct planner_prices {
  int nblocks;
  sli_block_price *blocks; /* [nblocks + 1] */
  double rest;
  double exposed; /* fraction of passes or exchanges, whichever take less, that is not hidden */
  double step;    /* the same of exchanges per step */
} planner_prices;

/* Returns the number of the sample that has the prices of a choice's blocks. */
size_t planner_sample_of(planner *p, const plan_choice *c);
/* Makes a sample with the next planner_samples_make(). */
void planner_sample_want(planner *p, size_t sample);
void planner_samples_make(planner *p);
bool planner_sample_is_made(const planner *p, size_t sample);
/* Returns the prices, or NULL if no plan of one stage is possible. */
const planner_prices *planner_prices_at(const planner *p, size_t sample);
void planner_samples_forget(planner *p);
/* Returns the choice of fewest devices whose passes cost as much. */
plan_choice planner_alone(const plan_choice *c);
/* Returns the choice with the most rows in a microbatch, and sets the part of them that the choice
 * has. What it costs, times this part, is a lower bound of the choice's cost: calls of fewer rows
 * are no more efficient. */
plan_choice planner_coarse(const planner *p, const plan_choice *alone, double *scale);
/* Returns the choice with all blocks recomputed, if some of its blocks may recompute to fit. */
plan_choice planner_again(const planner *p, const plan_choice *c);

/* Estimates choice i from its samples, for planner_each(): roughly, or (refined) by a skeleton. */
void planner_estimate(void *ctx, size_t i);
void planner_refine(void *ctx, size_t i);

/* Returns the bytes of the largest device with one slot of each kind and all blocks recomputed, by
 * prices with and without recomputation (NULL: not open); parameters, gradients and state count as
 * shared by all devices that --shard may use. INFINITY: the model cannot be cut so. */
double planner_floor(const planner *p, const plan_choice *c, const planner_prices *kept,
                     const planner_prices *again);

/* A plan with nothing but passes of given seconds. */
typedef struct planner_skeleton {
  int stages, chunks, pieces; /* stages: devices along the pipeline */
  const char *schedule, *backward;
  const sl_stage_cost *passes; /* [stages * chunks] */
  double message_seconds;
  int nquotas;
  const sl_quota *quotas;
} planner_skeleton;
double planner_skeleton_seconds(const planner_skeleton *k, int microbatches);

/* Numbers of microbatches to simulate: `few` and `more` are multiples of the chunks on the path. */
typedef struct planner_counts {
  int few, more; /* few is 0 if all are simulated */
} planner_counts;
planner_counts planner_counts_of(const planner *p, const plan_choice *c);

/* Returns the recompute mode of whole blocks that suits the choice's grid. */
const char *planner_recompute_all(const plan_choice *c);
/* Returns the number of a dimension's word. */
int planner_value_of(plan_dim dim, const char *word);

/* Returns the row of a schedule, by the number of its word. */
const sli_schedule *planner_schedule(int word);

/* ---- trials ---------------------------------------------------------------------------------- */

/* Runs fn(ctx, i) for i in [from, end) on the planner's threads, until interrupted. */
void planner_each(const planner *p, size_t from, size_t end, void (*fn)(void *ctx, size_t i),
                  void *ctx);
bool planner_stopped(const planner *p);

/* Creates the relaxations of a choice: none at first, sized by a plan made of it. */
plan_relaxation *planner_relaxation_create(const planned *made, const plan_choice *choice);
void planner_relaxation_destroy(plan_relaxation *relaxation);
/* Shrinks a plan that is too large: takes away as many slots as needed, or makes as many blocks
 * recompute as needed. Returns false if nothing is left to give up. */
bool planner_relax(plan_relaxation *relaxation, const planned *made, size_t budget, bool slots);
/* Lists the relaxations as quotas, at most two for each stage; returns how many. */
int planner_relaxation_quotas(const plan_relaxation *relaxation, sl_quota *to);
/* Calls say() with each --recompute value that the relaxations need. */
void planner_relaxation_recompute(const plan_relaxation *relaxation,
                                  void (*say)(void *ctx, const char *text), void *ctx);
void planner_relaxation_words(const plan_relaxation *relaxation, words *to);

/* Makes the plan of choice i, for planner_each(): its time, its bytes, and its relaxations if it
 * would not fit. Then makes the plan again exactly as actorrun would. */
void planner_try(void *ctx, size_t i);
void planner_try_exact(void *ctx, size_t i);
/* Finds the smallest memory that choice i can take. */
void planner_try_least(void *ctx, size_t i);
/* Measures the time and bytes of a choice exactly as given. */
void planner_weigh(const planner *p, plan_choice *choice);

/* ---- assignments ----------------------------------------------------------------------------- */

/* Most devices whose assignments are listed. */
enum { PLANNER_FEW_DEVICES = 8 };
typedef struct planner_arrangements {
  int count;
  struct planner_arrangement {
    int device[PLANNER_FEW_DEVICES]; /* of each place */
  } * items;                         /* [count], freed by the caller */
} planner_arrangements;
/* Lists one assignment of each class of those that have equal links between places; the first is
 * the devices in order. No items with more than PLANNER_FEW_DEVICES devices. */
planner_arrangements planner_arrange(const sl_hardware *h, int devices);
/* Permutes the devices of an exact choice where links differ. For planner_each(). */
void planner_try_assigned(void *ctx, size_t i);
bool planner_assigns(const planner *p); /* true: links differ, and the user gave no assignment */

/* Formats a choice as options; the caller frees it. */
char *planner_said(const planner *p, const plan_choice *choice);

/* Returns the space that offloaded data goes to, or the devices' memory if there is none. */
sl_space planner_away(const planner *p);

/* How a plan is made. EXACT: as actorrun does. ALIKE: one device represents all devices of its
 * stage. ROUGH: durations of passes and memory are right, but the time of a step is not. */
typedef enum plan_care { PLAN_EXACT, PLAN_ALIKE, PLAN_ROUGH } plan_care;

/* A plan made from a choice with a given number of microbatches; each has the choice's rows. */
typedef struct plan_made {
  planned planned;
  sl_args *args; /* arguments of the model */
} plan_made;
sl_status planner_make(const planner *p, const plan_choice *choice, int microbatches,
                       plan_care care, plan_made *out);
/* Makes the plan of a choice with `layers` layers; 0 means the model's number. */
sl_status planner_make_with(const planner *p, const plan_choice *choice, int microbatches,
                            plan_care care, int layers, plan_made *out);
/* Copies the model's options with another batch size, or another number of layers; 0: as given. */
sl_status planner_args_with(const settings *s, int batch, int layers, sl_args **out);
/* Returns how choices are examined: exactly if there are few devices. */
plan_care planner_care(const planner *p);
void planner_unmake(plan_made *m);

#endif
