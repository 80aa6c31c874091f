/* SPDX-License-Identifier: Apache-2.0 */
/* Sweeps: keys and values of earlier pieces arrive piece by piece (--home kv=...).
 *
 * Attention of piece k reads the keys and values of pieces 0 to k. If these are offloaded, a device
 * need not hold them all at the same time (Yao et al., arXiv 2408.16978):
 *
 *   F.0 -> kv.spill -> spill -> kv>disk.0 ... kv>disk.K-1 -> fill -> kv.fill -> F.1
 *
 * F.0 computes the keys and values of its piece, once per piece; `spill` writes piece j to a
 * separate register. `fill` and F.1 fire K(K+1)/2 times for a microbatch: for each piece k, and for
 * each j from k down to 0, the order in which attention visits keys. `fill` brings piece j from its
 * home, but piece k from where it was written. F.1 accumulates its results for piece k. In the
 * backward pass pieces k come in reverse, their keys from piece 0 up, and all of them from their
 * home.
 *
 * Key maps express this; nothing else is needed. A register of piece j has a key for each
 * microbatch. `spill` uses it in its firing j; `fill` uses it from the first k that reads j to the
 * last, and skips firings in between. F.1 takes data of piece k with the first j and frees it with
 * the last. */
#include "graph/lower/ir.h"

#include <stdlib.h>

int sli_lower_firings(const sli_lowering *l, const sli_task *task) {
  if (task->rate >= SLI_PER_STEP) return 1;
  if (task->rate == SLI_PER_LEAVING) return l->in->m * l->in->leaving;
  const sli_visits *visits = sli_task_visits(l, task);
  if (visits) return visits->count;
  int ticks = sli_lower_ticks(l, task->pace);
  if (task->rate == SLI_PER_TURN) return ticks * task->turns;
  return task->rate == SLI_PER_PAIR ? ticks / l->in->k * sli_lower_pairs(l) : ticks;
}

bool sli_is_piece(const sli_lowering *l, const sli_buffer *b) {
  return b->source != SL_NONE && b->rate == SLI_PER_MICROBATCH &&
         sli_is_swept(&l->buffers[b->origin]);
}

/* Returns the number of a piece; pieces are created in order. */
static int piece_of(const sli_lowering *l, const sli_buffer *b) {
  return (int)(b - l->buffers) - l->tasks[b->producer].outputs[0];
}

/* ---- maps ------------------------------------------------------------------------------------ */

/* Firing of a sweep: piece k reads piece j. */
typedef struct pair {
  int k, j;
} pair;

static uint32_t when(bool first, bool last) {
  return (first ? SL_FIRST : 0) | (last ? SL_LAST : 0);
}

/* Returns the map entry of piece k: for its own firing only, or for all firings of that piece. */
static sl_map_entry of_tick(pair p, bool alone, bool backward) {
  bool own = p.j == p.k;
  if (alone) return own ? (sl_map_entry){p.k, when(true, true)} : (sl_map_entry){0, SL_SKIP};
  return (sl_map_entry){p.k, backward ? when(!p.j, own) : when(own, !p.j)};
}

/* Returns the map entry of piece `own`, from its first reader to its last. */
static sl_map_entry of_piece(const sli_lowering *l, pair p, int own, bool backward) {
  int last = l->in->k - 1;
  if (p.j != own || (!backward && p.k == own)) return (sl_map_entry){0, SL_SKIP};
  return (sl_map_entry){
      0, backward ? when(p.k == last, p.k == own) : when(p.k == own + 1, p.k == last)};
}

static sl_map_entry entry(const sli_lowering *l, const sli_task *task, const sli_buffer *b,
                          pair p) {
  if (sli_is_piece(l, b)) return of_piece(l, p, piece_of(l, b), task->backward);
  return of_tick(p, sli_is_swept(b), task->backward);
}

/* Lists all pairs of a microbatch in firing order. */
static pair *all_pairs(const sli_lowering *l, bool backward) {
  pair *all = sli_calloc((size_t)sli_lower_pairs(l), sizeof *all), *at = all;
  for (int i = 0; i < l->in->k; i++) {
    int k = backward ? l->in->k - 1 - i : i;
    for (int j = 0; j <= k; j++) *at++ = (pair){k, backward ? j : k - j};
  }
  return all;
}

int32_t sli_sweep_map(const sli_lowering *l, const sli_task *task, const sli_buffer *b) {
  int n = sli_lower_pairs(l);
  if (b->rate == SLI_PER_PAIR) return sl_plan_map_each(l->plan);
  if (b->rate == SLI_PER_MICROBATCH && !sli_is_piece(l, b))
    return sl_plan_map_span(l->plan, (uint32_t)n);
  pair *pairs = all_pairs(l, task->backward);
  sl_map_entry *entries = sli_calloc((size_t)n, sizeof *entries);
  for (int i = 0; i < n; i++) entries[i] = entry(l, task, b, pairs[i]);
  int32_t map = sl_plan_add_map(l->plan, (uint32_t)n, sli_is_piece(l, b) ? 1 : l->in->k, entries);
  free(entries);
  free(pairs);
  return map;
}

int32_t sli_piece_map(const sli_lowering *l, const sli_buffer *b) {
  sl_map_entry entries[l->in->k];
  for (int j = 0; j < l->in->k; j++)
    entries[j] = (sl_map_entry){0, j == piece_of(l, b) ? SL_FIRST | SL_LAST : SL_SKIP};
  return sl_plan_add_map(l->plan, (uint32_t)l->in->k, 1, entries);
}

int32_t sli_sweep_ticks(const sli_lowering *l, const sli_task *task, int32_t end) {
  int n = sli_lower_firings(l, task), each = sli_lower_pairs(l),
      begin = end - sli_lower_ticks(l, task->pace);
  pair *pairs = all_pairs(l, task->backward);
  sl_map_entry *entries = sli_calloc((size_t)n, sizeof *entries);
  for (int i = 0; i < n; i++)
    entries[i] =
        (sl_map_entry){begin + i / each * l->in->k + pairs[i % each].k, SL_FIRST | SL_LAST};
  int32_t map = sl_plan_add_map(l->plan, (uint32_t)n, end, entries);
  free(entries);
  free(pairs);
  return map;
}
