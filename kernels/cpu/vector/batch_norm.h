/* SPDX-License-Identifier: Apache-2.0 */
/* Batch norm, some channels at a time. A channel is a run of `inner` numbers in every image. Its
 * sums are in f64 and have SUM_LANES lanes, so that all levels have the same bits. */

/* Walks the runs of a channel; `run` is the index of each run's first number. */
#define EACH_RUN(c, channel, run)                                              \
  for (int64_t image_ = 0, run = (channel) * (c)->inner; image_ < (c)->images; \
       image_++, run += (c)->count * (c)->inner)

/* Walks a run in vectors; n numbers are left from position i of the arrays on. */
#define EACH_PART(c, run, i, n)                                                             \
  for (int64_t part_ = 0; part_ < (c)->inner; part_ += SUM_LANES) EACH_VECTOR(v)            \
  for (int64_t i = (run) + part_ + v * LANES, n = (run) + (c)->inner - i, once_ = 1; once_; \
       once_ = 0)

/* A mean as a float and the rest. */
typedef struct split_mean {
  float high;
  double low;
} split_mean;

static inline split_mean split(double mean) {
  return (split_mean){(float)mean, mean - (double)(float)mean};
}

static inline void add_wide_product(dvec *sum, dvec a, dvec b) {
  sum->low += a.low * b.low;
  sum->high += a.high * b.high;
}

static double channel_sum(const sli_channel_norm *c, int64_t channel, const float *x) {
  dvec sums[SUM_VECTORS] = {0};
  EACH_RUN(c, channel, run) EACH_PART(c, run, i, n) add_wide(&sums[v], load(x + i, n));
  return sum_wide_lanes(sums);
}

/* Returns the sum of squared distances from the mean. */
static double channel_squares(const sli_channel_norm *c, int64_t channel, split_mean mean) {
  const float *x = c->call->in[0];
  dvec sums[SUM_VECTORS] = {0};
  dhalf high = (double)mean.high - (dhalf){0};
  EACH_RUN(c, channel, run) EACH_PART(c, run, i, n) {
    dvec away = widen(load_or(x + i, n, mean.high));
    away.low -= high, away.high -= high;
    add_wide_product(&sums[v], away, away);
  }
  return sum_wide_lanes(sums) - (double)c->size * mean.low * mean.low;
}

/* Sums of a channel's incoming gradient, and of its products with the distances from the mean. */
typedef struct channel_slope {
  double sum, slope;
} channel_slope;

static channel_slope slope_of(const sli_channel_norm *c, int64_t channel, const float *x,
                              const float *dy, split_mean mean) {
  dvec sums[SUM_VECTORS] = {0}, slopes[SUM_VECTORS] = {0};
  dhalf high = (double)mean.high - (dhalf){0};
  EACH_RUN(c, channel, run) EACH_PART(c, run, i, n) {
    dvec away = widen(load(x + i, n)), d = widen(load(dy + i, n));
    away.low -= high, away.high -= high;
    sums[v].low += d.low, sums[v].high += d.high;
    add_wide_product(&slopes[v], away, d);
  }
  channel_slope s = {sum_wide_lanes(sums), sum_wide_lanes(slopes)};
  s.slope -= mean.low * s.sum;
  return s;
}

static inline void put_channel(const sl_call *call, int output, int64_t at, double x) {
  float *to = call->out[output];
  if (to) to[at] = (float)(sli_accumulates(call, output) ? (double)to[at] + x : x);
}

static void batch_norm_channel(const sli_channel_norm *c, int64_t at) {
  const sl_call *call = c->call;
  const float *const *in = (const float *const *)call->in;
  bool keep = call->attrs->norm.given;
  double mean = (double)in[3][at], variance = (double)in[4][at], unbiased = variance;
  if (!keep) {
    mean = channel_sum(c, at, in[0]) / (double)c->size;
    double squares = channel_squares(c, at, split(mean));
    variance = squares / (double)c->size;
    unbiased = squares / (double)(c->size - 1);
  }
  split_mean m = split(mean);
  double rstd = 1 / sqrt(variance + (double)norm_eps(call)), gain = rstd * (double)in[1][at];
  vec scale = set((float)gain), shift = set((float)((double)in[2][at] - m.low * gain));
  const float *x = in[0];
  float *y = call->out[0];
  if (y) EACH_RUN(c, at, run)
  EACH_PART(c, run, i, n) store(y + i, plus_product(shift, load(x + i, n) - m.high, scale), n);
  put_channel(call, 1, at, mean);
  put_channel(call, 2, at, rstd);
  put_channel(call, 3, at, unbiased);
}

static void batch_norm_chunk(void *arg, int i) {
  const sli_channel_norm *c = arg;
  sli_range r = sli_chunk_range(c->count, c->block, i);
  for (int64_t at = r.begin; at < r.end; at++) batch_norm_channel(c, at);
}

/* With d = dy gain and z = (x - mean) rstd: dx = rstd (d - mean(d) - z mean(d z)). With given
 * statistics, dx = rstd d. */
static void batch_norm_b_channel(const sli_channel_norm *c, int64_t at) {
  const float *const *in = (const float *const *)c->call->in;
  const float *x = in[0], *dy = in[4];
  float *dx = c->call->out[0];
  double mean = (double)in[2][at], rstd = (double)in[3][at], scale = rstd * (double)in[1][at];
  split_mean m = split(mean);
  double along = 0, shift = 0; /* dx = scale dy + along (x - m.high) + shift */
  if (!c->call->attrs->norm.given) {
    channel_slope s = slope_of(c, at, x, dy, m);
    along = -scale * rstd * rstd * s.slope / (double)c->size;
    shift = -scale * s.sum / (double)c->size - along * m.low;
  }
  vec by_dy = set((float)scale), by_x = set((float)along), rest = set((float)shift);
  EACH_RUN(c, at, run) EACH_PART(c, run, i, n) {
    vec d = plus_product(rest, load(x + i, n) - m.high, by_x);
    store(dx + i, plus_product(d, load(dy + i, n), by_dy), n);
  }
}

static void batch_norm_b_chunk(void *arg, int i) {
  const sli_channel_norm *c = arg;
  sli_range r = sli_chunk_range(c->count, c->block, i);
  for (int64_t at = r.begin; at < r.end; at++) batch_norm_b_channel(c, at);
}

static void batch_norm_w_chunk(void *arg, int i) {
  const sli_channel_norm *c = arg;
  const float *const *in = (const float *const *)c->call->in;
  sli_range r = sli_chunk_range(c->count, c->block, i);
  for (int64_t at = r.begin; at < r.end; at++) {
    channel_slope s = slope_of(c, at, in[0], in[3], split((double)in[1][at]));
    put_channel(c->call, 0, at, s.slope * (double)in[2][at]);
    put_channel(c->call, 1, at, s.sum);
  }
}
