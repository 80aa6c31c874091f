/* SPDX-License-Identifier: Apache-2.0 */
/* Direct preference optimization: pairs of answers as data, and the loss of their
 * log-probabilities. */
#define SL_MODEL_BUILTIN /* errors must not name lines of this file */
#include "graph/build/build.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include <sluice/objective.h>

#include "text/tokens/tokens.h"
#include "ops/ops.h"

/* ---- the loss ------------------------------------------------------------------------------- */

sl_tensor *sl_answer_logprobs(sl_graph *g, sl_tensor *logits, sl_tensor *targets,
                              sl_tensor *weights) {
  sl_tensor *each = sl_mul(g, sl_log_probability(g, logits, targets), weights); /* [B, T] */
  return sl_sum(g, each, SL_DIM(1), false);                                     /* [B] */
}

static void report_rewards(sl_graph *g, sl_tensor *const reward[2], sl_tensor *margin) {
  sl_tensor *one = sl_clamp(g, margin, 1, 1), *zero = sl_clamp(g, margin, 0, 0);
  sl_tensor *right = sl_where(g, sl_gt(g, margin, zero), one, zero);
  sl_step_value(g, "preference_accuracy", right, SL_OVER_MEAN);
  sl_step_value(g, "preference_margin", margin, SL_OVER_MEAN);
  sl_step_value(g, "chosen_reward", reward[0], SL_OVER_MEAN);
  sl_step_value(g, "rejected_reward", reward[1], SL_OVER_MEAN);
  sl_metric(g, "preference_accuracy", right);
  sl_metric(g, "preference_margin", margin);
}

sl_tensor *sl_dpo_loss(sl_graph *g, sl_tensor *own, sl_tensor *reference, const sl_dpo *settings) {
  float beta = settings && settings->beta != 0 ? settings->beta : 0.1f;
  float smoothing = settings ? settings->smoothing : 0;
  int64_t rows = sl_dim(own, 0);
  if (g->status || !own || !reference) return NULL;
  if (own->type.ndim != 1 || rows % 2) {
    sl_graph_fail(
        g, SL_E_SHAPE,
        "dpo: %lld rows in a microbatch: must be even, since rows are pairs of a chosen and a "
        "rejected answer",
        (long long)rows);
    return NULL;
  }
  if (!(beta > 0) || !(smoothing >= 0 && smoothing < 0.5f)) {
    sl_graph_fail(
        g, SL_E_USAGE,
        "dpo: beta is %g, must be positive; smoothing is %g, must be from 0 to less than 0.5",
        (double)beta, (double)smoothing);
    return NULL;
  }
  sl_tensor *all = sl_scale(g, sl_sub(g, own, reference), beta), *reward[2]; /* [B] */
  sl_split(g, sl_reshape(g, all, rows / 2, 2), 1, 2, NULL, reward);          /* [B/2, 1] */
  sl_tensor *margin = sl_sub(g, reward[0], reward[1]);
  report_rewards(g, reward, margin);
  sl_tensor *loss = sl_softplus(g, sl_neg(g, margin));
  if (smoothing > 0)
    loss =
        sl_add(g, sl_scale(g, loss, 1 - smoothing), sl_scale(g, sl_softplus(g, margin), smoothing));
  return sl_mean(g, loss, 0, false);
}

/* ---- data ---------------------------------------------------------------------------------- */

/* Inputs of a model, [rows, context], and of its loss, [rows, answer]: the positions of each row
 * whose target can be an answer token. */
enum { TOKENS, TARGETS, WEIGHTS, POSITIONS, CHOSEN, OUTPUTS };

/* Pairs read so far, for models with one context and vocabulary. */
typedef struct pairs_read {
  char *paths;
  int64_t context, vocab;
  sli_pairs *pairs;
} pairs_read;

typedef struct dpo {
  sl_objective objective;
  sl_preferences from;
  sl_dpo settings;
  size_t count, capacity;
  pairs_read *read;
  sl_tensor *outs[OUTPUTS]; /* outputs in the graph that is being built */
} dpo;

