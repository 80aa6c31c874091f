/* SPDX-License-Identifier: Apache-2.0 */
/* A CUDA queue runs its firings in order and blocks the host only when it is far ahead. Queues wait
 * for each other on the device and access other GPUs' memory. Programs that cannot run are refused
 * with an error that names the cause. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/device_call.h"

#ifdef SLUICE_EMULATED
extern int emulated_devices, emulated_live;
#endif

enum { N = 1 << 16, FIRINGS = 3 * SL_CUDA_RUN_AHEAD + 5 };

static const sl_type vector = {SL_F32, 1, {N}};

/* Computes y += x or y = x, with x in base 0 and y in base 1. */
typedef struct adder {
  sl_program program;
  sl_program_call call;
  sl_place x, y;
  sl_call_time time;
} adder;

static void adder_create(adder *a, uint32_t accumulate, uint32_t accumulate_span) {
  *a = (adder){.x = {0, 0}, .y = {1, 0}};
  a->call = (sl_program_call){.op = &sl_op_copy,
                              .name = "y",
                              .nin = 1,
                              .nout = 1,
                              .in_type = &vector,
                              .out_type = &vector,
                              .in = &a->x,
                              .out = &a->y,
                              .accumulate = accumulate,
                              .accumulate_span = accumulate_span};
  a->program = (sl_program){.ncalls = 1, .calls = &a->call, .nbases = 2};
  CHECK(!sl_queue_cuda.prepare(&a->program, 0), "%s", sl_detail());
}

static void *queue_create(void) {
  void *queue;
  sl_queue_config config = {.scratch_bytes = 4096};
  CHECK(!sl_queue_cuda.open(&config, &queue), "%s", sl_detail());
  return queue;
}

static uint64_t launch(void *queue, const adder *a, void *x, void *y, bool first) {
  uint64_t fence = 0;
  sl_firing firing = {.bases = (void *[]){x, y}, .first = (const uint8_t[]){first, first}};
  CHECK(!sl_queue_cuda.launch(queue, &a->program, &firing, 0, 0, &fence), "a launch only enqueues");
  return fence;
}

/* Checks that every element is `want`. */
static void check_all(const float *x, float want, const char *what) {
  for (int i = 0; i < N; i++)
    CHECK(x[i] == want, "%s: element %d is %g, not %g", what, i, (double)x[i], (double)want);
}

static float *ones_create(void) {
  void *x;
  CHECK(!sl_cuda_pinned_create(sizeof(float[N]), &x), "%s", sl_detail());
  for (int i = 0; i < N; i++) ((float *)x)[i] = 1;
  return x;
}

static void *device_create(void) {
  void *x;
  CHECK(!sl_cuda_memory_create(0, sizeof(float[N]), &x), "%s", sl_detail());
  return x;
}

/* ---- one queue ------------------------------------------------ */

static void check_order(void) {
  void *queue = queue_create(), *x = device_create(), *y = device_create();
  float *host = ones_create();
  adder a;
  uint64_t fences[FIRINGS];
  adder_create(&a, 0, 1);
  CHECK(!sl_cuda_copy(x, host, sizeof(float[N])), "%s", sl_detail());
  for (int i = 0; i < FIRINGS; i++) fences[i] = launch(queue, &a, x, y, i == 0);
  for (int i = FIRINGS - 1; i >= 0; i--)
    if (sl_queue_cuda.done(queue, fences[i], 0))
      for (int j = 0; j < i; j++)
        CHECK(sl_queue_cuda.done(queue, fences[j], 0), "firing %d is complete before %d", i, j);
  wait_for(queue, fences[FIRINGS - 1]);
  CHECK(sl_queue_cuda.due(queue, fences[0]) == UINT64_MAX, "nobody knows when");
  CHECK(!sl_cuda_copy(host, y, sizeof(float[N])), "%s", sl_detail());
  check_all(host, FIRINGS, "the first firing overwrites, each later one adds");
  sl_queue_cuda.close(queue);
  sl_queue_cuda.release(&a.program);
  sl_cuda_memory_destroy(x);
  sl_cuda_memory_destroy(y);
  sl_cuda_pinned_destroy(host);
}

static void check_what_is_left_out(void) {
  void *queue = queue_create(), *x = device_create();
  float *host = ones_create();
  uint64_t fence;
  adder a;
  adder_create(&a, 0, 0);
  CHECK(sl_queue_cuda.launch(queue, NULL, NULL, 0, 0, &fence), "no program: nothing to wait for");
  wait_for(queue, launch(queue, &a, host, x, true));
  wait_for(queue, launch(queue, &a, x, NULL, true)); /* its only output is absent */
  sl_queue_cuda.close(queue);
  sl_queue_cuda.release(&a.program);
  sl_cuda_memory_destroy(x);
  sl_cuda_pinned_destroy(host);
}

static void check_measuring(void) {
  void *queue = queue_create(), *x = device_create(), *y = device_create();
  adder a;
  adder_create(&a, 0, 0);
  sl_queue_cuda.release(&a.program);
  a.call.time = &a.time; /* requested before the program is prepared */
  CHECK(!sl_queue_cuda.prepare(&a.program, 0), "%s", sl_detail());
  for (int i = 0; i < 5; i++) wait_for(queue, launch(queue, &a, x, y, true));
  CHECK(a.time.calls == 3 && a.time.ns > 0, "the first calls are measured");
  sl_queue_cuda.close(queue);
  sl_queue_cuda.release(&a.program);
  sl_cuda_memory_destroy(x);
  sl_cuda_memory_destroy(y);
}

/* ---- several queues ---------------------------------------------------------- */

/* One queue copies data in, the next computes, a third copies results out; the host waits only for
 * the last. */
