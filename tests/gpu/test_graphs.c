/* SPDX-License-Identifier: Apache-2.0 */
/* A program's launches become CUDA graphs, one per combination of slots. Results equal those of
 * single launches, and only launches that depend on nothing else are captured. */
#include <stdlib.h>
#include <string.h>

#include <sluice/optimizer.h>

#include "kernels/cuda/graphs.h"
#include "kernels/cuda/ops.h"
#include "tests/gpu/device_call.h"

#ifdef SLUICE_EMULATED
extern int emulated_live, emulated_bad_captures, emulated_full;
#endif

enum { N = 64, SLOTS = 9, ROOM = N * sizeof(float), TRIED = 3 * 8 };

static const sl_type vector = {SL_F32, 1, {N}};

/* Bases: x, y and the workspace. Computes t = x in the workspace, then y = t, or y += t. */
typedef struct summer {
  sl_program program;
  sl_program_call calls[2];
  sl_place x, t, y;
  sl_call_time times[2];
  void *queue;
  char *xs, *ys, *workspace;
  float sums[SLOTS]; /* expected elements of each y */
} summer;

static void set_mode(const char *graphs) {
  CHECK(!setenv("SLUICE_CUDA_GRAPHS", graphs, 1), "the environment is full");
}

static void *device_create(size_t bytes) {
  void *x;
  CHECK(!sl_cuda_memory_create(0, bytes, &x), "%s", sl_detail());
  return x;
}

static void fill_inputs(summer *s) {
  for (int i = 0; i < SLOTS; i++) {
    float x[N];
    for (int n = 0; n < N; n++) x[n] = (float)(i + 1);
    CHECK(!sl_cuda_copy(s->xs + i * ROOM, x, sizeof x), "%s", sl_detail());
  }
}

static void *queue_create(const sl_program *program) {
  void *queue;
  sl_queue_config config = {.scratch_bytes = sl_queue_cuda.scratch(program, 1) + 256};
  CHECK(!sl_queue_cuda.open(&config, &queue), "%s", sl_detail());
  return queue;
}

/* The second call is `op`: copy, or an equivalent op. */
static void summer_create(summer *s, const char *graphs, const sl_op *op, bool times) {
  *s = (summer){.x = {0, 0}, .t = {2, 0}, .y = {1, 0}};
  for (int i = 0; i < 2; i++)
    s->calls[i] = (sl_program_call){.op = i ? op : &sl_op_copy,
                                    .name = i ? "y" : "t",
                                    .nin = 1,
                                    .nout = 1,
                                    .in_type = &vector,
                                    .out_type = &vector,
                                    .in = i ? &s->t : &s->x,
                                    .out = i ? &s->y : &s->t,
                                    .accumulate_span = (uint32_t)i,
                                    .time = times ? &s->times[i] : NULL};
  s->program = (sl_program){.ncalls = 2, .calls = s->calls, .nbases = 3};
  set_mode(graphs);
  CHECK(!sl_queue_cuda.prepare(&s->program, 0), "%s", sl_detail());
  s->queue = queue_create(&s->program);
  s->xs = device_create(SLOTS * ROOM);
  s->ys = device_create(SLOTS * ROOM);
  s->workspace = device_create(ROOM);
  fill_inputs(s);
}

static uint64_t replayed(const summer *s) { return sl_queue_cuda.replayed(s->queue); }

static uint64_t fire(summer *s, int x, int y, bool first) {
  uint64_t fence = 0;
  sl_firing firing = {.name = "summer",
                      .bases = (void *[]){s->xs + x * ROOM, s->ys + y * ROOM, s->workspace},
                      .first = (const uint8_t[]){0, first, 0}};
  CHECK(!sl_queue_cuda.launch(s->queue, &s->program, &firing, 0, 0, &fence), "it is enqueued");
  s->sums[y] = (first ? 0 : s->sums[y]) + (float)(x + 1);
  return fence;
}

static void check_sums(summer *s, uint64_t fence, const char *what) {
  float y[SLOTS][N];
  wait_for(s->queue, fence);
  CHECK(!sl_cuda_copy(y, s->ys, sizeof y), "%s", sl_detail());
  for (int i = 0; i < SLOTS; i++)
    for (int n = 0; n < N; n++)
      CHECK(y[i][n] == s->sums[i], "%s: slot %d holds %g, not %g", what, i, (double)y[i][n],
            (double)s->sums[i]);
}

static void summer_destroy(summer *s) {
  sl_queue_cuda.close(s->queue);
  sl_queue_cuda.release(&s->program);
  sl_cuda_memory_destroy(s->xs);
  sl_cuda_memory_destroy(s->ys);
  sl_cuda_memory_destroy(s->workspace);
}

