/* SPDX-License-Identifier: Apache-2.0 */
/* Distillation: a model learns the probabilities of a frozen teacher. */
#define SL_MODEL_BUILTIN /* errors must not name lines of this file */
#include "graph/build/build.h"

#include <stdlib.h>

#include <sluice/objective.h>

typedef struct distill {
  sl_objective objective;
  sl_distill settings;
} distill;

static float temperature_of(const sl_distill *s) {
  return s->temperature != 0 ? s->temperature : 1;
}

void sl_distill_teach(sl_graph *g, sl_tensor *logits, const sl_distill *s, sl_tensor **frozen) {
  int64_t vocab = sl_dim(logits, -1), top = s->top && s->top < vocab ? s->top : vocab;
  sl_tensor *likely = logits;
  if (top < vocab) likely = sl_top_k(g, logits, -1, top, &frozen[1]); /* [B, T, K] */
  frozen[0] = sl_log_softmax(g, sl_scale(g, likely, 1 / temperature_of(s)), -1);
}

/* Returns the model's log-probabilities of the given tokens; ids NULL: of all tokens. */
static sl_tensor *own_logprobs(sl_graph *g, sl_tensor *logits, sl_tensor *ids, float temperature) {
  sl_tensor *all = sl_log_softmax(g, sl_scale(g, logits, 1 / temperature), -1);
  return ids ? sl_gather(g, all, -1, ids) : all;
}

/* Multiplies each position's numbers [B, T, K] by its weight [B, T]. */
static sl_tensor *weigh(sl_graph *g, sl_tensor *x, sl_tensor *weights) {
  return sl_mul(g, x, sl_reshape(g, weights, sl_dim(weights, 0), sl_dim(weights, 1), 1));
}

sl_tensor *sl_distill_loss(sl_graph *g, sl_tensor *logits, sl_tensor *const *frozen,
                           sl_tensor *weights, const sl_distill *s) {
  float t = temperature_of(s);
  sl_tensor *own = own_logprobs(g, logits, frozen[1], t);
  sl_tensor *kl = sl_mul(g, sl_exp(g, frozen[0]), sl_sub(g, frozen[0], own)); /* [B, T, K] */
  kl = sl_scale(g, kl, (float)sl_dim(kl, -1)); /* so that a mean over K is a sum */
  if (weights) kl = weigh(g, kl, weights);
  sl_step_value(g, "kl", kl, SL_OVER_MEAN);
  sl_metric(g, "kl", kl);
  return sl_mean(g, sl_scale(g, kl, (1 - s->data) * t * t), 0, false);
}

/* ---- the objective ------------------------------------------------------------------------- */

static void make_frozen(void *ctx, sl_graph *g, sl_tensor *logits, sl_tensor *targets,
                        sl_tensor **frozen) {
  (void)targets;
  sl_distill_teach(g, logits, &((const distill *)ctx)->settings, frozen);
}

static sl_tensor *make_loss(void *ctx, sl_graph *g, sl_tensor *logits, sl_tensor *targets,
                            sl_tensor *const *frozen) {
  const sl_distill *s = &((const distill *)ctx)->settings;
  sl_tensor *loss = sl_distill_loss(g, logits, frozen, NULL, s);
  if (!(s->data > 0)) return loss;
  sl_tensor *data = sl_op2_at(SL_HERE, g, &sl_op_cross_entropy, NULL, logits, targets);
  return sl_add(g, loss, sl_scale(g, data, s->data));
}

sl_objective *sl_distill_create(const sl_model *teacher, const sl_args *args,
                                const sl_distill *settings) {
  distill *d = sli_calloc(1, sizeof *d);
  d->objective = (sl_objective){.name = "distill",
                                .loss = make_loss,
                                .frozen = make_frozen,
                                .teacher = teacher,
                                .teacher_args = args,
                                .ctx = d};
  if (settings) d->settings = *settings;
  return &d->objective;
}

void sl_distill_destroy(sl_objective *objective) {
  if (objective) free(objective->ctx);
}
