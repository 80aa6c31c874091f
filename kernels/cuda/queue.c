/* The CUDA queue: a stream.
 *
 * A launch enqueues the kernels of a program and an event behind them. Fences count the
 * launches from 1 on; launch n records event n mod RING, so an event is used again only
 * when its firing is complete: whoever would be RING firings ahead sleeps until the
 * oldest is done. The runtime's own bound (run_ahead of the plan's queue) is far lower,
 * so that does not happen in its hands.
 *
 * All calls of a stream run in order, so they share one scratch. */
#include <sluice/cuda.h>

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/base.h"
#include "kernels/bind.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/fuse.h"
#include "kernels/cuda/program.h"
#include "kernels/cuda/ranges.h"

enum { RING = SL_CUDA_RUN_AHEAD };

typedef struct cuda_queue {
  int device;
  cudaStream_t stream;
  cudaEvent_t events[RING];
  cudaEvent_t before, after; /* a measured call */
  void *scratch;
  uint64_t launched;         /* the last fence given */
  _Atomic uint64_t completed; /* the last fence known to be complete: written by the owner;
                                 release, and acquire where others read it */
  bool failed;
  char why[200];             /* the first failure */
} cuda_queue;

/* The device does not recover: from the first failure on the queue does nothing. */
static void must(cuda_queue *q, cudaError_t error, const char *op) {
  if (!error || q->failed) return;
  q->failed = true;
  snprintf(q->why, sizeof q->why, "GPU %d failed, seen after %s: %s", q->device, op,
           cudaGetErrorString(error));
}

static const char *cuda_failure(void *queue) {
  const cuda_queue *q = queue;
  return q->failed ? q->why : NULL;
}

/* ---- opening ------------------------------------------------ */

static void cuda_close(void *queue) {
  cuda_queue *q = queue;
  if (!q) return;
  if (q->stream) cudaStreamSynchronize(q->stream);
  for (int i = 0; i < RING; i++)
    if (q->events[i]) cudaEventDestroy(q->events[i]);
  if (q->before) cudaEventDestroy(q->before);
  if (q->after) cudaEventDestroy(q->after);
  if (q->stream) cudaStreamDestroy(q->stream);
  sl_cuda_memory_destroy(q->scratch);
  free(q);
}

static cudaError_t make_events(cuda_queue *q) {
  cudaError_t error = cudaSuccess;
  for (int i = 0; i < RING && !error; i++)
    error = cudaEventCreateWithFlags(&q->events[i], cudaEventDisableTiming | cudaEventBlockingSync);
  if (!error) error = cudaEventCreateWithFlags(&q->before, cudaEventBlockingSync);
  if (!error) error = cudaEventCreateWithFlags(&q->after, cudaEventBlockingSync);
  return error;
}

static sl_status cuda_open(const sl_queue_config *config, void **queue) {
  if (config->bind) config->bind(config->bind_arg, 0);
  sl_status status = sli_cuda_use(config->device);
  if (status) return status;
  cuda_queue *q = sli_calloc(1, sizeof *q);
  q->device = config->device;
  cudaError_t error = cudaStreamCreateWithPriority(&q->stream, cudaStreamNonBlocking, 0);
  if (!error) error = make_events(q);
  status = sli_cuda_check(error, q->device, "gave no stream");
  if (!status && config->scratch_bytes)
    status = sl_cuda_memory_create(q->device, config->scratch_bytes, &q->scratch);
  if (status) cuda_close(q);
  else *queue = q;
  return status;
}

/* ---- launching ------------------------------------------------ */

static void launch_call(cuda_queue *q, const sl_program_call *c, const sl_firing *firing,
                        const sl_tick *tick) {
  const sli_cuda_call *made = c->state;
  const void *in[c->nin + 1];
  void *out[c->nout + 1];
  sl_call call;
  if (!sli_call_bind(c, firing, tick, in, out, &call)) return;
  call.state = made->state;
  call.scratch = q->scratch;
  made->launch(&call, q->stream);
  must(q, cudaGetLastError(), c->op->name);
}

static void launch_step(cuda_queue *q, const sli_cuda_step *step, const sl_firing *firing,
                        const sl_tick *tick) {
  if (sli_cuda_fused_launch(step, firing, tick, q->scratch, q->stream))
    return must(q, cudaGetLastError(), step->calls[0]->op->name);
  for (int i = 0; i < step->ncalls; i++) launch_call(q, step->calls[i], firing, tick);
}

