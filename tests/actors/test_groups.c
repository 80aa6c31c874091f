/* SPDX-License-Identifier: Apache-2.0 */
/* Queues of a group fire together: a collective begins when the last device has launched it. Their
 * order is one on all devices, and plans whose devices differ are refused. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <sluice/runtime.h>

#include "ops/collective.h"
#include "tests/support/test.h"

enum { DEVICES = 3, COLLECTIVES = 2 };

/* A plan in which each device makes an array for each of two collectives, the first device
 * fastest. */
typedef struct grid {
  sl_plan *plan;
  int32_t pass[DEVICES], group[DEVICES];
  int32_t made[DEVICES][COLLECTIVES];
} grid;

static int32_t add_register(sl_plan *plan, const char *name, int device) {
  return sl_plan_add_register(plan, (sl_register){.name = name,
                                                  .quota_name = "sum",
                                                  .quota = 1,
                                                  .pool = SL_NONE,
                                                  .device = device,
                                                  .memory = SL_MEMORY_GRADIENTS,
                                                  .slot_bytes = 256});
}

/* Adds an actor that fires once a step, between two registers; SL_NONE: none. */
static void add_actor(sl_plan *plan, const char *name, int32_t queue, double seconds, int32_t in,
                      int32_t out, sl_program *program) {
  int32_t each = sl_plan_map_each(plan);
  sl_port from = {in, each}, to = {out, each};
  sl_plan_add_actor(plan, (sl_actor){.name = name,
                                     .queue = queue,
                                     .stage = SL_NONE,
                                     .chunk = SL_NONE,
                                     .ticks = each,
                                     .firings_per_step = 1,
                                     .source = in == SL_NONE,
                                     .seconds = seconds,
                                     .nin = in != SL_NONE,
                                     .nout = out != SL_NONE,
                                     .in = &from,
                                     .out = &to,
                                     .program = program});
}

static grid make_grid(void) {
  grid g = {.plan = sl_plan_create(1, 1)};
  for (int d = 0; d < DEVICES; d++)
    sl_plan_add_device(g.plan, (sl_device){.name = sl_plan_format(g.plan, "timed:%d", d),
                                           .kind = "timed",
                                           .threads = 1,
                                           .at = {[SL_AT_DATA] = d}});
  for (int d = 0; d < DEVICES; d++) {
    const sl_queue pass = {.name = "pass", .device = d, .ops = &sl_queue_timed, .run_ahead = 1},
                   group = {.name = sl_plan_format(g.plan, "collective@%d", d),
                            .device = d,
                            .ops = &sl_queue_group,
                            .run_ahead = 1,
                            .group = 1};
    g.pass[d] = sl_plan_add_queue(g.plan, pass);
    g.group[d] = sl_plan_add_queue(g.plan, group);
    for (int c = 0; c < COLLECTIVES; c++) {
      g.made[d][c] = add_register(g.plan, sl_plan_format(g.plan, "made%d@%d", c, d), d);
      add_actor(g.plan, "make", g.pass[d], 1 + d, SL_NONE, g.made[d][c], NULL);
    }
  }
  return g;
}

static void add_collective(grid *g, int device, int which, double seconds) {
  const char *name = sl_plan_format(g->plan, "sum%d@%d", which, device);
  int32_t summed = add_register(g->plan, name, device);
  add_actor(g->plan, name, g->group[device], seconds, g->made[device][which], summed, NULL);
  add_actor(g->plan, "read", g->pass[device], 0, summed, SL_NONE, NULL);
}

static void fix(grid *g) {
  CHECK(!sl_plan_finish(g->plan), "%s", sl_detail());
  CHECK(!sl_plan_fix_groups(g->plan), "%s", sl_detail());
  CHECK(!sl_plan_finish(g->plan), "%s", sl_detail());
}

/* The slowest device makes its arrays at 3 s and 6 s; collectives of 1 s end at 4 s and 7 s. */
static void collectives_wait_for_the_last(void) {
  grid g = make_grid();
  sl_runtime *rt;
  const sl_runtime_options options = {.clock = SL_CLOCK_VIRTUAL, .no_data = true};
  sl_trace_record *records;
  for (int d = 0; d < DEVICES; d++)
    for (int c = 0; c < COLLECTIVES; c++) add_collective(&g, d, c, 1);
  fix(&g);
  CHECK(!sl_plan_prove(g.plan), "%s", sl_detail());
  CHECK(!sl_runtime_create(g.plan, &options, &rt) && !sl_runtime_run(rt, 1), "%s", sl_detail());
  size_t n = sl_runtime_trace(rt, &records, NULL);
  int seen = 0;
  for (size_t i = 0; i < n; i++) {
    const sl_actor *a = &g.plan->actors[records[i].actor];
    if (!g.plan->queues[a->queue].group) continue;
    double end = (double)records[i].end_ns * 1e-9, want = a->name[3] == '0' ? 4 : 7;
    CHECK(fabs(end - want) < 1e-6, "%s ends at %g s, not %g s", a->name, end, want);
    seen++;
  }
  CHECK(seen == DEVICES * COLLECTIVES, "%d collectives", seen);
  free(records);
  sl_runtime_destroy(rt);
  sl_plan_destroy(g.plan);
}