static void check_replayed(const summer *s, uint64_t want, const char *what) {
  CHECK(replayed(s) == want, "%s: %llu firings were graphs, not %llu", what,
        (unsigned long long)replayed(s), (unsigned long long)want);
}

/* ---- slots ------------------------------------------------ */

/* 4 inputs and 3 outputs rotate against each other, and one firing in four overwrites its output.
 * Combinations of slots and overwriting repeat after 12 firings. */
static void check_rotation(const char *graphs, uint64_t want) {
  summer s;
  uint64_t fence = 0;
  summer_create(&s, graphs, &sl_op_copy, false);
  for (int i = 0; i < 100; i++) fence = fire(&s, i % 4, i % 3, i % 4 == 0);
  check_sums(&s, fence, graphs);
  if (want != UINT64_MAX) check_replayed(&s, want, graphs);
  summer_destroy(&s);
}

static void check_who_is_first(void) {
  summer s;
  summer_create(&s, "1", &sl_op_copy, false);
  for (int i = 0; i < 10; i++) wait_for(s.queue, fire(&s, 0, 0, i % 5 == 0));
  check_sums(&s, 0, "first or not");
  check_replayed(&s, 8, "two combinations of one pair of slots");
  summer_destroy(&s);
}

/* Tests more combinations than fit: the first ones stay while they recur, and make room once they
 * no longer do. */
static void check_limit(void) {
  enum { ALL = SLOTS * SLOTS, ROUNDS = 3, FEW = 4 };
  summer s;
  uint64_t fence = 0, before;
  summer_create(&s, "1", &sl_op_copy, false);
  for (int i = 0; i < ROUNDS * ALL; i++) fence = fire(&s, i % SLOTS, i / SLOTS % SLOTS, false);
  check_sums(&s, fence, "more than there is room for");
  check_replayed(&s, (ROUNDS - 1) * SLI_CUDA_GRAPHS, "as many as there is room for");
  for (int round = 0; round < 2; round++) {
    before = replayed(&s);
    for (int i = 0; i < 5 * SLI_CUDA_GRAPHS; i++) fence = fire(&s, SLOTS - 1 - i % FEW, 8, false);
  }
  check_sums(&s, fence, "others");
  check_replayed(&s, before + 5 * SLI_CUDA_GRAPHS, "others after a while");
  summer_destroy(&s);
}

/* The cheaper way is chosen after both have been tried. */
static void check_trial(void) {
  summer s;
  uint64_t fence = 0;
  summer_create(&s, "auto", &sl_op_copy, false);
  for (int i = 0; i < 200; i++) {
    fence = fire(&s, i % 4, i % 2, false);
    if (i == 7) check_replayed(&s, 0, "launches are timed first");
  }
  check_sums(&s, fence, "auto");
  CHECK(replayed(&s) >= 8, "graphs are tried too");
  summer_destroy(&s);
}

/* Each queue has its own scratch memory, which a graph refers to. */
static void check_queues(void) {
  summer s;
  summer_create(&s, "1", &sl_op_copy, false);
  for (int i = 0; i < 6; i++) wait_for(s.queue, fire(&s, i % 2, 0, false));
  void *first = s.queue;
  s.queue = queue_create(&s.program);
  for (int i = 0; i < 6; i++) wait_for(s.queue, fire(&s, i % 2, 0, false));
  check_sums(&s, 0, "on another queue");
  check_replayed(&s, 4, "graphs of the first queue are not the second one's");
  sl_queue_cuda.close(first);
  summer_destroy(&s);
}

/* ---- launches that are never captured ---------------------------------------- */

static void copy_my_way(const sl_call *call, void *stream) {
  sli_cuda_op_find(&sl_op_copy)->launch(call, stream);
}

static void check_own_op(void) {
  const sl_kernel kernels[] = {{.backend = "cuda", .launch = copy_my_way}, {0}};
  sl_op op = sl_op_copy;
  summer s;
  op.kernels = kernels;
  summer_create(&s, "1", &op, false);
  for (int i = 0; i < TRIED; i++) wait_for(s.queue, fire(&s, i % 2, 0, false));
  check_sums(&s, 0, "a user's op");
  check_replayed(&s, 0, "nothing is known of a user's op");
  summer_destroy(&s);
}

/* Runs AdamW on a gradient that is copied first. The learning rate and the bias corrections change
 * with the step. */
