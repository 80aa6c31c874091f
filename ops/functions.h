/* SPDX-License-Identifier: Apache-2.0 */
/* Functions listed in functions.def, by number, and what their expressions call, for CPU and CUDA.
 *
 * unary.def and binary.def have the functions of models: each is an op with a name, computed in f32
 * by vectors, in pieces and parts of sums. Its expressions call only what vectors, floats and
 * doubles share, so they can neither branch nor use most of <math.h>. functions.def has the
 * functions of imported modules, which must have the values of a library at every edge: they are
 * computed one by one in doubles, with branches, and share one op. A function goes to unary.def or
 * binary.def if a model's speed depends on it and its edges follow from its formula; otherwise to
 * functions.def. */
#ifndef SLUICE_OPS_FUNCTIONS_H
#define SLUICE_OPS_FUNCTIONS_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __CUDACC__
#define SLI_FUNCTION __host__ __device__ static inline
#else
#define SLI_FUNCTION static inline
#endif

/* attrs.function.number of `function`, `function2` and `whole`. */
enum {
#define FUNCTION(name, ...) SLI_FUNCTION_##name,
#include "ops/functions.def"
  SLI_FUNCTIONS
};
enum {
#define FUNCTION2(name, ...) SLI_FUNCTION2_##name,
#include "ops/functions.def"
  SLI_FUNCTIONS2
};
enum {
#define WHOLE(name, ...) SLI_WHOLE_##name,
#include "ops/functions.def"
  SLI_WHOLES
};

/* attrs.cast.refuses of `cast`: numbers that end the run. */
enum {
  SLI_CAST_ANY,
  SLI_CAST_EXACT, /* beyond 2^24, in either direction */
  SLI_CAST_FITS   /* no integer of 32 bits */
};

/* Range of the results of `whole` and `whole_reduce`, attrs.function.range. */
typedef enum sli_whole_range {
  SLI_WHOLE_CHECKED, /* int64, but must fit 32 bits */
  SLI_WHOLE_BOOL,    /* 1 unless 0 */
  SLI_WHOLE_U8,      /* wraps around, as the next ones do */
  SLI_WHOLE_I8,
  SLI_WHOLE_I16,
  SLI_WHOLE_I32,
  SLI_WHOLE_RANGES
} sli_whole_range;

/* Converts a result to its range. */
SLI_FUNCTION int64_t sli_whole_wrap(int range, int64_t v) {
  switch (range) {
  case SLI_WHOLE_BOOL: return v != 0;
  case SLI_WHOLE_U8: return (uint8_t)v;
  case SLI_WHOLE_I8: return (int8_t)v;
  case SLI_WHOLE_I16: return (int16_t)v;
  default: return v < INT32_MIN || v > INT32_MAX ? (int32_t)(uint32_t)v : v;
  }
}

SLI_FUNCTION int64_t sli_whole_floor(int64_t a, int64_t b) {
  if (!b) return 0;
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

/* Returns a to the power b, or a number beyond 32 bits. */
SLI_FUNCTION int64_t sli_whole_pow(int64_t a, int64_t b) {
  int64_t y = 1;
  if (b < 0) return a == 1 ? 1 : a == -1 ? (b % 2 ? -1 : 1) : 0;
  if (a == 0 || a == 1) return b ? a : 1;
  if (a == -1) return b % 2 ? -1 : 1;
  while (b-- > 0 && y > -(INT64_C(1) << 32) && y < INT64_C(1) << 32) y *= a;
  return y;
}

/* Returns a modulo b, with the sign of b. */
SLI_FUNCTION double sli_remainder(double a, double b) {
  double r = fmod(a, b);
  return r != 0 && (b < 0) != (r < 0) ? r + b : r;
}

/* Returns the floor of a / b, computed without rounding the quotient of numbers that divide. */
SLI_FUNCTION double sli_floor_div(double a, double b) {
  if (b == 0) return a / b;
  double r = fmod(a, b), y = (a - r) / b;
  if (r != 0 && (b < 0) != (r < 0)) y -= 1;
  if (y == 0) return copysign(0.0, a / b);
  double low = floor(y);
  return y - low > 0.5 ? low + 1 : low;
}

/* Returns the sigmoid as PyTorch has it in f32: 0 and 1 at the ends. Its slope is y (1 - y) of the
 * rounded y, which the slope of binary_entropy cancels. */
SLI_FUNCTION double sli_rounded_sigmoid(double v) {
  return v < -88.722839 ? 0 : (float)(1 / (1 + exp(-v)));
}

/* Returns -(t log x + (1 - t) log(1 - x)); the logarithms are at least -100. */
SLI_FUNCTION double sli_binary_entropy(double x, double t) {
  return (t - 1) * fmax(log1p(-x), -100.0) - t * fmax(log(x), -100.0);
}

/* Applies function `number` to integers. */
#define WHOLE(name, y) \
  case SLI_WHOLE_##name: return y;
SLI_FUNCTION int64_t sli_whole_apply(int64_t number, int64_t a, int64_t b) {
  switch (number) {
#include "ops/functions.def"
  }
  return 0;
}

#endif
