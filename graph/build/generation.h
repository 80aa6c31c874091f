/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the calls of graphs that generate. */
#ifndef SLUICE_GRAPH_BUILD_GENERATION_H
#define SLUICE_GRAPH_BUILD_GENERATION_H

#include <sluice/generation.h>

#include "graph/graph.h"

/* Latents of earlier ticks. */
typedef struct sli_generated_delays {
  sl_tensor *before, *near; /* of `lag` and `near` ticks ago, which may be the same */
} sli_generated_delays;

/* Returns the counts of a tick of a step, on devices that hold no values. */
sl_generation_tick sli_generation_expected(const sl_generation *how, int32_t tick);

#endif
