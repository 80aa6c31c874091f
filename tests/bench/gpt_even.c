/* SPDX-License-Identifier: Apache-2.0 */
/* A GPT with four layers on every stage, regardless of the cost of the classifier. The first stage
 * also has the embedding and the last stage the classifier; nothing balances them. */
#include <sluice/sluice.h>

enum { LAYERS_OF_STAGE = 4 };

static void begin_block(sl_graph *g, const char *format, int layer) {
  sl_block(g, format, layer);
  if (layer % LAYERS_OF_STAGE == 0) sl_block_stage(g, layer / LAYERS_OF_STAGE);
}

/* Begins block "embedding" or "head", which stays on the stage of the block before it. */
static void begin_end(sl_graph *g, const char *name) { sl_block(g, "%s", name); }

#define CHOOSE(a, b, c, function, ...) function
#define sl_block(...) CHOOSE(__VA_ARGS__, begin_block, begin_end, 0)(__VA_ARGS__)
#include "../../models/gpt.c"
