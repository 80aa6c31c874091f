/* SPDX-License-Identifier: Apache-2.0 */
/* CPU kernels at the ends of a served graph: begin selects the tick's rows, picks lists those whose
 * logits are needed, pick selects them, and allow the tokens that may come next; sample draws a
 * token for each picked row. */
#include <math.h>
#include <string.h>

#include <sluice/graph.h>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/served.h"
#include "ops/sampled.h"

/* ---- begin ------------------------------------------------------------------------------ */

static void begin_cpu(const sl_call *call) {
  int32_t rows = sli_batch_of(call)->rows;
  memcpy(call->out[0], call->in[0], (size_t)rows * sizeof(int32_t));
  sl_call_fill(call, 0, rows);
}

const sl_kernel sli_cpu_begin = {.backend = "cpu", .run = begin_cpu};

/* ---- pick ------------------------------------------------------------------------------- */

static void picks_cpu(const sl_call *call) {
  const sl_batch *batch = sli_batch_of(call);
  memcpy(call->out[0], sl_batch_pick(batch), (size_t)batch->picks * sizeof(int32_t));
  sl_call_fill(call, 0, batch->picks);
}

const sl_kernel sli_cpu_picks = {.backend = "cpu", .run = picks_cpu};

static void pick_cpu(const sl_call *call) {
  const int32_t *picks = call->in[0];
  const float *x = call->in[1];
  float *y = call->out[0];
  size_t width = (size_t)sl_type_last(&call->in_type[1]);
  int64_t count = sl_call_rows(call, 0, call->in_type[0].dim[0]);
  for (int64_t i = 0; i < count; i++)
    memcpy(y + (size_t)i * width, x + (size_t)picks[i] * width, width * sizeof *y);
}

const sl_kernel sli_cpu_pick = {.backend = "cpu", .run = pick_cpu};

/* ---- allow ------------------------------------------------------------------------------ */

static void allow_cpu(const sl_call *call) {
  const sl_serving *serving = call->attrs->user;
  serving->allow(serving->ctx, call->in[0], call->out[0]);
}

const sl_kernel sli_cpu_allow = {.backend = "cpu", .run = allow_cpu};

/* ---- sample ----------------------------------------------------------------------------- */

/* Returns scratch for an ordering of the tokens, per row, and for edited and masked logits. */
static size_t sample_scratch(const sl_call *call, int threads) {
  (void)threads;
  size_t rows = call->attrs->sampling.words || call->nin > 2 ? 2 : 1;
  return rows * (size_t)sl_type_elements(&call->in_type[0]) * sizeof(int32_t);
}

/* Returns a number in [0, 1) for each position of the text (splitmix64). */
static double draw(const sl_batch_sequence *how) {
  uint64_t seed = (uint64_t)how->seed[1] << 32 | how->seed[0];
  uint64_t z = seed * UINT64_C(0xd1342543de82ef95) +
               ((uint64_t)how->place + 1) * UINT64_C(0x9e3779b97f4a7c15);
  z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
  return (double)((z ^ z >> 31) >> 11) * 0x1p-53;
}

/* ---- most likely tokens ----------------------------------------------------------------- */

static bool before(const float *logits, int32_t a, int32_t b) {
  return logits[a] > logits[b] || (logits[a] == logits[b] && a < b);
}

/* Restores the heap property of tokens[n] from `at` on. The root is the least likely token. */
static void sink(const float *logits, int32_t *tokens, int64_t n, int64_t at) {
  for (int64_t child; (child = 2 * at + 1) < n; at = child) {
    if (child + 1 < n && before(logits, tokens[child], tokens[child + 1])) child++;
    if (!before(logits, tokens[at], tokens[child])) return;
    int32_t t = tokens[at];
    tokens[at] = tokens[child];
    tokens[child] = t;
  }
}

/* Fills tokens[] with the k most likely tokens in order, among those with logits of at least
 * `least`. Returns their number. */
static int64_t likeliest(const float *logits, int64_t n, int64_t k, float least, int32_t *tokens) {
  int64_t count = 0;
  for (int32_t v = 0; v < n; v++) {
    if (logits[v] < least) continue;
    if (count < k) {
      tokens[count++] = v;
      for (int64_t i = count == k ? k / 2 : 0; i-- > 0;) sink(logits, tokens, k, i);
    } else if (before(logits, v, tokens[0])) {
      tokens[0] = v;
      sink(logits, tokens, k, 0);
    }
  }
  for (int64_t i = count < k ? count / 2 : 0; i-- > 0;) sink(logits, tokens, count, i);
  for (int64_t last = count; last-- > 1;) {
    int32_t t = tokens[0];
    tokens[0] = tokens[last];
    tokens[last] = t;
    sink(logits, tokens, last, 0);
  }
  return count;
}

