/* SPDX-License-Identifier: Apache-2.0 */
/* Runs one op directly: infers, allocates, prepares, calls. For tests and benches. */
#ifndef SLUICE_TESTS_SUPPORT_KERNEL_CALL_H
#define SLUICE_TESTS_SUPPORT_KERNEL_CALL_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <sluice/op.h>
#include <sluice/ops.h>
#include <sluice/optimizer.h>

#include "kernels/cpu/kernels.h"
#include "ops/ops.h"
#include "tests/support/test.h"

enum { MAX_IN = 10, MAX_OUT = 6 };

typedef struct kernel {
  const sl_op *op;
  const sl_kernel *kernel;
  sl_attrs attrs;
  int nin, nout;
  sl_type in_type[MAX_IN], out_type[MAX_OUT];
  void *in[MAX_IN], *out[MAX_OUT];
  uint32_t accumulate;
  void *state;
  sl_tick tick;
} kernel;

/* ---- random numbers --------------------------------------------------------- */

static uint64_t random_state;

static inline uint64_t random_bits(void) { /* xorshift64* */
  random_state ^= random_state >> 12;
  random_state ^= random_state << 25;
  random_state ^= random_state >> 27;
  return random_state * UINT64_C(2685821657736338717);
}

/* Draws an integer from 0 to n - 1. */
static inline int64_t random_below(int64_t n) { return (int64_t)(random_bits() % (uint64_t)n); }

static inline double random_unit(void) { /* in [-1, 1) */
  return (double)(random_bits() >> 11) * 0x1p-52 - 1;
}

static inline void seed_random(uint64_t seed) {
  random_state = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
  random_bits();
}

/* ---- arrays ------------------------------------------------------------------ */

static inline void *array_create(const sl_type *type) {
  size_t bytes = (sl_type_bytes(type) + 63) / 64 * 64;
  void *p = aligned_alloc(64, bytes ? bytes : 64);
  CHECK(p, "no memory for %zu bytes", bytes);
  memset(p, 0xff, bytes); /* NaN */
  return p;
}

static inline void array_random(void *p, const sl_type *type, int below) {
  int64_t n = sl_type_elements(type);
  for (int64_t i = 0; i < n; i++) switch (type->dtype) {
    case SL_I32: ((int32_t *)p)[i] = (int32_t)(random_bits() % (uint64_t)below); break;
    case SL_F64: ((double *)p)[i] = random_unit(); break;
    default: ((float *)p)[i] = (float)random_unit(); break;
    }
}

static inline double array_get(const void *p, const sl_type *type, int64_t i) {
  switch (type->dtype) {
  case SL_I32: return ((const int32_t *)p)[i];
  case SL_F64: return ((const double *)p)[i];
  default: return (double)((const float *)p)[i];
  }
}

/* Copies positions [at, at + rows) of an array [B, T, C], or puts them back. */
static inline void copy_rows(const sl_type *whole, int64_t at, int64_t rows, char *all, char *part,
                             bool put) {
  size_t row = (size_t)whole->dim[2] * sizeof(float), length = (size_t)whole->dim[1];
  for (int64_t b = 0; b < whole->dim[0]; b++) {
    char *to = all + ((size_t)b * length + (size_t)at) * row,
         *from = part + (size_t)(b * rows) * row;
    memcpy(put ? to : from, put ? from : to, (size_t)rows * row);
  }
}

/* ---- calls ------------------------------------------------------------------- */

static inline sl_call kernel_call(const kernel *k, struct sl_team *team) {
  return (sl_call){.op = k->op,
                   .attrs = &k->attrs,
                   .nin = k->nin,
                   .nout = k->nout,
                   .in_type = k->in_type,
                   .out_type = k->out_type,
                   .in = (const void *const *)k->in,
                   .out = k->out,
                   .accumulate = k->accumulate,
                   .state = k->state,
                   .team = team,
                   .tick = k->tick};
}

/* Infers the outputs and allocates everything; the inputs are uninitialized. */
static inline kernel kernel_create(const sl_op *op, sl_attrs attrs, int nin, const sl_type *in,
                                   int nout) {
  kernel k = {.op = op, .attrs = attrs, .nin = nin, .nout = nout};
  for (int i = 0; i < nin; i++) k.in_type[i] = in[i];
  CHECK(!sli_attrs_check(op, &attrs), "%s: %s", op->name, sl_detail());
  CHECK(!op->infer(&attrs, nin, in, k.out_type), "%s: %s", op->name, sl_detail());
  for (int i = 0; i < nin; i++) k.in[i] = in[i].ndim < 0 ? NULL : array_create(&in[i]);
  for (int o = 0; o < nout; o++) k.out[o] = array_create(&k.out_type[o]);
  sl_call call = kernel_call(&k, NULL);
  k.kernel = sli_cpu_kernel(op);
  CHECK(k.kernel, "%s has no kernel for CPUs", op->name);
  if (k.kernel->prepare)
    CHECK(!k.kernel->prepare(&call, &k.state), "%s: %s", op->name, sl_detail());
  return k;
}

static void (*kernel_runner)(kernel *k); /* runs calls of kernel_run() on another device, if set */

static inline void kernel_run(kernel *k, struct sl_team *team) {
  if (kernel_runner) {
    kernel_runner(k);
    return;
  }
  sl_call call = kernel_call(k, team);
  size_t bytes = k->kernel->scratch ? k->kernel->scratch(&call, sl_team_size(team)) : 0;
  call.scratch = aligned_alloc(64, (bytes + 64) / 64 * 64);
  k->kernel->run(&call);
  free(call.scratch);
}

static inline void kernel_destroy(kernel *k) {
  if (k->kernel->release) k->kernel->release(k->state);
  for (int i = 0; i < k->nin; i++) free(k->in[i]);
  for (int o = 0; o < k->nout; o++) free(k->out[o]);
}

#endif
