/* SPDX-License-Identifier: Apache-2.0 */
/* CPU kernels of the update: gradient norm, clipping, optimizers. */
#include <sluice/optimizer.h>

#include <math.h>
#include <string.h>

#include "kernels/cpu/chunk.h"
#include "kernels/cpu/kernels.h"
#include "ops/leaves.h"
#include "ops/ops.h"
#include "ops/running.h"

static size_t sumsq_scratch(const sl_call *call, int threads) {
  (void)threads;
  int words = call->attrs->numbers.exact ? SLI_SQUARE_WORDS : 1;
  return (size_t)(sli_element_chunks(&call->in_type[0]) * words) * sizeof(double);
}

/* Adds up the squares of some elements' sums as integers, in units of 2^-80. */
static void add_squares(void *arg, int i) {
  const sl_call *call = arg;
  sli_range r = sli_elements(&call->in_type[0], i);
  unsigned __int128 sum = 0;
  double *words = (double *)call->scratch + (int64_t)i * SLI_SQUARE_WORDS;
  bool finite = true;
  for (int64_t e = r.begin; e < r.end; e++) {
    float g = ((const float *)call->in[0])[e];
    for (int p = 1; p < call->nin; p++) g += ((const float *)call->in[p])[e];
    finite &= fabsf(g) <= SLI_LEAF_MOST * 64;
    int64_t units = finite ? (int64_t)((double)g * 0x1p40) : 0;
    sum += (unsigned __int128)((__int128)units * units);
  }
  for (int w = 0; w < SLI_SQUARE_WORDS; w++, sum >>= 32)
    words[w] = finite ? (double)(uint32_t)sum : (double)NAN;
}

static void sum_squares_exactly(const sl_call *call) {
  double *total = call->out[0];
  const double *words = call->scratch;
  sli_for_elements(call, &call->in_type[0], add_squares);
  memset(total, 0, SLI_SQUARE_WORDS * sizeof *total);
  for (int i = 0; i < sli_element_chunks(&call->in_type[0]) * SLI_SQUARE_WORDS; i++)
    total[i % SLI_SQUARE_WORDS] += words[i];
}

/* Returns the sum of all squares from their words. */
static double total_of_words(const sl_call *call) {
  double words[SLI_SQUARE_WORDS] = {0}, total = 0;
  for (int i = 0; i < call->nin; i++)
    for (int w = 0; w < SLI_SQUARE_WORDS; w++) words[w] += ((const double *)call->in[i])[w];
  for (int w = SLI_SQUARE_WORDS - 1; w >= 0; w--) total += ldexp(words[w], 32 * w - 80);
  return total;
}

static void sumsq_cpu(const sl_call *call) {
  if (call->attrs->numbers.exact) {
    sum_squares_exactly(call);
    return;
  }
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
  if (call->attrs->numbers.exact) total = total_of_words(call);
  else
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
  float left = call->attrs->running.factor, *y = call->out[0];
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
