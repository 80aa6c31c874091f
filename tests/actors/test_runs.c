/* SPDX-License-Identifier: Apache-2.0 */
/* Runs stop after whole steps, fail with their error text, continue where they ended, report who
 * waits for whom, and keep the newest part of their trace.
 * labels: smoke */
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include <sluice/runtime.h>

#include "base/base.h"
#include "tests/support/test.h"

enum { MICROBATCHES = 4, DEVICES = 3 };

static _Atomic int firings[DEVICES]; /* per device, of its actor */
static _Atomic int block_at = -1;    /* the firing in which the last actor blocks */
static _Atomic bool blocked;
static sl_runtime *failing; /* the runtime that the last actor makes fail */

static void count_op(const sl_call *call) {
  int device = call->attrs->attention.heads, firing = atomic_fetch_add(&firings[device], 1);
  if (device + 1 < DEVICES) return;
  if (firing == atomic_load(&block_at)) {
    atomic_store(&blocked, true);
    while (atomic_load(&blocked)) usleep(1000);
  }
  if (failing && firing == 2 * MICROBATCHES + 1)
    sl_runtime_fail(failing, SL_E_NUMERIC, "the loss is not finite");
}
static const sl_op count_row = {.name = "count", .max_in = -1, .kernels = SL_CPU_KERNEL(count_op)};

static sl_program *make_program(sl_plan *plan, int device) {
  sl_program *program = sl_plan_alloc(plan, sizeof *program);
  sl_program_call *call = sl_plan_alloc(plan, sizeof *call);
  *call =
      (sl_program_call){.op = &count_row, .name = "count", .attrs = {.attention.heads = device}};
  *program = (sl_program){.ncalls = 1, .calls = call, .nbases = 3};
  return program;
}

/* A line of one actor per device: "first", "second", "third". */
static sl_plan *line(void) {
  static const char *const names[DEVICES] = {"first", "second", "third"};
  static const char *const links[DEVICES] = {"x", "y", "z"};
  sl_plan *plan = sl_plan_create(MICROBATCHES, 1);
  int32_t each = sl_plan_map_each(plan);
  for (int d = 0; d < DEVICES; d++) {
    sl_plan_add_device(plan, (sl_device){.name = names[d], .kind = "cpu", .threads = 1});
    sl_plan_add_queue(plan, (sl_queue){.name = names[d], .device = d, .ops = &sl_queue_cpu});
    sl_plan_add_register(plan, (sl_register){.name = links[d],
                                             .quota_name = "link",
                                             .quota = 2,
                                             .pool = SL_NONE,
                                             .device = d,
                                             .slot_bytes = 64});
  }
  for (int d = 0; d < DEVICES; d++)
    sl_plan_add_actor(plan, (sl_actor){.name = names[d],
                                       .queue = d,
                                       .ticks = each,
                                       .nin = d > 0,
                                       .nout = d + 1 < DEVICES,
                                       .firings_per_step = MICROBATCHES,
                                       .in = &(sl_port){d - 1, each},
                                       .out = &(sl_port){d, each},
                                       .program = make_program(plan, d)});
  plan->nregs--; /* the last one has no writer */
  CHECK(!sl_plan_finish(plan), "%s", sl_detail());
  return plan;
}

static sl_runtime *start(const sl_plan *plan, sl_runtime_options options) {
  sl_runtime *rt;
  for (int d = 0; d < DEVICES; d++) atomic_store(&firings[d], 0);
  CHECK(!sl_runtime_create(plan, &options, &rt), "%s", sl_detail());
  return rt;
}

static void check_firings(int64_t steps, const char *when) {
  for (int d = 0; d < DEVICES; d++)
    CHECK(atomic_load(&firings[d]) == steps * MICROBATCHES,
          "%s: actor %d fired %d times in %" PRId64 " steps", when, d, atomic_load(&firings[d]),
          steps);
}

static void runs_go_on(const sl_plan *plan, int workers) {
  sl_runtime *rt = start(plan, (sl_runtime_options){.workers = workers});
  for (int64_t steps = 0, run = 0; run < 20; run++) {
    CHECK(!sl_runtime_run(rt, run % 4), "%s", sl_detail());
    steps += run % 4;
    CHECK(sl_runtime_steps(rt) == steps, "%" PRId64 " steps counted", sl_runtime_steps(rt));
    check_firings(steps, "runs one after another");
  }
  sl_runtime_destroy(rt);
}

static void *stop_later(void *rt) {
  while (atomic_load(&firings[0]) < 40) sched_yield();
  sl_runtime_stop(rt);
  return NULL;
}