static void check_waits(void) {
  void *in = queue_create(), *work = queue_create(), *out = queue_create();
  void *x = device_create(), *y = device_create();
  float *host = ones_create(), *result = ones_create();
  adder copy, add;
  adder_create(&copy, 0, 0);
  adder_create(&add, 1, 0);
  for (int round = 1; round <= 20; round++) {
    sl_cuda_queue_wait(work, in, launch(in, &copy, host, x, true));
    uint64_t fence = launch(work, &copy, x, y, true);
    for (int i = 0; i < round; i++) fence = launch(work, &add, x, y, false);
    sl_cuda_queue_wait(out, work, fence);
    fence = launch(out, &copy, y, result, true);
    sl_cuda_queue_wait(in, out, fence); /* the next round's data follow this round's */
    wait_for(out, fence);
    check_all(result, (float)(round + 1), "a queue waits for another");
  }
  for (int i = 0; i < 3; i++) sl_queue_cuda.close((void *[]){in, work, out}[i]);
  sl_queue_cuda.release(&copy.program);
  sl_queue_cuda.release(&add.program);
  sl_cuda_memory_destroy(x);
  sl_cuda_memory_destroy(y);
  sl_cuda_pinned_destroy(host);
  sl_cuda_pinned_destroy(result);
}

/* Launches see data that sl_cuda_copy has copied before. */
static void check_copies(void) {
  void *queue = queue_create(), *x = device_create(), *y = device_create();
  float *host = malloc(sizeof(float[N])), *result = ones_create();
  adder a;
  adder_create(&a, 0, 0);
  for (int round = 1; round <= 20; round++) {
    for (int i = 0; i < N; i++) host[i] = (float)round;
    CHECK(!sl_cuda_copy(x, host, sizeof(float[N])), "%s", sl_detail());
    wait_for(queue, launch(queue, &a, x, result, true));
    check_all(result, (float)round, "from the host");
    CHECK(!sl_cuda_copy(y, x, sizeof(float[N])), "%s", sl_detail());
    wait_for(queue, launch(queue, &a, y, result, true));
    check_all(result, (float)round, "on the device");
  }
  sl_queue_cuda.close(queue);
  sl_queue_cuda.release(&a.program);
  sl_cuda_memory_destroy(x);
  sl_cuda_memory_destroy(y);
  sl_cuda_pinned_destroy(result);
  free(host);
}

/* A queue copies data from another GPU to its own. The emulated device also checks that such copies
 * bypass the host. */
static void check_neighbours(void) {
  void *queues[2], *x = device_create(), *y;
  float *result = ones_create();
  int count;
  adder a;
  CHECK(!sl_cuda_count(&count), "%s", sl_detail());
  if (count > 1) {
    for (int d = 0; d < 2; d++)
      CHECK(!sl_queue_cuda.open(&(sl_queue_config){.device = d}, &queues[d]), "%s", sl_detail());
    CHECK(!sl_cuda_memory_create(1, sizeof(float[N]), &y), "%s", sl_detail());
    adder_create(&a, 0, 0);
    uint64_t fence = launch(queues[0], &a, result, x, true);
    sl_cuda_queue_wait(queues[1], queues[0], fence);
    wait_for(queues[1], launch(queues[1], &a, x, y, true));
    for (int i = 0; i < N; i++) result[i] = 0;
    wait_for(queues[0], launch(queues[0], &a, y, result, true));
    check_all(result, 1, "there and back");
    for (int d = 0; d < 2; d++) sl_queue_cuda.close(queues[d]);
    sl_queue_cuda.release(&a.program);
    sl_cuda_memory_destroy(y);
  }
  sl_cuda_memory_destroy(x);
  sl_cuda_pinned_destroy(result);
}

/* ---- refusals ------------------------------------------------ */

static void check_says(sl_status got, sl_status want, const char *word) {
  CHECK(got == want && strstr(sl_detail(), word), "status %d, '%s' lacks '%s'", got, sl_detail(),
        word);
}

static void check_refusals(void) {
  sl_cuda_device description;
  void *nothing;
  sl_queue_config config = {.device = 999};
  sl_program_call call = {.op = &sl_op_report, .name = "loss"};
  sl_program program = {.ncalls = 1, .calls = &call};
  check_says(sl_cuda_describe(999, &description), SL_E_USAGE, "no GPU 999");
  check_says(sl_queue_cuda.open(&config, &nothing), SL_E_USAGE, "no GPU 999");
  check_says(sl_cuda_memory_create(0, (size_t)1 << 50, &nothing), SL_E_MEMORY, "1125899906842624");
  check_says(sl_queue_cuda.prepare(&program, 0), SL_E_UNSUPPORTED, "'loss' (report)");
  sl_queue_cuda.release(&program);
#ifdef SLUICE_EMULATED
  int count;
  emulated_devices = -1;
  check_says(sl_cuda_count(&count), SL_E_UNSUPPORTED, "no NVIDIA driver");
  emulated_devices = 0;
  check_says(sl_cuda_count(&count), SL_E_UNSUPPORTED, "--devices cpu");
  emulated_devices = 1;
#endif
}

int main(void) {
  need_gpu();
  RUN(check_order);
  RUN(check_what_is_left_out);
  RUN(check_measuring);
  RUN(check_waits);
  RUN(check_copies);
#ifdef SLUICE_EMULATED
  emulated_devices = 2;
#endif
  RUN(check_neighbours);
#ifdef SLUICE_EMULATED
  emulated_devices = 1;
#endif
  RUN(check_refusals);
#ifdef SLUICE_EMULATED
  CHECK(!emulated_live, "%d things of the device are left", emulated_live);
#endif
  return 0;
}
