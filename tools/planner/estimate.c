/* SPDX-License-Identifier: Apache-2.0 */
/* Estimate of a choice: its seconds and bytes, from the prices of its blocks.
 *
 * The blocks are cut into stages as lowering would cut them. A stage's passes, exchanges,
 * parameters and activations are sums over its blocks; its activations have as many slots as the
 * schedule's row says. A skeleton of the plan shows the time of the pipeline. A choice that is too
 * large gives up slots or makes blocks recompute, as the trial of its plan would. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "graph/graph.h"
#include "graph/passes/passes.h"
#include "tools/planner/search_inner.h"

/* Sums over the blocks of a stage. */
typedef struct stage {
  sli_block_price sum; /* shared: the most of any block */
  double into;         /* bytes that a microbatch brings from the stage before */
  int device, chunk, slots[2];
} stage;

typedef struct outline {
  const planner *planner;
  const plan_choice *choice;
  const planner_prices *kept, *again; /* prices of blocks that keep activations, and recompute */
  int devices, stages, nblocks;
  int *stage_of;                /* [nblocks] */
  bool *recomputed;             /* [nblocks] */
  stage *sums;                  /* [stages] */
  double part[SL_MEMORY_COUNT]; /* of a sample's bytes that a device has */
} outline;

/* ---- stages ---------------------------------------------------------------------------------- */

static const sli_block_price *price_of(const outline *x, int b) {
  const planner_prices *from = x->recomputed[b] ? x->again : x->kept;
  return &from->blocks[x->planner->blocks->like[b]];
}

static void add_price(sli_block_price *to, const sli_block_price *from) {
  for (int i = 0; i < 3; i++) to->pass[i] += from->pass[i];
  for (int i = 0; i < 2; i++) to->exchange[i] += from->exchange[i];
  to->ahead += from->ahead;
  to->update += from->update, to->exchange_step += from->exchange_step;
  for (int r = 0; r < SLI_ROLES; r++) to->bytes[r] += from->bytes[r];
  to->shared = SLI_MAX(to->shared, from->shared);
}

static void add_up(outline *x) {
  for (int s = 0; s < x->stages; s++) memset(&x->sums[s].sum, 0, sizeof x->sums[s].sum);
  for (int b = 0; b < x->nblocks; b++) {
    int s = x->stage_of[b];
    add_price(&x->sums[s].sum, price_of(x, b));
    if (b && x->stage_of[b - 1] != s) x->sums[s].into = price_of(x, b - 1)->crossing;
  }
}

static bool cut(outline *x) {
  double *seconds = sli_calloc((size_t)x->nblocks + 1, sizeof *seconds);
  for (int b = 0; b < x->nblocks; b++) seconds[b] = price_of(x, b)->pass[SL_CLASS_F];
  bool good =
      !sli_pass_partition_by(x->planner->blocks->graph, seconds, NULL, x->stages, x->stage_of);
  free(seconds);
  return good;
}

static int slots_of(const outline *x, sli_formula *formula, const sli_at *at) {
  const sli_schedule *row = planner_schedule(x->choice->at[PLAN_SCHEDULE]);
  int slots = formula(at) * (row->in_pieces ? 1 : at->k);
  return SLI_MAX(1, SLI_MIN(slots, at->m * at->k));
}

static bool place(outline *x) {
  const plan_choice *c = x->choice;
  const sli_schedule *row = planner_schedule(c->at[PLAN_SCHEDULE]);
  size_t n = (size_t)x->stages + 1;
  int *device = sli_calloc(n, sizeof *device), *chunk = sli_calloc(n, sizeof *chunk);
  bool good = !sli_place_stages(row->placement, x->devices, c->at[PLAN_CHUNKS], device, chunk);
  for (int s = 0; s < x->stages && good; s++) {
    sli_at at = {x->devices,
                 c->at[PLAN_CHUNKS],
                 c->at[PLAN_MICROBATCHES],
                 c->at[PLAN_PIECES],
                 device[s],
                 chunk[s],
                 s};
    x->sums[s].device = device[s], x->sums[s].chunk = chunk[s];
    x->sums[s].slots[0] = slots_of(x, row->act_b, &at);
    x->sums[s].slots[1] = slots_of(x, row->act_w ? row->act_w : row->act_b, &at);
  }
  free(device);
  free(chunk);
  return good;
}

/* Returns whether weight gradients are a pass of their own. */
static bool splits(const outline *x) {
  return sli_schedule_splits(planner_schedule(x->choice->at[PLAN_SCHEDULE]),
                             x->planner->settings->lower.schedule.backward);
}

/* ---- bytes ----------------------------------------------------------------------------------- */

