/* SPDX-License-Identifier: Apache-2.0 */
/* Lays out a step's answers as training rows, and builds their loss.
 *
 * Row i holds the prompt and answer of rollout i, left-aligned and zero-padded. The target of a
 * position is the next token. A position counts in the loss if its target is an answer token, and
 * all such positions of a step have equal weight. The loss covers only positions whose target can
 * be an answer token. Each row has as many as the longest possible answer has tokens, starting at
 * the last prompt token. With sequence parallelism each part of a row has that many, since an
 * answer may fall into any part. */
#include <math.h>
#include <string.h>

#include "rollouts/rollouts.h"

enum {
  TOKENS,
  TARGETS,
  PLACES = SLI_ROLLOUTS_PLACES,
  OLD,
  ADVANTAGE,
  WEIGHT,
  POSITIONS,
  CHOSEN,
  OUTPUTS
};

/* ---- data ---------------------------------------------------------------------------------- */

/* Returns token t of a row, or 0 after the end of its answer. */
static int32_t token_at(const sl_prompt *p, const sli_rollout *x, int64_t t) {
  if (t < p->count) return p->tokens[t];
  return t < p->count + (int64_t)x->count ? x->tokens[t - p->count] : 0;
}

/* Range of positions in a row. */
typedef struct positions {
  int64_t first, count;
} positions;

/* Writes the model's inputs for row `row` of the microbatch, which is row `of_batch` of the
 * step. */
static void lay_tokens(const sl_rollouts *r, const sli_rollout *x, positions want, int64_t row,
                       int64_t of_batch, void *const *out) {
  const sl_prompt *p = &r->options.prompts[x->prompt];
  int32_t *tokens = out[TOKENS], *targets = out[TARGETS], *places = out[PLACES];
  int64_t at = row * want.count, end = want.first + want.count;
  for (int64_t t = want.first; t < end; t++, at++) {
    if (tokens) tokens[at] = token_at(p, x, t);
    if (targets) targets[at] = token_at(p, x, t + 1);
  }
  if (places) sli_rollouts_places(r, p, of_batch, want.first, end, places + row * want.count);
}

/* Writes the loss inputs of a range of positions, starting at index `at` of the output arrays.
 * `base` is the first position of the part of the row that contains them. */
static void lay_answer(const sl_rollouts *r, const sli_rollout *x, double weight, positions want,
                       int64_t base, int64_t at, void *const *out) {
  const sl_prompt *p = &r->options.prompts[x->prompt];
  float *old = out[OLD], *advantage = out[ADVANTAGE], *weights = out[WEIGHT];
  int32_t *positions = out[POSITIONS], *targets = out[CHOSEN];
  bool counts = !isnan(x->reward);
  int64_t end = want.first + want.count;
  for (int64_t t = want.first; t < end; t++, at++) {
    int64_t in = t + 1 - p->count; /* index of the target in the answer */
    bool answers = in >= 0 && in < (int64_t)x->count;
    if (old) old[at] = answers ? x->logprobs[in] : 0;
    if (advantage) advantage[at] = counts ? (float)x->advantage : 0;
    if (weights) weights[at] = answers && counts ? (float)weight : 0;
    if (positions) positions[at] = (int32_t)(t - base);
    if (targets) targets[at] = token_at(p, x, t + 1);
  }
}

/* Writes the loss inputs of a row. In each part the range starts at the first position that
 * predicts the answer, clamped so that the whole range lies in the part. */
static void lay_parts(const sl_rollouts *r, const sli_rollout *x, double weight, int64_t row,
                      void *const *out) {
  int64_t answer = r->options.prompts[x->prompt].count - 1, length = r->context / r->parts;
  for (int64_t p = 0; p < r->parts; p++) {
    int64_t base = p * length, last = base + length - r->answers;
    positions want = {SLI_MIN(SLI_MAX(answer, base), last), r->answers};
    lay_answer(r, x, weight, want, base, (row * r->parts + p) * r->answers, out);
  }
}

static void fill(void *ctx, const sl_tick *tick, void *const *out) {
  sl_rollouts *r = ctx;
  int64_t rows = r->types[TOKENS].dim[0];
  const sli_rollout_step *s = sli_rollouts_wait(r, tick->step);
  if (!s) {
    for (int o = 0; o < OUTPUTS; o++)
      if (out[o]) memset(out[o], 0, sl_type_bytes(&r->types[o]));
    return;
  }
  /* A microbatch's loss is the mean over its positions, and the step's loss the mean over its
   * microbatches. */
  int64_t each = r->answers ? r->parts * r->answers : r->context;
  double weight = (double)(r->options.batch * each) / (double)SLI_MAX(s->tokens, 1);
  int64_t first = tick->microbatch * rows;
  positions want = {tick->row, tick->rows ? tick->rows : r->context};
  for (int64_t i = 0; i < rows; i++) {
    const sli_rollout *x = &s->rows[first + i];
    lay_tokens(r, x, want, i, first + i, out);
    if (r->answers) lay_parts(r, x, weight, i, out);
    else lay_answer(r, x, weight, want, 0, i * want.count, out);
  }
}

