/* SPDX-License-Identifier: Apache-2.0 */
/* Times a call on a GPU, for benches. Calls are launched back to back and timed together, and the
 * best of a few runs counts, so launch time is hidden as far as in training. Calls rotate through
 * several copies of their arguments, larger than the caches. */
#ifndef SLUICE_TESTS_GPU_TIMED_CALL_H
#define SLUICE_TESTS_GPU_TIMED_CALL_H

#include <time.h>

#include "tests/gpu/device_call.h"

enum { ROUNDS = 20, GOES = 4, MOST_COPIES = 32, MOST_IDS = 50304 };
enum { ROOM_BYTES = 512 << 20 }; /* for all copies of smaller cases */

/* Returns random-looking bits, from which bf16 numbers are made: a product takes more power, and so
 * more time, if signs and exponents vary. */
static inline uint32_t mix(uint32_t i) {
  i = (i ^ i >> 16) * 0x7feb352d;
  i = (i ^ i >> 15) * 0x846ca68b;
  return i ^ i >> 16;
}

/* Returns device contents: numbers of both signs below 1, and ids in range. */
static inline void *some_bytes(const sl_type *type) {
  if (type->ndim < 0) return NULL;
  unsigned char *p = calloc(1, sl_type_bytes(type) + 64);
  CHECK(p, "no memory");
  int64_t n = sl_type_elements(type);
  for (int64_t i = 0; i < n; i++) {
    uint32_t r = mix((uint32_t)i);
    if (type->dtype == SL_I32) ((int32_t *)p)[i] = (int32_t)(r % MOST_IDS);
    if (type->dtype == SL_F32) ((float *)p)[i] = (float)(int32_t)r * 0x1p-31f;
    if (type->dtype == SL_BF16) /* at least 1/16 */
      ((uint16_t *)p)[i] = (uint16_t)((r >> 31) << 15 | (123 + (r >> 7) % 4) << 7 | r % 128);
  }
  return p;
}

/* Creates the arenas of d and of its copies, with the same inputs in each. */
static inline int make_copies(device_call *d, const kernel *k, void *arenas[MOST_COPIES]) {
  int count = 0;
  while (!count || (count < MOST_COPIES && (count + 1) * d->bytes <= ROOM_BYTES)) {
    if (!count) arenas[count] = d->arena;
    else CHECK(!sl_cuda_memory_create(0, d->bytes, &arenas[count]), "%s", sl_detail());
    for (int i = 0; i < k->nin; i++)
      if (k->in[i])
        CHECK(!sl_cuda_copy((char *)arenas[count] + d->in[i].offset, k->in[i],
                            sl_type_bytes(&k->in_type[i])),
              "%s", sl_detail());
    count++;
  }
  return count;
}

/* Returns nanoseconds per launch, over ROUNDS launches in turn. */
static inline double time_rounds(device_call *d, void *const *arenas, int copies,
                                 const sl_tick *tick) {
  struct timespec begin, end;
  uint64_t fence = 0;
  clock_gettime(CLOCK_MONOTONIC, &begin);
  for (int i = 0; i < ROUNDS; i++) {
    d->arena = arenas[i % copies];
    fence = device_call_launch(d, tick);
  }
  device_call_wait(d, fence);
  clock_gettime(CLOCK_MONOTONIC, &end);
  return ((double)(end.tv_sec - begin.tv_sec) * 1e9 + (double)(end.tv_nsec - begin.tv_nsec)) /
         ROUNDS;
}

/* Returns the best run except the first, in nanoseconds per call. */
static inline double time_call(kernel *k) {
  device_call d;
  void *arenas[MOST_COPIES];
  double best = INFINITY;
  device_call_create(&d, k);
  int copies = make_copies(&d, k, arenas);
  for (int go = 0; go < GOES; go++) {
    double ns = time_rounds(&d, arenas, copies, &k->tick);
    if (go && ns < best) best = ns;
  }
  d.arena = arenas[0];
  device_call_destroy(&d);
  for (int i = 1; i < copies; i++) sl_cuda_memory_destroy(arenas[i]);
  return best;
}

#endif
