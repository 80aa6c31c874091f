/* SPDX-License-Identifier: Apache-2.0 */
/* Skeleton of a plan: one call for each stage, with given seconds of its passes. It has the
 * schedule, the slots and the order of passes of the whole plan, so the virtual clock shows how
 * long the pipeline takes, without the model's graph. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "models/models.h"
#include "tools/planner/search_inner.h"

static const sl_model *abstract_model(void) {
  const sl_model *const *m = sli_models;
  while (*m && strcmp((*m)->name, "pipeline")) m++;
  return *m;
}

static sl_lower_options options_of(const planner_skeleton *k) {
  sl_lower_options o = {0};
  o.parallel.stages = k->stages;
  o.schedule.name = k->schedule;
  o.schedule.chunks = k->chunks;
  o.schedule.backward = k->backward;
  o.devices.kind = "timed";
  o.devices.count = k->stages;
  o.memory.nquotas = k->nquotas, o.memory.quotas = k->quotas;
  o.simulation.cost =
      (sl_cost){.comm = k->message_seconds, .nstages = k->stages * k->chunks, .stages = k->passes};
  return o;
}

double planner_skeleton_seconds(const planner_skeleton *k, int microbatches) {
  sl_graph_options shape = {.microbatches = microbatches,
                            .pieces = k->pieces,
                            .stages = k->stages * k->chunks,
                            .no_data = true};
  sl_lower_options options = options_of(k);
  sl_graph *g = sl_graph_create(&shape);
  sl_args *args = NULL;
  sl_lowered *lowered = NULL;
  sl_statistics f;
  double seconds = INFINITY;
  sl_status status = sl_args_create(abstract_model()->options, &args);
  if (!status) status = sl_model_build(abstract_model(), g, args);
  if (!status) status = sl_lower(g, &options, &lowered);
  if (!status && !sl_plan_predict(sl_lowered_plan(lowered), NULL, &f)) {
    seconds = f.step_seconds;
    free(f.devices);
  }
  sl_lowered_destroy(lowered);
  sl_graph_destroy(g);
  sl_args_destroy(args);
  return seconds;
}
