/* SPDX-License-Identifier: Apache-2.0 */
/* CPU kernels of functions by number, in doubles, and of functions of integers (listed in
 * functions.def). */
#include "ops/functions.h"

#include "kernels/cpu/chunk.h"
#include "kernels/cpu/kernels.h"
#include "ops/whole.h"

/* ---- of one number ---------------------------------------------------------------------- */

typedef double function_fn(double v, double d, double c, double u);

#define NUMBER(name, expression)                               \
  static double name(double v, double d, double c, double u) { \
    (void)v, (void)d, (void)c, (void)u;                        \
    return expression;                                         \
  }
#define FUNCTION(name, y, da) NUMBER(name##_y, y) NUMBER(name##_da, da)
#include "ops/functions.def"

static function_fn *const functions[SLI_FUNCTIONS][2] = {
#define FUNCTION(name, ...) {name##_y, name##_da},
#include "ops/functions.def"
};

static void function_chunk(void *arg, int i) {
  const sl_call *call = arg;
  const float *x = call->in[0], *dy = call->nin > 1 ? call->in[1] : NULL;
  float *y = call->out[0];
  const double c = (double)call->attrs->function.c, u = (double)call->attrs->function.u;
  function_fn *fn = functions[call->attrs->function.number][dy != NULL];
  sli_range r = sli_elements(&call->in_type[0], i);
  for (int64_t e = r.begin; e < r.end; e++)
    y[e] = (float)fn((double)x[e], dy ? (double)dy[e] : 0, c, u);
}

static void function_cpu(const sl_call *call) {
  sli_for_elements(call, &call->in_type[0], function_chunk);
}

/* ---- of two numbers --------------------------------------------------------------------- */

#define ROW(name, expression)                                                                \
  static void name(const float *a_, const float *b_, const float *d_, float *y, int64_t n) { \
    (void)d_;                                                                                \
    for (int64_t i = 0; i < n; i++) {                                                        \
      const double a = (double)a_[i], b = (double)b_[i];                                     \
      y[i] = (float)(expression);                                                            \
    }                                                                                        \
  }
#define ROW_B(name, expression)                                                              \
  static void name(const float *a_, const float *b_, const float *d_, float *y, int64_t n) { \
    for (int64_t i = 0; i < n; i++) {                                                        \
      const double a = (double)a_[i], b = (double)b_[i], d = (double)d_[i];                  \
      (void)a, (void)b, (void)d;                                                             \
      y[i] = (float)(expression);                                                            \
    }                                                                                        \
  }
#define FUNCTION2(name, y, da, db) \
  ROW(name##_2_y, y)               \
  ROW_B(name##_2_da, da)           \
  ROW_B(name##_2_db, db)
#include "ops/functions.def"

static sli_row_fn *const functions2[SLI_FUNCTIONS2][3] = {
#define FUNCTION2(name, ...) {name##_2_y, name##_2_da, name##_2_db},
#include "ops/functions.def"
};

static void function2_cpu(const sl_call *call) {
  sli_fold_output(call, 0, functions2[call->attrs->function.number][0]);
}

static void function2_b_cpu(const sl_call *call) {
  for (int o = 0; o < 2; o++)
    sli_fold_output(call, o, functions2[call->attrs->function.number][1 + o]);
}

/* ---- of integers ------------------------------------------------------------------------ */

static void whole_chunk(void *arg, int i) {
  const sl_call *call = arg;
  sli_whole_pairs p = sli_whole_pairs_make(call);
  int32_t *y = call->out[0];
  sli_range r = sli_elements(&call->out_type[0], i);
  for (int64_t e = r.begin; e < r.end; e++)
    y[e] = (int32_t)sli_whole_wrap((int)call->attrs->function.range, sli_whole_pair(&p, e));
}

static void whole_cpu(const sl_call *call) {
  sli_for_elements(call, &call->out_type[0], whole_chunk);
}

static void whole_reduce_chunk(void *arg, int i) {
  const sl_call *call = arg;
  sli_whole_lines l = sli_whole_lines_make(call);
  int32_t *y = call->out[0];
  sli_range r = sli_elements(&call->out_type[0], i);
  for (int64_t e = r.begin; e < r.end; e++)
    y[e] = (int32_t)sli_whole_wrap((int)call->attrs->function.range, sli_whole_line(&l, e));
}

static void whole_reduce_cpu(const sl_call *call) {
  sli_for_elements(call, &call->out_type[0], whole_reduce_chunk);
}

const sl_kernel sli_cpu_function = {.backend = "cpu", .run = function_cpu};
const sl_kernel sli_cpu_function_b = {.backend = "cpu", .run = function_cpu};
const sl_kernel sli_cpu_function2 = {.backend = "cpu", .run = function2_cpu};
const sl_kernel sli_cpu_function2_b = {.backend = "cpu", .run = function2_b_cpu};
const sl_kernel sli_cpu_whole = {.backend = "cpu", .run = whole_cpu};
const sl_kernel sli_cpu_whole_reduce = {.backend = "cpu", .run = whole_reduce_cpu};