/* Returns the slots of a stage's register of this role; 1 if its bytes count all. */
static double slots_for(const stage *s, sli_role role) {
  sli_slots rule = sli_roles[role].slots;
  return rule == SLI_SLOTS_ACT_B || rule == SLI_SLOTS_BEGUN ? s->slots[0]
         : rule == SLI_SLOTS_ACT_W                          ? s->slots[1]
                                                            : 1;
}

/* Returns the bytes of registers between a stage and the one before it, at either end: activations
 * that arrive, and gradients that leave. */
static double between(const outline *x, int s) {
  const stage *to = &x->sums[s], *from = &x->sums[s - 1];
  double ahead = SLI_MAX(to->slots[0], from->slots[0]);
  double held = splits(x) ? 1 : 0;
  return to->into * (ahead + held * to->slots[1]);
}

static double stage_bytes(const outline *x, int s) {
  const stage *at = &x->sums[s];
  double bytes = 0;
  for (int r = 0; r < SLI_ROLES; r++)
    bytes += x->part[sli_roles[r].memory] * at->sum.bytes[r] * slots_for(at, (sli_role)r);
  if (s) bytes += 2 * between(x, s);
  if (s + 1 < x->stages) bytes += between(x, s + 1);
  return bytes;
}

static double device_bytes(const outline *x, int device) {
  double bytes = x->kept->rest, shared = 0;
  for (int s = 0; s < x->stages; s++) {
    if (x->sums[s].device != device) continue;
    bytes += stage_bytes(x, s);
    shared += x->sums[s].sum.shared;
  }
  return bytes + shared;
}

static double most_bytes(const outline *x) {
  double most = 0;
  for (int d = 0; d < x->devices; d++) most = fmax(most, device_bytes(x, d));
  return most;
}

static bool is_over(const outline *x, int device) {
  return x->planner->budget && device_bytes(x, device) > (double)x->planner->budget;
}

/* ---- seconds --------------------------------------------------------------------------------- */

/* Returns the seconds of a message between stages, without the time that others overlap. */
static double message_seconds(const outline *x) {
  const sl_hardware *h = &x->planner->settings->modelled.hardware;
  const plan_choice *c = x->choice;
  int ranks = c->at[PLAN_TENSOR] * c->at[PLAN_DATA] * c->at[PLAN_SEQUENCE];
  bool near = 2 * ranks <= h->devices_per_host;
  const sl_hardware_link *link = near ? &h->host_link : &h->link;
  double most = 0;
  for (int s = 1; s < x->stages; s++) most = fmax(most, x->sums[s].into);
  return x->stages > 1 ? link->seconds + (link->bytes_per_second > 0
                                              ? most / c->at[PLAN_PIECES] / link->bytes_per_second
                                              : 0)
                       : 0;
}

/* Sets the seconds that a stage's passes take, or its exchanges if they take longer, with the part
 * of the shorter that was not hidden in the sample. */
static void set_passes(const outline *x, const stage *s, sl_stage_cost *to) {
  const double *pass = s->sum.pass, *exchange = s->sum.exchange;
  double sum = pass[0] + pass[1] + pass[2], links = exchange[0] + exchange[1] + s->sum.ahead,
         all = fmax(sum, links) + x->kept->exposed * fmin(sum, links);
  double longer = sum > 0 ? all / sum : 1;
  to->F = longer * pass[0], to->B = longer * pass[1], to->W = longer * pass[2];
}

static double update_seconds(const outline *x) {
  double most = 0;
  for (int d = 0; d < x->devices; d++) {
    double sum = 0;
    for (int s = 0; s < x->stages; s++)
      if (x->sums[s].device == d)
        sum += x->sums[s].sum.update + x->kept->step * x->sums[s].sum.exchange_step;
    most = fmax(most, sum);
  }
  return most;
}

/* Lists the slots that the choice has fewer of than its schedule. */
static int list_quotas(const outline *x, bool fewer, sl_quota *to) {
  int n = 0;
  for (int s = 0; s < x->stages && fewer; s++) {
    to[n++] = (sl_quota){"act.b", s, x->sums[s].slots[0]};
    if (splits(x)) to[n++] = (sl_quota){"act.w", s, x->sums[s].slots[1]};
  }
  return n;
}

/* Returns the seconds of a step on the virtual clock; with many microbatches it simulates two
 * smaller numbers. */
static double pipeline_seconds(const outline *x, planner_skeleton *k) {
  planner_counts n = planner_counts_of(x->planner, x->choice);
  double more = planner_skeleton_seconds(k, n.more);
  if (!n.few || !(more < INFINITY)) return more;
  double few = planner_skeleton_seconds(k, n.few);
  return few + (more - few) * (x->choice->at[PLAN_MICROBATCHES] - n.few) / (n.more - n.few);
}

