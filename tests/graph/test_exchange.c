/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that an exchange between the devices of a stage takes the time and moves the bytes that the
 * formulas for collectives give, over the link of its grid axis.
 * labels: unthreaded */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <sluice/sluice.h>

#include "base/base.h"
#include "tests/support/test.h"

enum { ROWS = 64, WIDTH = 256, HIDDEN = 1024, MICROBATCHES = 4 };

static const sl_hardware machine = {.flops_per_second = 1e13,
                                    .bytes_per_second = 1e12,
                                    .op_seconds = 1e-6,
                                    .link = {5e-6, 1e10},
                                    .host_link = {2e-6, 3e10}};

static bool near(double a, double b) { return fabs(a - b) <= 1e-6 * fabs(b) + 1e-9; }

/* Two linear layers without biases. */
static sl_graph *build(void) {
  sl_graph *g = sl_graph_create(&(sl_graph_options){.microbatches = MICROBATCHES, .no_data = true});
  sl_type *types = sl_graph_alloc(g, 2 * sizeof *types);
  types[0] = types[1] = SL_TYPE(SL_F32, ROWS, WIDTH);
  sl_source *source = sl_graph_alloc(g, sizeof *source);
  *source = (sl_source){.nout = 2, .types = types};
  sl_tensor *data[2];
  sl_data(g, source, data);
  sl_tensor *w1 = sl_param(g, SL_TYPE(SL_F32, HIDDEN, WIDTH), SL_NORMAL(0.02f), "w1");
  sl_tensor *w2 = sl_param(g, SL_TYPE(SL_F32, WIDTH, HIDDEN), SL_NORMAL(0.02f), "w2");
  sl_block(g, "one");
  sl_tensor *h = sl_gelu(g, sl_linear(g, data[0], w1, NULL));
  sl_block(g, "two");
  sl_train(g, sl_mse(g, sl_linear(g, h, w2, NULL), data[1]), NULL);
  CHECK(!sl_graph_status(g), "%s", sl_detail());
  return g;
}

typedef struct made {
  sl_graph *g;
  sl_lowered *lowered;
  const sl_plan *plan;
} made;

static made make(int stages, int data, int tensor, const char *shard, const sl_hardware *hardware) {
  static const sl_given_sbp columns_then_rows[] = {{"w1", 1, {SL_SPLIT, 0}},
                                                   {"w2", 1, {SL_SPLIT, 1}}};
  made m = {.g = build()};
  sl_lower_options options = {.parallel.stages = stages,
                              .parallel.data = data,
                              .parallel.tensor = tensor,
                              .memory.shard = shard,
                              .schedule.grain = "pass",
                              .simulation.hardware = hardware,
                              .parallel.ngiven = tensor > 1 ? 2 : 0,
                              .parallel.given = columns_then_rows,
                              .devices = {.kind = "timed"}};
  CHECK(!sl_lower(m.g, &options, &m.lowered), "%s", sl_detail());
  m.plan = sl_lowered_plan(m.lowered);
  return m;
}

static void forget(made *m) {
  sl_lowered_destroy(m->lowered);
  sl_graph_destroy(m->g);
}

static double seconds_of(const sl_plan *plan, const char *name) {
  for (int32_t a = 0; a < plan->nactors; a++)
    if (!strcmp(plan->actors[a].name, name)) return plan->actors[a].seconds;
  CHECK(false, "there is no actor %s", name);
  return 0;
}

/* Two gradients of W bytes each are summed over 4 devices: each device reduces its part of 4
 * arrays, then 4 parts are gathered. */
static void all_reduce_takes(sl_hardware h, int devices_per_host, double seconds, double rate) {
  enum { R = 4 };
  double W = 4.0 * WIDTH * HIDDEN;
  h.devices_per_host = devices_per_host;
  made m = make(1, R, 1, "nothing", &h);
  double sums = 2 * ((R + 1) * W / R / h.bytes_per_second + h.op_seconds + (R - 1) * W / R / rate);
  double joins = 2 * (2 * W / h.bytes_per_second + h.op_seconds + (R - 1) * W / R / rate);
  double got = seconds_of(m.plan, "sum_part0"), joined = seconds_of(m.plan, "join0");
  CHECK(near(got, sums + seconds), "%d to a host: the sums take %.9g s, not %.9g", devices_per_host,
        got, sums + seconds);
  CHECK(near(joined, joins + seconds), "%d to a host: the joins take %.9g s, not %.9g",
        devices_per_host, joined, joins + seconds);
  forget(&m);
}

