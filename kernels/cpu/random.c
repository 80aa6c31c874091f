/* SPDX-License-Identifier: Apache-2.0 */
/* CPU kernels that draw random numbers. */
#include <math.h>

#include "kernels/cpu/chunk.h"
#include "kernels/cpu/kernels.h"
#include "ops/ops.h"

/* Consumer of the words drawn for a chunk, at most 64 elements at a time. words[] holds whole
 * blocks; the words from `skip` on belong to elements [at, at + n). */
enum { DRAWN = 64 };

typedef void use(const sl_call *call, const uint32_t *words, int64_t skip, int64_t at, int64_t n);

static void draw_stretch(const sl_call *call, int64_t where, int64_t at, int64_t count, use *fn) {
  uint32_t words[DRAWN];
  while (count > 0) {
    int64_t skip = where % 4, n = SLI_MIN(count, DRAWN - skip);
    for (int64_t b = 0; 4 * b < skip + n; b++) sl_call_random(call, where / 4 + b, words + 4 * b);
    fn(call, words, skip, at, n);
    where += n;
    at += n;
    count -= n;
  }
}

static void draw_chunk(const sl_call *call, int i, use *fn) {
  sli_range r = sli_elements(&call->out_type[0], i);
  for (int64_t run, at = r.begin; at < r.end; at += run) {
    int64_t where = sl_call_where(call, at, &run);
    run = SLI_MIN(run, r.end - at);
    draw_stretch(call, where, at, run, fn);
  }
}

/* Returns a number in [0, 1), exact in f32. */
static float fraction(uint32_t word) { return (float)(int32_t)(word >> 8) * 0x1p-24f; }

/* ---- dropout ------------------------------------------------------------------------ */

static void drop(const sl_call *call, const uint32_t *words, int64_t skip, int64_t at, int64_t n) {
  const float *x = (const float *)call->in[0] + at;
  float *y = (float *)call->out[0] + at, scale = 1 / (1 - call->attrs->distribution.dropped);
  uint32_t below = (uint32_t)((double)call->attrs->distribution.dropped * 0x1p32);
  for (int64_t i = 0; i < n; i++) y[i] = words[skip + i] < below ? 0 : x[i] * scale;
}

static void dropout_chunk(void *arg, int i) { draw_chunk(arg, i, drop); }

static void dropout_cpu(const sl_call *call) {
  sli_for_elements(call, &call->out_type[0], dropout_chunk);
}

/* ---- numbers ------------------------------------------------------------------------ */

static void draw_uniform(const sl_call *call, const uint32_t *words, int64_t skip, int64_t at,
                         int64_t n) {
  float *y = (float *)call->out[0] + at, low = call->attrs->distribution.low,
        high = call->attrs->distribution.high;
  for (int64_t i = 0; i < n; i++) y[i] = low + (high - low) * fraction(words[skip + i]);
}

/* Box-Muller transform: a pair of words gives a pair of numbers. */
static float normal(const uint32_t *words, int64_t i) {
  const uint32_t *pair = words + (i & ~1);
  float radius = sqrtf(-2 * logf(1 - fraction(pair[0])));
  float angle = 6.2831853071795865f * fraction(pair[1]);
  return radius * (i & 1 ? sinf(angle) : cosf(angle));
}

static void draw_normal(const sl_call *call, const uint32_t *words, int64_t skip, int64_t at,
                        int64_t n) {
  float *y = (float *)call->out[0] + at;
  for (int64_t i = 0; i < n; i++)
    y[i] = call->attrs->distribution.mean +
           call->attrs->distribution.deviation * normal(words, skip + i);
}

static void uniform_chunk(void *arg, int i) { draw_chunk(arg, i, draw_uniform); }

static void normal_chunk(void *arg, int i) { draw_chunk(arg, i, draw_normal); }

static void uniform_cpu(const sl_call *call) {
  sli_for_elements(call, &call->out_type[0], uniform_chunk);
}

static void normal_cpu(const sl_call *call) {
  sli_for_elements(call, &call->out_type[0], normal_chunk);
}

/* ---- tables ------------------------------------------------------------------------- */

const sl_kernel sli_cpu_dropout = {.backend = "cpu", .run = dropout_cpu};

const sl_kernel sli_cpu_uniform = {.backend = "cpu", .run = uniform_cpu};

const sl_kernel sli_cpu_normal = {.backend = "cpu", .run = normal_cpu};