/* Maps floats to integers of the same order, with 0 and -0 equal. Compilers vectorise comparisons
 * of integers. */
static int32_t ordered(float x) {
  int32_t bits;
  x += 0.0f;
  memcpy(&bits, &x, sizeof bits);
  return bits ^ (bits >> 31 & INT32_MAX);
}

/* Returns the first of the largest logits. */
static int32_t largest_of(const float *logits, int64_t n) {
  int32_t most = INT32_MIN, best = 0;
  for (int64_t v = 0; v < n; v++) most = ordered(logits[v]) > most ? ordered(logits[v]) : most;
  while (ordered(logits[best]) != most) best++;
  return best;
}

/* Sums over the tokens with logits of at least `least`. */
static double sum_exp(const float *logits, int64_t n, double top, double t, float least) {
  double sum = 0;
  for (int64_t v = 0; v < n; v++)
    if (logits[v] >= least) sum += exp(((double)logits[v] - top) / t);
  return sum;
}

/* ---- edits ---------------------------------------------------------------------------------- */

static float edit(const sl_batch_edit *e, float x) {
  x += e->bias;
  return (x > 0 ? x / e->scale : x * e->scale) - e->less;
}

/* Copies logits to `out`, with -infinity for tokens that are not allowed; returns whether any other
 * logit remains. */
static bool mask(const uint32_t *allowed, const float *logits, int64_t n, float *out) {
  bool any = false;
  for (int64_t v = 0; v < n; v++) {
    out[v] = allowed[v / 32] >> v % 32 & 1 ? logits[v] : -INFINITY;
    any |= out[v] > -INFINITY;
  }
  return any;
}

/* Returns the logits that pick i chooses from: those of the model, or a copy. A constraint
 * overrides edits that leave no token. */
static const float *choices_of(const sl_call *call, const sl_batch_sequence *how, int i,
                               const float *logits) {
  const sl_batch *batch = call->in[1];
  bool constrained = call->nin > 2 && how->constrained;
  int64_t n = sl_type_last(&call->in_type[0]);
  float *out = (float *)call->scratch + sl_type_elements(&call->in_type[0]) + i * n;
  const sl_batch_edit *edits = sl_batch_edits(batch) + how->edit;
  if (!how->edits && !constrained) return logits;
  memcpy(out, logits, (size_t)n * sizeof *out);
  for (int32_t k = 0; k < how->edits; k++)
    out[edits[k].token] = edit(&edits[k], logits[edits[k].token]);
  if (!constrained) return out;
  const uint32_t *rows = call->in[2], *allowed = rows + i * sl_type_last(&call->in_type[2]);
  if (!mask(allowed, out, n, out)) mask(allowed, logits, n, out);
  return out;
}

/* ---- one token ---------------------------------------------------------------------------- */

/* Returns the lowest logit that passes min_p. */
static float least_of(const sl_batch_sequence *how, const float *logits, int32_t best) {
  double least = (double)logits[best] + (double)how->temperature * log((double)how->min_p);
  return how->min_p > 0 ? fminf((float)least, logits[best]) : -INFINITY;
}

/* Samples from all tokens, in their order. */
static int32_t choose_any(const sl_batch_sequence *how, const float *logits, int64_t n,
                          int32_t best) {
  double t = (double)how->temperature, top = (double)logits[best];
  float least = least_of(how, logits, best);
  double left = draw(how) * sum_exp(logits, n, top, t, least);
  for (int32_t v = 0; v < n; v++)
    if (logits[v] >= least && (left -= exp(((double)logits[v] - top) / t)) < 0) return v;
  return best;
}

/* Fills tokens[] with the candidates in order: the first top_k, or tokens above a probability
 * bound. Tokens below (1 - p) / n each add up to less than 1 - p. */
static int64_t candidates(const sl_batch_sequence *how, const float *logits, int64_t n,
                          int32_t best, int32_t *tokens, double *all) {
  double t = (double)how->temperature, top = (double)logits[best];
  float least = least_of(how, logits, best);
  if (how->top_k > 0) {
    int64_t count = likeliest(logits, n, how->top_k < n ? how->top_k : n, least, tokens);
    *all = 0;
    for (int64_t i = 0; i < count; i++) *all += exp(((double)logits[tokens[i]] - top) / t);
    return count;
  }
  *all = sum_exp(logits, n, top, t, least);
  double bound = top + t * log(*all * (1 - (double)how->top_p) / (double)n) - 1e-3;
  return likeliest(logits, n, n, fmaxf((float)fmin(bound, top), least), tokens);
}