static void check_times(void) {
  const double latency = machine.link.seconds, inside = machine.host_link.seconds;
  sl_hardware slow = machine;
  slow.host_link.bytes_per_second = 1.5e10; /* less than two ports */
  all_reduce_takes(machine, 4, 2 * inside, machine.host_link.bytes_per_second);
  all_reduce_takes(machine, 1, 2 * latency, machine.link.bytes_per_second);
  all_reduce_takes(machine, 2, 2 * latency, 2 * machine.link.bytes_per_second); /* two ports */
  all_reduce_takes(slow, 2, 2 * latency, slow.host_link.bytes_per_second);
}

/* The tensor axis stays within hosts; the data axis spans them. */
static void check_axes(void) {
  sl_hardware h = machine;
  h.devices_per_host = 2;
  made m = make(1, 2, 2, "nothing", &h);
  double W = 4.0 * WIDTH * HIDDEN / 2; /* a device's part of a weight */
  double mine =
      2 * (3 * W / 2 / h.bytes_per_second + h.op_seconds + W / 2 / h.link.bytes_per_second);
  bool found = false;
  for (int32_t a = 0; a < m.plan->nactors; a++)
    found |= near(m.plan->actors[a].seconds, mine + h.link.seconds);
  CHECK(found, "gradients are summed between hosts in %.9g s", mine + h.link.seconds);
  forget(&m);
}

/* Checks the bytes sent to each device of the first stage. */
static void expect(const char *what, const made *m, sl_traffic traffic, double want) {
  uint64_t(*to)[SL_TRAFFIC_COUNT] = sli_calloc((size_t)m->plan->ndevices, sizeof *to);
  sl_lowered_moved(m->lowered, to);
  for (int d = 0; d < 4; d++)
    CHECK((double)to[d][traffic] == want, "%s: device %d gets %.0f bytes for %s, not %.0f", what, d,
          (double)to[d][traffic], sl_traffic_name(traffic), want);
  free(to);
}

static void check_bytes(void) {
  const double W = 4.0 * WIDTH * HIDDEN, Y = 4.0 * ROWS * WIDTH, H = 4.0 * ROWS * HIDDEN;
  made m = make(1, 4, 1, "nothing", &machine);
  expect("gradients", &m, SL_TRAFFIC_DATA, 2 * 2 * 3 * W / 4);
  expect("gradients", &m, SL_TRAFFIC_TENSOR, 0);
  expect("gradients", &m, SL_TRAFFIC_PIPELINE, 0);
  forget(&m);
  /* Sums of shards, and parameters gathered for each step. */
  m = make(1, 4, 1, "optimizer", &machine);
  expect("optimizer shared out", &m, SL_TRAFFIC_DATA, 2 * 2 * 3 * W / 4);
  forget(&m);
  m = make(1, 4, 1, "gradients", &machine); /* each tick */
  expect("gradients shared out", &m, SL_TRAFFIC_DATA, 2 * (MICROBATCHES * 3 * W / 4 + 3 * W / 4));
  forget(&m);
  /* w1 and w2 are gathered in the forward pass and w2 again in the backward pass: w1 has no input
   * gradient to compute. */
  m = make(1, 4, 1, "parameters", &machine);
  expect("parameters shared out", &m, SL_TRAFFIC_DATA, MICROBATCHES * (2 + 2 + 1) * 3 * W / 4);
  forget(&m);
  /* Row parts of the sum are exchanged for the loss, which computes its gradient in the same call;
   * then that gradient is gathered. */
  m = make(1, 1, 4, "nothing", &machine);
  expect("columns, then rows", &m, SL_TRAFFIC_TENSOR, MICROBATCHES * 2 * 3 * Y / 4);
  expect("columns, then rows", &m, SL_TRAFFIC_DATA, 0);
  forget(&m);
  m = make(2, 2, 2, "nothing", &machine); /* gradients of activations cross the stages in parts */
  expect("between stages", &m, SL_TRAFFIC_PIPELINE, MICROBATCHES * H / 4);
  forget(&m);
}

int main(void) {
  RUN(check_times);
  RUN(check_axes);
  RUN(check_bytes);
  return 0;
}
