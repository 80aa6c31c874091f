/* SPDX-License-Identifier: Apache-2.0 */
/* A gpt with four layers on each stage, whatever the classifier costs. The embedding is on the
 * first stage and the classifier on the last, without balancing. */
#include <sluice/sluice.h>

enum { LAYERS_OF_STAGE = 4 };

static void begin_block(sl_graph *g, const char *format, int layer) {
  sl_block(g, format, layer);
  if (layer % LAYERS_OF_STAGE == 0) sl_block_stage(g, layer / LAYERS_OF_STAGE);
}

/* Keeps "embedding" and "head" on the stage of the block before them. */
static void begin_end(sl_graph *g, const char *name) { sl_block(g, "%s", name); }

#define CHOOSE(a, b, c, function, ...) function
#define sl_block(...) CHOOSE(__VA_ARGS__, begin_block, begin_end, 0)(__VA_ARGS__)
#include "../../models/gpt.c"