/* The order is that of the first device, on a plan whose devices would each take another. */
static void one_order_for_all(void) {
  grid g = make_grid();
  for (int d = 0; d < DEVICES; d++)
    for (int c = 0; c < COLLECTIVES; c++) add_collective(&g, d, c, 1);
  fix(&g);
  for (int d = 0; d < DEVICES; d++) {
    const sl_queue *q = &g.plan->queues[g.group[d]];
    CHECK(q->norder == COLLECTIVES, "%d firings", q->norder);
    for (int c = 0; c < COLLECTIVES; c++)
      CHECK(g.plan->actors[q->order[c]].name[3] == '0' + c, "device %d fires %s as number %d", d,
            g.plan->actors[q->order[c]].name, c);
  }
  sl_plan_destroy(g.plan);
}

static void different_devices_are_refused(void) {
  grid g = make_grid();
  for (int d = 0; d < DEVICES; d++)
    for (int c = 0; c < COLLECTIVES - (d == 1); c++) add_collective(&g, d, c, 1);
  CHECK(!sl_plan_finish(g.plan), "%s", sl_detail());
  CHECK(sl_plan_fix_groups(g.plan) == SL_E_INPUT && strstr(sl_detail(), "different actors"), "%s",
        sl_detail());
  sl_plan_destroy(g.plan);
}

/* ---- ops ------------------------------------------------------------------------------------ */

static void shapes_and_traffic(void) {
  const sl_attrs attrs = {.members.count = 4, .members.axes = 1u << 1};
  const sl_type whole = SL_TYPE(SL_F32, 3, 8, 5);
  sl_type part, again, none, odd = SL_TYPE(SL_F32, 3, 6, 5);
  CHECK(!sl_op_reduce_scatter.infer(&attrs, 1, &whole, &part) && part.dim[1] == 2, "a part");
  CHECK(!sl_op_all_gather.infer(&attrs, 1, &part, &again) && sl_type_equal(&again, &whole),
        "the whole");
  CHECK(sl_op_reduce_scatter.infer(&attrs, 1, &odd, &none) == SL_E_SHAPE &&
            strstr(sl_detail(), "equal part for each of 4"),
        "%s", sl_detail());
  CHECK(sli_collective_rows(&sl_op_all_gather, &attrs, &part) == 3, "rows");
  double bytes = (double)sl_type_bytes(&whole);
  CHECK(sli_collective_received(&sl_op_all_reduce, &attrs, &whole, &whole) == 1.5 * bytes,
        "an all-reduce");
  CHECK(sli_collective_received(&sl_op_reduce_scatter, &attrs, &whole, &part) == .75 * bytes,
        "its half");
  CHECK(sli_collective_received(&sl_op_all_gather, &attrs, &part, &whole) == .75 * bytes,
        "its other half");
}

/* Seven positions of dim 1 for three members: 2, 2 and 3. */
static void unequal_parts(void) {
  const sl_type whole = SL_TYPE(SL_F32, 3, 7, 5), longest = SL_TYPE(SL_F32, 3, 3, 5);
  const sl_part parts[] = {{1, 1, {0}, {2}}, {1, 1, {2}, {2}}, {1, 1, {4}, {3}}};
  const sl_joint joint = {whole, parts};
  const sl_attrs last = {
      .members.count = 3, .members.own = 2, .members.axes = 1u << 1, .user = &joint};
  sl_attrs other = last;
  sl_type out;
  int64_t begin;
  other.members.own = 0;
  CHECK(!sl_op_reduce_scatter.infer(&last, 1, &whole, &out) && sl_type_equal(&out, &longest),
        "the last part");
  CHECK(!sl_op_all_gather.infer(&last, 1, &longest, &out) && sl_type_equal(&out, &whole), "%s",
        sl_detail());
  CHECK(sl_op_all_gather.infer(&other, 1, &longest, &out) == SL_E_SHAPE, "another's part");
  CHECK(sli_collective_part(&last, &whole, 1, &begin) == 2 && begin == 2, "the second part");
  CHECK(sli_collective_received(&sl_op_all_gather, &last, &longest, &whole) == 4.0 * 3 * 4 * 5,
        "the others' parts");
  CHECK(sli_collective_received(&sl_op_reduce_scatter, &last, &whole, &longest) == 4.0 * 2 * 3 * 15,
        "two summands of the part");
}

static void all_to_all(void) {
  const sl_type in[] = {SL_TYPE(SL_F32, 2, 3), SL_TYPE(SL_F32, 2, 4)},
                got[] = {SL_TYPE(SL_F32, 5, 4), SL_TYPE(SL_F32, 2, 4)};
  const sl_attrs attrs = {.members.count = 2, .members.own = 1, .user = got};
  sl_type out[2];
  CHECK(!sl_op_all_to_all.infer(&attrs, 2, in, out) && !memcmp(out, got, sizeof got), "%s",
        sl_detail());
  CHECK(sl_op_all_to_all.infer(&attrs, 1, in, out) == SL_E_SHAPE, "a part is missing");
  CHECK(sli_collective_received(&sl_op_all_to_all, &attrs, in, out) == 4.0 * 20, "the other's");
}

int main(void) {
  collectives_wait_for_the_last();
  one_order_for_all();
  different_devices_are_refused();
  shapes_and_traffic();
  unequal_parts();
  all_to_all();
  return 0;
}
