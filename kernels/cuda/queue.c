/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA queue: a stream.
 *
 * A launch enqueues the kernels of a program, followed by an event. Fences count the launches from
 * 1 on; launch n records event n mod RING, so an event is reused only when its firing is complete.
 * A thread that would get RING firings ahead sleeps until the oldest is done. The runtime's bound
 * (run_ahead of the plan's queue) is far lower, so this does not happen in the runtime.
 *
 * All calls of a stream run in order, so they share one scratch. A launch may be replayed as a CUDA
 * graph (graphs.c), or be timed (times.c). */
#include <sluice/cuda.h>

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/base.h"
#include "kernels/bind.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/fuse.h"
#include "kernels/cuda/program.h"
#include "kernels/cuda/ranges.h"
#include "kernels/cuda/times.h"

enum { RING = SL_CUDA_RUN_AHEAD };

typedef struct cuda_queue {
  int device;
  cudaStream_t stream;
  cudaEvent_t events[RING];
  void *scratch;
  sli_cuda_times *times;
  uint64_t launched; /* last fence issued */
  /* last fence known to be complete: written by the owner with release, read by others with
   * acquire */
  _Atomic uint64_t completed;
  _Atomic uint64_t replayed; /* launches replayed as graphs; any thread reads it */
  /* valid lengths of the program of each firing in flight */
  sli_cuda_lengths *lengths[RING];
  bool failed;
  char why[400]; /* first failure */
} cuda_queue;

/* Records a failure. The device does not recover: after the first failure the queue does nothing.
 * During a capture only the capture has failed. */
static void fail(cuda_queue *q, const char *op, const char *why) {
  if (q->failed || sli_cuda_capture_spoil()) return;
  q->failed = true;
  snprintf(q->why, sizeof q->why, "GPU %d failed, noticed after %s: %s", q->device, op, why);
}

static void must(cuda_queue *q, cudaError_t error, const char *op) {
  if (error) fail(q, op, cudaGetErrorString(error));
}

/* Checks the result of a launch. The device's error is more specific than a library's. */
static void must_be_launched(cuda_queue *q, const char *op) {
  const char *why = sli_cuda_take_failure();
  must(q, cudaGetLastError(), op);
  if (why) fail(q, op, why);
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
  sli_cuda_times_destroy(q->times);
  if (q->stream) cudaStreamDestroy(q->stream);
  sl_cuda_memory_destroy(q->scratch);
  free(q);
}

static cudaError_t make_events(cuda_queue *q) {
  cudaError_t error = cudaSuccess;
  for (int i = 0; i < RING && !error; i++)
    error = cudaEventCreateWithFlags(&q->events[i], cudaEventDisableTiming | cudaEventBlockingSync);
  return error;
}

static sl_status cuda_open(const sl_queue_config *config, void **queue) {
  if (config->bind) config->bind(config->bind_arg, 0);
  sl_status status = sli_cuda_use(config->device);
  if (!status) status = sli_cuda_meet(config->device);
  if (status) return status;
  cuda_queue *q = sli_calloc(1, sizeof *q);
  q->device = config->device;
  q->times = sli_cuda_times_create();
  cudaError_t error = cudaStreamCreateWithPriority(&q->stream, cudaStreamNonBlocking, 0);
  if (!error) error = make_events(q);
  status = sli_cuda_check(error, q->device, "cannot create a stream");
  if (!status && config->scratch_bytes)
    status = sl_cuda_memory_create(q->device, config->scratch_bytes, &q->scratch);
  if (status) cuda_close(q);
  else *queue = q;
  return status;
}

/* ---- launching ------------------------------------------------ */

/* A firing, and the context for its steps. */
typedef struct work {
  cuda_queue *q;
  sli_cuda_lengths *lengths; /* NULL: all slots are full */
  const sli_cuda_steps *steps;
  const sl_firing *firing;
  sl_tick tick;
} work;

/* Launches a call. Returns false if this firing needs nothing from it. */
static bool launch_call(const work *w, const sl_program_call *c) {
  const sli_cuda_call *made = c->state;
  const void *in[c->nin + 1];
  void *out[c->nout + 1];
  sl_call call;
  if (!sli_call_bind(c, w->firing, &w->tick, in, out, &call)) return false;
  call.state = made->state;
  call.scratch = w->q->scratch;
  if (c->in_length || c->out_length) sli_cuda_lengths_launch(w->lengths, c, &call, w->q->stream);
  else made->launch(&call, w->q->stream);
  must_be_launched(w->q, c->op->name);
  return true;
}

/* Launches a step. Returns false if this firing needs nothing from it. */
static bool launch_step(const work *w, const sli_cuda_step *step) {
  cuda_queue *q = w->q;
  bool any = sli_cuda_fused_launch(step, w->firing, &w->tick, q->scratch, q->stream);
  if (any) must_be_launched(q, step->calls[0]->op->name);
  else
    for (int i = 0; i < step->ncalls; i++) any |= launch_call(w, step->calls[i]);
  return any;
}

static void launch_steps(void *arg) {
  const work *w = arg;
  for (int i = 0; i < w->steps->count && !w->q->failed; i++) launch_step(w, &w->steps->steps[i]);
}

static void launch_timed(const work *w) {
  cuda_queue *q = w->q;
  must(q, sli_cuda_times_mark(q->times, q->stream, q->launched, NULL), "a mark");
  for (int i = 0; i < w->steps->count && !q->failed; i++) {
    const sli_cuda_step *step = &w->steps->steps[i];
    if (!launch_step(w, step)) continue;
    must(q, sli_cuda_times_mark(q->times, q->stream, q->launched, step), step->calls[0]->op->name);
  }
}

static void launch_program(cuda_queue *q, const sl_program *program, const sl_firing *firing) {
  sli_cuda_program *made = program->state;
  work w = {.q = q, .lengths = made->lengths, .firing = firing};
  q->lengths[q->launched % RING] = made->lengths;
  if (made->lengths) sli_cuda_lengths_begin(made->lengths, firing, q->launched);
  w.steps = &made->variants[sli_program_variant(program, firing, &w.tick)];
  sli_cuda_launch how = {launch_steps, &w, q->stream, q->scratch};
  bool replayed = false;
  if (sli_cuda_times_want(made)) launch_timed(&w);
  else if (!made->graphs) launch_steps(&w);
  else must(q, sli_cuda_graphs_launch(made->graphs, firing, &how, &replayed), "launching a graph");
  atomic_fetch_add_explicit(&q->replayed, replayed, memory_order_relaxed);
}

static uint64_t cuda_replayed(void *queue) {
  const cuda_queue *q = queue;
  return atomic_load_explicit(&q->replayed, memory_order_relaxed);
}

static bool cuda_passed(void *queue, uint64_t fence) {
  const cuda_queue *q = queue;
  return fence <= atomic_load_explicit(&q->completed, memory_order_acquire);
}

/* Stores the valid rows of a complete firing. */
static void take_rows(cuda_queue *q, uint64_t fence) {
  sli_cuda_lengths **lengths = &q->lengths[fence % RING];
  const sl_program_call *culprit;
  if (*lengths && !q->failed && sli_cuda_lengths_complete(*lengths, fence, &culprit)) {
    q->failed = true;
    snprintf(q->why, sizeof q->why, "op %s (%s): %s", culprit->name, culprit->op->name,
             sl_detail());
  }
  *lengths = NULL;
}

static void complete(cuda_queue *q, uint64_t fence) {
  uint64_t done = atomic_load_explicit(&q->completed, memory_order_relaxed);
  must(q, sli_cuda_times_read(q->times, fence), "timing");
  while (done < fence) take_rows(q, ++done);
  if (q->failed) return;
  atomic_store_explicit(&q->completed, fence, memory_order_release);
}

/* Returns the next event, which is free once the firing that last used it is complete. */
static cudaEvent_t next_event(cuda_queue *q) {
  cudaEvent_t event = q->events[++q->launched % RING];
  if (q->failed || q->launched <= RING || cuda_passed(q, q->launched - RING)) return event;
  must(q, cudaEventSynchronize(event), "waiting for an earlier firing");
  if (!q->failed) complete(q, q->launched - RING);
  return event;
}

static bool cuda_launch(void *queue, const sl_program *program, const sl_firing *firing,
                        uint64_t now_ns, uint64_t duration_ns, uint64_t *fence) {
  (void)now_ns, (void)duration_ns;
  cuda_queue *q = queue;
  if (!program) return true;
  must(q, cudaSetDevice(q->device), "selecting the GPU");
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
    cudaGetLastError(); /* cudaErrorNotReady counts as an error: clear it */
    return false;
  }
  must(q, error, "a firing");
  if (!q->failed) complete(q, fence);
  return !q->failed;
}

