/* SPDX-License-Identifier: Apache-2.0 */
/* Runs one call on a GPU, as a separate program on a queue, and copies its outputs back. For tests
 * and benches of ops. */
#ifndef SLUICE_TESTS_GPU_DEVICE_CALL_H
#define SLUICE_TESTS_GPU_DEVICE_CALL_H

#include <sched.h>
#include <stdio.h>

#include <sluice/cuda.h>

#include "tests/support/kernel_call.h"

enum { GUARD_BYTES = 256, GUARD = 0xa5 };

/* Skips the test if there is no GPU. */
static inline void need_gpu(void) {
  sl_cuda_device device;
  int count;
  if (sl_cuda_count(&count)) {
    printf("skipped: no GPU: %s\n", sl_detail());
    exit(77);
  }
  CHECK(!sl_cuda_describe(0, &device), "%s", sl_detail());
  printf("%s, compute capability %d.%d, %d multiprocessors\n", device.name, device.major,
         device.minor, device.multiprocessors);
}

/* Waits for a fence; the fence of a failed device never completes. */
static inline void wait_for(void *queue, uint64_t fence) {
  while (!sl_queue_cuda.done(queue, fence, 0)) {
    CHECK(!sl_queue_cuda.failure(queue), "%s", sl_queue_cuda.failure(queue));
    sched_yield();
  }
}

/* A program of one call. Its arguments follow each other in one base, each aligned to 64 bytes and
 * between guards. */
typedef struct device_call {
  sl_program program;
  sl_program_call call;
  sl_place in[MAX_IN], out[MAX_OUT];
  int over[MAX_OUT]; /* 1 + the input that an output overwrites, 0 if none */
  size_t bytes;
  void *arena;
  void *queue;
} device_call;

static inline sl_place device_place(device_call *d, const sl_type *type, bool present) {
  if (!present) return (sl_place){-1, 0};
  sl_place place = {0, d->bytes + GUARD_BYTES};
  d->bytes += 2 * GUARD_BYTES + (sl_type_bytes(type) + 63) / 64 * 64;
  d->bytes += d->bytes % 256 ? 0 : 64; /* rarely a multiple of 256 */
  return place;
}

/* Prepares calls like k, whose absent arguments are NULL. d must not move. over[nout] is as in
 * d->over, or NULL. */
static inline void device_call_create_over(device_call *d, const kernel *k, const int *over) {
  const sl_queue_ops *ops = &sl_queue_cuda;
  *d = (device_call){0};
  if (over) memcpy(d->over, over, (size_t)k->nout * sizeof *over);
  for (int i = 0; i < k->nin; i++) d->in[i] = device_place(d, &k->in_type[i], k->in[i]);
  for (int o = 0; o < k->nout; o++)
    d->out[o] = d->over[o] ? d->in[d->over[o] - 1] : device_place(d, &k->out_type[o], k->out[o]);
  d->bytes += GUARD_BYTES;
  d->call = (sl_program_call){.op = k->op,
                              .name = k->op->name,
                              .attrs = k->attrs,
                              .nin = k->nin,
                              .nout = k->nout,
                              .in_type = k->in_type,
                              .out_type = k->out_type,
                              .in = d->in,
                              .out = d->out,
                              .accumulate = k->accumulate};
  d->program = (sl_program){.ncalls = 1, .calls = &d->call, .nbases = 1};
  CHECK(!ops->prepare(&d->program, 0), "%s: %s", k->op->name, sl_detail());
  sl_queue_config config = {.scratch_bytes = ops->scratch(&d->program, 1)};
  CHECK(!ops->open(&config, &d->queue), "%s", sl_detail());
  CHECK(!sl_cuda_memory_create(0, d->bytes, &d->arena), "%s", sl_detail());
}

static inline void device_call_create(device_call *d, const kernel *k) {
  device_call_create_over(d, k, NULL);
}

static inline void device_call_destroy(device_call *d) {
  sl_queue_cuda.close(d->queue);
  sl_queue_cuda.release(&d->program);
  sl_cuda_memory_destroy(d->arena);
}

/* Enqueues the call. */
static inline uint64_t device_call_launch(device_call *d, const sl_tick *tick) {
  uint64_t fence = 0;
  sl_firing firing = {.tick = *tick, .bases = &d->arena, .first = (const uint8_t[]){1}};
  CHECK(!sl_queue_cuda.launch(d->queue, &d->program, &firing, 0, 0, &fence),
        "a launch is not complete on return");
  return fence;
}

static inline void device_call_wait(device_call *d, uint64_t fence) { wait_for(d->queue, fence); }

/* Runs the call on the inputs of k, with outputs that start as initial[] (NULL if absent), and
 * stores the outputs in result[]. Checks that nothing else changes. */
static inline void device_call_run(device_call *d, const kernel *k, void *const *initial,
                                   void **result) {
  unsigned char *before = malloc(d->bytes), *after = malloc(d->bytes);
  memset(before, GUARD, d->bytes);
  for (int i = 0; i < k->nin; i++)
    if (k->in[i]) memcpy(before + d->in[i].offset, k->in[i], sl_type_bytes(&k->in_type[i]));
  for (int o = 0; o < k->nout; o++)
    if (k->out[o] && !d->over[o])
      memcpy(before + d->out[o].offset, initial[o], sl_type_bytes(&k->out_type[o]));
  CHECK(!sl_cuda_copy(d->arena, before, d->bytes), "%s", sl_detail());
  device_call_wait(d, device_call_launch(d, &k->tick));
  CHECK(!sl_cuda_copy(after, d->arena, d->bytes), "%s", sl_detail());
  for (int o = 0; o < k->nout; o++) {
    if (!k->out[o]) continue;
    size_t bytes = sl_type_bytes(&k->out_type[o]);
    memcpy(result[o], after + d->out[o].offset, bytes);
    memcpy(after + d->out[o].offset, before + d->out[o].offset, bytes);
  }
  CHECK(!memcmp(before, after, d->bytes), "%s writes beside its outputs", k->op->name);
  free(before);
  free(after);
}

#endif
