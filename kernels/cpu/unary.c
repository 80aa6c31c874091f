/* SPDX-License-Identifier: Apache-2.0 */
/* CPU kernels of functions of one number, listed in unary.def. */
#include <math.h>

#include "kernels/cpu/chunk.h"
#include "kernels/cpu/kernels.h"
#include "ops/ops.h"

/* ---- doubles: scalars --------------------------------------------------------------- */

typedef double scalar_fn(double v, double d, double c, double u);

#define exp_of exp
#define log_of log
#define sqrt_of sqrt
#define abs_of fabs
#define tanh_of tanh
#define erf_of erf
#define sin_of sin
#define cos_of cos
#define floor_of floor
static double sigmoid_of(double v) { return 1 / (1 + exp(-v)); }
static double normal_of(double v) { return erfc(-v * 0x1.6a09e667f3bcdp-1) / 2; }
static double softplus_of(double v) { return fmax(v, 0) + log1p(exp(-fabs(v))); }
static double pick_of(bool mask, double a, double b) { return mask ? a : b; }

#define UNARY(name, how, flops, y, dx)                                  \
  static double name##_scalar(double v, double d, double c, double u) { \
    const double zero = 0;                                              \
    (void)d, (void)c, (void)u, (void)zero;                              \
    return y;                                                           \
  }                                                                     \
  SCALAR_BACK_##how(name, dx)
#define SCALAR_BACK_IN(name, dx)                                          \
  static double name##_b_scalar(double v, double d, double c, double u) { \
    const double zero = 0;                                                \
    (void)c, (void)u, (void)zero;                                         \
    return dx;                                                            \
  }
#define SCALAR_BACK_OUT SCALAR_BACK_IN
#define SCALAR_BACK_BOUNDS SCALAR_BACK_IN
#define SCALAR_BACK_CAP SCALAR_BACK_IN
#define SCALAR_BACK_SAME(name, dx)
#define SCALAR_BACK_THROUGH(name, dx)
#define SCALAR_BACK_DETACHED(name, dx)
#include "ops/unary.def"
#undef UNARY

static double scalar_input(const sl_call *call, int i) {
  bool is_double = call->in_type[i].dtype == SL_F64;
  return is_double ? *(const double *)call->in[i] : (double)*(const float *)call->in[i];
}

static void run_scalar(const sl_call *call, scalar_fn *fn) {
  double d = call->nin > 1 ? scalar_input(call, 1) : 0;
  double y = fn(scalar_input(call, 0), d, (double)call->attrs->function.c,
                (double)call->attrs->function.u);
  if (call->out_type[0].dtype == SL_F64) *(double *)call->out[0] = y;
  else *(float *)call->out[0] = (float)y;
}

/* ---- kernels -------------------------------------------------------------------------- */

static void unary_run(const sl_call *call, sli_chunk_fn *chunk, scalar_fn *scalar) {
  if (call->in_type[0].dtype == SL_F64) run_scalar(call, scalar);
  else sli_for_elements(call, &call->in_type[0], chunk);
}

#define FORWARD(name)                                                   \
  static void name##_cpu(const sl_call *call) {                         \
    unary_run(call, sli_cpu()->unary[SLI_UNARY_##name], name##_scalar); \
  }                                                                     \
  const sl_kernel sli_cpu_##name = {.backend = "cpu", .run = name##_cpu};
#define BACK(name)                                                          \
  static void name##_b_cpu(const sl_call *call) {                           \
    unary_run(call, sli_cpu()->unary_b[SLI_UNARY_##name], name##_b_scalar); \
  }                                                                         \
  const sl_kernel sli_cpu_##name##_b = {.backend = "cpu", .run = name##_b_cpu};

#define KERNELS_IN(name) FORWARD(name) BACK(name)
#define KERNELS_BOUNDS KERNELS_IN
#define KERNELS_CAP KERNELS_IN
#define KERNELS_OUT KERNELS_IN
#define KERNELS_SAME FORWARD
#define KERNELS_THROUGH FORWARD
#define KERNELS_DETACHED FORWARD
#define UNARY(name, how, flops, y, dx) KERNELS_##how(name)

#include "ops/unary.def"
#undef UNARY
