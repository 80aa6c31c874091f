/* SPDX-License-Identifier: Apache-2.0 */
/* Losses. The forward chunks store partial sums in the scratch, in f64. */

static inline float row_max(const float *x, int64_t n) {
  vec m = set(-INFINITY);
  for (int64_t c = 0; c < n; c += LANES) {
    __builtin_prefetch(x + c + WALK_AHEAD);
    m = vmax(load_or(x + c, n - c, -INFINITY), m);
  }
  return largest(m);
}

/* Returns the sum of e^(x - shift). */
static inline float row_exp_sum(const float *x, int64_t n, float shift) {
  vec s[SUM_VECTORS] = {0};
  for (int64_t c = 0; c < n; c += SUM_LANES) EACH_VECTOR(v)
  s[v] += vexp_low(load_or(x + c + v * LANES, n - c - v * LANES, -INFINITY) - shift);
  return sum_lanes(s);
}

/* Sets the part of a row's loss (ops/target.h) for a group of columns; `target` is the target's
 * column within the group. */
static void row_part(const float *x, int64_t n, int64_t target, float *part) {
  float m = row_max(x, n);
  if (m == -INFINITY) m = -FLT_MAX; /* all columns are masked: their sum is 0, not NaN */
  part[0] = m;
  part[1] = row_exp_sum(x, n, m);
  part[2] = target >= 0 && target < n ? x[target] : 0;
}

/* Sets the parts of a row's groups of `chunk` columns; with chunk 0, all columns are one group.
 * Returns the count of numbers written. */
static int64_t row_parts(const float *x, int64_t n, int64_t chunk, int64_t target, float *parts) {
  int64_t step = chunk ? chunk : n, at = 0, c = 0;
  do {
    row_part(x + c, SLI_MIN(step, n - c), target - c, parts + at);
    at += SLI_PART, c += step;
  } while (c < n);
  return at;
}

/* Returns the loss of a row as a sum over groups of columns, and sets its lse. */
static double row_loss_exact(const sl_call *call, const float *x, int64_t n, int64_t target,
                             float *lse) {
  float parts[SLI_MOST_GROUPS * SLI_PART];
  int64_t width = row_parts(x, n, call->attrs->numbers.chunk, target, parts);
  return sli_loss_round(sli_join_parts(parts, width, SLI_PART, lse));
}

/* Returns the logarithm of the sum of e^x over a row; if exact, as a sum over groups of columns. */
static inline float row_lse(const sl_attrs *attrs, const float *x, int64_t n) {
  float parts[SLI_MOST_GROUPS * SLI_PART], lse;
  if (!attrs->numbers.exact) {
    float m = row_max(x, n);
    return m + logf(row_exp_sum(x, n, m));
  }
  sli_join_parts(parts, row_parts(x, n, attrs->numbers.chunk, -1, parts), SLI_PART, &lse);
  return lse;
}

static void lse_chunk(void *arg, int i) {
  sli_lse *l = arg;
  (void)i;
  l->lse = row_lse(l->attrs, l->x, l->n);
}

static void cross_entropy_chunk(void *arg, int i) {
  const sl_call *call = arg;
  const float *logits = call->in[0];    /* [R, V] */
  const int32_t *targets = call->in[1]; /* [R] */
  float *lse = call->out[1];            /* [R] */
  double *partial = call->scratch, total = 0;
  int64_t vocab = sl_type_last(&call->in_type[0]);
  sli_range rows = sli_rows(&call->in_type[0], i);
  for (int64_t r = rows.begin; r < rows.end; r++) {
    const float *x = logits + r * vocab;
    bool known = targets[r] >= 0 && targets[r] < vocab;
    float l;
    double loss;
    if (call->attrs->numbers.exact) loss = row_loss_exact(call, x, vocab, targets[r], &l);
    else {
      l = row_lse(call->attrs, x, vocab);
      loss = known ? (double)l - x[targets[r]] : NAN;
    }
    total += known ? loss : NAN;
    if (lse) lse[r] = l;
  }
  partial[i] = total;
}

static void log_probability_chunk(void *arg, int i) {
  const sl_call *call = arg;
  const float *logits = call->in[0];            /* [R, V] */
  const int32_t *targets = call->in[1];         /* [R] */
  float *y = call->out[0], *lse = call->out[1]; /* [R] */
  int64_t vocab = sl_type_last(&call->in_type[0]);
  sli_range rows = sli_rows(&call->in_type[0], i);
  for (int64_t r = rows.begin; r < rows.end; r++) {
    const float *x = logits + r * vocab;
    bool known = targets[r] >= 0 && targets[r] < vocab;
    float l = row_lse(call->attrs, x, vocab);
    if (y) y[r] = known ? x[targets[r]] - l : NAN;
    if (lse) lse[r] = l;
  }
}

/* Sets a row's gradient: softmax times scale, minus scale in the target's column if it is
 * present. */
static inline void row_gradient(const float *x, int64_t n, float lse, float scale, int64_t target,
                                float *dx) {
  for (int64_t c = 0, left = n; left > 0; c += LANES, left -= LANES)
    store_ahead(dx + c, vexp_low(load_ahead(x + c, left) - lse) * scale, left);
  if (target >= 0 && target < n) dx[target] -= scale;
}

static void log_probability_b_chunk(void *arg, int i) {
  const sl_call *call = arg;
  const float *logits = call->in[0];                 /* [R, V] */
  const int32_t *targets = call->in[1];              /* [R] */
  const float *lse = call->in[2], *dy = call->in[3]; /* [R] */
  float *dlogits = call->out[0];                     /* [R, V] */
  int64_t vocab = sl_type_last(&call->in_type[0]), first = call->attrs->place.first;
  sli_range rows = sli_rows(&call->in_type[0], i);
  for (int64_t r = rows.begin; r < rows.end; r++)
    row_gradient(logits + r * vocab, vocab, lse[r], -dy[r], targets[r] - first,
                 dlogits + r * vocab);
}