/* Computes how many positions per row, or per part of a row, can have an answer token as their
 * target. With Q devices per row, each holds two of 2 Q parts. */
static void find_positions(sl_rollouts *r) {
  const sl_rollouts_options *o = &r->options;
  int64_t most = SLI_MIN(o->max_tokens, r->context - r->shortest);
  r->parts = o->sequence > 1 ? 2 * o->sequence : 1;
  r->answers = SLI_MIN(most, r->context / r->parts);
  bool cuts = r->context % r->parts == 0 && r->parts * r->answers < r->context;
  if (o->all_positions || !cuts) r->answers = 0;
}

static sl_tensor *make_data(void *ctx, sl_graph *g, int64_t rows, int64_t context, int64_t vocab,
                            sl_tensor **targets) {
  sl_rollouts *r = ctx;
  (void)vocab;
  const sl_rollouts_options *o = &r->options;
  *targets = NULL;
  if (rows * o->microbatches != o->batch) {
    sl_graph_fail(g, SL_E_USAGE,
                  "rollouts: the model reads %lld rows per step, but the options say %lld",
                  (long long)rows * o->microbatches, (long long)o->batch);
    return NULL;
  }
  if (context != r->context) {
    sl_graph_fail(g, SL_E_USAGE,
                  "rollouts: the model reads rows of %lld tokens, but is served with %lld",
                  (long long)context, (long long)r->context);
    return NULL;
  }
  int64_t each = r->answers ? r->parts * r->answers : context;
  for (int o = 0; o < OUTPUTS; o++) {
    bool real = o == OLD || o == ADVANTAGE || o == WEIGHT;
    r->types[o] = SL_TYPE(real ? SL_F32 : SL_I32, rows, o < OLD ? context : each);
  }
  if (r->parts > 1 && r->answers) r->types[POSITIONS] = SL_TYPE(SL_I32, rows, r->parts, r->answers);
  bool whole = r->answers && r->parts == 1; /* else dim 1 of every output runs along positions */
  r->source =
      (sl_source){.nout = OUTPUTS, .cut = whole ? 0 : 2, .types = r->types, .fill = fill, .ctx = r};
  sl_data_at(SL_HERE, g, &r->source, r->data);
  sl_graph_set_frames(g, &r->frames);
  *targets = r->data[TARGETS];
  return r->data[TOKENS];
}

static sl_tensor *make_positions(void *ctx, sl_graph *g, sl_tensor **targets) {
  const sl_rollouts *r = ctx;
  (void)g;
  *targets = r->data[CHOSEN];
  return r->answers ? r->data[POSITIONS] : NULL;
}

/* ---- loss ---------------------------------------------------------------------------------- */

/* Divides logits by the temperature at which answers are drawn, as the session does. */
static sl_tensor *policy_logits(const sl_rollouts *r, sl_graph *g, sl_tensor *logits) {
  float temperature = sli_policy_temperature(&r->options);
  return temperature > 0 && temperature != 1 ? sl_scale(g, logits, 1 / temperature) : logits;
}

static void of_reference(void *ctx, sl_graph *g, sl_tensor *logits, sl_tensor *targets,
                         sl_tensor **frozen) {
  logits = policy_logits(ctx, g, logits);
  frozen[0] = sl_detach(g, sl_log_probability(g, logits, targets));
}

static sl_tensor *make_loss(void *ctx, sl_graph *g, sl_tensor *logits, sl_tensor *targets,
                            sl_tensor *const *frozen) {
  const sl_rollouts *r = ctx;
  const sl_rollouts_options *o = &r->options;
  const sl_grpo settings = {(float)o->clip_low, (float)o->clip_high, (float)o->dual_clip,
                            (float)o->kl};
  logits = policy_logits(r, g, logits);
  return sl_grpo_loss(g, logits, targets, r->data[OLD], r->data[ADVANTAGE], r->data[WEIGHT],
                      o->kl > 0 ? frozen[0] : NULL, &settings);
}

static void of_teacher(void *ctx, sl_graph *g, sl_tensor *logits, sl_tensor *targets,
                       sl_tensor **frozen) {
  (void)targets;
  sl_distill_teach(g, logits, ((const sl_rollouts *)ctx)->options.distill, frozen);
}

static sl_tensor *make_distilled(void *ctx, sl_graph *g, sl_tensor *logits, sl_tensor *targets,
                                 sl_tensor *const *frozen) {
  const sl_rollouts *r = ctx;
  (void)targets;
  return sl_distill_loss(g, logits, frozen, r->data[WEIGHT], r->options.distill);
}

void sli_rollouts_learn(sl_rollouts *r) {
  const sl_rollouts_options *o = &r->options;
  find_positions(r);
  r->objective = (sl_objective){
      .name = "rollouts", .tokens = make_data, .positions = make_positions, .ctx = r};
  if (o->distill) {
    r->objective.loss = make_distilled;
    r->objective.frozen = of_teacher;
    r->objective.teacher = o->teacher;
    r->objective.teacher_args = o->teacher_args;
  } else {
    r->objective.loss = make_loss;
    r->objective.frozen = o->kl > 0 ? of_reference : NULL;
  }
}
