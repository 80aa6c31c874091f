/* SPDX-License-Identifier: Apache-2.0 */
/* Per-number math of the kernels: plain functions of floats, in the subset of C and CUDA, so that
 * the same code is tested on the host. */
#ifndef SLUICE_KERNELS_CUDA_MATH_H
#define SLUICE_KERNELS_CUDA_MATH_H

#include <math.h>
#include <stdint.h>

#ifdef __CUDACC__
#define SLI_HD __host__ __device__
#else
#define SLI_HD
#endif

/* 1 / (1 + e^-x). e^-x may be infinite; the quotient is then 0. */
SLI_HD static inline float sli_sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

/* gelu(x) = x s(2u) with u = c (x + a x^3), because (1 + tanh u)/2 = s(2u). */
#define SLI_GELU_2C 1.5957691216057308f
#define SLI_GELU_A 0.044715f

SLI_HD static inline float sli_gelu(float x) {
  return x * sli_sigmoid(SLI_GELU_2C * x * (1.0f + SLI_GELU_A * x * x));
}

SLI_HD static inline float sli_gelu_b(float x, float dy) {
  float s = sli_sigmoid(SLI_GELU_2C * x * (1.0f + SLI_GELU_A * x * x));
  float slope = SLI_GELU_2C * (1.0f + 3.0f * SLI_GELU_A * x * x);
  return dy * s * (1.0f + x * (1.0f - s) * slope);
}

SLI_HD static inline float sli_relu(float x) { return x < 0.0f ? 0.0f : x; /* NaN stays NaN */ }

SLI_HD static inline float sli_swiglu(float gate, float up) {
  return gate * sli_sigmoid(gate) * up;
}

SLI_HD static inline void sli_swiglu_b(float gate, float up, float dy, float *dgate, float *dup) {
  float s = sli_sigmoid(gate);
  *dgate = dy * up * s * (1.0f + gate * (1.0f - s));
  *dup = dy * gate * s;
}

/* Running sum of a softmax: `total` of e^(x - top) over the numbers so far. */
typedef struct sli_soft {
  float top, total;
} sli_soft;

/* Initial top: below every finite number but finite, so that x - top is never inf - inf. */
#define SLI_LOWEST -3.4028235e38f

SLI_HD static inline sli_soft sli_soft_join(sli_soft a, sli_soft b) {
  float top = a.top > b.top ? a.top : b.top;
  return (sli_soft){top, a.total * expf(a.top - top) + b.total * expf(b.top - top)};
}

/* Numbers that an optimizer needs for one step; see ops.h. */
typedef struct sli_update_numbers {
  float beta1, beta2, eps;
  float keep; /* 1 - lr decay */
  float decay;
  float lr;
  float rate; /* lr / (1 - beta1^t) */
  float root; /* 1 / sqrt(1 - beta2^t) */
  float momentum;
  int nesterov;
} sli_update_numbers;

/* Returns a product that is rounded before anything is added to it, as in the CPU's optimizers. */
SLI_HD static inline float sli_product(float a, float b) {
#ifdef __CUDA_ARCH__
  return __fmul_rn(a, b);
#else
  volatile float x = a * b;
  return x;
#endif
}

/* Return b x + (1 - b) g, and the same for squares. */
SLI_HD static inline float sli_mean(float b, float x, float g) {
  return sli_product(b, x) + sli_product(1.0f - b, g);
}
SLI_HD static inline float sli_squares(float b, float x, float g) {
  return sli_product(b, x) + sli_product(sli_product(1.0f - b, g), g);
}

/* Returns Adam's step. */
SLI_HD static inline float sli_adam_way(const sli_update_numbers *a, float m, float v) {
  return sli_product(a->rate, m) / (sli_product(sqrtf(v), a->root) + a->eps);
}

SLI_HD static inline void sli_adamw_step(const sli_update_numbers *a, float g, float *p, float *m,
                                         float *v) {
  *m = sli_mean(a->beta1, *m, g);
  *v = sli_squares(a->beta2, *v, g);
  *p = sli_product(*p, a->keep) - sli_adam_way(a, *m, *v);
}

SLI_HD static inline void sli_adam_step(const sli_update_numbers *a, float g, float *p, float *m,
                                        float *v) {
  g += sli_product(a->decay, *p);
  *m = sli_mean(a->beta1, *m, g);
  *v = sli_squares(a->beta2, *v, g);
  *p -= sli_adam_way(a, *m, *v);
}

SLI_HD static inline void sli_sgd_step(const sli_update_numbers *a, float g, float *p, float *u) {
  g += sli_product(a->decay, *p);
  *u = sli_product(a->momentum, *u) + g;
  *p -= sli_product(a->lr, a->nesterov ? g + sli_product(a->momentum, *u) : *u);
}

SLI_HD static inline void sli_lion_step(const sli_update_numbers *a, float g, float *p, float *m) {
  float to = sli_mean(a->beta1, *m, g);
  *m = sli_mean(a->beta2, *m, g);
  *p = sli_product(*p, a->keep) - sli_product(a->lr, (float)((to > 0) - (to < 0)));
}

/* ---- bf16 ------------------------------------------------ */

SLI_HD static inline float sli_bf16_to_float(uint16_t bits) {
  union {
    uint32_t bits;
    float value;
  } u = {(uint32_t)bits << 16};
  return u.value;
}

/* Rounds to nearest, ties to even; the carry may reach the exponent, which is correct. A NaN is
 * cut, with a bit set to keep it a NaN. */
SLI_HD static inline uint16_t sli_bf16_from_float(float x) {
  union {
    float value;
    uint32_t bits;
  } u = {x};
  if ((u.bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(u.bits >> 16 | 0x40);
  return (uint16_t)((u.bits + 0x7fffu + (u.bits >> 16 & 1)) >> 16);
}

#endif