/* Returns the gradient of a mean over `count` rows or elements with respect to one of them: in
 * exact calls over those of the whole step, rounded once. */
static inline float mean_gradient(const sl_attrs *attrs, float dloss, int64_t count) {
  return attrs->numbers.summands ? (float)((double)dloss / (double)attrs->numbers.summands)
                                 : dloss / (float)count;
}

static void cross_entropy_b_chunk(void *arg, int i) {
  const sl_call *call = arg;
  const float *logits = call->in[0];                    /* [R, V] */
  const int32_t *targets = call->in[1];                 /* [R] */
  const float *lse = call->in[2], *dloss = call->in[3]; /* [R], scalar */
  float *dlogits = call->out[0];                        /* [R, V] */
  int64_t vocab = sl_type_last(&call->in_type[0]);
  float scale = mean_gradient(call->attrs, *dloss, sl_type_rows(&call->in_type[0]));
  sli_range rows = sli_rows(&call->in_type[0], i);
  for (int64_t r = rows.begin; r < rows.end; r++)
    row_gradient(logits + r * vocab, vocab, lse[r], scale, targets[r] - call->attrs->place.first,
                 dlogits + r * vocab);
}

static void cross_entropy_part_chunk(void *arg, int i) {
  const sl_call *call = arg;
  const float *logits = call->in[0];    /* [R, V] */
  const int32_t *targets = call->in[1]; /* [R] */
  float *parts = call->out[0];          /* [R, groups, 3] */
  int64_t vocab = sl_type_last(&call->in_type[0]), width = sl_type_last(&call->out_type[0]);
  sli_range rows = sli_rows(&call->in_type[0], i);
  for (int64_t r = rows.begin; r < rows.end; r++)
    row_parts(logits + r * vocab, vocab, call->attrs->numbers.chunk,
              targets[r] - call->attrs->place.first, parts + r * width);
}

/* Computes the parts of cross_entropy_part, except that the logit of a target outside the classes
 * is NaN. */
static void log_probability_part_chunk(void *arg, int i) {
  const sl_call *call = arg;
  const int32_t *targets = call->in[1]; /* [R] */
  float *parts = call->out[0];          /* [R, groups, 3] */
  int64_t width = sl_type_last(&call->out_type[0]), classes = call->attrs->place.whole;
  sli_range rows = sli_rows(&call->in_type[0], i);
  cross_entropy_part_chunk(arg, i);
  for (int64_t r = rows.begin; r < rows.end; r++)
    if (targets[r] < 0 || (classes && targets[r] >= classes)) parts[r * width + SLI_PART - 1] = NAN;
}

static void softmax_part_chunk(void *arg, int i) {
  const sl_call *call = arg;
  const float *logits = call->in[0]; /* [R, v] */
  float *soft = call->out[0];        /* [R, v] */
  float *own = call->out[1];         /* [R] */
  int64_t vocab = sl_type_last(&call->in_type[0]);
  sli_range rows = sli_rows(&call->in_type[0], i);
  for (int64_t r = rows.begin; r < rows.end; r++) {
    const float *x = logits + r * vocab;
    float m = row_max(x, vocab);
    bool masked = m == -INFINITY; /* all columns are masked: their sum is 0, not NaN */
    if (masked) m = -FLT_MAX;
    float total = row_exp_sum(x, vocab, m), by = masked ? 0 : 1.0f / total;
    if (own) own[r] = masked ? m : m + logf(total);
    for (int64_t c = 0; c < vocab && soft; c += LANES)
      store(soft + r * vocab + c, vexp_low(load(x + c, vocab - c) - m) * by, vocab - c);
  }
}

static void softmax_rescale_chunk(void *arg, int i) {
  const sl_call *call = arg;
  const float *ahead = call->in[0], *taken = call->in[1];                   /* [R, n] */
  const float *own = call->in[2], *lse = call->in[3], *dloss = call->in[4]; /* [R], scalar */
  float *dx = call->out[0];                                                 /* [R, n] */
  int64_t width = sl_type_last(&call->in_type[0]);
  float scale = *dloss / (float)sl_type_rows(&call->in_type[0]);
  sli_range rows = sli_rows(&call->in_type[0], i);
  for (int64_t r = rows.begin; r < rows.end; r++) {
    float share = expf(own[r] - lse[r]) * scale;
    for (int64_t at = r * width, n = width; n > 0; at += LANES, n -= LANES)
      store(dx + at, load(ahead + at, n) * share - load(taken + at, n) * scale, n);
  }
}

static void mse_chunk(void *arg, int i) {
  const sl_call *call = arg;
  const float *y = call->in[0], *t = call->in[1];
  double *partial = call->scratch;
  dvec total[SUM_VECTORS] = {0};
  FOR_EACH_SUMMED(call, i, at, n) EACH_VECTOR(v) {
    int64_t from = at + v * LANES, left = n - v * LANES;
    add_wide_square(&total[v], load_ahead(y + from, left) - load_ahead(t + from, left));
  }
  partial[i] = sum_wide_lanes(total);
}

static void mse_b_chunk(void *arg, int i) {
  const sl_call *call = arg;
  const float *y = call->in[0], *t = call->in[1], *dloss = call->in[2];
  float *dy = call->out[0];
  float scale = mean_gradient(call->attrs, 2.0f * *dloss, sl_type_elements(&call->in_type[0]));
  FOR_EACH(call, i, at, n) store(dy + at, (load(y + at, n) - load(t + at, n)) * scale, n);
}
