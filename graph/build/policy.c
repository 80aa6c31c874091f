/* SPDX-License-Identifier: Apache-2.0 */
/* Group relative policy optimization: advantages, and the loss of sampled tokens. */
#define SL_MODEL_BUILTIN /* errors must not name lines of this file */
#include "graph/build/build.h"

#include <math.h>

#include <sluice/objective.h>

double sl_grpo_advantages(int count, const double *rewards, double *advantages) {
  double sum = 0, squares = 0;
  int known = 0;
  for (int i = 0; i < count; i++)
    if (!isnan(rewards[i])) sum += rewards[i], known++;
  double mean = known ? sum / known : 0;
  for (int i = 0; i < count; i++)
    if (!isnan(rewards[i])) squares += (rewards[i] - mean) * (rewards[i] - mean);
  double deviation = known > 1 ? sqrt(squares / (known - 1)) : 0;
  for (int i = 0; i < count; i++) advantages[i] = (rewards[i] - mean) / (deviation + 1e-6);
  return deviation;
}

static float or_default(float value, float usual) {
  return value == SL_OFF ? 0 : value == 0 ? usual : value;
}

/* Returns a constant with the shape and layout of t. */
static sl_tensor *constant_of(sl_graph *g, sl_tensor *t, float value) {
  return sl_clamp(g, t, value, value);
}

static sl_status check_shape(sl_graph *g, const char *name, const sl_tensor *t, const sl_type *like,
                             bool column) {
  sl_type wanted = SL_TYPE(SL_F32, like->dim[0], like->dim[1]), narrow = wanted;
  char found[SL_TYPE_TEXT], text[SL_TYPE_TEXT];
  narrow.dim[1] = 1;
  if (t && (sl_type_equal(&t->type, &wanted) || (column && sl_type_equal(&t->type, &narrow))))
    return SL_OK;
  return sl_graph_fail(g, SL_E_SHAPE, "grpo: %s must be %s, got %s", name,
                       sl_type_format(text, &wanted), t ? sl_type_format(found, &t->type) : "NULL");
}

/* Returns the clipped objective of each target. *plain: the objective without clipping. */
static sl_tensor *clipped(sl_graph *g, const sl_grpo *s, sl_tensor *ratio, sl_tensor *advantages,
                          sl_tensor **plain) {
  float low = 1 - or_default(s->clip_low, 0.2f), high = 1 + or_default(s->clip_high, 0.2f);
  float bound = or_default(s->bound, 3);
  *plain = sl_mul(g, ratio, advantages);
  sl_tensor *least = sl_minimum(g, *plain, sl_mul(g, sl_clamp(g, ratio, low, high), advantages));
  if (!(bound > 0)) return least;
  sl_tensor *negative = sl_lt(g, advantages, constant_of(g, advantages, 0));
  sl_tensor *floor =
      sl_where(g, negative, sl_scale(g, advantages, bound), constant_of(g, advantages, -1e30f));
  return sl_maximum(g, least, floor);
}

/* Reports means over a step's targets. */
static void report_ratios(sl_graph *g, sl_tensor *weights, sl_tensor *ratio, sl_tensor *clipped,
                          sl_tensor *plain, sl_tensor *lp) {
  sl_tensor *zero = constant_of(g, weights, 0), *counts = sl_gt(g, weights, zero);
  sl_tensor *off = sl_abs(g, sl_add_constant(g, ratio, -1));
  sl_step_value(g, "ratio", sl_mul(g, ratio, weights), SL_OVER_MEAN);
  sl_step_value(g, "ratio_off", sl_where(g, counts, off, zero), SL_OVER_MAX);
  sl_step_value(g, "clipped", sl_where(g, sl_ne(g, clipped, plain), weights, zero), SL_OVER_MEAN);
  sl_step_value(g, "entropy", sl_mul(g, sl_neg(g, lp), weights), SL_OVER_MEAN);
}

/* Returns exp(d) - d - 1 with d = reference - lp. */
static sl_tensor *divergence(sl_graph *g, sl_tensor *reference, sl_tensor *lp) {
  sl_tensor *d = sl_clamp(g, sl_sub(g, reference, lp), -20, 20);
  return sl_add_constant(g, sl_sub(g, sl_exp(g, d), d), -1);
}

sl_tensor *sl_grpo_loss(sl_graph *g, sl_tensor *logits, sl_tensor *targets, sl_tensor *old,
                        sl_tensor *advantages, sl_tensor *weights, sl_tensor *reference,
                        const sl_grpo *settings) {
  static const sl_grpo usual;
  const sl_grpo *s = settings ? settings : &usual;
  sl_tensor *lp = sl_log_probability(g, logits, targets), *plain;
  if (g->status || !lp) return NULL;
  const sl_type *shape = &lp->type;
  if (shape->ndim != 2) {
    sl_graph_fail(g, SL_E_SHAPE, "grpo: logits must be [rows, context, vocabulary]");
    return NULL;
  }
  if (check_shape(g, "old log-probabilities", old, shape, false) ||
      check_shape(g, "advantages", advantages, shape, true) ||
      check_shape(g, "weights", weights, shape, false) ||
      (reference &&
       check_shape(g, "the reference model's log-probabilities", reference, shape, false)))
    return NULL;
  sl_tensor *ratio = sl_exp(g, sl_clamp(g, sl_sub(g, lp, old), -20, 20));
  sl_tensor *each = clipped(g, s, ratio, advantages, &plain);
  report_ratios(g, weights, ratio, each, plain, lp);
  each = sl_neg(g, each);
  if (reference) {
    sl_tensor *kl = divergence(g, reference, lp);
    sl_step_value(g, "kl", sl_mul(g, kl, weights), SL_OVER_MEAN);
    if (or_default(s->kl, 0) > 0) each = sl_add(g, each, sl_scale(g, kl, s->kl));
  }
  each = sl_mul(g, each, weights);
  return sl_mean(g, sl_reshape(g, each, shape->dim[0], shape->dim[1], 1), 0, false);
}