static void run_updates(const char *graphs, float *result) {
  enum { SCALE, GRAD, COPY, W, M, V, BASES };
  sl_optimizer o = {.lr = 0.1f, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .warmup = 4};
  sl_type in_type[2] = {SL_SCALAR(SL_F32), vector}, out_type[3] = {vector, vector, vector};
  sl_place grad = {GRAD, 0}, in[2] = {{SCALE, 0}, {COPY, 0}}, out[3] = {{W, 0}, {M, 0}, {V, 0}};
  sl_program_call calls[2] = {{.op = &sl_op_copy,
                               .name = "g",
                               .nin = 1,
                               .nout = 1,
                               .in_type = &vector,
                               .out_type = &vector,
                               .in = &grad,
                               .out = &in[1]},
                              {.op = &sl_op_adamw,
                               .name = "u",
                               .attrs.user = &o,
                               .nin = 2,
                               .nout = 3,
                               .in_type = in_type,
                               .out_type = out_type,
                               .in = in,
                               .out = out}};
  sl_program program = {.ncalls = 2, .calls = calls, .nbases = BASES};
  set_mode(graphs);
  CHECK(!sl_queue_cuda.prepare(&program, 0), "%s", sl_detail());
  void *queue = queue_create(&program), *bases[BASES];
  float ones[N];
  for (int n = 0; n < N; n++) ones[n] = 1;
  for (int b = 0; b < BASES; b++) bases[b] = device_create(ROOM);
  for (int b = SCALE; b <= GRAD; b++)
    CHECK(!sl_cuda_copy(bases[b], ones, sizeof ones), "%s", sl_detail());
  for (int step = 0; step < TRIED; step++) {
    uint64_t fence = 0;
    sl_firing firing = {.tick.step = step, .bases = bases, .first = (const uint8_t[BASES]){0}};
    sl_queue_cuda.launch(queue, &program, &firing, 0, 0, &fence);
    wait_for(queue, fence);
  }
  CHECK(!sl_queue_cuda.replayed(queue), "an update depends on the step");
  CHECK(!sl_cuda_copy(result, bases[W], ROOM), "%s", sl_detail());
  sl_queue_cuda.close(queue);
  sl_queue_cuda.release(&program);
  for (int b = 0; b < BASES; b++) sl_cuda_memory_destroy(bases[b]);
}

static void check_updates(void) {
  float with[N], without[N];
  run_updates("0", without);
  run_updates("1", with);
  CHECK(!memcmp(with, without, sizeof with) && with[0] != 0, "updates have the same bits");
}

/* Timed firings are launched call by call. */
static void check_times(void) {
  summer s;
  uint64_t fence = 0;
  summer_create(&s, "1", &sl_op_copy, true);
  for (int i = 0; i < 3; i++) fence = fire(&s, 0, 0, false);
  CHECK(!s.times[0].calls || sl_queue_cuda.done(s.queue, fence, 0), "what runs is not read");
  check_sums(&s, fence, "timed");
  CHECK(s.times[0].calls == 3 && s.times[1].calls == 3 && s.times[1].ns > 0,
        "three firings were timed, not %llu", (unsigned long long)s.times[0].calls);
  check_replayed(&s, 0, "no graph is made of what is timed");
  for (int i = 0; i < 1000; i++) fence = fire(&s, 0, 0, false);
  check_sums(&s, fence, "timed now and then");
  CHECK(s.times[0].calls == 16 && s.times[1].calls == 16, "16 were timed in all, not %llu",
        (unsigned long long)s.times[0].calls);
  check_replayed(&s, 1000 - 13 - 1, "the others are graphs");
  summer_destroy(&s);
}

#ifdef SLUICE_EMULATED
static void check_failure(int *fault, const char *what) {
  summer s;
  *fault = 1;
  summer_create(&s, "1", &sl_op_copy, false);
  for (int i = 0; i < 20; i++) wait_for(s.queue, fire(&s, i % 2, 0, false));
  check_sums(&s, 0, what);
  check_replayed(&s, 0, "none is tried again");
  CHECK(!*fault, "one was tried: %s", what);
  summer_destroy(&s);
}
#endif

int main(void) {
  need_gpu();
  RUN(check_rotation, "0", 0);
  RUN(check_rotation, "1", 100 - 12);
  RUN(check_rotation, "auto", UINT64_MAX);
  RUN(check_who_is_first);
  RUN(check_limit);
  RUN(check_trial);
  RUN(check_queues);
  RUN(check_own_op);
  RUN(check_updates);
  RUN(check_times);
#ifdef SLUICE_EMULATED
  RUN(check_failure, &emulated_bad_captures, "a capture fails");
  RUN(check_failure, &emulated_full, "a graph has no room");
  CHECK(!emulated_live, "%d things of the device are left", emulated_live);
#endif
  return 0;
}