/* Context of the source's callbacks; constant once made. */
typedef struct pair_rows {
  sl_source source;
  sl_type types[OUTPUTS];
  int64_t rows, context, answer, batch;
  uint64_t shuffle;
  const sli_pairs *pairs, *held_out; /* held_out: or NULL */
} pair_rows;

/* Returns the pairs of files, read once. */
static sl_status read_pairs(dpo *d, const char *paths, int64_t context, int64_t vocab,
                            sli_pairs **out) {
  for (size_t i = 0; i < d->count; i++) {
    const pairs_read *r = &d->read[i];
    if (r->context != context || r->vocab != vocab || strcmp(r->paths, paths)) continue;
    *out = r->pairs;
    return SL_OK;
  }
  const sli_pairs_options options = {.paths = paths,
                                     .context = context,
                                     .vocab = vocab,
                                     .tokenizer = d->from.tokenizer,
                                     .end = d->from.end,
                                     .template = d->from.chat_template,
                                     .drop = d->from.drop};
  SLI_TRY(sli_pairs_open(&options, out));
  SLI_GROW(d->read, d->count, d->capacity);
  d->read[d->count++] = (pairs_read){sli_strdup(paths), context, vocab, *out};
  return SL_OK;
}

/* Fills rows from pair `first` on. */
static void fill_pairs(const pair_rows *r, const sli_pairs *pairs, int64_t first, uint64_t shuffle,
                       void *const *out) {
  int64_t n = sli_pairs_count(pairs, NULL);
  int32_t *tokens = out[TOKENS], *targets = out[TARGETS]; /* or NULL, like all below */
  int32_t *positions = out[POSITIONS], *chosen = out[CHOSEN];
  float *weights = out[WEIGHTS];
  for (int64_t row = 0; row < r->rows; row++) {
    int64_t i = first + row / 2, pair = i % n, at = row * r->context, in = row * r->answer;
    if (shuffle) pair = sli_shuffle(shuffle, i / n, pair, n);
    sli_pairs_row(pairs, pair, row % 2, tokens ? tokens + at : NULL, targets ? targets + at : NULL);
    sli_pairs_answer(pairs, pair, row % 2, r->answer, positions ? positions + in : NULL,
                     chosen ? chosen + in : NULL, weights ? weights + in : NULL);
  }
}

static void fill_from_pairs(void *ctx, const sl_tick *tick, void *const *out) {
  const pair_rows *r = ctx;
  fill_pairs(r, r->pairs, (tick->step * r->batch + tick->microbatch * r->rows) / 2, r->shuffle,
             out);
}

static void fill_held_out_pairs(void *ctx, const sl_tick *tick, void *const *out) {
  const pair_rows *r = ctx;
  fill_pairs(r, r->held_out, tick->microbatch * r->rows / 2, 0, out);
}

static sl_status open_held_out(dpo *d, sl_graph *g, int64_t vocab, pair_rows *r) {
  sli_pairs *pairs;
  sl_status status = read_pairs(d, g->options.eval, r->context, vocab, &pairs);
  if (status) return sl_graph_fail(g, status, "%s", sl_detail());
  int64_t whole = sli_pairs_count(pairs, NULL) / (r->rows / 2);
  if (g->options.eval_rows % r->rows)
    return sl_graph_fail(
        g, SL_E_USAGE,
        "dpo: %lld evaluation rows must be a multiple of the %lld rows of a microbatch",
        (long long)g->options.eval_rows, (long long)r->rows);
  if (!whole)
    return sl_graph_fail(g, SL_E_INPUT, "%s has %lld pairs, but a microbatch needs %lld",
                         g->options.eval, (long long)sli_pairs_count(pairs, NULL),
                         (long long)r->rows / 2);
  r->held_out = pairs;
  r->answer = SLI_MAX(r->answer, sli_pairs_longest(pairs));
  g->reads_eval = true;
  r->source.fill_held_out = fill_held_out_pairs;
  r->source.held_out = (int)SLI_MIN(INT_MAX, whole);
  return SL_OK;
}

