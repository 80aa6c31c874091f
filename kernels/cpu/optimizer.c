/* SPDX-License-Identifier: Apache-2.0 */
/* CPU kernels of the update: the gradient's norm, clipping, the optimizers. */
#include <sluice/optimizer.h>

#include <math.h>
#include <string.h>

#include "kernels/cpu/chunk.h"
#include "kernels/cpu/kernels.h"
#include "ops/ops.h"
#include "ops/running.h"

static size_t sumsq_scratch(const sl_call *call, int threads) {
  (void)threads;
  return (size_t)sli_element_chunks(&call->in_type[0]) * sizeof(double);
}

static void sumsq_cpu(const sl_call *call) {
  const double *partial = call->scratch;
  double *total = call->out[0];
  int n = sli_element_chunks(&call->in_type[0]);
  sli_for_elements(call, &call->in_type[0], sli_cpu()->sumsq);
  *total = 0;
  for (int i = 0; i < n; i++) *total += partial[i];
}

static void clip_cpu(const sl_call *call) {
  const sl_optimizer *o = call->attrs->user;
  float *scale = call->out[0];
  double *norm = call->out[1], total = 0;
  for (int i = 0; i < call->nin; i++) total += *(const double *)call->in[i];
  double length = sqrt(total), limit = o->clip / (length + 1e-6);
  if (scale) *scale = o->clip > 0 && limit < 1 ? (float)limit : 1.0f;
  if (norm) *norm = length;
}

const sl_kernel sli_cpu_sumsq = {.backend = "cpu", .run = sumsq_cpu, .scratch = sumsq_scratch};
const sl_kernel sli_cpu_clip = {.backend = "cpu", .run = clip_cpu};

#define STEP(rule)                                               \
  static void rule##_cpu(const sl_call *call) {                  \
    sli_for_elements(call, &call->out_type[0], sli_cpu()->rule); \
  }                                                              \
  const sl_kernel sli_cpu_##rule = {.backend = "cpu", .run = rule##_cpu};
STEP(adamw)
STEP(adam)
STEP(sgd)
STEP(lion)

static void running_part_chunk(void *arg, int i) {
  const sl_call *call = arg;
  float factor = sli_running_factor(call);
  const float *x = call->in[0];
  float *y = call->out[0];
  bool add = sli_accumulates(call, 0);
  sli_range r = sli_elements(&call->in_type[0], i);
  for (int64_t e = r.begin; e < r.end; e++) y[e] = factor * x[e] + (add ? y[e] : 0);
}

static void running_part_cpu(const sl_call *call) {
  sli_for_elements(call, &call->in_type[0], running_part_chunk);
}

static void running_chunk(void *arg, int i) {
  const sl_call *call = arg;
  float left = call->attrs->value, *y = call->out[0];
  const float *part = call->in[0], *p = call->in[1];
  sli_range r = sli_elements(&call->in_type[0], i);
  for (int64_t e = r.begin; e < r.end; e++) y[e] = left * p[e] + part[e];
}

static void running_cpu(const sl_call *call) {
  sli_for_elements(call, &call->in_type[0], running_chunk);
}

const sl_kernel sli_cpu_running_part = {.backend = "cpu", .run = running_part_cpu};
static void replace_cpu(const sl_call *call) {
  memcpy(call->out[0], call->in[0], sl_type_bytes(&call->in_type[0]));
}

const sl_kernel sli_cpu_replace = {.backend = "cpu", .run = replace_cpu};
const sl_kernel sli_cpu_running = {.backend = "cpu", .run = running_cpu};

/* Leaves a frozen parameter unchanged. */
static void keep_cpu(const sl_call *call) { (void)call; }

const sl_kernel sli_cpu_keep = {.backend = "cpu", .run = keep_cpu};