static void a_stop_ends_all_workers_after_the_same_step(const sl_plan *plan, int workers) {
  sl_runtime *rt =
      start(plan, (sl_runtime_options){.workers = workers, .jitter_seed = 7, .jitter_ns = 20000});
  pthread_t stopper;
  CHECK(!pthread_create(&stopper, NULL, stop_later, rt), "no thread");
  sl_status status = sl_runtime_run(rt, 1 << 30);
  pthread_join(stopper, NULL);
  CHECK(status == SL_E_STOPPED, "%s", sl_status_text(status));
  CHECK(sl_runtime_steps(rt) >= 10 && sl_runtime_steps(rt) < 1 << 20, "stopped at another time");
  check_firings(sl_runtime_steps(rt), "after a stop");
  CHECK(sl_runtime_run(rt, 1) == SL_E_STOPPED, "a stopped runtime goes on");
  check_firings(sl_runtime_steps(rt), "after a run of a stopped runtime");
  int64_t steps = sl_runtime_steps(rt);
  CHECK(!sl_runtime_resume(rt) && !sl_runtime_run(rt, 3), "%s", sl_detail());
  CHECK(sl_runtime_steps(rt) == steps + 3, "%" PRId64 " steps, and 3 more: %" PRId64, steps,
        sl_runtime_steps(rt));
  check_firings(steps + 3, "after a run of a resumed runtime");
  sl_runtime_destroy(rt);
}

static void a_stop_before_the_run_fires_nothing(const sl_plan *plan) {
  sl_runtime *rt = start(plan, (sl_runtime_options){.workers = 2});
  sl_runtime_stop(rt);
  CHECK(sl_runtime_run(rt, 5) == SL_E_STOPPED && sl_runtime_steps(rt) == 0, "it ran");
  check_firings(0, "after a stop before the run");
  CHECK(!sl_runtime_resume(rt) && !sl_runtime_run(rt, 5), "%s", sl_detail());
  check_firings(5, "after a stop that was taken back");
  sl_runtime_destroy(rt);
}

static void a_failure_ends_the_run_with_its_text(const sl_plan *plan, int workers) {
  sl_runtime *rt = failing = start(plan, (sl_runtime_options){.workers = workers});
  sl_status status = sl_runtime_run(rt, 1 << 30);
  failing = NULL;
  CHECK(status == SL_E_NUMERIC && !strcmp(sl_detail(), "the loss is not finite"), "%s: %s",
        sl_status_text(status), sl_detail());
  CHECK(sl_runtime_steps(rt) >= 3, "step 2, in which it failed, is not whole");
  check_firings(sl_runtime_steps(rt), "after a failure");
  int64_t steps = sl_runtime_steps(rt);
  CHECK(!sl_runtime_resume(rt) && !sl_runtime_run(rt, 2), "%s", sl_detail());
  check_firings(steps + 2, "after a failure that was forgiven");
  sl_runtime_destroy(rt);
}

/* ---- the watchdog ------------------------------------------------------------------- */

static void *unblock_later(void *rt) {
  (void)rt;
  while (!atomic_load(&blocked)) usleep(1000);
  usleep(500000);
  atomic_store(&block_at, -1);
  atomic_store(&blocked, false);
  return NULL;
}

static void the_watchdog_says_who_waits(const sl_plan *plan) {
  char path[] = "/tmp/test_actors_XXXXXX", text[8192];
  int file = mkstemp(path), terminal = dup(STDERR_FILENO);
  unlink(path);
  dup2(file, STDERR_FILENO);
  atomic_store(&block_at, 5);
  sl_runtime *rt = start(plan, (sl_runtime_options){.workers = 3, .watchdog_seconds = 0.1});
  pthread_t unblocker;
  CHECK(!pthread_create(&unblocker, NULL, unblock_later, NULL), "no thread");
  sl_status status = sl_runtime_run(rt, 8);
  dup2(terminal, STDERR_FILENO);
  pthread_join(unblocker, NULL);
  sl_runtime_destroy(rt);
  ssize_t n = pread(file, text, sizeof text - 1, 0);
  text[n > 0 ? n : 0] = 0;
  CHECK(!status, "%s", sl_detail());
  CHECK(strstr(text, "no actor has fired for 0 s"), "the watchdog did not bark:\n%s", text);
  /* "third" is in its 6th firing and holds 2 slots of y; "second" has filled both. */
  CHECK(strstr(text, "third (firing 5)"), "the one that blocks is not named:\n%s", text);
  close(file);
  close(terminal);
}

/* ---- traces -------------------------------------------------------------------------- */

