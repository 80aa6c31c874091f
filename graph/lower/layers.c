/* SPDX-License-Identifier: Apache-2.0 */
/* All pieces of a microbatch go through a block before the next block (--piece-order layers).
 *
 * If sequences are cut, a piece usually goes through all blocks of a stage before the next piece.
 * In the opposite order only the current block needs its records, and all blocks can keep them in
 * the same slots. Four mechanisms implement this:
 *
 * - ranks: on a device's queue the older microbatch goes first, then the earlier block (in the
 *   backward pass the later one), then the piece;
 * - slots: values from one block to the next have one slot for each piece;
 * - slot pools: blocks take turns by microbatches, not by ticks (slot_pools.c). A block that
 * exchanges or sweeps (sweep.c) divide into several tasks is divided into sections. Each section
 * takes turns with the same section of the other blocks;
 * - private records: they are in slot pools, as is all data not needed for all blocks at once. */
#include "graph/lower/ir.h"

#include <limits.h>
#include <stdlib.h>

int sli_block_of_task(const sli_lowering *l, const sli_task *task) {
  if (task->transfer) task = &l->tasks[task->about];
  return task->nnodes ? task->nodes[0]->block : SL_NONE;
}

/* ---- sections ---------------------------------------------------------------------------- */

/* Kinds of passes of a block on one device: forward, backward, evaluation, rollouts and encoder. */
enum { WAYS = 5 };

static int route_of(const sli_lowering *l, const sli_task *task) {
  int way = task->pace ? 1 + (int)task->pace : task->backward;
  return (sli_block_of_task(l, task) * l->in->ranks + task->rank) * WAYS + way;
}

static bool has_section(const sli_lowering *l, const sli_task *task) {
  return sli_block_of_task(l, task) >= 0 && task->rate < SLI_PER_STEP && !task->host;
}

/* Finds the first and last levels of each kind of pass of each block: [ways]. */
static sli_section *find_ends(const sli_lowering *l) {
  int ways = l->in->g->nblocks * l->in->ranks * WAYS;
  sli_section *ends = sli_calloc((size_t)ways + 1, sizeof *ends);
  for (int i = 0; i < ways; i++) ends[i] = (sli_section){INT_MAX, 0};
  for (int i = 0; i < l->ntasks; i++) {
    const sli_task *g = &l->tasks[i];
    if (!has_section(l, g)) continue;
    sli_section *at = &ends[route_of(l, g)];
    at->first = SLI_MIN(at->first, g->level);
    at->last = SLI_MAX(at->last, g->level);
  }
  return ends;
}

void sli_lower_sections(sli_lowering *l) {
  if (!l->in->layers) return;
  sli_section *ends = find_ends(l);
  l->sections.count = l->ntasks;
  l->sections.items = sli_arena_alloc(&l->arena, (size_t)l->ntasks * sizeof *l->sections.items);
  for (int i = 0; i < l->ntasks; i++) {
    const sli_task *g = &l->tasks[i];
    if (!has_section(l, g)) continue;
    const sli_section *of = &ends[route_of(l, g)];
    l->sections.items[i] = (sli_section){g->level - of->first, of->last - g->level};
  }
  free(ends);
}

sli_section sli_lower_section(const sli_lowering *l, int task) {
  return task < l->sections.count ? l->sections.items[task] : (sli_section){0, 0};
}

/* ---- from block to block ------------------------------------------------------------------- */

bool sli_leaves_block(const sli_lowering *l, const sli_buffer *b) {
  const sli_task *from = &l->tasks[b->producer];
  for (int i = 0; i < b->nconsumers; i++) {
    const sli_task *to = &l->tasks[b->consumers[i]];
    if (to->backward == from->backward && sli_block_of_task(l, to) != sli_block_of_task(l, from))
      return true;
  }
  return false;
}

void sli_lower_rank(const sli_lowering *l, const sli_task *task, sl_actor *a) {
  int blocks = l->in->g->nblocks, block = sli_block_of_task(l, task);
  int place = task->backward ? blocks - 1 - block : block;
  if (a->rank_group) { /* the schedule groups ticks: blocks take turns within each group */
    a->rank = a->rank * blocks + place;
    a->rank_stride *= blocks;
    return;
  }
  a->rank = a->rank * blocks * l->in->m + place;
  a->rank_group = l->in->k;
  a->rank_stride = blocks;
}
