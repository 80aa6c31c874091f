/* Settings of the AdamW update and its learning-rate schedule. */
#ifndef SLUICE_OPTIMIZER_H
#define SLUICE_OPTIMIZER_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* AdamW (Loshchilov & Hutter, arXiv 1711.05101, Algorithm 2, with the schedule
 * multiplier folded into lr): decay is decoupled, p -= lr*weight_decay*p.
 * Bias correction as in Adam (arXiv 1412.6980).
 *
 * sl_train() takes a record with eps as it is: 0 is 0. In a record without eps
 * every field that is 0 gets its default, in brackets. */
typedef struct sl_optimizer {
  float lr;            /* peak learning rate [1e-3] */
  float min_lr;        /* floor of the cosine [lr/10] */
  int64_t warmup;      /* steps of linear warm-up [0] */
  int64_t decay_steps; /* step at which the cosine reaches min_lr; 0: constant lr */
  float beta1, beta2;  /* [0.9, 0.95] */
  float eps;           /* [1e-8] */
  float weight_decay;  /* on tensors of two dims or more [0.1] */
  float clip;          /* global gradient norm; 0: no clipping [1.0] */
} sl_optimizer;

/* Learning rate of step `step` (from 0): linear warm-up from lr/warmup, then
 * cosine from lr to min_lr at decay_steps, min_lr after it. */
float sl_optimizer_lr(const sl_optimizer *o, int64_t step);

#ifdef __cplusplus
}
#endif
#endif
