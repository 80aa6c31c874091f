/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens are drawn with their probabilities (chi-square test) under any filter; the same seed and
 * position draw the same token; forbidden tokens are never drawn. The most likely tokens are
 * reported in order with their probabilities, whether allowed or not.
 * labels: unthreaded */
#include <sluice/batch.h>

#include "base/base.h"
#include "ops/ops.h"
#include "tests/support/kernel_call.h"

enum { VOCABULARY = 40, ROWS = 50, ROUNDS = 400, WORDS = 2 };
#define ALLOWED UINT32_C(0x9249249a) /* in each word; without the most likely one */

static const sl_batch_sequence settings_of[] = {
    {.temperature = 1, .logprobs = 5},
    {.temperature = 0.7f, .top_k = 6, .logprobs = -1},
    {.temperature = 1.4f, .top_p = 0.8f, .logprobs = 3},
    {.temperature = 1, .top_k = 12, .top_p = 0.6f, .logprobs = -1},
    {.temperature = 1.2f, .min_p = 0.3f, .logprobs = -1},
    {.temperature = 0.8f, .min_p = 0.1f, .top_p = 0.9f, .logprobs = -1},
    {.temperature = 1, .min_p = 0.4f, .top_k = 12, .logprobs = -1},
    {.temperature = 1, .logprobs = 5, .constrained = 1},
    {.temperature = 0.7f, .top_k = 6, .logprobs = -1, .constrained = 1},
    {.temperature = 1.4f, .top_p = 0.8f, .logprobs = 3, .constrained = 1}};

static bool is_allowed(const sl_batch_sequence *how, int v) {
  return !how->constrained || ALLOWED >> v % 32 & 1;
}

/* Computes exact probabilities; logits decrease from token to token. */
static void probabilities(const sl_batch_sequence *how, const float *logits, double *p) {
  int n = how->top_k ? how->top_k : VOCABULARY, allowed = 0;
  double all = 0, sum = 0;
  for (int v = 0; v < VOCABULARY; v++) {
    bool good = is_allowed(how, v) && allowed < n;
    p[v] = good ? exp((double)logits[v] / (double)how->temperature) : 0;
    allowed += good;
  }
  double top = 0;
  for (int v = 0; v < VOCABULARY; v++) top = fmax(top, p[v]);
  for (int v = 0; v < VOCABULARY; v++)
    if (p[v] < (double)how->min_p * top) p[v] = 0;
  for (int v = 0; v < VOCABULARY; v++) all += p[v];
  for (int v = 0; v < VOCABULARY; v++) {
    if (how->top_p > 0 && sum > 0 && sum >= (double)how->top_p * all) p[v] = 0;
    sum += p[v];
  }
  for (int v = 0; v < VOCABULARY; v++) p[v] /= sum;
}

typedef struct draws {
  kernel k;
  sl_batch *batch;
} draws;

static draws make(const float *logits) {
  int64_t ints = (int64_t)(sl_batch_bytes(ROWS, ROWS, ROWS, 1) / sizeof(int32_t));
  const sl_type in[] = {SL_TYPE(SL_F32, 1, ROWS, VOCABULARY), SL_TYPE(SL_I32, ints),
                        SL_TYPE(SL_I32, ROWS, WORDS)};
  draws d = {.k = kernel_create(&sl_op_sample, (sl_attrs){0}, 3, in, 1)};
  for (int i = 0; i < ROWS * WORDS; i++) ((uint32_t *)d.k.in[2])[i] = ALLOWED;
  d.batch = d.k.in[1];
  *d.batch = (sl_batch){.rows = ROWS,
                        .sequences = ROWS,
                        .picks = ROWS,
                        .most_rows = ROWS,
                        .most_sequences = ROWS,
                        .most_picks = ROWS,
                        .pages = 1};
  for (int i = 0; i < ROWS; i++) {
    ((int32_t *)sl_batch_sequence_of(d.batch))[i] = ((int32_t *)sl_batch_pick(d.batch))[i] = i;
    ((int32_t *)sl_batch_given(d.batch))[i] = 0;
    memcpy((float *)d.k.in[0] + i * VOCABULARY, logits, VOCABULARY * sizeof *logits);
  }
  return d;
}

