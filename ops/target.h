/* SPDX-License-Identifier: Apache-2.0 */
/* Weights of the targets of a weighted cross entropy, and the merge of a row's parts after column
 * sharding, in the subset of C and CUDA. */
#ifndef SLUICE_OPS_TARGET_H
#define SLUICE_OPS_TARGET_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include <sluice/op.h>

#ifdef __CUDACC__
#define SLI_TARGET __host__ __device__ static inline
#else
#define SLI_TARGET static inline
#endif

typedef struct sli_weighing {
  const float *weights; /* [classes]; NULL: all 1 */
  int64_t classes;      /* number of weights */
  int32_t ignored;
  /* weight that smoothing takes from the target, and the part of it that each class gets */
  float smoothing, each;
} sli_weighing;

/* Reads the weighing from the attrs and from input `input`, the class weights. */
static inline sli_weighing sli_weighing_of(const sl_call *call, int input) {
  int32_t ignore = call->attrs->loss.ignore;
  sli_weighing w = {NULL, 0,
                    ignore == INT32_MIN ? 0
                    : ignore            ? ignore
                                        : -100,
                    call->attrs->loss.smoothing, call->attrs->loss.spread};
  if (input >= call->nin || !call->in[input]) return w;
  w.weights = (const float *)call->in[input];
  w.classes = call->in_type[input].dim[0];
  return w;
}

SLI_TARGET bool sli_counts(const sli_weighing *w, int32_t target) { return target != w->ignored; }

/* Returns the weight of a target that is not ignored. A target outside the classes gives NaN, so
 * that the loss shows it. */
SLI_TARGET float sli_weight(const sli_weighing *w, int32_t target) {
  if (!w->weights) return 1;
  return target >= 0 && target < w->classes ? w->weights[target] : NAN;
}

/* Returns the weight of the target's logit. */
SLI_TARGET float sli_weight_own(const sli_weighing *w, int32_t target) {
  return (1 - w->smoothing) * sli_weight(w, target);
}

/* Returns the weight of the row's lse, summed over all classes. `sum` is the sum of the class
 * weights. */
SLI_TARGET float sli_weight_all(const sli_weighing *w, int32_t target, float sum) {
  return sli_weight_own(w, target) + (w->weights ? w->each * sum : w->smoothing);
}

/* ---- rows in parts ----------------------------------------------------------------------- */

/* Numbers that one device knows about a row's columns: the largest logit, the sum of e^(logit -
 * largest), the weight of the row's lse (weighted rows only; otherwise 1), and the weighted target
 * logit to be subtracted. */
enum { SLI_PART = 3, SLI_WEIGHTED_PART = 4 };

/* Returns the loss of a row from its parts of `part` numbers each, `width` in all, and sets its
 * lse. A weighted row in which no column counts has no lse; it is set to 0. */
SLI_TARGET double sli_join_parts(const float *p, int64_t width, int part, float *lse) {
  float top = p[0];
  double total = 0, taken = 0;
  for (int64_t c = part; c < width; c += part) top = p[c] > top ? p[c] : top;
  for (int64_t c = 0; c < width; c += part) {
    total += (double)p[c + 1] * exp((double)p[c] - (double)top);
    taken += (double)p[c + part - 1];
  }
  bool weighted = part == SLI_WEIGHTED_PART;
  *lse = weighted && total == 0 ? 0 : (float)((double)top + log(total));
  return (weighted ? (double)p[2] : 1) * (double)*lse - taken;
}

/* Returns the log-probability of a row's target from its parts, and sets its lse. Only one of the
 * parts has a target logit other than 0. */
SLI_TARGET float sli_join_log_probability(const float *p, int64_t width, float *lse) {
  float taken = 0;
  sli_join_parts(p, width, SLI_PART, lse);
  for (int64_t c = 0; c < width; c += SLI_PART) taken += p[c + SLI_PART - 1];
  return taken - *lse;
}

#endif
