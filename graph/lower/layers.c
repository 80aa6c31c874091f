/* All pieces of a microbatch go through a block before the next block (--piece-order layers).
 *
 * Where sequences are cut, a piece usually goes through all blocks of a stage before the next
 * piece. In the opposite order only the current block needs its records, and all blocks can keep
 * them in the same slots. Four mechanisms implement this:
 *
 * - ranks: on a device's queue the older microbatch goes first, then the earlier block (in the
 *   backward pass the later one), then the piece;
 * - slots: values from one block to the next have one slot for each piece;
 * - lanes: blocks take turns by microbatches, not by ticks (lanes.c). A block that exchanges or
 *   sweeps (sweep.c) divide into several groups is divided into sections. Each section takes
 *   turns with the same section of the other blocks;
 * - private records: they are in lanes, as is all data not needed for all blocks at once. */
#include "graph/lower/ir.h"

#include <limits.h>
#include <stdlib.h>

/* Returns the block of a group's nodes; for a transfer, that of the group that it is about.
 * SL_NONE: none. */
static int block_of(const sli_lowering *l, const sli_group *g) {
  if (g->hop) g = &l->groups[g->about];
  return g->nnodes ? g->nodes[0]->block : SL_NONE;
}

/* ---- sections ---------------------------------------------------------------------------- */

/* Ways of a block on one device: its forward pass, backward pass and evaluation. */
enum { WAYS = 3 };

static int way_of(const sli_lowering *l, const sli_group *g) {
  int way = g->eval ? 2 : g->back;
  return (block_of(l, g) * l->in->ranks + g->rank) * WAYS + way;
}

static bool has_section(const sli_lowering *l, const sli_group *g) {
  return block_of(l, g) >= 0 && g->rate < SLI_PER_STEP && !g->host;
}

/* Finds the first and last levels of all ways: [ways]. */
static sli_section *find_ends(const sli_lowering *l) {
  int ways = l->in->g->nblocks * l->in->ranks * WAYS;
  sli_section *ends = sli_calloc((size_t)ways + 1, sizeof *ends);
  for (int i = 0; i < ways; i++) ends[i] = (sli_section){INT_MAX, 0};
  for (int i = 0; i < l->ngroups; i++) {
    const sli_group *g = &l->groups[i];
    if (!has_section(l, g)) continue;
    sli_section *at = &ends[way_of(l, g)];
    at->first = SLI_MIN(at->first, g->level);
    at->last = SLI_MAX(at->last, g->level);
  }
  return ends;
}

void sli_lower_sections(sli_lowering *l) {
  if (!l->in->layers) return;
  sli_section *ends = find_ends(l);
  l->sections.count = l->ngroups;
  l->sections.of = sli_arena_alloc(&l->arena, (size_t)l->ngroups * sizeof *l->sections.of);
  for (int i = 0; i < l->ngroups; i++) {
    const sli_group *g = &l->groups[i];
    if (!has_section(l, g)) continue;
    const sli_section *of = &ends[way_of(l, g)];
    l->sections.of[i] = (sli_section){g->level - of->first, of->last - g->level};
  }
  free(ends);
}

sli_section sli_lower_section(const sli_lowering *l, int group) {
  return group < l->sections.count ? l->sections.of[group] : (sli_section){0, 0};
}

/* ---- from block to block ------------------------------------------------------------------- */

bool sli_leaves_block(const sli_lowering *l, const sli_bundle *b) {
  const sli_group *from = &l->groups[b->producer];
  for (int i = 0; i < b->nconsumers; i++) {
    const sli_group *to = &l->groups[b->consumers[i]];
    if (to->back == from->back && block_of(l, to) != block_of(l, from)) return true;
  }
  return false;
}

void sli_lower_rank(const sli_lowering *l, const sli_group *g, sl_actor *a) {
  int blocks = l->in->g->nblocks, block = block_of(l, g);
  int place = g->back ? blocks - 1 - block : block;
  if (a->rank_group) { /* the schedule has groups of its own: blocks go in turn within each */
    a->rank = a->rank * blocks + place;
    a->rank_stride *= blocks;
    return;
  }
  a->rank = a->rank * blocks * l->in->m + place;
  a->rank_group = l->in->k;
  a->rank_stride = blocks;
}