static const char *rows_fault(const sl_graph *g, int64_t rows) {
  if (g->options.pieces > 1) return "not supported with --pieces: the loss covers whole answers";
  if (rows % 2)
    return "a microbatch must have an even number of rows: pairs of a chosen and a rejected answer";
  return NULL;
}

static sl_status open_pairs(dpo *d, sl_graph *g, int64_t vocab, pair_rows *r) {
  sli_pairs *pairs;
  const char *fault = rows_fault(g, r->rows);
  if (fault) return sl_graph_fail(g, SL_E_USAGE, "dpo: %s", fault);
  sl_status status = read_pairs(d, d->from.paths, r->context, vocab, &pairs);
  if (status) return sl_graph_fail(g, status, "%s", sl_detail());
  r->pairs = pairs;
  r->answer = SLI_MAX(sli_pairs_longest(pairs), 1);
  status = sli_graph_add_files(g, d->from.paths);
  if (!status && g->options.eval) status = open_held_out(d, g, vocab, r);
  return status;
}

static sl_tensor *make_tokens(void *ctx, sl_graph *g, int64_t rows, int64_t context, int64_t vocab,
                              sl_tensor **targets) {
  dpo *d = ctx;
  pair_rows *r = sli_arena_alloc(&g->arena, sizeof *r);
  *r = (pair_rows){.rows = rows,
                   .context = context,
                   .batch = rows * g->options.microbatches,
                   .shuffle = g->options.shuffle};
  r->source = (sl_source){.nout = OUTPUTS, .types = r->types, .ctx = r, .fill = fill_from_pairs};
  if (open_pairs(d, g, vocab, r)) return NULL;
  r->types[TOKENS] = r->types[TARGETS] = SL_TYPE(SL_I32, rows, context);
  r->types[POSITIONS] = r->types[CHOSEN] = SL_TYPE(SL_I32, rows, r->answer);
  r->types[WEIGHTS] = SL_TYPE(SL_F32, rows, r->answer);
  sl_data(g, &r->source, d->outs);
  *targets = d->outs[TARGETS];
  return d->outs[TOKENS];
}

static sl_tensor *make_positions(void *ctx, sl_graph *g, sl_tensor **targets) {
  const dpo *d = ctx;
  (void)g;
  *targets = d->outs[CHOSEN];
  return d->outs[POSITIONS];
}

/* ---- the objective ------------------------------------------------------------------------- */

static void make_frozen(void *ctx, sl_graph *g, sl_tensor *logits, sl_tensor *targets,
                        sl_tensor **frozen) {
  const dpo *d = ctx;
  frozen[0] = sl_answer_logprobs(g, logits, targets, d->outs[WEIGHTS]);
}

static sl_tensor *make_loss(void *ctx, sl_graph *g, sl_tensor *logits, sl_tensor *targets,
                            sl_tensor *const *frozen) {
  const dpo *d = ctx;
  sl_tensor *own = sl_answer_logprobs(g, logits, targets, d->outs[WEIGHTS]);
  return sl_dpo_loss(g, own, frozen[0], &d->settings);
}

sl_objective *sl_dpo_create(const sl_preferences *preferences, const sl_dpo *settings) {
  dpo *d = sli_calloc(1, sizeof *d);
  d->objective = (sl_objective){.name = "dpo",
                                .tokens = make_tokens,
                                .positions = make_positions,
                                .loss = make_loss,
                                .frozen = make_frozen,
                                .ctx = d};
  d->from = *preferences;
  if (settings) d->settings = *settings;
  return &d->objective;
}

void sl_dpo_destroy(sl_objective *objective) {
  if (!objective) return;
  dpo *d = objective->ctx;
  for (size_t i = 0; i < d->count; i++) {
    sli_pairs_close(d->read[i].pairs);
    free(d->read[i].paths);
  }
  free(d->read);
  free(d);
}

sl_status sl_dpo_pairs(sl_objective *objective, int64_t context, int64_t vocab, int64_t *pairs,
                       int64_t *dropped) {
  dpo *d = objective->ctx;
  sli_pairs *read;
  SLI_TRY(read_pairs(d, d->from.paths, context, vocab, &read));
  *pairs = sli_pairs_count(read, dropped);
  return SL_OK;
}
