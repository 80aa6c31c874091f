/* SPDX-License-Identifier: Apache-2.0 */
/* The search space: all choices whose sizes divide evenly. */
#include <math.h>
#include <string.h>

#include "tools/planner/search_inner.h"

enum { MOST_CHUNKS = 3, MOST_SEQUENCE = 8, MOST_PIECES = 4 };

bool planner_leaves_out(const planner *p) {
  return p->settings->lower.schedule.paths || p->settings->lower.schedule.skip > 0;
}

static bool is_free(const planner *p, plan_dim dim) { return p->fixed[dim] < 0; }

static int words_tried(const planner *p, plan_dim dim) {
  return p->effort || !is_free(p, dim) ? plan_dims[dim].full : plan_dims[dim].quick;
}

static void space_add(planner *p, plan_choice c) {
  for (int d = 0; d < PLAN_DIMS; d++)
    if (p->fixed[d] >= 0 && p->fixed[d] != c.at[d]) return;
  c.seconds = INFINITY;
  SLI_GROW(p->choices, p->count, p->capacity);
  p->choices[p->count++] = c;
}

/* Adds offload targets, which save memory and cost transfer time. */
static void add_homes(planner *p, plan_choice c) {
  bool any = planner_away(p) != SL_SPACE_DEVICE && (p->away || !is_free(p, PLAN_HOME));
  int homes = any ? plan_dims[PLAN_HOME].full : 1;
  bool known = p->away && !p->effort; /* nothing fits without offloading */
  for (c.at[PLAN_HOME] = known ? 1 : 0; c.at[PLAN_HOME] < homes; c.at[PLAN_HOME]++) space_add(p, c);
}

/* Adds sharding and recompute modes of a schedule: a family. */
static void add_kept(planner *p, plan_choice c) {
  c.family = p->count;
  int shards = c.at[PLAN_DATA] * c.at[PLAN_SEQUENCE] > 1 ? words_tried(p, PLAN_SHARD) : 1;
  for (c.at[PLAN_RECOMPUTE] = 0; c.at[PLAN_RECOMPUTE] < words_tried(p, PLAN_RECOMPUTE);
       c.at[PLAN_RECOMPUTE]++) {
    bool same = !strcmp(planner_word(PLAN_RECOMPUTE, c.at[PLAN_RECOMPUTE]), "whole") &&
                c.at[PLAN_TENSOR] == 1;
    if (same && is_free(p, PLAN_RECOMPUTE)) continue; /* same as full unless tensors are sharded */
    for (c.at[PLAN_SHARD] = 0; c.at[PLAN_SHARD] < shards; c.at[PLAN_SHARD]++) add_homes(p, c);
  }
}

/* Adds schedules. With one stage all schedules are equivalent. */
static void add_schedules(planner *p, plan_choice c) {
  int count =
      c.at[PLAN_STAGES] > 1 || !is_free(p, PLAN_SCHEDULE) ? words_tried(p, PLAN_SCHEDULE) : 1;
  for (int w = 0; w < count; w++) {
    int own = sl_schedule_chunks(planner_word(PLAN_SCHEDULE, w));
    bool more = !strcmp(planner_word(PLAN_SCHEDULE, w), "interleaved");
    c.at[PLAN_SCHEDULE] = w;
    for (c.at[PLAN_CHUNKS] = own; c.at[PLAN_CHUNKS] <= (more ? MOST_CHUNKS : own);
         c.at[PLAN_CHUNKS]++)
      add_kept(p, c);
  }
}

/* Adds numbers of sequence pieces, which shorten the bubble if there is one. */
static void add_pieces(planner *p, plan_choice c) {
  int most = !is_free(p, PLAN_PIECES)             ? p->fixed[PLAN_PIECES]
             : p->effort && c.at[PLAN_STAGES] > 1 ? MOST_PIECES
                                                  : 1;
  for (c.at[PLAN_PIECES] = 1; c.at[PLAN_PIECES] <= most; c.at[PLAN_PIECES] *= 2)
    add_schedules(p, c);
  if (most & (most - 1)) c.at[PLAN_PIECES] = most, add_schedules(p, c);
}

/* Returns whether the quick search considers microbatches of this many rows: with very many devices
 * only a few rows. */
