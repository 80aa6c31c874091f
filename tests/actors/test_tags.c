/* SPDX-License-Identifier: Apache-2.0 */
/* Tests tagged slots (SLUICE_CHECK=slots). If the plan's maps give a reader another tick's result,
 * or a register that another one has overwritten, the process ends and reports the tag it found. A
 * plan whose calls would read missing data is refused. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <sluice/ops.h>
#include <sluice/runtime.h>

#include "base/base.h"
#include "tests/support/test.h"

enum { MICROBATCHES = 3, NUMBERS = 16 };

static void make(const sl_call *call) {
  for (int o = 0; o < call->nout; o++) memset(call->out[o], 0, NUMBERS * sizeof(float));
}
static const sl_op make_op = {.name = "make", .max_in = -1, .kernels = SL_CPU_KERNEL(make)};
static const sl_op need_op = {
    .name = "need", .min_in = 1, .max_in = 1, .nout = 1, .kernels = SL_CPU_KERNEL(make)};
static const sl_op fill_op = {.name = "fill",
                              .nout = 1,
                              .kernels = SL_CPU_KERNEL(make),
                              .rows = &(const sl_op_rows){.fills = 1}};

/* A program of one call with `nin` inputs and `nout` outputs, each in its port's slot. */
static sl_program *program_of(sl_plan *plan, const sl_op *op, int nin, int nout) {
  sl_program *program = sl_plan_alloc(plan, sizeof *program);
  sl_program_call *call = sl_plan_alloc(plan, sizeof *call);
  sl_type *types = sl_plan_alloc(plan, (size_t)(nin + nout) * sizeof *types);
  sl_place *places = sl_plan_alloc(plan, (size_t)(nin + nout) * sizeof *places);
  for (int i = 0; i < nin + nout; i++) types[i] = SL_TYPE(SL_F32, NUMBERS), places[i].base = i;
  *call = (sl_program_call){.op = op,
                            .name = op->name,
                            .nin = nin,
                            .nout = nout,
                            .in_type = types,
                            .out_type = types + nin,
                            .in = places,
                            .out = places + nin};
  *program = (sl_program){.ncalls = 1, .calls = call, .nbases = nin + nout + 1};
  return program;
}

static void add_register(sl_plan *plan, const char *name, int32_t over, int32_t rows) {
  sl_plan_add_register(plan, (sl_register){.name = name,
                                           .quota_name = name,
                                           .quota = over < 0 ? 3 : 1,
                                           .pool = SL_NONE,
                                           .memory = SL_MEMORY_ACTIVATIONS,
                                           .aliases = over > 0 ? over : 0,
                                           .rows = rows,
                                           .slot_bytes = NUMBERS * sizeof(float)});
}

static sl_actor *add_actor(sl_plan *plan, const char *name, const sl_op *op, int nin,
                           const sl_port *in, int nout, const sl_port *out) {
  int32_t at = sl_plan_add_actor(plan, (sl_actor){.name = name,
                                                  .cls = SL_CLASS_F,
                                                  .stage = SL_NONE,
                                                  .chunk = SL_NONE,
                                                  .ticks = sl_plan_map_each(plan),
                                                  .firings_per_step = MICROBATCHES,
                                                  .nin = nin,
                                                  .nout = nout,
                                                  .in = (sl_port *)in,
                                                  .out = (sl_port *)out,
                                                  .program = program_of(plan, op, nin, nout)});
  return &plan->actors[at];
}

static sl_plan *begin(void) {
  sl_plan *plan = sl_plan_create(MICROBATCHES, 1);
  sl_plan_add_device(
      plan, (sl_device){.name = "cpu:0", .kind = "cpu", .threads = 1, .budget_bytes = 1 << 20});
  sl_plan_add_queue(plan, (sl_queue){.name = "pass", .ops = &sl_queue_cpu, .run_ahead = 1});
  plan->ticked = true;
  return plan;
}

/* Checks that a run ends the process with a message that contains `said`, or runs to the end if
 * NULL. */
static void dies_of(sl_plan *plan, const char *said) {
  char text[4096] = "";
  int ends[2], status;
  CHECK(!sl_plan_finish(plan) && !sl_plan_prove(plan) && !pipe(ends), "%s", sl_detail());
  pid_t child = fork();
  if (!child) {
    sl_runtime *rt;
    dup2(ends[1], STDERR_FILENO);
    if (sl_runtime_create(plan, &(sl_runtime_options){.check = true, .watchdog_seconds = 20}, &rt))
      _exit(2);
    sl_runtime_run(rt, 2);
    sl_runtime_destroy(rt);
    _exit(0);
  }
  close(ends[1]);
  ssize_t n;
  for (size_t at = 0; (n = read(ends[0], text + at, sizeof text - 1 - at)) > 0;) at += (size_t)n;
  close(ends[0]);
  CHECK(waitpid(child, &status, 0) == child, "no child");
  if (said)
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT && strstr(text, said), "status %d: %s",
          status, text);
  else CHECK(WIFEXITED(status) && !WEXITSTATUS(status), "status %d: %s", status, text);
  sl_plan_destroy(plan);
}

/* make -> x -> copy -> y -> use; the copy, or the use, reads keys in an order that differs from its
 * ticks. */
