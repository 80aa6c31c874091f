/* What the files of planner/ share. */
#ifndef SLUICE_TOOLS_COMMON_PLANNER_INNER_H
#define SLUICE_TOOLS_COMMON_PLANNER_INNER_H

#include "tools/common/plan.h"
#include "tools/common/planner/planner.h"

/* Microbatches of which there are so many count one by one: what a step takes grows by as much with each. */
enum { PLANNER_FEW = 16 };

/* Lists all that come out even. */
sl_status planner_list(planner *p);
/* Bounds what is listed, leaves out what is known not to fit, and puts the rest in order. */
void planner_bound(planner *p);

/* Runs fn(ctx, i) for i from `from` to `end` on the planner's threads, until it is interrupted. */
void planner_each(const planner *p, size_t from, size_t end, void (*fn)(void *ctx, size_t i), void *ctx);
bool planner_stopped(const planner *p);

/* What a choice has less of: nothing yet, of a plan that was made of it. */
plan_less *planner_less_create(const planned *made, const plan_choice *c);
void planner_less_destroy(plan_less *less);
/* Takes of a plan that is too large as many slots as it takes to fit, or has as many blocks compute again.
 * False: it has nothing left to give. */
bool planner_lessen(plan_less *less, const planned *made, size_t budget, bool slots);
/* As quotas, at most two for each stage; how many. */
int planner_less_quotas(const plan_less *less, sl_quota *to);
/* Calls say() with each thing that --recompute says of it. */
void planner_less_recompute(const plan_less *less, void (*say)(void *ctx, const char *text), void *ctx);
void planner_less_words(const plan_less *less, words *to);

/* Makes the plan of choice i: its time, its bytes, and what it gives up if it would not fit; and once more as
 * actorrun would make it. For planner_each(). */
void planner_try(void *ctx, size_t i);
void planner_try_exact(void *ctx, size_t i);
/* Finds how small choice i can be. */
void planner_try_least(void *ctx, size_t i);
/* Its time and bytes, exactly as it is said. */
void planner_weigh(const planner *p, plan_choice *c);
/* Has the devices of an exact choice change places, where links differ. Likewise. */
void planner_try_assigned(void *ctx, size_t i);
bool planner_assigns(const planner *p); /* do they differ, and is nothing said of it? */

/* A choice as options; the caller's to free(). */
char *planner_said(const planner *p, const plan_choice *c);

/* Where what lives elsewhere than on these devices lives; their own memory: nowhere. */
sl_space planner_away(const planner *p);

/* How a plan is made: as actorrun does; or, of many devices, with one that stands for all of its stage; or so that what
 * passes take and memory are right, but not what a step takes. */
typedef enum plan_care { PLAN_EXACT, PLAN_ALIKE, PLAN_ROUGH } plan_care;

/* Makes the plan of a choice with so many microbatches of as many rows as it has. */
typedef struct plan_made {
  planned planned;
  sl_args *args; /* of the model */
} plan_made;
sl_status planner_make(const planner *p, const plan_choice *c, int microbatches, plan_care care, plan_made *out);
/* The same of a model with so many layers; 0: as many as it has. */
sl_status planner_make_with(const planner *p, const plan_choice *c, int microbatches, plan_care care, int layers, plan_made *out);
/* How choices are looked at: exactly where there are few devices. */
plan_care planner_care(const planner *p);
void planner_unmake(plan_made *m);

#endif
