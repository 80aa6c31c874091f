/* SPDX-License-Identifier: Apache-2.0 */
/* Actors that skip steps fire in the right ones and delay nothing else. A run may begin at any step
 * and stop in any. */
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include <sluice/runtime.h>

#include "base/base.h"
#include "tests/support/test.h"

enum { MICROBATCHES = 3, TICKS = MICROBATCHES, EVERY = 4 };

/* Each variable is written by only one actor's worker and read between runs. */
static int64_t steps_updated, sparse_steps, kept[64];
static int nkept;
static atomic_int stores_under_way;
static unsigned store_us;
static sl_runtime *stopped;
static int64_t stop_at;

static void load(const sl_call *call) { *(int64_t *)call->out[0] = call->tick.number; }

/* Sums a step's ticks; every EVERY steps it writes the sum to its second output. */
static void update(const sl_call *call) {
  int64_t *sum = call->out[0];
  *sum += *(const int64_t *)call->in[0];
  if (call->tick.microbatch + 1 < MICROBATCHES) return;
  steps_updated++;
  if (call->tick.step == stop_at && stopped) sl_runtime_stop(stopped);
}

static void copy(const sl_call *call) {
  memcpy(call->out[0], call->in[0], 8);
  sparse_steps++;
}

static void store(const sl_call *call) {
  CHECK(atomic_fetch_add(&stores_under_way, 1) == 0, "one at a time");
  CHECK(call->tick.step % EVERY == EVERY - 1, "step %lld is stored", (long long)call->tick.step);
  CHECK(call->tick.microbatch == MICROBATCHES - 1, "at its end");
  if (store_us) usleep(store_us);
  kept[nkept++] = *(const int64_t *)call->in[0];
  atomic_fetch_sub(&stores_under_way, 1);
}

static const sl_op load_row = {.name = "load", .kernels = SL_CPU_KERNEL(load)},
                   update_row = {.name = "update", .kernels = SL_CPU_KERNEL(update)},
                   copy_row = {.name = "copy_sum", .kernels = SL_CPU_KERNEL(copy)},
                   store_row = {.name = "store", .kernels = SL_CPU_KERNEL(store)};

static const sl_type type = {SL_F64, 0, {0}};
static const sl_place places[] = {{0, 0}, {1, 0}, {2, 0}};

static sl_program_call make_call(const sl_op *op, int nin, const sl_place *in, int nout,
                                 const sl_place *out) {
  return (sl_program_call){.op = op,
                           .name = op->name,
                           .nin = nin,
                           .nout = nout,
                           .in_type = &type,
                           .out_type = &type,
                           .in = in,
                           .out = out};
}

static sl_program *make_program(sl_plan *plan, int ncalls, const sl_program_call *calls,
                                int ports) {
  sl_program *p = sl_plan_alloc(plan, sizeof *p);
  p->calls = sl_plan_alloc(plan, (size_t)ncalls * sizeof *calls);
  memcpy(p->calls, calls, (size_t)ncalls * sizeof *calls);
  p->ncalls = ncalls;
  p->nbases = ports + 1;
  return p;
}

/* load -> update -> (every 4th step) store; the sum is the private state of the update. */
static sl_plan *make_plan(int every) {
  sl_plan *plan = sl_plan_create(MICROBATCHES, 1);
  sl_plan_add_device(plan, (sl_device){.name = "d", .kind = "cpu", .threads = 1});
  sl_plan_add_queue(plan, (sl_queue){.name = "pass", .ops = &sl_queue_cpu});
  sl_plan_add_queue(plan, (sl_queue){.name = "disk", .ops = &sl_queue_cpu, .apart = true});
  sl_register reg = {
      .name = "tick", .quota_name = "load", .quota = 2, .pool = SL_NONE, .slot_bytes = 8};
  sl_plan_add_register(plan, reg);
  reg.name = "sum", reg.quota_name = "state", reg.quota = 1, reg.held = true;
  sl_plan_add_register(plan, reg);
  reg.name = "stored", reg.quota_name = "store", reg.held = false;
  sl_plan_add_register(plan, reg);
  int32_t each = sl_plan_map_each(plan), hold = sl_plan_map_hold(plan);
  int period = every * MICROBATCHES;
  sl_map_entry entries[period];
  for (int i = 0; i < period; i++)
    entries[i] = (sl_map_entry){0, i + 1 < period ? SL_SKIP : SL_FIRST | SL_LAST};
  int32_t sparse = sl_plan_add_map(plan, (uint32_t)period, 1, entries);
  sl_map_entry last = {every * TICKS - 1, SL_FIRST | SL_LAST};
  sl_program_call one = make_call(&load_row, 0, NULL, 1, &places[0]);
  sl_plan_add_actor(plan, (sl_actor){.name = "load",
                                     .ticks = each,
                                     .cls = SL_CLASS_L,
                                     .firings_per_step = TICKS,
                                     .nout = 1,
                                     .out = &(sl_port){0, each},
                                     .program = make_program(plan, 1, &one, 1)});
  sl_program_call two[] = {make_call(&update_row, 1, &places[0], 1, &places[1]),
                           make_call(&copy_row, 1, &places[1], 1, &places[2])};
  sl_plan_add_actor(plan, (sl_actor){.name = "update",
                                     .ticks = each,
                                     .cls = SL_CLASS_U,
                                     .firings_per_step = TICKS,
                                     .nin = 1,
                                     .in = &(sl_port){0, each},
                                     .nout = 2,
                                     .out = (sl_port[]){{1, hold}, {2, sparse}},
                                     .program = make_program(plan, 2, two, 3)});
  one = make_call(&store_row, 1, &places[0], 0, NULL);
  sl_plan_add_actor(plan, (sl_actor){.name = "store",
                                     .queue = 1,
                                     .cls = SL_CLASS_L,
                                     .ticks = sl_plan_add_map(plan, 1, every * TICKS, &last),
                                     .firings_per_step = 1,
                                     .every = every,
                                     .nin = 1,
                                     .in = &(sl_port){2, each},
                                     .program = make_program(plan, 1, &one, 1)});
  CHECK(!sl_plan_finish(plan), "%s", sl_detail());
  CHECK(!sl_plan_prove(plan), "%s", sl_detail());
  return plan;
}