static const sl_sampled *draw(draws *d, const sl_batch_sequence *how, int place) {
  for (int i = 0; i < ROWS; i++) {
    sl_batch_sequence *s = (sl_batch_sequence *)sl_batch_settings(d->batch) + i;
    *s = *how;
    s->seed[0] = (uint32_t)i;
    s->place = place;
  }
  kernel_run(&d->k, NULL);
  return d->k.out[0];
}

/* Tokens expected less than five times are counted together. */
static void check_counts(const double *p, const int *counts, double all) {
  double chi = 0, rest = 0, expected_rest = 0;
  int free_ones = -1;
  for (int v = 0; v < VOCABULARY; v++) {
    double expected = p[v] * all, off = counts[v] - expected;
    CHECK(p[v] > 0 || !counts[v], "token %d is cut off", v);
    if (expected < 5) rest += counts[v], expected_rest += expected;
    else chi += off * off / expected, free_ones++;
  }
  if (expected_rest >= 5)
    chi += (rest - expected_rest) * (rest - expected_rest) / expected_rest, free_ones++;
  double most = free_ones + 5 * sqrt(2.0 * free_ones); /* five standard deviations */
  CHECK(chi < most, "chi-square is %g, of %d", chi, free_ones);
}

static void tokens_are_as_likely_as_they_should_be(draws *d, const sl_batch_sequence *how,
                                                   const float *logits) {
  double p[VOCABULARY];
  int counts[VOCABULARY] = {0}, again = 0;
  probabilities(how, logits, p);
  for (int n = 0; n < ROUNDS; n++) {
    const sl_sampled *got = draw(d, how, n);
    for (int i = 0; i < ROWS; i++) counts[got[i].token]++;
    if (!n) again = got[7].token;
  }
  check_counts(p, counts, ROUNDS * ROWS);
  CHECK(draw(d, how, 0)[7].token == again, "the same seed and place draw the same");
}

static void the_likeliest_are_told(draws *d, const float *logits) {
  const sl_sampled *got = draw(d, &settings_of[0], 3);
  double p[VOCABULARY], sum = 0;
  for (int v = 0; v < VOCABULARY; v++) sum += p[v] = exp((double)logits[v]);
  for (int i = 0; i < ROWS; i++) {
    CHECK(got[i].finite && got[i].ntop == 5, "five are told");
    CHECK(fabs((double)got[i].logprob - log(p[got[i].token] / sum)) < 1e-5, "of the token");
    for (int t = 0; t < 5; t++)
      CHECK(got[i].top[t] == t && fabs((double)got[i].top_logprob[t] - log(p[t] / sum)) < 1e-5,
            "in order");
  }
}

/* Returns the most likely token reported for a row. */
static int32_t told_first(const draws *d, int row) {
  return ((sl_sampled *)d->k.out[0])[row].top[0];
}

int main(void) {
  float logits[VOCABULARY];
  for (int v = 0; v < VOCABULARY; v++) logits[v] = 3 - 0.17f * (float)v;
  draws d = make(logits);
  for (size_t i = 0; i < SLI_COUNT(settings_of); i++)
    RUN(tokens_are_as_likely_as_they_should_be, &d, &settings_of[i], logits);
  RUN(the_likeliest_are_told, &d, logits);
  const sl_batch_sequence greedy = {.logprobs = -1};
  CHECK(!draw(&d, &greedy, 1)[3].token, "without a temperature the likeliest");
  const sl_batch_sequence masked = {.logprobs = 2, .constrained = 1};
  CHECK(draw(&d, &masked, 1)[3].token == 1 && !told_first(&d, 3),
        "of the allowed ones; all are told");
  ((float *)d.k.in[0])[5] = NAN;
  CHECK(!draw(&d, &greedy, 1)[0].finite, "what is not finite is told");
  kernel_destroy(&d.k);
  return 0;
}
