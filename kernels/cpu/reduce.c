/* SPDX-License-Identifier: Apache-2.0 */
/* CPU kernels of sum, mean and maximum along dims: attrs.along.axes has a bit for each. */
#include <math.h>
#include <string.h>

#include "kernels/cpu/chunk.h"
#include "kernels/cpu/kernels.h"
#include "ops/leaves.h"
#include "ops/ops.h"
#include "ops/reduce.h"
#include "ops/space.h"

static float factor_of(const sl_attrs *attrs) {
  return attrs->along.factor != 0 ? attrs->along.factor : 1;
}

/* ---- sums ----------------------------------------------------------------------------- */

/* Folds in[0] of one type into an output of another type that broadcasts with it. */
static void fold_first(const sl_call *call, const sl_type *whole, const sl_type *in,
                       const void *from, const sl_type *out, float factor) {
  const sl_type *types[SLI_SPACE_ARRAYS] = {in, NULL, NULL, out};
  sli_fold f = {.space = sli_space_make(whole, types),
                .in = {from},
                .out = call->out[0],
                .add = sli_accumulates(call, 0),
                .factor = factor};
  sli_fold_run(call, &f);
}

static size_t total_scratch(const sl_call *call, int threads) {
  (void)threads;
  return (size_t)sli_element_chunks(&call->in_type[0]) * sizeof(double);
}

/* Adds multiples of 2^-30, so that the sum does not depend on the order. */
static double exact_total(const sl_call *call) {
  const float *x = call->in[0];
  int64_t n = sl_type_elements(&call->in_type[0]);
  double sum = 0;
  for (int64_t i = 0; i < n; i++) sum += sli_loss_round((double)x[i]);
  return sum;
}

static double total(const sl_call *call) {
  const double *partial = call->scratch;
  double sum = 0;
  if (call->attrs->numbers.exact) return exact_total(call);
  sli_for_elements(call, &call->in_type[0], sli_cpu()->total);
  int n = sli_element_chunks(&call->in_type[0]);
  for (int i = 0; i < n; i++) sum += partial[i];
  return sum;
}

static void reduce_sum_cpu(const sl_call *call) {
  const sl_type *x = &call->in_type[0];
  double factor = (double)factor_of(call->attrs);
  if (call->out_type[0].dtype == SL_F64) {
    *(double *)call->out[0] = total(call) * factor;
    return;
  }
  sl_type out = sli_reduced(x, sli_reduce_axes(call->attrs, x), true);
  fold_first(call, x, x, call->in[0], &out, (float)factor);
}

static void reduce_sum_b_cpu(const sl_call *call) {
  const sl_type *x = &call->in_type[0];
  sl_type dy = sli_reduced(x, sli_reduce_axes(call->attrs, x), true);
  fold_first(call, x, &dy, call->in[1], x, factor_of(call->attrs));
}

static void mean_cpu(const sl_call *call) {
  double sum = total(call);
  if (call->out[0]) *(double *)call->out[0] = sum / (double)sl_type_elements(&call->in_type[0]);
}

static void mean_b_cpu(const sl_call *call) {
  const sl_type *x = &call->in_type[0], scalar = SL_SCALAR(SL_F32);
  int64_t rows = call->attrs->numbers.summands;
  float each = rows ? (float)((double)*(const float *)call->in[1] / (double)rows) : 0;
  fold_first(call, x, &scalar, rows ? &each : call->in[1], x,
             rows ? 1 : 1 / (float)sl_type_elements(x));
}

/* ---- gradient of broadcasting ----------------------------------------------------------- */

/* Returns the place in an array that broadcasts to `whole` of the whole's element number `at`. */
static int64_t narrowed(const sl_type *whole, const sl_type *part, int64_t at) {
  int64_t place = 0, step = 1;
  for (int d = part->ndim - 1, w = whole->ndim - 1; d >= 0; at /= whole->dim[w--], d--) {
    if (part->dim[d] > 1) place += at % whole->dim[w] * step;
    step *= part->dim[d];
  }
  return place;
}

