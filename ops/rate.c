/* SPDX-License-Identifier: Apache-2.0 */
/* Evaluation of optimizer settings: the learning rate of a step, decay, a plan's hash. */
#include <sluice/op.h>
#include <sluice/optimizer.h>

#include <math.h>

#include "base/base.h"

float sl_optimizer_decay(const sl_optimizer *o, int ndim) {
  return ndim >= 2 || o->decay_all ? o->weight_decay : 0;
}

/* ---- the rate of a step ------------------------------------------------------------ */

/* Returns the fraction of the way from min_lr (0) to lr (1), after the fraction `done` of the
 * decay. */
static double left_of_decay(const sl_optimizer *o, double done) {
  bool straight = o->schedule == SL_RATE_LINEAR || o->schedule == SL_RATE_WSD;
  return straight ? 1.0 - done : 0.5 * (1.0 + cos(M_PI * done));
}

static float scheduled(const sl_optimizer *o, int64_t step) {
  if (step < o->warmup) return o->lr * (float)(step + 1) / (float)o->warmup;
  if (o->schedule == SL_RATE_CONSTANT || o->decay_steps <= 0) return o->lr;
  if (step >= o->decay_steps) return o->min_lr;
  int64_t begin = o->schedule == SL_RATE_WSD ? SLI_MAX(o->decay_begin, o->warmup) : o->warmup;
  if (step < begin) return o->lr;
  double done = (double)(step - begin) / (double)(o->decay_steps - begin);
  return (float)(o->min_lr + left_of_decay(o, done) * ((double)o->lr - o->min_lr));
}

float sl_optimizer_lr(const sl_optimizer *o, int64_t step) {
  float lr = o->rate ? o->rate(o, step) : scheduled(o, step);
  return o->lr_scale != 0 ? lr * o->lr_scale : lr;
}

/* ---- the plan's hash ------------------------------------------------------------- */

/* Hashes a user-defined rate function by sampling its values. */
static uint64_t hash_rate(uint64_t hash, const sl_optimizer *o) {
  for (int64_t step = 0; step < 1 << 20; step += step / 8 + 1)
    hash = sli_hash_real(hash, (double)o->rate(o, step));
  return hash;
}

/* Hashes the original settings always, and settings added later only if they differ from their
 * defaults. */
uint64_t sl_optimizer_hash(uint64_t hash, const sl_attrs *attrs, int nin) {
  (void)nin;
  const sl_optimizer *o = attrs->user;
  const float reals[] = {o->lr, o->min_lr, o->beta1, o->beta2, o->eps, o->weight_decay, o->clip};
  for (size_t i = 0; i < SLI_COUNT(reals); i++) hash = sli_hash_real(hash, (double)reals[i]);
  hash = sli_hash_word(hash, (uint64_t)o->warmup);
  hash = sli_hash_word(hash, (uint64_t)o->decay_steps);
  bool cosine = o->schedule == SL_RATE_DEFAULT ||
                o->schedule == (o->decay_steps > 0 ? SL_RATE_COSINE : SL_RATE_CONSTANT);
  const uint64_t more[] = {
      o->momentum != 0, o->nesterov, !cosine, o->decay_all, o->lr_scale != 0 && o->lr_scale != 1,
      o->rate != NULL};
  bool any = false;
  for (size_t i = 0; i < SLI_COUNT(more); i++) any |= more[i];
  if (!any) return hash;
  for (size_t i = 0; i < SLI_COUNT(more); i++) hash = sli_hash_word(hash, more[i]);
  hash = sli_hash_real(hash, (double)o->momentum);
  hash = sli_hash_real(hash, (double)o->lr_scale);
  hash = sli_hash_word(hash, (uint64_t)o->schedule);
  hash = sli_hash_word(hash, (uint64_t)o->decay_begin);
  return o->rate ? hash_rate(hash, o) : hash;
}
