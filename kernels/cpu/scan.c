/* SPDX-License-Identifier: Apache-2.0 */
/* CPU kernels that scan along a dim: top-k and cumulative sums. */
#include <math.h>

#include "kernels/cpu/chunk.h"
#include "kernels/cpu/kernels.h"
#include "ops/indexing.h"
#include "ops/ops.h"
#include "ops/space.h"

/* ---- top-k ------------------------------------------------------------------------------ */

typedef struct ranking {
  const sl_call *call;
  sli_lines lines;
  int64_t k, block;
} ranking;

/* NaN is larger than any number. */
static bool is_larger(float a, float b) { return isnan(a) ? !isnan(b) : a > b; }

/* Fills the places of the k largest in order, ties by place. x has n elements, `stride` apart, and
 * so do the places. */
static void rank(const float *x, int64_t n, int64_t k, int64_t stride, int32_t *places) {
  int64_t count = 0;
  for (int64_t i = 0; i < n; i++) {
    float v = x[i * stride];
    if (count == k && !is_larger(v, x[places[(k - 1) * stride] * stride])) continue;
    int64_t at = count < k ? count++ : k - 1;
    for (; at && is_larger(v, x[places[(at - 1) * stride] * stride]); at--)
      places[at * stride] = places[(at - 1) * stride];
    places[at * stride] = (int32_t)i;
  }
}

static void top_k_chunk(void *arg, int i) {
  const ranking *r = arg;
  const sli_lines *l = &r->lines;
  float *values = r->call->out[0];
  int32_t *places = r->call->out[1] ? r->call->out[1] : r->call->scratch;
  sli_range lines = sli_chunk_range(l->outer * l->inner, r->block, i);
  for (int64_t line = lines.begin; line < lines.end; line++) {
    int64_t outer = line / l->inner, c = line % l->inner, to = outer * r->k * l->inner + c;
    const float *x = (const float *)r->call->in[0] + outer * l->n * l->inner + c;
    rank(x, l->n, r->k, l->inner, places + to);
    for (int64_t j = 0; values && j < r->k; j++)
      values[to + j * l->inner] = x[places[to + j * l->inner] * l->inner];
  }
}

static size_t top_k_scratch(const sl_call *call, int threads) {
  (void)threads;
  return sl_type_bytes(&call->out_type[1]);
}

static void top_k_cpu(const sl_call *call) {
  ranking r = {call, sli_lines_of(call->attrs, &call->in_type[0]), call->attrs->along.k, 0};
  r.block = SLI_MAX(SLI_CHUNK_ELEMENTS / r.lines.n, 1);
  sl_team_for(call->team, sli_chunk_count(r.lines.outer * r.lines.inner, r.block), top_k_chunk, &r);
}

/* ---- cumulative sums ---------------------------------------------------------------------- */

enum { LINES = 64 }; /* lines summed side by side */

typedef struct summing {
  const sl_call *call;
  sli_lines lines;
  bool reverse, exclusive;
  int64_t block;
} summing;

/* Sums `count` lines from element `at` on, accumulating in sum_type. */
#define SUM_LINES(name, type, sum_type)                                     \
  static void name(const summing *s, int64_t at, int64_t count) {           \
    const type *x = (const type *)s->call->in[0] + at;                      \
    type *y = (type *)s->call->out[0] + at;                                 \
    sum_type sum[LINES] = {0};                                              \
    for (int64_t k = 0; k < s->lines.n; k++) {                              \
      int64_t row = (s->reverse ? s->lines.n - 1 - k : k) * s->lines.inner; \
      for (int64_t c = 0; c < count; c++) {                                 \
        sum_type before = sum[c];                                           \
        sum[c] += (sum_type)x[row + c];                                     \
        y[row + c] = (type)(s->exclusive ? before : sum[c]);                \
      }                                                                     \
    }                                                                       \
  }

SUM_LINES(sum_floats, float, double)

SUM_LINES(sum_integers, int32_t, uint32_t)

static void cumsum_chunk(void *arg, int i) {
  const summing *s = arg;
  const sli_lines *l = &s->lines;
  sli_range r = sli_chunk_range(l->outer * l->inner, s->block, i);
  for (int64_t count, line = r.begin; line < r.end; line += count) {
    int64_t outer = line / l->inner, c = line % l->inner;
    count = SLI_MIN(SLI_MIN(l->inner - c, r.end - line), LINES);
    int64_t at = outer * l->n * l->inner + c;
    if (s->call->in_type[0].dtype == SL_I32) sum_integers(s, at, count);
    else sum_floats(s, at, count);
  }
}

static void sum_along(const sl_call *call, bool back) {
  summing s = {call, sli_lines_of(call->attrs, &call->in_type[0]),
               call->attrs->along.reverse != back, call->attrs->along.exclusive, 0};
  s.block = SLI_MAX(SLI_CHUNK_ELEMENTS / s.lines.n, SLI_MIN(s.lines.inner, LINES));
  sl_team_for(call->team, sli_chunk_count(s.lines.outer * s.lines.inner, s.block), cumsum_chunk,
              &s);
}

static void cumsum_cpu(const sl_call *call) { sum_along(call, false); }

static void cumsum_b_cpu(const sl_call *call) { sum_along(call, true); }

/* ---- tables ----------------------------------------------------------------------------- */

const sl_kernel sli_cpu_top_k = {.backend = "cpu", .run = top_k_cpu, .scratch = top_k_scratch};

const sl_kernel sli_cpu_cumsum = {.backend = "cpu", .run = cumsum_cpu};

const sl_kernel sli_cpu_cumsum_b = {.backend = "cpu", .run = cumsum_b_cpu};
