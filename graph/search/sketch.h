/* SPDX-License-Identifier: Apache-2.0 */
/* A step of a pipeline as passes alone, for searches that try very many paths. */
#ifndef SLUICE_GRAPH_SEARCH_SKETCH_H
#define SLUICE_GRAPH_SEARCH_SKETCH_H

#include "graph/lower/lower.h"
#include "graph/schedule/schedule.h"

typedef struct sli_sketch sli_sketch;

/* Takes the durations of passes from a lowered plan. Returns NULL if a step is more than passes in
 * the schedule's order: several stages on a device, or a script. */
sli_sketch *sli_sketch_create(const sli_inputs *in, const sli_lowering *l);
void sli_sketch_destroy(sli_sketch *sketch);
/* Returns the seconds from the first to the last pass of a step. */
double sli_sketch_seconds(sli_sketch *sketch, const sli_paths *paths);
/* Returns the passes of a step on all stages, a measure of the effort. */
int64_t sli_sketch_passes(const sli_sketch *sketch);

#endif
