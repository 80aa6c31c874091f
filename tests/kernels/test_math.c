/* SPDX-License-Identifier: Apache-2.0 */
/* The vector exponential and hyperbolic tangent are within a few units in the
 * last place of libm's, over their whole range, and right at the ends.
 * labels: unthreaded */
#include "kernels/cpu/vector/prelude.h"

#include "kernels/cpu/vector/simd.h"

#include "tests/support/test.h"

/* Distance in units of the last place of `want`. */
static double ulps(float got, double want) {
  float near = (float)want;
  double unit = (double)(nextafterf(fabsf(near), INFINITY) - fabsf(near));
  return fabs((double)got - want) / unit;
}

static float lane_exp(float x) { return vexp(set(x))[0]; }

static float lane_tanh(float x) { return vtanh(set(x))[0]; }

static void check_exp(void) {
  for (float x = -86.5f; x < 88.7f; x += 0.00137f)
    CHECK(ulps(lane_exp(x), exp((double)x)) < 2.5, "exp(%a) is %a", (double)x, (double)lane_exp(x));
  CHECK(lane_exp(0) == 1, "exp(0) is 1");
  CHECK(lane_exp(-90) == 0 && lane_exp(-INFINITY) == 0, "exp far below is 0");
  CHECK(isinf(lane_exp(89)) && isinf(lane_exp(INFINITY)), "exp far above is infinite");
  CHECK(isnan(lane_exp(NAN)), "exp(NaN) is NaN");
}

static void check_tanh(void) {
  for (float x = -12; x < 12; x += 0.000137f)
    CHECK(ulps(lane_tanh(x), tanh((double)x)) < 3, "tanh(%a) is %a", (double)x,
          (double)lane_tanh(x));
  for (float x = 1e-30f; x < 1e-3f; x *= 1.7f)
    CHECK(ulps(lane_tanh(x), tanh((double)x)) < 3, "tanh(%a) is %a", (double)x,
          (double)lane_tanh(x));
  CHECK(lane_tanh(0) == 0 && lane_tanh(100) == 1 && lane_tanh(-100) == -1, "tanh at 0 and far off");
  CHECK(lane_tanh(INFINITY) == 1 && isnan(lane_tanh(NAN)), "tanh of infinity and of NaN");
}

int main(void) {
  RUN(check_exp);
  RUN(check_tanh);
  return 0;
}