/* Returns the seconds of the busiest device's passes of a microbatch. */
static double busy_seconds(const outline *x, const sl_stage_cost *passes) {
  double most = 0;
  for (int d = 0; d < x->devices; d++) {
    double sum = 0;
    for (int s = 0; s < x->stages; s++)
      if (x->sums[s].device == d) sum += passes[s].F + passes[s].B + passes[s].W;
    most = fmax(most, sum);
  }
  return most;
}

/* Returns the seconds from one microbatch to the next that slots allow: a slot is free again after
 * the way to the last stage and back. */
static double round_trip_seconds(const outline *x, const sl_stage_cost *passes) {
  double way = 0, most = 0, message = 2 * message_seconds(x);
  for (int s = x->stages - 1; s >= 0; s--) {
    way += passes[s].F + passes[s].B + (s + 1 < x->stages ? message : 0);
    most = fmax(most, way * x->choice->at[PLAN_PIECES] / x->sums[s].slots[0]);
  }
  return most;
}

/* Returns roughly the seconds of a step, from below: the busiest device, or the slots, and the
 * filling and draining of the pipeline unless weight gradients fill it. */
static double rough_seconds(const outline *x) {
  const plan_choice *c = x->choice;
  sl_stage_cost *passes = sli_calloc((size_t)x->stages, sizeof *passes);
  double way = 0;
  for (int s = 0; s < x->stages; s++) {
    set_passes(x, &x->sums[s], &passes[s]);
    if (!splits(x)) way += (passes[s].F + passes[s].B) / x->stages / c->at[PLAN_PIECES];
  }
  double seconds =
      c->at[PLAN_MICROBATCHES] * fmax(busy_seconds(x, passes), round_trip_seconds(x, passes)) +
      (x->devices - 1) * way + update_seconds(x);
  free(passes);
  return seconds;
}

static double skeleton_seconds(const outline *x, bool fewer) {
  const plan_choice *c = x->choice;
  size_t n = (size_t)x->stages;
  sl_stage_cost *passes = sli_calloc(n, sizeof *passes);
  sl_quota *quotas = sli_calloc(2 * n, sizeof *quotas);
  for (int s = 0; s < x->stages; s++) set_passes(x, &x->sums[s], &passes[s]);
  planner_skeleton k = {.stages = x->devices,
                        .chunks = c->at[PLAN_CHUNKS],
                        .pieces = c->at[PLAN_PIECES],
                        .schedule = planner_word(PLAN_SCHEDULE, c->at[PLAN_SCHEDULE]),
                        .backward = x->planner->settings->lower.schedule.backward,
                        .passes = passes,
                        .message_seconds = message_seconds(x),
                        .quotas = quotas,
                        .nquotas = list_quotas(x, fewer, quotas)};
  double seconds = pipeline_seconds(x, &k) + update_seconds(x);
  free(passes);
  free(quotas);
  return seconds;
}

/* Returns the seconds of a step: roughly, or by a skeleton. */
static double step_seconds(const outline *x, bool fewer) {
  return x->choice->refined ? skeleton_seconds(x, fewer) : rough_seconds(x);
}

/* ---- choices that do not fit ----------------------------------------------------------------- */

static int fullest_on(const outline *x, int device) {
  int at = SL_NONE, least = x->choice->at[PLAN_PIECES];
  for (int s = 0; s < x->stages; s++) {
    if (x->sums[s].device != device) continue;
    int most = SLI_MAX(x->sums[s].slots[0], splits(x) ? x->sums[s].slots[1] : 0);
    int best = at < 0 ? least : SLI_MAX(x->sums[at].slots[0], splits(x) ? x->sums[at].slots[1] : 0);
    if (most > best) at = s;
  }
  return at;
}

/* Takes slots from the stages of a device until it fits; returns whether it does. */
static bool take_slots(outline *x, int device) {
  while (is_over(x, device)) {
    int s = fullest_on(x, device);
    if (s < 0) return false;
    int *slots = x->sums[s].slots, most = SLI_MAX(slots[0], splits(x) ? slots[1] : 0);
    slots[0] -= slots[0] == most, slots[1] -= slots[1] == most;
    slots[1] = SLI_MAX(slots[1], 1);
  }
  return true;
}

/* Makes blocks of a device recompute until it fits; returns whether it does. */
static bool take_blocks(outline *x, int device) {
  for (int b = 0; b < x->nblocks && is_over(x, device); b++) {
    int s = x->stage_of[b];
    bool inside = b && b + 1 < x->nblocks;
    if (x->sums[s].device != device || x->recomputed[b] || !inside) continue;
    x->recomputed[b] = true;
    add_up(x);
  }
  return !is_over(x, device);
}

static bool take_all(outline *x, bool (*take)(outline *x, int device)) {
  bool good = true;
  for (int d = 0; d < x->devices; d++) good &= take(x, d);
  return good;
}