static sl_plan *line_of(bool copy_strays, bool use_strays) {
  sl_plan *plan = begin();
  const sl_map_entry strayed[] = {
      {1, SL_FIRST | SL_LAST}, {0, SL_FIRST | SL_LAST}, {2, SL_FIRST | SL_LAST}};
  int32_t each = sl_plan_map_each(plan), astray = sl_plan_add_map(plan, 3, 3, strayed);
  for (int r = 0; r < 2; r++) add_register(plan, r ? "y" : "x", -1, 0);
  add_actor(plan, "make", &make_op, 0, NULL, 1, &(sl_port){0, each})->source = true;
  add_actor(plan, "copy", &sl_op_copy, 1, &(sl_port){0, copy_strays ? astray : each}, 1,
            &(sl_port){1, each});
  add_actor(plan, "use", &make_op, 1, &(sl_port){1, use_strays ? astray : each}, 0, NULL);
  return plan;
}

static void ticks_travel_with_copies(void) {
  dies_of(line_of(false, false), NULL);
  dies_of(line_of(true, true), NULL); /* two reorderings cancel out */
  dies_of(line_of(false, true),
          "actor use reads key 1 of register y in tick 0, but it was made in tick 1");
  dies_of(line_of(true, false),
          "actor use reads key 0 of register y in tick 0, but it was made in tick 1");
}

/* A register aliases another that is still read afterwards. */
static void who_is_covered_is_not_read(void) {
  sl_plan *plan = begin();
  int32_t each = sl_plan_map_each(plan);
  add_register(plan, "under", 0, 0);
  add_register(plan, "over", 1, 0);
  const sl_port both[] = {{0, each}, {1, each}};
  add_actor(plan, "make", &make_op, 0, NULL, 1, &both[0])->source = true;
  add_actor(plan, "cover", &make_op, 1, &both[0], 1, &both[1]);
  add_actor(plan, "late", &make_op, 2, both, 0, NULL);
  dies_of(plan, "actor late reads key 0 of register under, which register over has overwritten");
}

static void is_refused(sl_plan *plan, const char *why) {
  CHECK(sl_plan_finish(plan) == SL_E_INPUT && strstr(sl_detail(), why), "not %s: %s", why,
        sl_detail());
  sl_plan_destroy(plan);
}

/* The plan reads an input that its port skips in one firing. */
static void what_is_left_out_is_not_read(void) {
  sl_plan *plan = begin();
  const sl_map_entry some[] = {{0, SL_FIRST | SL_LAST}, {0, SL_SKIP}, {1, SL_FIRST | SL_LAST}};
  int32_t each = sl_plan_map_each(plan), two = sl_plan_add_map(plan, 3, 2, some);
  for (int r = 0; r < 2; r++) add_register(plan, r ? "y" : "x", -1, 0);
  add_actor(plan, "make", &make_op, 0, NULL, 1, &(sl_port){0, two})->source = true;
  add_actor(plan, "need", &need_op, 1, &(sl_port){0, two}, 1, &(sl_port){1, each});
  is_refused(plan, "actor need, op need: input 0 does not exist in microbatch 1, piece 0");
}

/* make fills x; use reads x with one of two row counts. */
static void rows_are_counted_by_their_own_number(bool other, bool filled) {
  static const int16_t numbers[] = {0, 1, SL_NONE};
  sl_plan *plan = begin();
  int32_t each = sl_plan_map_each(plan), *rows = sl_plan_alloc(plan, 2 * sizeof *rows);
  rows[0] = rows[1] = NUMBERS;
  add_register(plan, "x", -1, NUMBERS);
  sl_actor *a =
      add_actor(plan, "make", filled ? &fill_op : &make_op, 0, NULL, 1, &(sl_port){0, each});
  a->source = true;
  a->program->nlengths = 1, a->program->length_rows = rows, a->program->base_length = &numbers[0];
  a->program->calls->out_length = &numbers[0];
  a = add_actor(plan, "use", &make_op, 1, &(sl_port){0, each}, 0, NULL);
  a->program->nlengths = 2, a->program->nread = 1, a->program->length_rows = rows;
  a->program->base_length = numbers;
  a->program->calls->in_length = &numbers[other];
  is_refused(
      plan,
      filled ? "actor use, op make: input 0 is in register x, but its row count is that of another "
               "register"
             : "actor make, register x: no call sets the number of its valid rows");
}

/* Two sizes that differ by a few bytes are reported exactly. */
static void budgets_are_told_apart(void) {
  sl_plan *plan = begin();
  plan->devices[0].budget_bytes = (3 << 20) - 64;
  sl_plan_add_register(plan, (sl_register){.name = "x",
                                           .quota_name = "x",
                                           .quota = 1,
                                           .pool = SL_NONE,
                                           .memory = SL_MEMORY_ACTIVATIONS,
                                           .slot_bytes = 3 << 20});
  add_actor(plan, "make", &make_op, 0, NULL, 1, &(sl_port){0, sl_plan_map_each(plan)})->source =
      true;
  CHECK(sl_plan_finish(plan) == SL_E_BUDGET &&
            strstr(sl_detail(), "needs 3145728 bytes but its budget is 3145664 bytes"),
        "%s", sl_detail());
  sl_plan_destroy(plan);
}

int main(void) {
  RUN(budgets_are_told_apart);
  RUN(ticks_travel_with_copies);
  RUN(who_is_covered_is_not_read);
  RUN(what_is_left_out_is_not_read);
  RUN(rows_are_counted_by_their_own_number, true, true);
  RUN(rows_are_counted_by_their_own_number, false, false);
  return 0;
}
