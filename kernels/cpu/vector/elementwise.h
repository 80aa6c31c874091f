/* SPDX-License-Identifier: Apache-2.0 */
/* Element-wise chunk functions: sums, products, activations. */

/* Walks chunk i of the first input: `at` is the element, n the number left. */
#define FOR_EACH(call, i, at, n)                       \
  sli_range r_ = sli_elements(&(call)->in_type[0], i); \
  for (int64_t at = r_.begin, n = r_.end - at; n > 0; at += LANES, n -= LANES)

/* Walks chunk i for a sum, SUM_LANES elements at a time. */
#define FOR_EACH_SUMMED(call, i, at, n)                \
  sli_range r_ = sli_elements(&(call)->in_type[0], i); \
  for (int64_t at = r_.begin, n = r_.end - at; n > 0; at += SUM_LANES, n -= SUM_LANES)

static void add_chunk(void *arg, int i) {
  const sl_call *call = arg;
  const float *a = call->in[0], *b = call->in[1];
  float *y = call->out[0];
  FOR_EACH(call, i, at, n) store_ahead(y + at, load_ahead(a + at, n) + load_ahead(b + at, n), n);
}

/* Levels of a binary tree over inputs. */
enum { SUM_LEVELS = 31 };

/* Adds the vectors of all inputs by a binary tree over their numbers. */
static inline vec sum_inputs(const float *const *x, int count, int64_t at, int64_t n) {
  vec slot[SUM_LEVELS], s = load_ahead(x[0] + at, n);
  for (int k = 1; k < count; k++) {
    int level = 0;
    for (int left = k - 1; left & 1; left >>= 1) s = slot[level++] + s;
    slot[level] = s;
    s = load_ahead(x[k] + at, n);
  }
  for (int left = count - 1, level = 0; left; left >>= 1, level++)
    if (left & 1) s = slot[level] + s;
  return s;
}

static void sum_chunk(void *arg, int i) {
  const sl_call *call = arg;
  const float *const *x = (const float *const *)call->in;
  float *y = call->out[0];
  bool add = sli_accumulates(call, 0);
  FOR_EACH(call, i, at, n) {
    vec s = sum_inputs(x, call->nin, at, n);
    store_ahead(y + at, add ? load(y + at, n) + s : s, n);
  }
}

/* Sums chunks, in doubles. */
static void total_chunk(void *arg, int i) {
  const sl_call *call = arg;
  const float *x = call->in[0];
  double *partial = call->scratch;
  dvec sum[SUM_VECTORS] = {0};
  FOR_EACH_SUMMED(call, i, at, n)
  EACH_VECTOR(v) add_wide(&sum[v], load_ahead(x + at + v * LANES, n - v * LANES));
  partial[i] = sum_wide_lanes(sum);
}

static void mul_chunk(void *arg, int i) {
  const sl_call *call = arg;
  const float *a = call->in[0], *b = call->in[1];
  float *y = call->out[0];
  FOR_EACH(call, i, at, n) store_ahead(y + at, load_ahead(a + at, n) * load_ahead(b + at, n), n);
}

static void mul_b_chunk(void *arg, int i) {
  const sl_call *call = arg;
  const float *a = call->in[0], *b = call->in[1], *dy = call->in[2];
  float *da = call->out[0], *db = call->out[1];
  FOR_EACH(call, i, at, n) {
    vec d = load_ahead(dy + at, n), av = load_ahead(a + at, n), bv = load_ahead(b + at, n);
    if (da) store_ahead(da + at, d * bv, n);
    if (db) store_ahead(db + at, d * av, n);
  }
}

/* gelu(x) = x s(2u) with u = c (x + a x^3) and s the sigmoid, because
 * (1 + tanh u)/2 = s(2u). */
static const float gelu_2c = 1.5957691216057308f, gelu_a = 0.044715f;

static void gelu_chunk(void *arg, int i) {
  const sl_call *call = arg;
  const float *x = call->in[0];
  float *y = call->out[0];
  FOR_EACH(call, i, at, n) {
    vec v = load_ahead(x + at, n);
    store_ahead(y + at, v * sigmoid(gelu_2c * v * (1.0f + gelu_a * v * v)), n);
  }
}

static void gelu_b_chunk(void *arg, int i) {
  const sl_call *call = arg;
  const float *x = call->in[0], *dy = call->in[1];
  float *dx = call->out[0];
  FOR_EACH(call, i, at, n) {
    vec v = load_ahead(x + at, n), v2 = v * v;
    vec s = sigmoid(gelu_2c * v * (1.0f + gelu_a * v2));
    vec slope = gelu_2c * (1.0f + 3.0f * gelu_a * v2);
    store_ahead(dx + at, load_ahead(dy + at, n) * s * (1.0f + v * (1.0f - s) * slope), n);
  }
}

static void relu_chunk(void *arg, int i) {
  const sl_call *call = arg;
  const float *x = call->in[0];
  float *y = call->out[0];
  FOR_EACH(call, i, at, n) {
    vec v = load_ahead(x + at, n);
    store_ahead(y + at, pick(v < 0.0f, (vec){0}, v), n);
  }
}

static void relu_b_chunk(void *arg, int i) {
  const sl_call *call = arg;
  const float *y = call->in[0], *dy = call->in[1];
  float *dx = call->out[0];
  FOR_EACH(call, i, at, n)
  store_ahead(dx + at, pick(load_ahead(y + at, n) > 0.0f, load_ahead(dy + at, n), (vec){0}), n);
}

static void tanh_chunk(void *arg, int i) {
  const sl_call *call = arg;
  const float *x = call->in[0];
  float *y = call->out[0];
  FOR_EACH(call, i, at, n) store_ahead(y + at, vtanh(load_ahead(x + at, n)), n);
}

static void tanh_b_chunk(void *arg, int i) {
  const sl_call *call = arg;
  const float *y = call->in[0], *dy = call->in[1];
  float *dx = call->out[0];
  FOR_EACH(call, i, at, n) {
    vec v = load_ahead(y + at, n);
    store_ahead(dx + at, load_ahead(dy + at, n) * (1.0f - v * v), n);
  }
}

static void swiglu_chunk(void *arg, int i) {
  const sl_call *call = arg;
  const float *gate = call->in[0], *up = call->in[1];
  float *y = call->out[0];
  FOR_EACH(call, i, at, n) {
    vec g = load_ahead(gate + at, n);
    store_ahead(y + at, g * sigmoid(g) * load_ahead(up + at, n), n);
  }
}

static void swiglu_b_chunk(void *arg, int i) {
  const sl_call *call = arg;
  const float *gate = call->in[0], *up = call->in[1], *dy = call->in[2];
  float *dgate = call->out[0], *dup = call->out[1];
  FOR_EACH(call, i, at, n) {
    vec g = load_ahead(gate + at, n), d = load_ahead(dy + at, n), s = sigmoid(g);
    if (dgate) store_ahead(dgate + at, d * load_ahead(up + at, n) * s * (1.0f + g * (1.0f - s)), n);
    if (dup) store_ahead(dup + at, d * g * s, n);
  }
}
