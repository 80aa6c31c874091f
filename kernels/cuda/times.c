/* SPDX-License-Identifier: Apache-2.0 */
/* Measurement of the time that steps take on the device.
 *
 * Timed firings have an event before their first step and one after each step; two consecutive
 * events give the time of the step between them. Nothing waits for the events: they are read once
 * the firing is known to be complete, and then reused.
 *
 * An event costs about as much as the launch of a kernel, and a timed firing cannot be a graph. Few
 * firings are therefore timed: the first three of a program (the first one warms up and does not
 * count), then one of 17, until there are MOST. 17 has no factor in common with the number of
 * pieces or microbatches, so each of them is timed eventually.
 *
 * The time of a step of several calls is divided, by the bytes of their arguments, among the calls
 * of the first call's op. Other calls fused into the step count as taking no time. */
#include "kernels/cuda/times.h"

#include <stdlib.h>

#include "base/base.h"

enum { FIRST = 3, EVERY = 17, MOST = 16 };

typedef struct mark {
  cudaEvent_t event;
  const sli_cuda_step *step; /* step before the event; NULL: the event precedes the firing */
  uint64_t fence;
} mark;

struct sli_cuda_times {
  mark *marks; /* unread marks: a ring of `most` places */
  size_t first, count, most;
  cudaEvent_t *spare;
  size_t nspare, room; /* room: capacity for all existing events */
  cudaEvent_t before;  /* the last event read, while steps of its firing remain */
};

sli_cuda_times *sli_cuda_times_create(void) { return sli_calloc(1, sizeof(sli_cuda_times)); }

void sli_cuda_times_destroy(sli_cuda_times *t) {
  if (!t) return;
  for (size_t i = 0; i < t->count; i++) cudaEventDestroy(t->marks[(t->first + i) % t->most].event);
  for (size_t i = 0; i < t->nspare; i++) cudaEventDestroy(t->spare[i]);
  if (t->before) cudaEventDestroy(t->before);
  free(t->marks);
  free(t->spare);
  free(t);
}

bool sli_cuda_times_want(sli_cuda_program *program) {
  if (!program->is_timed || program->timed >= MOST) return false;
  uint64_t n = program->fired++;
  if (n >= FIRST && n % EVERY) return false;
  program->timed++;
  return true;
}

/* ---- marking ------------------------------------------------ */

static void grow(sli_cuda_times *t) {
  size_t most = t->most ? 2 * t->most : 64;
  mark *marks = sli_calloc(most, sizeof *marks);
  for (size_t i = 0; i < t->count; i++) marks[i] = t->marks[(t->first + i) % t->most];
  free(t->marks);
  t->marks = marks;
  t->first = 0;
  t->most = most;
}

cudaError_t sli_cuda_times_mark(sli_cuda_times *t, cudaStream_t stream, uint64_t fence,
                                const sli_cuda_step *step) {
  cudaEvent_t event = NULL;
  cudaError_t error = cudaSuccess;
  if (t->nspare) event = t->spare[--t->nspare];
  else error = cudaEventCreateWithFlags(&event, cudaEventDefault);
  if (error) return error;
  if (t->count == t->most) grow(t);
  t->marks[(t->first + t->count++) % t->most] = (mark){event, step, fence};
  return cudaEventRecord(event, stream);
}

/* ---- reading ------------------------------------------------ */

static void give_back(sli_cuda_times *t, cudaEvent_t event) {
  if (!event) return;
  SLI_GROW(t->spare, t->nspare, t->room);
  t->spare[t->nspare++] = event;
}

static double share_of(const sli_cuda_step *step, const sl_program_call *c) {
  double bytes = 0;
  if (c->op != step->calls[0]->op) return 0;
  for (int i = 0; i < c->nin; i++)
    if (c->in[i].base >= 0) bytes += (double)sl_type_bytes(&c->in_type[i]);
  for (int o = 0; o < c->nout; o++)
    if (c->out[o].base >= 0) bytes += (double)sl_type_bytes(&c->out_type[o]);
  return bytes;
}

static void times_add(const sli_cuda_step *step, float ms) {
  double all = 0;
  for (int i = 0; i < step->ncalls; i++) all += share_of(step, step->calls[i]);
  for (int i = 0; i < step->ncalls; i++) {
    sl_call_time *time = step->calls[i]->time;
    if (time && time->calls++)
      time->ns += (uint64_t)(1e6 * (double)ms * share_of(step, step->calls[i]) / SLI_MAX(all, 1));
  }
}

cudaError_t sli_cuda_times_read(sli_cuda_times *t, uint64_t completed) {
  while (t->count && t->marks[t->first].fence <= completed) {
    mark m = t->marks[t->first];
    float ms = 0;
    cudaError_t error = m.step ? cudaEventElapsedTime(&ms, t->before, m.event) : cudaSuccess;
    if (error) return error;
    if (m.step) times_add(m.step, ms);
    give_back(t, t->before);
    t->before = m.event;
    t->first = (t->first + 1) % t->most;
    t->count--;
  }
  return cudaSuccess;
}