/* Adds exact sums, in f64. */
static void expand_b_sums(const sl_call *call) {
  const sl_type *dy = &call->in_type[0], *dx = &call->out_type[0];
  const double *from = call->in[0];
  double *to = call->out[0];
  if (!sli_accumulates(call, 0)) memset(to, 0, sl_type_bytes(dx));
  for (int64_t e = 0; e < sl_type_elements(dy); e++) to[narrowed(dy, dx, e)] += from[e];
}

static void expand_b_cpu(const sl_call *call) {
  const sl_type *dy = &call->in_type[0];
  if (dy->dtype == SL_F64) {
    expand_b_sums(call);
    return;
  }
  fold_first(call, dy, dy, call->in[0], &call->out_type[0], 1);
}

/* ---- maximum ---------------------------------------------------------------------------- */

typedef struct search {
  const sl_call *call;
  sli_space space;
  int64_t block;
} search;

static search search_of(const sl_call *call) {
  const sl_type *x = &call->in_type[0];
  sl_type out = sli_reduced(x, sli_reduce_axes(call->attrs, x), true);
  const sl_type *types[SLI_SPACE_ARRAYS] = {x, NULL, NULL, &out};
  search s = {call, sli_space_make(x, types), 0};
  s.block = sli_fold_block(&s.space);
  return s;
}

/* Returns the index in x of element `number` of dims [from, to). */
static int64_t reduce_place(const sli_space *s, int from, int to, int64_t number) {
  int64_t at = 0;
  for (int d = to - 1; d >= from; number /= s->dim[d--]) at += number % s->dim[d] * s->step[0][d];
  return at;
}

/* Finds the first of the largest numbers; NaN counts as largest. */
static void reduce_max_chunk(void *arg, int i) {
  const search *w = arg;
  const sli_space *s = &w->space;
  const float *x = w->call->in[0];
  float *y = w->call->out[0];
  int32_t *at = w->call->out[1];
  sli_range r = sli_chunk_range(s->total, w->block, i);
  for (int64_t e = r.begin; e < r.end; e++) {
    const float *from = x + reduce_place(s, 0, s->kept, e);
    float top = *from;
    int64_t where = 0;
    for (int64_t k = 1; k < s->summed && !isnan(top); k++) {
      float v = from[reduce_place(s, s->kept, s->ndim, k)];
      if (v > top || isnan(v)) top = v, where = k;
    }
    if (y) y[e] = top;
    if (at) at[e] = (int32_t)where;
  }
}

static void reduce_max_cpu(const sl_call *call) {
  search s = search_of(call);
  sl_team_for(call->team, sli_chunk_count(s.space.total, s.block), reduce_max_chunk, &s);
}

static void reduce_max_b_chunk(void *arg, int i) {
  const search *w = arg;
  const sli_space *s = &w->space;
  const int32_t *at = w->call->in[1];
  const float *dy = w->call->in[2];
  float *dx = w->call->out[0];
  sli_range r = sli_chunk_range(s->total, w->block, i);
  for (int64_t e = r.begin; e < r.end; e++) {
    float *to = dx + reduce_place(s, 0, s->kept, e);
    for (int64_t k = 0; k < s->summed; k++)
      to[reduce_place(s, s->kept, s->ndim, k)] = k == at[e] ? dy[e] : 0;
  }
}

static void reduce_max_b_cpu(const sl_call *call) {
  search s = search_of(call);
  sl_team_for(call->team, sli_chunk_count(s.space.total, s.block), reduce_max_b_chunk, &s);
}

/* ---- tables ----------------------------------------------------------------------------- */

const sl_kernel sli_cpu_reduce_sum = {
    .backend = "cpu",
    .run = reduce_sum_cpu,
    .scratch = total_scratch,
};

const sl_kernel sli_cpu_reduce_sum_b = {.backend = "cpu", .run = reduce_sum_b_cpu};

const sl_kernel sli_cpu_reduce_max = {.backend = "cpu", .run = reduce_max_cpu};

const sl_kernel sli_cpu_reduce_max_b = {.backend = "cpu", .run = reduce_max_b_cpu};

const sl_kernel sli_cpu_mean = {.backend = "cpu", .run = mean_cpu, .scratch = total_scratch};

const sl_kernel sli_cpu_mean_b = {.backend = "cpu", .run = mean_b_cpu};

const sl_kernel sli_cpu_expand_b = {.backend = "cpu", .run = expand_b_cpu};
