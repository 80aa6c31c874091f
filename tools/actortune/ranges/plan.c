/* SPDX-License-Identifier: Apache-2.0 */
/* A listed tick as a plan on the virtual clock. An actor is one range of one op, a tick of the plan
 * is a layer, and resources are lanes of one device, which start their firings in the list's order.
 * The next layer needs the same rows of this one, through registers whose first slots are full. */
#include <stdlib.h>

#include <sluice/runtime.h>
#include <sluice/trace.h>

#include "tools/actortune/ranges/ranges.h"

typedef struct building {
  const range_work *w;
  const range_cut *cut;
  sl_plan *plan;
  int32_t each, ahead; /* maps: the key of a layer, and of the next */
  int32_t lanes[SL_RESOURCES];
  int32_t regs[RANGES_OPS][RANGES_MOST], actors[RANGES_OPS][RANGES_MOST];
} building;

static bool is_last(const range_work *w, int op) { return op == w->nops - 1; }

static bool is_empty(const building *b, int op, int part) {
  return range_begin(b->w, b->cut, op, part) >= range_end(b->w, b->cut, op, part);
}

static void add_register(building *b, int op, int part) {
  bool last = is_last(b->w, op);
  b->regs[op][part] = sl_plan_add_register(
      b->plan, (sl_register){.name = sl_plan_format(b->plan, "%s.%d", b->w->ops[op].name, part),
                             .quota_name = "range",
                             .quota = 2,
                             .pool = SL_NONE,
                             .initial = last,
                             .slot_bytes = 64});
}

/* Adds an actor with its shares, layer by layer. */
static void add_actor(building *b, int op, int part, const range_list *list) {
  const range_op *o = &b->w->ops[op];
  int layers = b->plan->microbatches, nin = 0;
  sl_port in[RANGES_OPS * RANGES_MOST],
      out = {b->regs[op][part], is_last(b->w, op) ? b->ahead : b->each};
  sl_share *shares = sl_plan_alloc(b->plan, (size_t)layers * sizeof *shares);
  bool before;
  for (int i = 0; i < list->count; i++) {
    const range_firing *f = &list->firings[i];
    if (f->op == op && f->part == part)
      shares[f->layer] =
          (sl_share){f->share, sl_share_rate(&b->w->hardware->shares[o->resource], f->share)};
  }
  for (int i = 0; i < b->w->nops; i++)
    for (int k = 0; k < b->cut->count[i]; k++)
      if (!is_empty(b, i, k) && range_reads(b->w, b->cut, op, part, i, k, &before))
        in[nin++] = (sl_port){b->regs[i][k], b->each};
  b->actors[op][part] =
      sl_plan_add_actor(b->plan, (sl_actor){.name = b->plan->regs[out.reg].name,
                                            .queue = b->lanes[o->resource],
                                            .stage = SL_NONE,
                                            .chunk = part,
                                            .ticks = b->each,
                                            .firings_per_step = layers,
                                            .seconds = range_alone(b->w, b->cut, op, part),
                                            .nin = nin,
                                            .in = in,
                                            .nout = 1,
                                            .out = &out,
                                            .nshares = layers,
                                            .shares = shares});
}

static void add_lanes(building *b) {
  bool used[SL_RESOURCES] = {false};
  for (int i = 0; i < b->w->nops; i++) used[b->w->ops[i].resource] = true;
  for (int r = 0; r < SL_RESOURCES; r++) {
    const char *name = sl_resource_name((sl_resource)r);
    if (used[r])
      b->lanes[r] = sl_plan_add_queue(
          b->plan, (sl_queue){.name = name, .ops = &sl_queue_timed, .run_ahead = 1, .lane = name});
  }
}

static void fix_order(building *b, const range_list *list) {
  int32_t *order = sl_plan_alloc(b->plan, (size_t)list->count * sizeof *order);
  for (int i = 0; i < list->count; i++)
    order[i] = b->actors[list->firings[i].op][list->firings[i].part];
  for (int32_t q = 0; q < b->plan->nqueues; q++) {
    b->plan->queues[q].order = order;
    b->plan->queues[q].norder = list->count;
  }
}

static sl_status make_plan(const range_work *w, const range_cut *cut, const range_list *list,
                           int layers, sl_plan **out) {
  building b = {.w = w, .cut = cut, .plan = sl_plan_create(layers, 1)};
  sl_plan_add_device(b.plan, (sl_device){.name = "device", .kind = "timed", .threads = 1});
  b.each = sl_plan_map_each(b.plan);
  b.ahead = sl_plan_map_lag(b.plan, 1, 1);
  add_lanes(&b);
  for (int pass = 0; pass < 2; pass++)
    for (int i = 0; i < w->nops; i++)
      for (int k = 0; k < cut->count[i]; k++)
        if (!is_empty(&b, i, k)) pass ? add_actor(&b, i, k, list) : add_register(&b, i, k);
  fix_order(&b, list);
  sl_status status = sl_plan_finish(b.plan);
  if (!status) status = sl_plan_prove(b.plan);
  if (status) sl_plan_destroy(b.plan);
  else *out = b.plan;
  return status;
}

static double last_end(const sl_runtime *rt) {
  sl_trace_record *records;
  uint64_t end = 0;
  size_t n = sl_runtime_trace(rt, &records, NULL);
  for (size_t i = 0; i < n; i++) end = SLI_MAX(end, records[i].end_ns);
  free(records);
  return (double)end * 1e-9;
}

sl_status ranges_tick(const range_work *w, const range_cut *cut, const range_list *list, int layers,
                      const char *trace, double *seconds) {
  sl_plan *plan = NULL;
  sl_runtime *rt = NULL;
  sl_status status = make_plan(w, cut, list, layers, &plan);
  if (status) return status;
  sl_runtime_options options = {
      .clock = SL_CLOCK_VIRTUAL, .no_data = true, .trace_records = (size_t)list->count};
  status = sl_runtime_create(plan, &options, &rt);
  if (!status) status = sl_runtime_run(rt, 1);
  if (!status) *seconds = last_end(rt);
  if (!status && trace) status = sl_trace_write(trace, plan, rt, SL_CLOCK_VIRTUAL);
  sl_runtime_destroy(rt);
  sl_plan_destroy(plan);
  return status;
}
