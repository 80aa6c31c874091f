/* What rows of a weighted cross entropy count by, and how the parts of rows that were shared out
 * come together, in the part of the language that C and CUDA share. */
#ifndef SLUICE_TARGET_H
#define SLUICE_TARGET_H

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
  int64_t classes;      /* of weights */
  int32_t ignored;
  float smoothing, each; /* what is taken from the target, and what each class gets of it */
} sli_weighing;

/* `input`: the weights. */
static inline sli_weighing sli_weighing_of(const sl_call *call, int input) {
  int32_t ignore = call->attrs->ignore;
  sli_weighing w = {NULL, 0, ignore == INT32_MIN ? 0 : ignore ? ignore : -100,
                    call->attrs->value, call->attrs->upper};
  if (input >= call->nin || !call->in[input]) return w;
  w.weights = (const float *)call->in[input];
  w.classes = call->in_type[input].dim[0];
  return w;
}

SLI_TARGET bool sli_counts(const sli_weighing *w, int32_t target) { return target != w->ignored; }

/* Of a target that counts; what is no class gives NaN, so that the loss shows it. */
SLI_TARGET float sli_weight(const sli_weighing *w, int32_t target) {
  if (!w->weights) return 1;
  return target >= 0 && target < w->classes ? w->weights[target] : NAN;
}

/* Of the target's own logit. */
SLI_TARGET float sli_weight_own(const sli_weighing *w, int32_t target) {
  return (1 - w->smoothing) * sli_weight(w, target);
}

/* Of the row's lse: the sum over all classes. `sum` is that of the weights. */
SLI_TARGET float sli_weight_all(const sli_weighing *w, int32_t target, float sum) {
  return sli_weight_own(w, target) + (w->weights ? w->each * sum : w->smoothing);
}

/* ---- rows in parts ----------------------------------------------------------------------- */

/* What is known of a row's columns on one device: the largest logit, the sum of e^(logit - it), what
 * the row's lse counts (1 where rows count alike: then it is not there), and what is taken from it. */
enum { SLI_PART = 3, SLI_WEIGHTED_PART = 4 };

/* The loss of a row whose parts, of so many numbers each, make up `width`; sets its lse. A weighted
 * row of which no column counts has no lse: it is 0. */
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

#endif
