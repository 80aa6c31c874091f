/* SPDX-License-Identifier: Apache-2.0 */
/* Measures what a firing on a GPU costs the host; prints lines of `case<TAB>value<TAB>unit`.
 *
 *   chain1    8 actors in a line on one queue, each with one kernel of 256 bytes
 *   chain4    the same over four queues of one GPU, which wait for each other on the device
 *   launches  the same kernels on a bare queue without a runtime: the lower bound
 *   program   100 kernels in one program, launched one by one on an idle bare queue
 *   graph     the same as a CUDA graph, for one combination of slots
 *   graph8    and for eight combinations in turn
 *
 * Values are nanoseconds of processor time (of all threads) and of wall time per firing; for the
 * last three cases, of launch time per kernel. */
#include <stdlib.h>
#include <time.h>

#include <sluice/runtime.h>

#include "tests/gpu/device_call.h"

enum { ACTORS = 8, MICROBATCHES = 64, STEPS = 200, BYTES = 256, KERNELS = 100, SLOTS = 8 };

static const sl_type cell = {SL_F32, 1, {BYTES / 4}};

/* A program whose kernels copy from base 0 to base 1 and back. */
static sl_program *make_program(sl_plan *plan, int kernels) {
  sl_program *program = sl_plan_alloc(plan, sizeof *program);
  sl_program_call *calls = sl_plan_alloc(plan, (size_t)kernels * sizeof *calls);
  sl_place *places = sl_plan_alloc(plan, 2 * sizeof *places);
  places[0] = (sl_place){0, 0};
  places[1] = (sl_place){1, 0};
  for (int i = 0; i < kernels; i++)
    calls[i] = (sl_program_call){.op = &sl_op_gelu,
                                 .name = "y",
                                 .nin = 1,
                                 .nout = 1,
                                 .in_type = &cell,
                                 .out_type = &cell,
                                 .in = &places[i % 2],
                                 .out = &places[1 - i % 2]};
  *program = (sl_program){.ncalls = kernels, .calls = calls, .nbases = 3, .nvariants = 1};
  return program;
}

static sl_plan *make_chain(int queues) {
  sl_plan *plan = sl_plan_create(MICROBATCHES, 1);
  int32_t each = sl_plan_map_each(plan), before = SL_NONE;
  for (int q = 0; q < queues; q++) {
    sl_device device = {.name = "gpu",
                        .kind = "cuda",
                        .threads = 1,
                        .room = {{.memory = &sl_memory_cuda}, {.memory = &sl_memory_pinned}}};
    sl_plan_add_device(plan, device);
    sl_plan_add_queue(plan,
                      (sl_queue){.name = "q", .device = q, .ops = &sl_queue_cuda, .run_ahead = 8});
  }
  for (int a = 0; a < ACTORS; a++) {
    int32_t queue = a * queues / ACTORS;
    sl_register reg = {.name = "r",
                       .quota_name = "r",
                       .quota = 16,
                       .pool = SL_NONE,
                       .device = queue,
                       .slot_bytes = BYTES,
                       .initial = 0};
    int32_t out = sl_plan_add_register(plan, reg);
    int32_t first = a ? before : SL_NONE;
    if (!a) { /* the input of the first is always ready */
      reg.quota = reg.initial = 1;
      first = sl_plan_add_register(plan, reg);
    }
    int32_t map = a ? each : sl_plan_map_hold(plan);
    sl_plan_add_actor(plan, (sl_actor){.name = "a",
                                       .queue = queue,
                                       .stage = SL_NONE,
                                       .chunk = SL_NONE,
                                       .ticks = each,
                                       .firings_per_step = MICROBATCHES,
                                       .source = !a,
                                       .nin = 1,
                                       .in = &(sl_port){first, map},
                                       .nout = 1,
                                       .out = &(sl_port){out, each},
                                       .program = make_program(plan, 1)});
    before = out;
  }
  CHECK(!sl_plan_finish(plan), "%s", sl_detail());
  return plan;
}