static bool is_usual(const planner *p, int rows) {
  enum { MANY_DEVICES = 64 };
  return p->effort || p->devices <= MANY_DEVICES ||
         (rows <= PLANNER_ROWS && (rows & (rows - 1)) == 0);
}

/* Adds numbers of microbatches that leave each device whole rows; powers of two if the batch
 * size is unknown. */
static void add_microbatches(planner *p, plan_choice c) {
  enum { MOST = 64 };
  int rows = p->batch / c.at[PLAN_DATA];
  bool free = is_free(p, PLAN_MICROBATCHES);
  if (p->batch && p->batch % c.at[PLAN_DATA]) return;
  for (int m = 1; m <= (p->batch ? rows : MOST); m++) {
    bool even = p->batch ? rows % m == 0 : (m & (m - 1)) == 0;
    if (p->batch && even && free) even = is_usual(p, rows / m);
    if (!even || (m < c.at[PLAN_STAGES] && m != rows && free)) continue;
    c.at[PLAN_MICROBATCHES] = m;
    add_pieces(p, c);
  }
}

/* Adds expert grids. Experts are either sharded like tensors, over the devices that share rows, or
 * kept whole on a separate grid of all devices. Sharding makes few large experts up to a fifth
 * faster. Keeping them whole makes many small experts a quarter faster. The quick search tries only
 * the likelier grid, and the first if all devices have all experts. */
static void add_expert_grids(planner *p, plan_choice c) {
  enum { FEW = 16 };
  int data = c.at[PLAN_DATA], tensor = c.at[PLAN_TENSOR], n = c.at[PLAN_EXPERTS];
  bool both = p->experts && (p->effort || !is_free(p, PLAN_EXPERT_TENSOR)),
       few = p->experts <= FEW && data % n == 0;
  bool own = tensor > 1 && (both || (n > 1 && !few));
  c.at[PLAN_EXPERT_TENSOR] = p->experts ? tensor : 1;
  if ((both || !own) && data % n == 0) add_microbatches(p, c);
  c.at[PLAN_EXPERT_TENSOR] = 1;
  if (own && data * tensor % n == 0) add_microbatches(p, c);
}

/* Adds degrees of expert parallelism, over the devices that share rows, or over those that share
 * rows and tensors. */
static void add_experts(planner *p, plan_choice c) {
  int most = SLI_MIN(p->experts, c.at[PLAN_DATA] * c.at[PLAN_TENSOR]);
  if (!is_free(p, PLAN_EXPERTS)) most = p->fixed[PLAN_EXPERTS];
  for (int n = 1; n <= SLI_MAX(most, 1); n++) {
    if (is_free(p, PLAN_EXPERTS) && n & (n - 1)) continue;
    c.at[PLAN_EXPERTS] = n;
    add_expert_grids(p, c);
  }
}

/* Adds degrees of sequence parallelism within a stage; the remaining devices share rows. */
static void add_sequences(planner *p, plan_choice c, int devices) {
  bool tried = p->effort || !is_free(p, PLAN_SEQUENCE);
  int most = !tried ? 1 : is_free(p, PLAN_SEQUENCE) ? MOST_SEQUENCE : p->fixed[PLAN_SEQUENCE];
  for (int n = 1; n <= most; n++) {
    if (devices % n || (is_free(p, PLAN_SEQUENCE) && n & (n - 1))) continue;
    c.at[PLAN_SEQUENCE] = n, c.at[PLAN_DATA] = devices / n;
    add_experts(p, c);
  }
}

static void add_grids(planner *p) {
  plan_choice c = {0};
  int per_host = p->settings->modelled.hardware.devices_per_host;
  for (int stages = 1; stages <= p->devices; stages++)
    for (int tensor = 1; tensor <= p->devices / stages; tensor++) {
      bool far = per_host > 1 && tensor > per_host && !p->effort && is_free(p, PLAN_TENSOR);
      if (p->devices % (stages * tensor) || far) continue;
      c.at[PLAN_STAGES] = stages, c.at[PLAN_TENSOR] = tensor;
      add_sequences(p, c, p->devices / stages / tensor);
    }
}

sl_status planner_list(planner *p) {
  add_grids(p);
  if (p->count) return SL_OK;
  return sl_fail(
      SL_E_USAGE,
      "no plan splits evenly over %d devices: the model's batch, --fix and the number of devices must divide",
      p->devices);
}
