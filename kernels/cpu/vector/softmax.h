/* SPDX-License-Identifier: Apache-2.0 */
/* Softmax along one dim of an array [outer, n, inner]. */

static void softmax_row(const sli_softmax *s, const float *x, float *y) {
  int64_t n = s->n;
  float m = row_max(x, n), total = row_exp_sum(x, n, m);
  float by = 1.0f / total, lse = m + logf(total);
  for (int64_t c = 0; c < n; c += LANES) {
    vec v = load(x + c, n - c);
    store(y + c, s->is_log ? v - lse : vexp_low(v - m) * by, n - c);
  }
}

/* Computes columns from c on of one outer position. */
static void softmax_columns(const sli_softmax *s, const float *x, float *y, int64_t c) {
  int64_t left = s->inner - c;
  vec m = set(-INFINITY), total = {0};
  for (int64_t k = 0; k < s->n; k++) m = vmax(load(x + k * s->inner + c, left), m);
  for (int64_t k = 0; k < s->n; k++) total += vexp_low(load(x + k * s->inner + c, left) - m);
  vec by = 1.0f / total, lse = m + vlog(total);
  for (int64_t k = 0; k < s->n; k++) {
    vec v = load(x + k * s->inner + c, left);
    store(y + k * s->inner + c, s->is_log ? v - lse : vexp_low(v - m) * by, left);
  }
}

static void softmax_b_row(const sli_softmax *s, const float *y, const float *dy, float *dx) {
  int64_t n = s->n;
  vec total[SUM_VECTORS] = {0};
  for (int64_t c = 0; c < n; c += SUM_LANES) EACH_VECTOR(v) {
      int64_t at = c + v * LANES;
      vec by = s->is_log ? set(1) : load(y + at, n - at);
      total[v] = plus_product(total[v], load(dy + at, n - at), by);
    }
  float t = sum_lanes(total);
  for (int64_t c = 0; c < n; c += LANES) {
    vec v = load(y + c, n - c), d = load(dy + c, n - c);
    store(dx + c, s->is_log ? d - vexp(v) * t : v * (d - t), n - c);
  }
}

static void softmax_b_columns(const sli_softmax *s, const float *y, const float *dy, float *dx,
                              int64_t c) {
  int64_t left = s->inner - c;
  vec t = {0};
  for (int64_t k = 0; k < s->n; k++) {
    int64_t at = k * s->inner + c;
    t += s->is_log ? load(dy + at, left) : load(dy + at, left) * load(y + at, left);
  }
  for (int64_t k = 0; k < s->n; k++) {
    int64_t at = k * s->inner + c;
    vec v = load(y + at, left), d = load(dy + at, left);
    store(dx + at, s->is_log ? d - vexp(v) * t : v * (d - t), left);
  }
}

static void softmax_chunk(void *arg, int i) {
  const sli_softmax *s = arg;
  sli_range r = sli_chunk_range(s->outer, s->block, i);
  for (int64_t o = r.begin; o < r.end; o++) {
    const float *x = s->in[0] + o * s->n * s->inner;
    float *y = s->out + o * s->n * s->inner;
    if (s->inner == 1) softmax_row(s, x, y);
    else
      for (int64_t c = 0; c < s->inner; c += LANES) softmax_columns(s, x, y, c);
  }
}

static void softmax_b_chunk(void *arg, int i) {
  const sli_softmax *s = arg;
  sli_range r = sli_chunk_range(s->outer, s->block, i);
  for (int64_t o = r.begin; o < r.end; o++) {
    int64_t at = o * s->n * s->inner;
    if (s->inner == 1) softmax_b_row(s, s->in[0] + at, s->in[1] + at, s->out + at);
    else
      for (int64_t c = 0; c < s->inner; c += LANES)
        softmax_b_columns(s, s->in[0] + at, s->in[1] + at, s->out + at, c);
  }
}
