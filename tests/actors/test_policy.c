/* SPDX-License-Identifier: Apache-2.0 */
/* Quotas may change during a run without changing the data. Look-ahead waits for the better firing.
 * A fixed order is kept, or refused if impossible.
 * labels: smoke */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include <sluice/runtime.h>

#include "base/base.h"
#include "tests/support/test.h"

enum { STAGES = 4, MICROBATCHES = 16, STEPS = 1500, MOST = 8 };

/* ---- live quotas ------------------------------------------------------------------ */

static int64_t delivered; /* written only by the last stage's worker */

/* A stage passes on its input plus one; the first stage emits the tick number. */
static void hand_on(const sl_call *call) {
  int64_t value = call->nin ? *(const int64_t *)call->in[0] + 1 : call->tick.number;
  if (call->nout) {
    *(int64_t *)call->out[0] = value;
    return;
  }
  CHECK(value == call->tick.number + STAGES - 1, "tick %lld delivered %lld",
        (long long)call->tick.number, (long long)value);
  CHECK(call->tick.number == delivered, "tick %lld came in place of %lld",
        (long long)call->tick.number, (long long)delivered);
  delivered++;
}
static const sl_op hand_on_row = {
    .name = "hand_on", .max_in = -1, .kernels = SL_CPU_KERNEL(hand_on)};

static sl_program *make_program(sl_plan *plan, int nin, int nout) {
  static const sl_place in = {0, 0}, first_out = {0, 0}, second_out = {1, 0};
  static const sl_type type = {SL_F64, 0, {0}};
  sl_program *program = sl_plan_alloc(plan, sizeof *program);
  program->calls = sl_plan_alloc(plan, sizeof *program->calls);
  program->ncalls = 1;
  program->nbases = nin + nout + 1;
  program->calls[0] = (sl_program_call){.op = &hand_on_row,
                                        .name = "hand_on",
                                        .nin = nin,
                                        .nout = nout,
                                        .in_type = &type,
                                        .out_type = &type,
                                        .in = &in,
                                        .out = nin ? &second_out : &first_out};
  return program;
}

static sl_plan *make_line(void) {
  static const char *const names[] = {"a", "b", "c", "d"};
  sl_plan *plan = sl_plan_create(MICROBATCHES, 1);
  int32_t each = sl_plan_map_each(plan);
  for (int s = 0; s < STAGES; s++) {
    sl_plan_add_device(plan, (sl_device){.name = names[s], .kind = "cpu", .threads = 1});
    sl_plan_add_queue(plan, (sl_queue){.name = names[s], .device = s, .ops = &sl_queue_cpu});
    if (s + 1 < STAGES)
      sl_plan_add_register(plan, (sl_register){.name = names[s],
                                               .quota_name = "link",
                                               .quota = 3,
                                               .quota_most = MOST,
                                               .pool = SL_NONE,
                                               .device = s,
                                               .slot_bytes = 8});
    sl_plan_add_actor(plan, (sl_actor){.name = names[s],
                                       .queue = s,
                                       .ticks = each,
                                       .firings_per_step = MICROBATCHES,
                                       .nin = s > 0,
                                       .in = &(sl_port){s - 1, each},
                                       .nout = s + 1 < STAGES,
                                       .out = &(sl_port){s, each},
                                       .program = make_program(plan, s > 0, s + 1 < STAGES)});
  }
  CHECK(!sl_plan_finish(plan), "%s", sl_detail());
  return plan;
}

typedef struct changer {
  sl_runtime *rt;
  atomic_bool done;
  int changed;
} changer;

static void *change_quotas(void *arg) {
  changer *c = arg;
  uint64_t state = 7;
  while (!atomic_load(&c->done)) {
    state = state * UINT64_C(6364136223846793005) + 1442695040888963407u;
    int32_t reg = (int32_t)(state >> 33) % (STAGES - 1), slots = 1 + (int32_t)(state >> 45) % MOST;
    sl_status status = sl_runtime_set_quotas(c->rt, 1, &(sl_quota_change){reg, slots});
    CHECK(!status, "%s", sl_detail());
    c->changed++;
  }
  return NULL;
}

static void quotas_change_while_a_run_goes_on(void) {
  sl_plan *plan = make_line();
  changer c = {0};
  pthread_t thread;
  sl_runtime_options options = {.workers = STAGES};
  CHECK(!sl_runtime_create(plan, &options, &c.rt), "%s", sl_detail());
  CHECK(!pthread_create(&thread, NULL, change_quotas, &c), "no thread");
  CHECK(!sl_runtime_run(c.rt, STEPS), "%s", sl_detail());
  atomic_store(&c.done, true);
  pthread_join(thread, NULL);
  CHECK(delivered == (int64_t)STEPS * MICROBATCHES, "%lld delivered", (long long)delivered);
  CHECK(c.changed > 10, "only %d changes were taken", c.changed);
  for (int32_t r = 0; r + 1 < STAGES; r++)
    CHECK(sl_runtime_peak_slots(c.rt, r) <= MOST, "register %d: %d slots in use", r,
          sl_runtime_peak_slots(c.rt, r));
  sl_status status = sl_runtime_set_quotas(c.rt, 1, &(sl_quota_change){1, MOST + 1});
  CHECK(status == SL_E_USAGE && strstr(sl_detail(), "register b can have 1 to 8 slots"), "%s",
        sl_detail());
  sl_runtime_destroy(c.rt);
  sl_plan_destroy(plan);
}