/* Samples from the most likely tokens only. */
static int32_t choose_likely(const sl_batch_sequence *how, const float *logits, int64_t n,
                             int32_t best, int32_t *tokens) {
  double t = (double)how->temperature, top = (double)logits[best], all, sum = 0;
  double p = how->top_p > 0 ? (double)how->top_p : 1;
  int64_t count = candidates(how, logits, n, best, tokens, &all), kept = 0;
  while (kept < count && (p >= 1 || !kept || sum < p * all))
    sum += exp(((double)logits[tokens[kept++]] - top) / t);
  double left = draw(how) * sum;
  for (int64_t i = 0; i < kept; i++)
    if ((left -= exp(((double)logits[tokens[i]] - top) / t)) < 0) return tokens[i];
  return best;
}

static int32_t sample_choose(const sl_batch_sequence *how, const float *logits, int64_t n,
                             int32_t best, int32_t *tokens) {
  if (how->temperature <= 0) return best;
  bool likely = how->top_k > 0 || (how->top_p > 0 && how->top_p < 1);
  return likely ? choose_likely(how, logits, n, best, tokens) : choose_any(how, logits, n, best);
}

/* Reports the most likely tokens. A log-probability has the bits that a loss computes for the
 * row. */
static void tell_likely(const sl_attrs *attrs, const sl_batch_sequence *how, const float *logits,
                        int64_t n, int32_t *tokens, sl_sampled *out) {
  sli_lse all = {attrs, logits, n, 0};
  sli_cpu()->lse(&all, 0);
  out->logprob = logits[out->token] - all.lse;
  int64_t k = how->logprobs < SL_BATCH_TOP ? how->logprobs : SL_BATCH_TOP;
  out->ntop = k > 0 ? (int32_t)likeliest(logits, n, k < n ? k : n, -INFINITY, tokens) : 0;
  for (int32_t i = 0; i < out->ntop; i++) {
    out->top[i] = tokens[i];
    out->top_logprob[i] = logits[tokens[i]] - all.lse;
  }
}

static bool all_finite(const float *logits, int64_t n) {
  int32_t wrong = 0;
  for (int64_t v = 0; v < n; v++) {
    int32_t bits;
    memcpy(&bits, logits + v, sizeof bits);
    wrong |= (bits & 0x7f800000) == 0x7f800000;
  }
  return !wrong;
}

static int32_t sequence_of(const sl_batch *batch, int pick) {
  return sl_batch_sequence_of(batch)[sl_batch_pick(batch)[pick]];
}

/* Returns the settings of a pick: those of its sequence, advanced by the picks before it. */
static sl_batch_sequence settings_of(const sl_batch *batch, int i) {
  int32_t sequence = sequence_of(batch, i), behind = 0;
  while (behind < i && sequence_of(batch, i - behind - 1) == sequence) behind++;
  sl_batch_sequence how = sl_batch_settings(batch)[sequence];
  how.place += behind;
  how.edits += how.more * behind;
  return how;
}

static int32_t sample_token(const sl_call *call, const sl_batch_sequence *how, int i,
                            const float *logits, int32_t *tokens) {
  int64_t n = sl_type_last(&call->in_type[0]);
  const float *choices = choices_of(call, how, i, logits);
  return sample_choose(how, choices, n, largest_of(choices, n), tokens);
}

static void sample_chunk(void *arg, int i) {
  const sl_call *call = arg;
  const sl_batch *batch = call->in[1];
  int64_t n = sl_type_last(&call->in_type[0]);
  const float *logits = (const float *)call->in[0] + i * n;
  int32_t *tokens = (int32_t *)call->scratch + i * n;
  const sl_batch_sequence how = settings_of(batch, i);
  sl_sampled *out = (sl_sampled *)call->out[0] + i;
  memset(out, 0, sizeof *out);
  out->finite = all_finite(logits, n);
  if (!out->finite) return;
  out->token = sl_batch_given(batch)[i] - 1;
  if (out->token < 0) out->token = sample_token(call, &how, i, logits, tokens);
  if (how.logprobs >= 0) tell_likely(call->attrs, &how, logits, n, tokens, out);
  uint64_t hash = how.hash ? sli_logits_hash(logits, n) : 0;
  out->hash[0] = (uint32_t)hash;
  out->hash[1] = (uint32_t)(hash >> 32);
}

static void sample_cpu(const sl_call *call) {
  const sl_batch *batch = call->in[1];
  sl_team_for(call->team, batch->picks, sample_chunk, (void *)call);
}

const sl_kernel sli_cpu_sample = {.backend = "cpu", .run = sample_cpu, .scratch = sample_scratch};