/* Returns the sum of all ticks of `steps` steps. */
static int64_t sum_of(int64_t steps) { return steps * TICKS * (steps * TICKS - 1) / 2; }

static sl_runtime *make_runtime(const sl_plan *plan, int64_t first, int workers) {
  sl_runtime *rt;
  sl_runtime_options options = {.first_step = first, .workers = workers};
  CHECK(!sl_runtime_create(plan, &options, &rt), "%s", sl_detail());
  *(int64_t *)sl_runtime_slot(rt, 1, 0) = sum_of(first);
  nkept = 0;
  steps_updated = sparse_steps = 0;
  return rt;
}

static void check_kept(int64_t first, int64_t last) {
  int64_t n = last / EVERY - first / EVERY;
  CHECK(nkept == n && sparse_steps == n, "steps %lld to %lld store %lld times, not %d and %lld",
        (long long)first, (long long)last, (long long)n, nkept, (long long)sparse_steps);
  CHECK(steps_updated == last - first, "every step is run");
  for (int i = 0; i < nkept; i++)
    CHECK(kept[i] == sum_of((first / EVERY + i + 1) * EVERY), "what is stored is of that step");
}

static void a_run_may_begin_and_end_anywhere(const sl_plan *plan) {
  for (int64_t first = 0; first < 10; first++)
    for (int64_t steps = 1; steps < 10; steps++) {
      sl_runtime *rt = make_runtime(plan, first, 1);
      CHECK(!sl_runtime_run(rt, steps), "%s", sl_detail());
      check_kept(first, first + steps);
      CHECK(!sl_runtime_run(rt, 3), "%s", sl_detail()); /* continues */
      check_kept(first, first + steps + 3);
      CHECK(sl_runtime_steps(rt) == first + steps + 3, "steps count from the start");
      sl_trace_record *records;
      size_t n = sl_runtime_trace(rt, &records, NULL);
      int64_t traced = sl_plan_tick(plan, records[0].actor, records[0].firing).step;
      CHECK(traced == first, "step %lld comes first in the trace, not %lld at %llu and %llu ns",
            (long long)first, (long long)traced, (unsigned long long)records[0].start_ns,
            (unsigned long long)records[1].start_ns);
      CHECK(n == (size_t)((steps + 3) * 2 * TICKS + nkept), "with every firing");
      free(records);
      sl_runtime_destroy(rt);
    }
}

static void a_slow_store_delays_only_the_next(const sl_plan *plan) {
  store_us = 3000;
  sl_runtime *rt = make_runtime(plan, 0, 1);
  CHECK(!sl_runtime_run(rt, 40), "%s", sl_detail());
  check_kept(0, 40);
  CHECK(sl_runtime_peak_slots(rt, 2) == 1, "with one slot");
  sl_runtime_destroy(rt);
  store_us = 0;
}

static void a_stop_begins_no_step_for_the_sake_of_a_store(const sl_plan *plan) {
  for (stop_at = 3; stop_at < 12; stop_at++) {
    sl_runtime *rt = stopped = make_runtime(plan, 2, 1);
    CHECK(sl_runtime_run(rt, 1000) == SL_E_STOPPED, "the run is stopped");
    int64_t steps = sl_runtime_steps(rt);
    CHECK(steps > stop_at && steps <= stop_at + 2, "after the step under way, not %lld",
          (long long)steps);
    check_kept(2, steps);
    sl_runtime_destroy(rt);
  }
  stopped = NULL;
}

static void it_needs_an_input(void) {
  sl_plan *plan = sl_plan_create(1, 1);
  sl_plan_add_device(plan, (sl_device){.name = "d", .kind = "cpu", .threads = 1});
  sl_plan_add_queue(plan, (sl_queue){.name = "q", .ops = &sl_queue_cpu});
  sl_plan_add_actor(
      plan,
      (sl_actor){
          .name = "lonely", .firings_per_step = 1, .every = 2, .ticks = sl_plan_map_each(plan)});
  CHECK(sl_plan_finish(plan) == SL_E_INPUT && strstr(sl_detail(), "lonely"), "%s", sl_detail());
  sl_plan_destroy(plan);
}

int main(void) {
  sl_plan *plan = make_plan(EVERY);
  RUN(a_run_may_begin_and_end_anywhere, plan);
  RUN(a_slow_store_delays_only_the_next, plan);
  RUN(a_stop_begins_no_step_for_the_sake_of_a_store, plan);
  sl_plan_destroy(plan);
  sl_plan_destroy(make_plan(1));
  sl_plan_destroy(make_plan(1000));
  RUN(it_needs_an_input);
  return 0;
}
