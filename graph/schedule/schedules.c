/* SPDX-License-Identifier: Apache-2.0 */
/* The schedule table. The runtime knows none of these names: a row only sets
 * placement, quotas and priorities, and the order of passes emerges.
 *
 * p devices, v chunks on each, m microbatches of k pieces; device d, chunk c,
 * stage s along the model, all from 0. Sources of the schedules:
 *   gpipe        Huang et al., arXiv 1811.06965
 *   1f1b         Narayanan et al., SOSP 2019
 *   interleaved  Narayanan et al., arXiv 2104.04473
 *   zb-h1, zb-h2, zb-v  Qi et al., arXiv 2401.10241
 *   v-half, v-min       Qi et al., arXiv 2405.15362
 *   dualpipev    DeepSeek-AI, github.com/deepseek-ai/DualPipe
 *   seq1f1b      Sun et al., arXiv 2406.03488 */
#include "graph/schedule/schedule.h"

#include <string.h>

#include <sluice/lower.h>

#include "base/base.h"

/* ---- credits -------------------------------------------------------------------- */

static int all(const sli_at *at) { return at->m; }
static int to_the_end(const sli_at *at) { return at->p - at->d; }
static int there_and_back(const sli_at *at) { return 2 * (at->p - at->d) - 1; }
static int depth(const sli_at *at) { return at->p; }
static int twice_depth(const sli_at *at) { return 2 * at->p - 1; }

static int interleaved(const sli_at *at) {
  int rest = at->v - at->c;
  return SLI_MIN(at->p * rest, at->p * (rest - 1) + there_and_back(at));
}
/* The first device needs most. Later devices get one more slot to cover what other chunks hold;
 * without it, a forward pass would wait although a slot is idle. If m is not a multiple of p, more
 * such slots keep the bubble small. */
static int interleaved_pool(const sli_at *at) {
  int slots = 2 * (at->p - 1 - at->d) + (at->v - 1) * at->p + 1;
  return at->m % at->p ? slots + SLI_MIN(at->v - 1, 2 * at->d) + 1 : slots + (at->d > 0);
}

static int along_vee(const sli_at *at) { return 2 * at->p - at->s; }
static int vee_pool(const sli_at *at) { return 2 * at->p; }

static int half(const sli_at *at) { return at->c ? 3 + at->d / 2 : at->p + 1 - at->d / 2; }
static int half_pool(const sli_at *at) { return at->p + 2; }

static int third(const sli_at *at) { return (2 * at->p - at->s + (at->p % 3 == 0) + 2) / 3; }
static int third_pool(const sli_at *at) { return 2 * ((at->p + 4) / 3); }

static int pieces(const sli_at *at) { return at->p - at->d - 1 + at->k; }

/* A pass forward takes its slot while the pass backward beside it holds one. */
static int vee_pool_beside(const sli_at *at) { return 2 * at->p + 1; }

/* ---- priorities ------------------------------------------------------------------- */

static int deepest_first(const sli_at *at) { return at->v - 1 - at->c; }
static int shallowest_first(const sli_at *at) { return at->c; }
static int furthest_first(const sli_at *at) { return at->p * at->v - 1 - at->s; }

static int nearest_home(const sli_at *at) { return at->s; }

static int position(const sli_at *at) { return at->d; }
static int twice_position(const sli_at *at) { return 2 * at->d; }

/* ---- scripts ---------------------------------------------------------------------------- */

/* DualPipeV (deepseek-ai/DualPipe): passes in both directions run beside each other while there are
 * both. The last device begins with a pair apart, because its two chunks follow each other. */
static int before_last(const sli_at *at) { return at->p - 1 - at->d; }
static int twice_before_last(const sli_at *at) { return 2 * before_last(at); }
static int from_first(const sli_at *at) { return at->d + 1; }
static int is_last(const sli_at *at) { return at->d == at->p - 1; }
static int pairs(const sli_at *at) { return at->m - 2 * at->p + at->d + 1 - is_last(at); }
static int half_from_first(const sli_at *at) { return (at->d + 1) / 2; }
static int is_odd(const sli_at *at) { return at->d % 2; }
static int is_even(const sli_at *at) { return at->d % 2 == 0; }
static int rest_from_first(const sli_at *at) { return at->d - half_from_first(at); }
static int two_rounds(const sli_at *at) { return 2 * at->p; }

static const sli_phase dual_pipe_v[] = {{twice_before_last, "F0"},
                                        {from_first, "F0 F1"},
                                        {before_last, "b1 W F1"},
                                        {is_last, "F0 B1 F1+B0"},
                                        {pairs, "F0+B1 F1+B0"},
                                        {before_last, "B1 F1+B0"},
                                        {half_from_first, "B1 B0"},
                                        {is_even, "B1 b0"},
                                        {is_odd, "b1 b0"},
                                        {rest_from_first, "b1 b0"},
                                        {before_last, "W b0"},
                                        {from_first, "W"},
                                        {0}};

/* ---- the table ---------------------------------------------------------------------- */