static void a_full_ring_drops_the_oldest(const sl_plan *plan) {
  sl_runtime *rt = start(plan, (sl_runtime_options){.workers = 1, .trace_records = 64});
  CHECK(!sl_runtime_run(rt, 20), "%s", sl_detail());
  sl_trace_record *records;
  uint64_t dropped;
  size_t n = sl_runtime_trace(rt, &records, &dropped);
  CHECK(n == 64 && dropped == 20 * DEVICES * MICROBATCHES - 64, "%zu kept, %" PRIu64 " dropped", n,
        dropped);
  int64_t last[DEVICES] = {-1, -1, -1};
  for (size_t i = 0; i < n; i++) {
    CHECK(last[records[i].actor] < 0 || records[i].firing == last[records[i].actor] + 1,
          "a hole in what was kept of actor %d", records[i].actor);
    CHECK(!i || records[i].start_ns >= records[i - 1].start_ns, "not in order of start");
    last[records[i].actor] = records[i].firing;
  }
  for (int d = 0; d < DEVICES; d++)
    CHECK(last[d] == 20 * MICROBATCHES - 1, "the newest of actor %d is %" PRId64, d, last[d]);
  free(records);
  sl_runtime_destroy(rt);
}

/* ---- impossible plans ------------------------------------------------------------------ */

/* "writer" fills x in order, "reader" empties it in reverse order, two at a time. */
static sl_plan *backwards(int32_t quota) {
  sl_plan *plan = sl_plan_create(2, 2);
  int32_t each = sl_plan_map_each(plan);
  sl_map_entry turned[2] = {{1, SL_FIRST | SL_LAST}, {0, SL_FIRST | SL_LAST}};
  int32_t back = sl_plan_add_map(plan, 2, 2, turned);
  sl_plan_add_device(plan, (sl_device){.name = "d", .kind = "null"});
  sl_plan_add_queue(plan, (sl_queue){.name = "d", .ops = &sl_queue_null});
  sl_plan_add_register(
      plan, (sl_register){.name = "x", .quota_name = "act.b", .quota = quota, .pool = SL_NONE});
  sl_plan_add_actor(plan, (sl_actor){.name = "writer",
                                     .stage = SL_NONE,
                                     .ticks = each,
                                     .firings_per_step = 4,
                                     .nout = 1,
                                     .out = &(sl_port){0, each}});
  sl_plan_add_actor(plan, (sl_actor){.name = "reader",
                                     .ticks = each,
                                     .firings_per_step = 4,
                                     .nin = 1,
                                     .in = &(sl_port){0, back}});
  return plan;
}

static void a_cycle_of_credits_is_written_out(void) {
  sl_plan *plan = backwards(1);
  CHECK(!sl_plan_finish(plan), "%s", sl_detail());
  CHECK(sl_plan_prove(plan) == SL_E_STUCK, "accepted");
  static const char *const lines[] = {
      "these actors wait for each other in a cycle:\n",
      "  writer (firing 1) waits for a free slot of register x (quota act.b = 1) from reader\n",
      "  reader (firing 0) waits for key 1 of register x from writer", "act.b=2"};
  for (size_t i = 0; i < SLI_COUNT(lines); i++)
    CHECK(strstr(sl_detail(), lines[i]), "\"%s\" is missing in:\n%s", lines[i], sl_detail());
  sl_plan_destroy(plan);
  plan = backwards(2);
  CHECK(!sl_plan_finish(plan) && !sl_plan_prove(plan), "%s", sl_detail());
  sl_plan_destroy(plan);
}

static void check_refused(sl_plan *plan, sl_status want, const char *text) {
  sl_status status = sl_plan_finish(plan);
  CHECK(status == want && strstr(sl_detail(), text), "%d with \"%s\" instead of \"%s\"", status,
        status ? sl_detail() : "", text);
  sl_plan_destroy(plan);
}

static void impossible_plans_are_refused_by_name(void) {
  sl_plan *plan = backwards(0);
  check_refused(plan, SL_E_USAGE, "register x: quota act.b is 0");

  plan = backwards(1);
  plan->regs[0].initial = 2;
  check_refused(plan, SL_E_USAGE, "register x: 2 initial slots do not fit in quota act.b = 1");

  plan = backwards(2);
  plan->regs[0].initial = 1; /* but the writer begins with key 0 */
  check_refused(plan, SL_E_INPUT, "actor writer writes register x starting at key 0");

  plan = backwards(2);
  plan->actors[0].nout = 0;
  check_refused(plan, SL_E_INPUT, "register x has no producer");

  plan = backwards(2);
  plan->actors[0].nout = 0;
  plan->regs[0].initial = 1; /* never written again, but the reader returns it */
  check_refused(plan, SL_E_INPUT, "actor reader returns register x");

  plan = backwards(2);
  sl_plan_add_device(plan, (sl_device){.name = "e", .kind = "null"});
  plan->regs[0].device = 1;
  plan->regs[0].activation = 1;
  check_refused(plan, SL_E_INPUT, "register x is on device e but written on d");

  plan = backwards(2);
  plan->regs[0].pool = sl_plan_add_pool(plan, (sl_pool){.name = "p", .quota = 1});
  plan->regs[0].kept = 2;
  check_refused(plan, SL_E_USAGE, "pool p: quota 1");
}