static double now(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void report(const char *name, double cpu, double wall, double firings) {
  printf("%s\t%.0f\tns host/firing\n%s_wall\t%.0f\tns/firing\n", name, cpu / firings, name,
         wall / firings);
}

static void bench_chain(const char *name, int queues) {
  sl_plan *plan = make_chain(queues);
  sl_runtime *rt;
  CHECK(!sl_runtime_create(plan, &(sl_runtime_options){.clock = SL_CLOCK_REAL}, &rt), "%s",
        sl_detail());
  CHECK(!sl_runtime_run(rt, 2), "%s", sl_detail());
  double cpu = now(CLOCK_PROCESS_CPUTIME_ID), wall = now(CLOCK_MONOTONIC);
  CHECK(!sl_runtime_run(rt, STEPS), "%s", sl_detail());
  cpu = now(CLOCK_PROCESS_CPUTIME_ID) - cpu;
  wall = now(CLOCK_MONOTONIC) - wall;
  report(name, cpu, wall, (double)ACTORS * MICROBATCHES * STEPS);
  sl_runtime_destroy(rt);
  sl_plan_destroy(plan);
}

static void bench_launches(void) {
  enum { FIRINGS = ACTORS * MICROBATCHES * STEPS };
  sl_plan *plan = make_chain(1);
  sl_program *program = plan->actors[0].program;
  void *queue, *memory;
  uint64_t fence = 0;
  CHECK(!sl_queue_cuda.prepare(program, 0), "%s", sl_detail());
  CHECK(!sl_queue_cuda.open(&(sl_queue_config){.threads = 1}, &queue), "%s", sl_detail());
  CHECK(!sl_cuda_memory_create(0, 2 * BYTES, &memory), "%s", sl_detail());
  sl_firing firing = {.bases = (void *[]){memory, (char *)memory + BYTES, NULL},
                      .first = (const uint8_t[]){1, 1, 1}};
  double cpu = now(CLOCK_PROCESS_CPUTIME_ID), wall = now(CLOCK_MONOTONIC);
  for (int i = 0; i < FIRINGS; i++) sl_queue_cuda.launch(queue, program, &firing, 0, 0, &fence);
  wait_for(queue, fence);
  report("launches", now(CLOCK_PROCESS_CPUTIME_ID) - cpu, now(CLOCK_MONOTONIC) - wall, FIRINGS);
  sl_queue_cuda.close(queue);
  sl_queue_cuda.release(program);
  sl_cuda_memory_destroy(memory);
  sl_plan_destroy(plan);
}

/* Measures the launch of a program on an idle queue, over `slots` pairs of slots in turn, once its
 * graphs exist. */
static void bench_program(const char *name, const char *graphs, int slots) {
  CHECK(!setenv("SLUICE_CUDA_GRAPHS", graphs, 1), "the environment is full");
  sl_plan *plan = sl_plan_create(1, 1);
  sl_program *program = make_program(plan, KERNELS);
  void *queue, *memory;
  CHECK(!sl_queue_cuda.prepare(program, 0), "%s", sl_detail());
  CHECK(!sl_queue_cuda.open(&(sl_queue_config){.threads = 1}, &queue), "%s", sl_detail());
  CHECK(!sl_cuda_memory_create(0, 2 * SLOTS * BYTES, &memory), "%s", sl_detail());
  double spent = 0;
  for (int i = 0; i < STEPS; i++) {
    uint64_t fence = 0;
    char *slot = (char *)memory + i % slots * 2 * BYTES;
    sl_firing firing = {.bases = (void *[]){slot, slot + BYTES, NULL},
                        .first = (const uint8_t[]){1, 1, 1}};
    double begin = now(CLOCK_MONOTONIC);
    sl_queue_cuda.launch(queue, program, &firing, 0, 0, &fence);
    if (i >= STEPS / 2) spent += now(CLOCK_MONOTONIC) - begin;
    wait_for(queue, fence);
  }
  printf("%s\t%.0f\tns host/kernel\n", name, spent / (STEPS / 2) / KERNELS);
  sl_queue_cuda.close(queue);
  sl_queue_cuda.release(program);
  sl_cuda_memory_destroy(memory);
  sl_plan_destroy(plan);
}

int main(void) {
  need_gpu();
  bench_chain("chain1", 1);
  bench_chain("chain4", 4);
  bench_launches();
  bench_program("program", "0", 1);
  bench_program("graph", "1", 1);
  bench_program("graph8", "1", SLOTS);
  return 0;
}
