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

/* Makes the plan of a choice with so many microbatches of as many rows as it has. `alike`: one device
 * stands for all of its stage. */
typedef struct plan_made {
  planned planned;
  sl_args *args; /* of the model */
} plan_made;
/* Are there so many devices that this is how they are looked at? */
bool planner_alike(const planner *p);
sl_status planner_make(const planner *p, const plan_choice *c, int microbatches, bool alike, plan_made *out);
void planner_unmake(plan_made *m);

#endif