/* The plan finishes only if the pool lends x a second slot, which is not guaranteed. */
static void a_plan_must_finish_on_what_its_pools_keep(void) {
  for (int32_t kept = 1; kept <= 2; kept++) {
    sl_plan *plan = backwards(2);
    plan->regs[0].pool = sl_plan_add_pool(plan, (sl_pool){.name = "p", .quota = 4});
    plan->regs[0].kept = kept;
    CHECK(!sl_plan_finish(plan), "%s", sl_detail());
    sl_status status = sl_plan_prove(plan);
    CHECK(status == (kept == 1 ? SL_E_STUCK : SL_OK), "%d slots kept: %s", kept, sl_detail());
    sl_plan_destroy(plan);
  }
}

/* ---- completions without notification --------------------------------------------------- */

/* A queue whose firings take a while and must be polled. */
typedef struct silent {
  uint64_t done_ns;
} silent;

static sl_status open_silent(const sl_queue_config *config, void **queue) {
  (void)config;
  *queue = sli_calloc(1, sizeof(silent));
  return SL_OK;
}
static bool launch_silent(void *queue, const sl_program *program, const sl_firing *firing,
                          uint64_t now_ns, uint64_t duration_ns, uint64_t *fence) {
  (void)program, (void)firing, (void)now_ns, (void)duration_ns;
  *fence = ((silent *)queue)->done_ns = sli_now_ns() + 1000000;
  return false;
}
static bool done_silent(void *queue, uint64_t fence, uint64_t now_ns) {
  (void)queue, (void)now_ns;
  return sli_now_ns() >= fence;
}
static uint64_t due_silent(void *queue, uint64_t fence) {
  (void)queue, (void)fence;
  return UINT64_MAX;
}

/* Peers from which nothing arrives. */
static bool no_progress(void *ctx) {
  (void)ctx;
  return false;
}
static void wait_for_peers(void *ctx, uint64_t timeout_ns) {
  if (timeout_ns == UINT64_MAX) *(bool *)ctx = true;
  usleep(20);
}
static void wake_nobody(void *ctx) { (void)ctx; }

/* The worker that carries messages between processes also has queues that never notify it. */
static void a_carrier_asks_its_own_queues(void) {
  static const sl_queue_ops ops = {.name = "silent",
                                   .modelled = true,
                                   .open = open_silent,
                                   .close = free,
                                   .launch = launch_silent,
                                   .done = done_silent,
                                   .due = due_silent};
  bool slept_for_ever = false;
  sl_peers peers = {
      .ctx = &slept_for_ever, .progress = no_progress, .wait = wait_for_peers, .wake = wake_nobody};
  sl_plan *plan = sl_plan_create(MICROBATCHES, 1);
  sl_plan_add_device(plan, (sl_device){.name = "first", .kind = "null", .threads = 1});
  sl_plan_add_queue(plan, (sl_queue){.name = "first", .ops = &ops});
  sl_plan_add_actor(plan, (sl_actor){.name = "first",
                                     .ticks = sl_plan_map_each(plan),
                                     .firings_per_step = MICROBATCHES,
                                     .source = true});
  CHECK(!sl_plan_finish(plan), "%s", sl_detail());
  sl_runtime_options options = {.workers = 1, .no_data = true, .peers = &peers};
  sl_runtime *rt;
  CHECK(!sl_runtime_create(plan, &options, &rt), "%s", sl_detail());
  CHECK(!sl_runtime_run(rt, 1), "%s", sl_detail());
  CHECK(!slept_for_ever,
        "the carrier slept until its peers speak while a firing of its own went on");
  sl_runtime_destroy(rt);
  sl_plan_destroy(plan);
}

int main(void) {
  sl_plan *plan = line();
  for (int workers = 1; workers <= 3; workers++) {
    RUN(runs_go_on, plan, workers);
    for (int i = 0; i < 5; i++) RUN(a_stop_ends_all_workers_after_the_same_step, plan, workers);
    RUN(a_failure_ends_the_run_with_its_text, plan, workers);
  }
  RUN(a_stop_before_the_run_fires_nothing, plan);
  RUN(the_watchdog_says_who_waits, plan);
  RUN(a_full_ring_drops_the_oldest, plan);
  sl_plan_destroy(plan);
  RUN(a_cycle_of_credits_is_written_out);
  RUN(impossible_plans_are_refused_by_name);
  RUN(a_plan_must_finish_on_what_its_pools_keep);
  RUN(a_carrier_asks_its_own_queues);
  return 0;
}