/* Only while durations are measured: waits for the step, whose time counts as its first
 * call's; the others took none. */
static void measure_step(cuda_queue *q, const sli_cuda_step *step, const sl_firing *firing,
                         const sl_tick *tick) {
  const char *name = step->calls[0]->op->name;
  float ms = 0;
  must(q, cudaEventRecord(q->before, q->stream), name);
  launch_step(q, step, firing, tick);
  must(q, cudaEventRecord(q->after, q->stream), name);
  must(q, cudaEventSynchronize(q->after), name);
  must(q, cudaEventElapsedTime(&ms, q->before, q->after), name);
  for (int i = 0; i < step->ncalls; i++) {
    sl_call_time *time = step->calls[i]->time;
    if (time && time->calls++ && !i) time->ns += (uint64_t)(1e6 * (double)ms);
  }
}

static void launch_program(cuda_queue *q, const sl_program *program, const sl_firing *firing) {
  const sli_cuda_program *made = program->state;
  sl_tick tick;
  const sli_cuda_steps *steps = &made->variants[sli_program_variant(program, firing, &tick)];
  for (int i = 0; i < steps->count; i++)
    if (steps->steps[i].calls[0]->time) measure_step(q, &steps->steps[i], firing, &tick);
    else launch_step(q, &steps->steps[i], firing, &tick);
}

static bool cuda_passed(void *queue, uint64_t fence) {
  const cuda_queue *q = queue;
  return fence <= atomic_load_explicit(&q->completed, memory_order_acquire);
}

/* An event is free once the firing that used it last is complete. */
static cudaEvent_t next_event(cuda_queue *q) {
  cudaEvent_t event = q->events[++q->launched % RING];
  if (q->failed || q->launched <= RING || cuda_passed(q, q->launched - RING)) return event;
  must(q, cudaEventSynchronize(event), "a firing of long ago");
  atomic_store_explicit(&q->completed, q->launched - RING, memory_order_release);
  return event;
}

static bool cuda_launch(void *queue, const sl_program *program, const sl_firing *firing,
                        uint64_t now_ns, uint64_t duration_ns, uint64_t *fence) {
  (void)now_ns, (void)duration_ns;
  cuda_queue *q = queue;
  if (!program) return true;
  must(q, cudaSetDevice(q->device), "choosing it");
  cudaEvent_t event = next_event(q);
  sli_range_begin(firing->name);
  if (!q->failed) launch_program(q, program, firing);
  sli_range_end();
  if (!q->failed) must(q, cudaEventRecord(event, q->stream), "a launch");
  *fence = q->launched;
  return false;
}

static bool cuda_done(void *queue, uint64_t fence, uint64_t now_ns) {
  (void)now_ns;
  cuda_queue *q = queue;
  if (cuda_passed(q, fence)) return true;
  if (q->failed) return false;
  cudaError_t error = cudaEventQuery(q->events[fence % RING]);
  if (error == cudaErrorNotReady) {
    cudaGetLastError(); /* it counts as one: forget it */
    return false;
  }
  must(q, error, "a firing");
  if (q->failed) return false;
  atomic_store_explicit(&q->completed, fence, memory_order_release);
  return true;
}

static uint64_t cuda_due(void *queue, uint64_t fence) {
  (void)queue, (void)fence;
  return UINT64_MAX;
}

/* Should the event be recorded again meanwhile, its firing is complete and the wait is for
 * a later one, which is longer than need be but comes to an end: what a stream waits for
 * has always been launched before. */
void sl_cuda_queue_wait(void *queue, void *other, uint64_t fence) {
  cuda_queue *q = queue, *of = other;
  if (q == of || q->failed || cuda_passed(of, fence)) return;
  must(q, cudaSetDevice(q->device), "choosing it");
  must(q, cudaStreamWaitEvent(q->stream, of->events[fence % RING], 0), "waiting");
}

const sl_queue_ops sl_queue_cuda = {
    .name = "cuda",
    .open = cuda_open,     /* makes a stream, allocates the scratch */
    .close = cuda_close,   /* waits for the stream */
    .launch = cuda_launch, /* enqueues; sleeps only where it is RING firings ahead */
    .done = cuda_done,
    .due = cuda_due,
    .wait = sl_cuda_queue_wait,
    .passed = cuda_passed,
    .failure = cuda_failure,
    .prepare = sli_cuda_program_prepare,
    .release = sli_cuda_program_release,
    .scratch = sli_cuda_program_scratch,
};