/* A lowered quota holds once the slots in use have been returned. */
static void a_lowered_quota_holds(void) {
  sl_plan *plan = make_line();
  sl_runtime *rt;
  sl_quota_change one[] = {{0, 1}, {1, 1}, {2, 1}};
  delivered = 0;
  CHECK(!sl_runtime_create(plan, &(sl_runtime_options){.workers = 1}, &rt), "%s", sl_detail());
  CHECK(!sl_runtime_set_quotas(rt, 3, one), "%s", sl_detail());
  CHECK(!sl_runtime_run(rt, 3), "%s", sl_detail());
  for (int32_t r = 0; r + 1 < STAGES; r++)
    CHECK(sl_runtime_peak_slots(rt, r) <= 1, "register %d: %d slots in use", r,
          sl_runtime_peak_slots(rt, r));
  sl_runtime_destroy(rt);
  sl_plan_destroy(plan);
}

/* ---- look-ahead and order ------------------------------------------------------------ */

enum { EARLY, LATE, LONG };

/* On one device `late` goes before `long`, but its input arrives half a second later. */
static sl_plan *make_choice(double look_ahead) {
  sl_plan *plan = sl_plan_create(1, 1);
  int32_t each = sl_plan_map_each(plan);
  for (int q = 0; q < 2; q++) {
    sl_plan_add_device(plan, (sl_device){.name = q ? "here" : "there", .kind = "timed"});
    sl_queue queue = {.name = q ? "here" : "there",
                      .device = q,
                      .ops = &sl_queue_timed,
                      .class_order = {[SL_CLASS_F] = 0, [SL_CLASS_B] = 1},
                      .look_ahead = q ? look_ahead : 0};
    sl_plan_add_queue(plan, queue);
  }
  int32_t link = sl_plan_add_register(
      plan, (sl_register){.name = "link", .quota_name = "link", .quota = 1, .pool = SL_NONE});
  sl_port port = {link, each};
  sl_actor early = {.name = "early",
                    .queue = 0,
                    .ticks = each,
                    .firings_per_step = 1,
                    .nout = 1,
                    .out = &port,
                    .seconds = 0.5},
           late = {.name = "late",
                   .queue = 1,
                   .ticks = each,
                   .firings_per_step = 1,
                   .nin = 1,
                   .in = &port,
                   .seconds = 1},
           slow = {.name = "long",
                   .cls = SL_CLASS_B,
                   .queue = 1,
                   .ticks = each,
                   .firings_per_step = 1,
                   .seconds = 10};
  sl_plan_add_actor(plan, early);
  sl_plan_add_actor(plan, late);
  sl_plan_add_actor(plan, slow);
  CHECK(!sl_plan_finish(plan), "%s", sl_detail());
  return plan;
}

static double start_of(const sl_plan *plan, int32_t actor) {
  sl_runtime *rt;
  sl_trace_record *records;
  double start = -1;
  CHECK(!sl_runtime_create(plan, &(sl_runtime_options){.clock = SL_CLOCK_VIRTUAL}, &rt), "%s",
        sl_detail());
  CHECK(!sl_runtime_run(rt, 1), "%s", sl_detail());
  size_t n = sl_runtime_trace(rt, &records, NULL);
  for (size_t i = 0; i < n; i++)
    if (records[i].actor == actor) start = (double)records[i].start_ns * 1e-9;
  free(records);
  sl_runtime_destroy(rt);
  return start;
}

static void look_ahead_waits_for_what_is_near(void) {
  const struct { double look_ahead, late; } cases[] = {{0, 10}, {0.4, 10}, {0.6, 0.5}};
  for (size_t i = 0; i < SLI_COUNT(cases); i++) {
    sl_plan *plan = make_choice(cases[i].look_ahead);
    double start = start_of(plan, LATE);
    CHECK(start == cases[i].late, "look-ahead %g: late starts at %g", cases[i].look_ahead, start);
    sl_plan_destroy(plan);
  }
}

static void a_fixed_order_is_kept_or_refused(void) {
  static const int32_t good[] = {LATE, LONG}, twice[] = {LONG, LONG};
  sl_plan *plan = make_choice(0);
  plan->queues[1].order = good;
  plan->queues[1].norder = 2;
  CHECK(!sl_plan_finish(plan), "%s", sl_detail());
  CHECK(start_of(plan, LATE) == 0.5, "the order was not kept");
  plan->queues[1].order = twice;
  CHECK(sl_plan_finish(plan) == SL_E_USAGE && strstr(sl_detail(), "lists late 0 times"), "%s",
        sl_detail());
  sl_plan_destroy(plan);
}

int main(void) {
  RUN(quotas_change_while_a_run_goes_on);
  RUN(a_lowered_quota_holds);
  RUN(look_ahead_waits_for_what_is_near);
  RUN(a_fixed_order_is_kept_or_refused);
  return 0;
}