static bool is_open(const outline *x, plan_dim dim) {
  return x->planner->fixed[dim] < 0 && !x->choice->at[dim];
}

/* Returns the seconds with blocks that recompute, and with fewer slots too if that is not enough.
 */
static double with_blocks(outline *x, bool slots) {
  if (take_all(x, take_blocks)) return step_seconds(x, false);
  return slots && take_all(x, take_slots) ? step_seconds(x, true) : INFINITY;
}

/* Returns the seconds of the better way to give up something. */
static double lessened(outline *x, bool *by_slots) {
  double blocks = INFINITY, slots = INFINITY;
  bool any = x->planner->fixed[PLAN_QUOTAS] < 0;
  if (is_open(x, PLAN_RECOMPUTE) && x->again) blocks = with_blocks(x, any);
  memset(x->recomputed, 0, (size_t)x->nblocks);
  add_up(x);
  if (any && place(x) && take_all(x, take_slots)) slots = step_seconds(x, true);
  *by_slots = slots < blocks;
  return fmin(blocks, slots);
}

/* Returns the bytes with one slot of each kind, and all blocks recomputed if that is open. */
static double least_bytes(outline *x) {
  bool slots = x->planner->fixed[PLAN_QUOTAS] < 0, blocks = is_open(x, PLAN_RECOMPUTE) && x->again;
  for (int s = 0; s < x->stages && slots; s++)
    x->sums[s].slots[0] = x->sums[s].slots[1] = x->choice->at[PLAN_PIECES];
  double kept = most_bytes(x);
  memset(x->recomputed, blocks, (size_t)x->nblocks);
  add_up(x);
  return fmin(kept, most_bytes(x));
}

/* ---- interface ------------------------------------------------------------------------------- */

static outline outline_create(const planner *p, const plan_choice *c) {
  int n = p->blocks->count, stages = c->at[PLAN_STAGES] * c->at[PLAN_CHUNKS];
  outline x = {.planner = p,
               .choice = c,
               .devices = c->at[PLAN_STAGES],
               .stages = stages,
               .nblocks = n,
               .stage_of = sli_calloc((size_t)n + 1, sizeof(int)),
               .recomputed = sli_calloc((size_t)n + 1, sizeof(bool)),
               .sums = sli_calloc((size_t)stages, sizeof(stage))};
  for (int m = 0; m < SL_MEMORY_COUNT; m++) x.part[m] = 1;
  return x;
}

/* Sets the parts of the bytes that --shard leaves on a device, of a sample that shards nothing. */
static void share_bytes(outline *x) {
  static const sl_memory shared[] = {SL_MEMORY_OPTIMIZER, SL_MEMORY_GRADIENTS,
                                     SL_MEMORY_PARAMETERS};
  const plan_choice *c = x->choice;
  double devices = (double)c->at[PLAN_DATA] * c->at[PLAN_SEQUENCE];
  for (int i = 0; i < SLI_MIN(c->at[PLAN_SHARD], (int)SLI_COUNT(shared)); i++)
    x->part[shared[i]] = 1 / devices;
}

static void outline_free(outline *x) {
  free(x->stage_of);
  free(x->recomputed);
  free(x->sums);
}

static void estimate(outline *x, plan_choice *c) {
  double budget = (double)x->planner->budget;
  c->estimated_bytes = most_bytes(x);
  bool fits = !x->planner->budget || c->estimated_bytes <= budget;
  c->estimate = fits ? step_seconds(x, false) : lessened(x, &c->by_slots);
  if (c->estimate == INFINITY) c->floor = least_bytes(x);
  c->estimate = fmax(c->estimate, planner_copy_seconds(x->planner, c, &x->sums[0].sum));
}

void planner_estimate(void *ctx, size_t i) {
  const planner *p = ctx;
  plan_choice *c = &p->choices[i];
  outline x = outline_create(p, c);
  x.kept = planner_prices_at(p, c->sample);
  x.again = c->sample_again < p->nsamples ? planner_prices_at(p, c->sample_again) : NULL;
  c->estimate = INFINITY;
  if (x.kept && cut(&x) && place(&x)) {
    add_up(&x);
    estimate(&x, c);
  }
  outline_free(&x);
}

double planner_floor(const planner *p, const plan_choice *c, const planner_prices *kept,
                     const planner_prices *again) {
  outline x = outline_create(p, c);
  x.kept = kept, x.again = again;
  double bytes = INFINITY;
  if (cut(&x) && place(&x)) {
    share_bytes(&x);
    add_up(&x);
    bytes = least_bytes(&x);
  }
  outline_free(&x);
  return bytes;
}

void planner_refine(void *ctx, size_t i) {
  const planner *p = ctx;
  p->choices[i].refined = true;
  planner_estimate(ctx, i);
}
