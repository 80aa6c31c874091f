/* From settings to a plan. */
#ifndef SLUICE_TOOLS_COMMON_PLAN_H
#define SLUICE_TOOLS_COMMON_PLAN_H

#include "tools/common/settings.h"

typedef struct planned {
  sl_graph *graph;
  sl_lowered *lowered;
  const sl_plan *plan;
  int64_t items;    /* per step */
  const char *word; /* what items are: "tokens" */
} planned;

/* Builds the model's graph and lowers it. Of `run` the callbacks are taken, and
 * how often to store; and what it says of `shard` and `recompute`, in place of the settings'.
 * NULL: nothing. Any thread, each with its own out. On failure
 * nothing is left to free. */
/* Has the model build its graph; an error names what it did wrong. */
sl_status plan_build(const settings *s, sl_graph *g);
/* While this thread has one do so its name, else NULL: for a handler of faults. */
extern _Thread_local const char *volatile model_being_built;

sl_status plan_make(const settings *s, const sl_lower_options *run, planned *out);
void plan_free(planned *p);

#endif
