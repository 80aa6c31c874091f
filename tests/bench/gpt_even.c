/* gpt with four layers on each stage, whatever the classifier takes: the embedding is with the first of them and
 * the classifier with the last, where nobody balances stages. */
#include <sluice/sluice.h>

enum { LAYERS_OF_STAGE = 4 };

static void begin_block(sl_graph *g, const char *format, int layer) {
  sl_block(g, format, layer);
  if (layer % LAYERS_OF_STAGE == 0) sl_block_stage(g, layer / LAYERS_OF_STAGE);
}

/* "embedding" and "head" stay where the block before them is. */
static void begin_end(sl_graph *g, const char *name) { sl_block(g, "%s", name); }

#define CHOOSE(a, b, c, function, ...) function
#define sl_block(...) CHOOSE(__VA_ARGS__, begin_block, begin_end, 0)(__VA_ARGS__)
#include "../../models/gpt.c"