static uint64_t cuda_due(void *queue, uint64_t fence) {
  (void)queue, (void)fence;
  return UINT64_MAX;
}

/* Makes the queue's stream wait for another queue's fence. If the event is recorded again in the
 * meantime, its firing is complete, and the wait is for a later firing. That wait is longer than
 * needed but ends, because a stream only waits for work that has been launched. */
void sl_cuda_queue_wait(void *queue, void *other, uint64_t fence) {
  cuda_queue *q = queue, *of = other;
  if (q == of || q->failed || cuda_passed(of, fence)) return;
  must(q, cudaSetDevice(q->device), "selecting the GPU");
  must(q, cudaStreamWaitEvent(q->stream, of->events[fence % RING], 0), "waiting");
}

const sl_queue_ops sl_queue_cuda = {
    .name = "cuda",
    .open = cuda_open,     /* creates a stream, allocates the scratch */
    .close = cuda_close,   /* waits for the stream */
    .launch = cuda_launch, /* enqueues; sleeps only when RING firings ahead */
    .done = cuda_done,
    .due = cuda_due,
    .wait = sl_cuda_queue_wait,
    .passed = cuda_passed,
    .failure = cuda_failure,
    .replayed = cuda_replayed,
    .prepare = sli_cuda_program_prepare,
    .release = sli_cuda_program_release,
    .scratch = sli_cuda_program_scratch,
};
