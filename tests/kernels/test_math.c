/* SPDX-License-Identifier: Apache-2.0 */
/* The vector functions are within a few units in the last place of libm over their whole range, and
 * right at its ends.
 * labels: unthreaded */
#include "kernels/cpu/vector/prelude.h"

#include "kernels/cpu/vector/simd.h"

#include "kernels/cpu/vector/functions.h"

#include "tests/support/test.h"

/* Returns the distance in units in the last place of `want`. */
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

static float lane_of(vec fn(vec), float x) { return fn(set(x))[0]; }

static double softplus(double x) { return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x)); }

static double normal(double x) { return erfc(-x * sqrt(0.5)) / 2; }

/* Walks from `from` to `to`; the error may be `most` units or, near 0, `near` itself. */
static void check_function(const char *name, vec fn(vec), double want(double), float from, float to,
                           float step, double most, double near) {
  for (float x = from; x < to; x += step) {
    double y = want((double)x);
    float got = lane_of(fn, x);
    CHECK(ulps(got, y) < most || fabs((double)got - y) < near, "%s(%a) is %a, not %a", name,
          (double)x, (double)got, y);
  }
}

static void check_erf(void) {
  check_function("erf", verf, erf, -5, 5, 0.000137f, 2.5, 0);
  check_function("erf", verf, erf, 1e-30f, 2e-30f, 1e-33f, 2.5, 0);
  check_function("normal", vnormal, normal, -1, 6, 0.000137f, 3, 0);
  check_function("normal", vnormal, normal, -12, -1, 0.000137f, 12, 5e-9);
  CHECK(lane_of(verf, INFINITY) == 1 && lane_of(verf, -INFINITY) == -1 && isnan(lane_of(verf, NAN)),
        "erf of infinity and of NaN");
  CHECK(lane_of(vnormal, -INFINITY) == 0 && isnan(lane_of(vnormal, NAN)), "normal at the ends");
}

static void check_waves(void) {
  const float ranges[][2] = {{10, 0.000731f}, {2e5f, 0.731f}, {6.7e7f, 877.3f}, {3e38f, 3.7e33f}};
  for (size_t r = 0; r < SLI_COUNT(ranges); r++) {
    check_function("sin", vsin, sin, -ranges[r][0], ranges[r][0], ranges[r][1], 2, 0);
    check_function("cos", vcos, cos, -ranges[r][0], ranges[r][0], ranges[r][1], 2, 0);
  }
  for (int k = 1; k < 100000; k += 7) { /* near the zeros */
    float x = (float)(k * 3.14159265358979 / 2);
    check_function("sin", vsin, sin, x, x * 1.0000001f, x, 2, 0);
    check_function("cos", vcos, cos, x, x * 1.0000001f, x, 2, 0);
  }
  CHECK(isnan(lane_of(vsin, INFINITY)) && isnan(lane_of(vcos, NAN)), "sin and cos of no number");
  CHECK(lane_of(vsin, 0) == 0 && lane_of(vcos, 0) == 1, "sin and cos of 0");
}

static void check_softplus(void) {
  check_function("softplus", vsoftplus, softplus, -86, 90, 0.00137f, 3, 0);
  CHECK(isinf(lane_of(vsoftplus, INFINITY)) && isnan(lane_of(vsoftplus, NAN)), "softplus far off");
  CHECK(lane_of(vsoftplus, -INFINITY) == 0, "softplus far below");
}

static void check_floor(void) {
  check_function("floor", vfloor, floor, -10, 10, 0.0625f, 0.1, 0);
  check_function("floor", vfloor, floor, -1e9f, 1e9f, 1e4f + 0.3f, 0.1, 0);
  CHECK(signbit(lane_of(vfloor, -0.0f)), "floor(-0) is -0");
  CHECK(isinf(lane_of(vfloor, INFINITY)) && isnan(lane_of(vfloor, NAN)), "floor of no number");
}

int main(void) {
  RUN(check_exp);
  RUN(check_tanh);
  RUN(check_erf);
  RUN(check_waves);
  RUN(check_softplus);
  RUN(check_floor);
  return 0;
}
