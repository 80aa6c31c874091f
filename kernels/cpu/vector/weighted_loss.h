/* SPDX-License-Identifier: Apache-2.0 */
/* Cross entropy with weighted rows. */

/* Returns the sum of w x, or of x if w is NULL. */
static inline float row_dot(const float *w, const float *x, int64_t n) {
  vec s[SUM_VECTORS] = {0};
  for (int64_t c = 0; c < n; c += SUM_LANES) EACH_VECTOR(v) {
      int64_t at = c + v * LANES;
      s[v] = plus_product(s[v], load(x + at, n - at), w ? load(w + at, n - at) : set(1));
    }
  return sum_lanes(s);
}

static inline float sum_of_weights(const sli_weighing *w) {
  return w->weights && w->each != 0 ? row_dot(NULL, w->weights, w->classes) : 0;
}

/* Returns the amount subtracted from a row's lse, where x has columns from `first` on. */
static inline double row_taken(const sli_weighing *w, const float *x, int64_t first, int64_t n,
                               int32_t target) {
  int64_t own = target - first;
  double taken = own >= 0 && own < n ? (double)sli_weight_own(w, target) * (double)x[own] : 0;
  if (w->each == 0) return taken;
  return taken + (double)(w->each * row_dot(w->weights ? w->weights + first : NULL, x, n));
}

static void weighted_cross_entropy_chunk(void *arg, int i) {
  const sl_call *call = arg;
  const float *logits = call->in[0];    /* [R, V] */
  const int32_t *targets = call->in[1]; /* [R] */
  float *lse = call->out[1];            /* [R] */
  sli_weighing w = sli_weighing_of(call, 3);
  float all = sum_of_weights(&w);
  double *partial = call->scratch, total = 0;
  int64_t vocab = sl_type_last(&call->in_type[0]);
  sli_range rows = sli_rows(&call->in_type[0], i);
  for (int64_t r = rows.begin; r < rows.end; r++) {
    const float *x = logits + r * vocab;
    float l = 0;
    if (sli_counts(&w, targets[r])) {
      float m = row_max(x, vocab);
      bool known = targets[r] >= 0 && targets[r] < vocab;
      l = m + logf(row_exp_sum(x, vocab, m));
      double loss = known ? (double)sli_weight_all(&w, targets[r], all) * (double)l -
                                row_taken(&w, x, 0, vocab, targets[r])
                          : (double)NAN;
      total += call->attrs->numbers.exact ? sli_loss_round(loss) : loss;
    }
    if (lse) lse[r] = l;
  }
  partial[i] = total;
}

static inline void row_of_zeros(float *to, int64_t n) {
  for (int64_t c = 0; c < n; c += LANES) store(to + c, (vec){0}, n - c);
}

static void weighted_cross_entropy_b_chunk(void *arg, int i) {
  const sl_call *call = arg;
  const float *logits = call->in[0];                    /* [R, V] */
  const int32_t *targets = call->in[1];                 /* [R] */
  const float *lse = call->in[2], *dloss = call->in[4]; /* [R], scalar */
  const double *total = call->in[3];
  float *dlogits = call->out[0]; /* [R, V] */
  sli_weighing w = sli_weighing_of(call, 5);
  float all = sum_of_weights(&w), scale = *total == 0 ? 0 : (float)((double)*dloss / *total);
  int64_t vocab = sl_type_last(&call->in_type[0]), first = call->attrs->place.first;
  const float *weights = w.weights ? w.weights + first : NULL;
  sli_range rows = sli_rows(&call->in_type[0], i);
  for (int64_t r = rows.begin; r < rows.end; r++) {
    const float *x = logits + r * vocab;
    float *dx = dlogits + r * vocab;
    if (!sli_counts(&w, targets[r]) || scale == 0) {
      row_of_zeros(dx, vocab);
      continue;
    }
    float own = sli_weight_own(&w, targets[r]) * scale, each = w.each * scale;
    float whole = sli_weight_all(&w, targets[r], all) * scale;
    for (int64_t c = 0, n = vocab; n > 0; c += LANES, n -= LANES)
      store(dx + c,
            vexp_low(load(x + c, n) - lse[r]) * whole -
                each * (weights ? load(weights + c, n) : set(1)),
            n);
    int64_t target = targets[r] - first;
    if (target >= 0 && target < vocab) dx[target] -= own;
  }
}

static void weighted_cross_entropy_part_chunk(void *arg, int i) {
  const sl_call *call = arg;
  const float *logits = call->in[0];    /* [R, V] */
  const int32_t *targets = call->in[1]; /* [R] */
  const double *total = call->in[2];
  float *part = call->out[0]; /* [R, 4] */
  sli_weighing w = sli_weighing_of(call, 3);
  float all = sum_of_weights(&w);
  int64_t vocab = sl_type_last(&call->in_type[0]), first = call->attrs->place.first;
  sli_range rows = sli_rows(&call->in_type[0], i);
  for (int64_t r = rows.begin; r < rows.end; r++) {
    const float *x = logits + r * vocab;
    bool counts = sli_counts(&w, targets[r]) && *total != 0;
    float m = counts ? row_max(x, vocab) : 0;
    if (m == -INFINITY) m = -FLT_MAX; /* all columns are masked: their sum is 0, not NaN */
    part[4 * r] = m;
    part[4 * r + 1] = counts ? row_exp_sum(x, vocab, m) : 0;
    part[4 * r + 2] = counts ? (float)((double)sli_weight_all(&w, targets[r], all) / *total) : 0;
    part[4 * r + 3] = counts ? (float)(row_taken(&w, x, first, vocab, targets[r]) / *total) : 0;
  }
}