static const sli_schedule table[] = {
    {.name = "gpipe",
     .summary = "all forwards, then all backwards; memory for every microbatch",
     .placement = "line",
     .order = "F B",
     .act_b = all},
    {.name = "1f1b",
     .summary = "one forward, one backward; memory for the stages still ahead",
     .placement = "line",
     .order = "F B",
     .act_b = to_the_end},
    {.name = "eager-1f1b",
     .summary = "1f1b with credits for the way back too: hides latency",
     .placement = "line",
     .order = "F B",
     .act_b = there_and_back},
    {.name = "interleaved",
     .summary = "several chunks a device, in a loop: a bubble smaller by their number",
     .placement = "loop",
     .chunks = 2,
     .order = "F B",
     .fixed_order = true,
     .act_b = interleaved,
     .pool = interleaved_pool,
     .rank_f = shallowest_first,
     .rank_b = deepest_first,
     .grouped = true},
    {.name = "zb-h1",
     .summary = "weight gradients fill the bubble; the peak memory of 1f1b",
     .placement = "line",
     .split = true,
     .order = "F B W",
     .act_b = to_the_end,
     .act_w = depth,
     .watermark = position},
    {.name = "zb-h2",
     .summary = "weight gradients fill the bubble; twice the memory, no bubble",
     .placement = "line",
     .split = true,
     .order = "F B W",
     .act_b = there_and_back,
     .act_w = twice_depth,
     .watermark = twice_position},
    {.name = "zb-v",
     .summary = "two chunks a device, in a vee; no bubble with the memory of 1f1b",
     .placement = "vee",
     .chunks = 2,
     .chunks_fixed = true,
     .split = true,
     .order = "F1 B1 B0 W0 F0 W1",
     .uneven_order = "F1 F0 B0 W0 B1 W1",
     .fixed_order = true,
     .act_b = along_vee,
     .act_w = along_vee,
     .pool = vee_pool},
    {.name = "dualpipev",
     .summary = "two chunks a device, in a vee; passes forward beside passes backward",
     .placement = "vee",
     .chunks = 2,
     .chunks_fixed = true,
     .split = true,
     .order = "F1 B1 B0 W0 F0 W1",
     .fixed_order = true,
     .act_b = along_vee,
     .act_w = along_vee,
     .pool = vee_pool_beside,
     .phases = dual_pipe_v,
     .fewest = two_rounds},
    {.name = "v-half",
     .summary = "two chunks a device, in a vee; half the memory of 1f1b",
     .placement = "vee",
     .chunks = 2,
     .chunks_fixed = true,
     .split = true,
     .order = "F B W",
     .fixed_order = true,
     .act_b = half,
     .act_w = half,
     .pool = half_pool,
     .rank_f = furthest_first,
     .rank_b = nearest_home},
    {.name = "v-min",
     .summary = "two chunks a device, in a vee; a third of the memory of 1f1b",
     .placement = "vee",
     .chunks = 2,
     .chunks_fixed = true,
     .split = true,
     .order = "F B W",
     .fixed_order = true,
     .act_b = third,
     .act_w = vee_pool,
     .pool = third_pool,
     .rank_f = furthest_first,
     .rank_b = nearest_home},
    {.name = "seq1f1b",
     .summary = "1f1b over pieces of the sequences: a bubble smaller by their number",
     .placement = "line",
     .order = "F B",
     .fixed_order = true,
     .act_b = pieces,
     .in_pieces = true},
};

const sli_schedule *sli_schedule_first(void) { return table; }

const sli_schedule *sli_schedule_next(const sli_schedule *row) {
  return row + 1 < table + SLI_COUNT(table) ? row + 1 : NULL;
}

const sli_schedule *sli_schedule_find(const char *name) {
  for (size_t i = 0; i < SLI_COUNT(table); i++)
    if (!strcmp(table[i].name, name)) return &table[i];
  return NULL;
}

bool sli_schedule_splits(const sli_schedule *row, const char *backward) {
  return backward ? !strcmp(backward, "split") : row->split;
}

/* Returns whether the uneven order of zb-v is better. In that order the worst device idles for p -
 * 2 chunk passes; in the normal order, for about three per microbatch missing from the last
 * round. */
static bool is_uneven(int p, int m) { return m % p && 3 * (p - m % p) >= p; }

void sli_schedule_order(const sli_schedule *row, int p, int m, sl_class cls, int chunk,
                        int *class_order, int *rank) {
  int place = 1;
  const char *order = is_uneven(p, m) && row->uneven_order ? row->uneven_order : row->order;
  for (const char *at = order; *at; at++, place++) {
    bool chunks = at[1] >= '0' && at[1] <= '9';
    if (*at == sl_class_letter(cls) && (!chunks || at[1] - '0' == chunk)) {
      *class_order = chunks ? 1 : place; /* separated by chunk: one class, many ranks */
      *rank = chunks ? place : 0;
      return;
    }
    at += 1 + chunks;
    if (!*at) break;
  }
  *class_order = *rank = 0; /* classes that the order does not name come first */
}

const char *const *sl_schedule_names(void) {
  static const char *names[SLI_COUNT(table) + 2];
  for (size_t i = 0; i < SLI_COUNT(table); i++) names[i] = table[i].name;
  names[SLI_COUNT(table)] = "auto";
  return names;
}

int sl_schedule_chunks(const char *name) {
  const sli_schedule *row = sli_schedule_find(name);
  return row && row->chunks ? row->chunks : 1;
}

const char *sl_schedule_summary(const char *name) {
  const sli_schedule *row = sli_schedule_find(name);
  if (!strcmp(name, "auto")) return "searched on the virtual clock, for the memory there is";
  return row ? row->summary : NULL;
}
