/* SPDX-License-Identifier: Apache-2.0 */
/* Making a plan from settings. */
#ifndef SLUICE_TOOLS_PLANNER_PLAN_H
#define SLUICE_TOOLS_PLANNER_PLAN_H

#include "tools/cli/cli.h"

typedef struct planned {
  sl_graph *graph;
  sl_lowered *lowered;
  const sl_plan *plan;
  int64_t items;    /* items per step */
  const char *word; /* unit of the items: "tokens" */
} planned;

/* Lets the model build its graph. An error states the model's mistake. */
sl_status plan_build(const settings *s, sl_graph *g);
/* Returns whether one device of a plan for so many stands for all of its stage, to save time. */
bool plan_is_alike(const settings *s, int devices);

/* Makes the model's graph, before any pass. The caller destroys it, also after an error. */
sl_status plan_graph(const settings *s, sl_graph **out);
/* Name of the model that this thread is building, or NULL. Used by a fault handler. */
extern _Thread_local const char *volatile model_being_built;

/* Builds the model's graph and lowers it. From `run` (may be NULL) it takes callbacks and printing,
 * and the sharding, recomputation, assignment and checks that are set there. Any number of threads
 * may call it concurrently, each with a separate `out`. On failure nothing is left to free. */
sl_status plan_make(const settings *s, const sl_lower_options *run, planned *out);
/* Makes the plan of settings that differ from those of `base` in the homes of activations and of
 * the optimizer's state. `base` must outlive it. It can be predicted but not run. */
sl_status plan_again(const planned *base, const settings *s, planned *out);
void plan_free(planned *p);

/* Builds the model only for its data. The caller destroys the graph, also after an error. */
sl_status plan_data(const settings *s, sl_graph **out);

#endif
