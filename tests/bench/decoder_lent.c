/* SPDX-License-Identifier: Apache-2.0 */
/* A decoder with all layers on the first of two stages. The second has only the classifier, so its
 * device has memory to lend. */
#include <sluice/sluice.h>

static void begin_block(sl_graph *g, const char *format, int layer) { sl_block(g, format, layer); }

/* Begins block "embedding" on stage 0 or "head" on stage 1. */
static void begin_end(sl_graph *g, const char *name) {
  sl_block(g, "%s", name);
  sl_block_stage(g, name[0] == 'h');
}

#define CHOOSE(a, b, c, function, ...) function
#define sl_block(...) CHOOSE(__VA_ARGS__, begin_block, begin_end, 0)(__VA_ARGS__)
#include "../../models/decoder.c"
