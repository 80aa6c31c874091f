/* SPDX-License-Identifier: Apache-2.0 */
/* The update: sums of squares and the optimizers, on gradients that come in parts. An optimizer
 * rounds each product before adding to it, as kernels/cuda/math.h does, so updates on the host and
 * on a GPU give the same bits. */

/* Returns the sum at one place of the parts from..nin-1 of a gradient. */
static inline vec gradient(const sl_call *call, int from, int64_t at, int64_t n) {
  vec g = load_ahead((const float *)call->in[from] + at, n);
  for (int k = from + 1; k < call->nin; k++) g += load_ahead((const float *)call->in[k] + at, n);
  return g;
}

static void sumsq_chunk(void *arg, int i) {
  const sl_call *call = arg;
  double *partial = call->scratch;
  dvec total[SUM_VECTORS] = {0};
  FOR_EACH_SUMMED(call, i, at, n)
  EACH_VECTOR(v) add_wide_square(&total[v], gradient(call, 0, at + v * LANES, n - v * LANES));
  partial[i] = sum_wide_lanes(total);
}

/* Walks elements [at, at + n) of a chunk, LANES at a time. */
#define FOR_EACH_UPDATED(call, i, at, n)                           \
  for (int64_t at = sli_elements(&(call)->out_type[0], i).begin,   \
               n = sli_elements(&(call)->out_type[0], i).end - at; \
       n > 0; at += LANES, n -= LANES)

/* Return b x + (1 - b) g, and the same for squares. */
static inline vec mean(float b, vec x, vec g) {
  return rounded(set(b), x) + rounded(set(1.0f - b), g);
}
static inline vec squares(float b, vec x, vec g) {
  return rounded(set(b), x) + rounded(rounded(set(1.0f - b), g), g);
}

/* Numbers that Adam needs for a step. */
typedef struct adam_step {
  float beta1, beta2, eps;
  float rate; /* lr / (1 - beta1^t) */
  float root; /* 1 / sqrt(1 - beta2^t) */
} adam_step;

static adam_step adam_of(const sl_optimizer *o, float lr, int64_t step) {
  double t = (double)step + 1;
  return (adam_step){o->beta1, o->beta2, o->eps, (float)(lr / (1.0 - pow(o->beta1, t))),
                     (float)(1.0 / sqrt(1.0 - pow(o->beta2, t)))};
}

/* Returns Adam's step for this gradient, and updates both means. */
static inline vec adam_way(const adam_step *a, vec g, float *m, float *v, int64_t n) {
  vec mv = mean(a->beta1, load_ahead(m, n), g), vv = squares(a->beta2, load_ahead(v, n), g);
  store(m, mv, n);
  store(v, vv, n);
  return rounded(set(a->rate), mv) / (rounded(vsqrt(vv), set(a->root)) + a->eps);
}

static void adamw_chunk(void *arg, int i) {
  const sl_call *call = arg;
  const sl_optimizer *o = call->attrs->user;
  const float *scale = call->in[0];
  float *p = call->out[0], *m = call->out[1], *v = call->out[2];
  float lr = sl_optimizer_lr(o, call->tick.step);
  adam_step a = adam_of(o, lr, call->tick.step);
  float keep = 1.0f - lr * sl_optimizer_decay(o, call->out_type[0].ndim);
  FOR_EACH_UPDATED(call, i, at, n) {
    vec g = rounded(gradient(call, 1, at, n), set(*scale));
    vec way = adam_way(&a, g, m + at, v + at, n);
    store(p + at, rounded(load_ahead(p + at, n), set(keep)) - way, n);
  }
}

static void adam_chunk(void *arg, int i) {
  const sl_call *call = arg;
  const sl_optimizer *o = call->attrs->user;
  const float *scale = call->in[0];
  float *p = call->out[0], *m = call->out[1], *v = call->out[2];
  float lr = sl_optimizer_lr(o, call->tick.step);
  adam_step a = adam_of(o, lr, call->tick.step);
  float decay = sl_optimizer_decay(o, call->out_type[0].ndim);
  FOR_EACH_UPDATED(call, i, at, n) {
    vec pv = load_ahead(p + at, n);
    vec g = rounded(gradient(call, 1, at, n), set(*scale)) + rounded(set(decay), pv);
    store(p + at, pv - adam_way(&a, g, m + at, v + at, n), n);
  }
}

/* SGD. Without momentum there is no state. */
static void sgd_chunk(void *arg, int i) {
  const sl_call *call = arg;
  const sl_optimizer *o = call->attrs->user;
  const float *scale = call->in[0];
  float *p = call->out[0], *kept = call->out[1];
  float lr = sl_optimizer_lr(o, call->tick.step);
  float decay = sl_optimizer_decay(o, call->out_type[0].ndim);
  FOR_EACH_UPDATED(call, i, at, n) {
    vec pv = load_ahead(p + at, n);
    vec g = rounded(gradient(call, 1, at, n), set(*scale)) + rounded(set(decay), pv), u = g;
    if (kept) {
      u = rounded(set(o->momentum), load_ahead(kept + at, n)) + g;
      store(kept + at, u, n);
      if (o->nesterov) u = g + rounded(set(o->momentum), u);
    }
    store(p + at, pv - rounded(set(lr), u), n);
  }
}

static void lion_chunk(void *arg, int i) {
  const sl_call *call = arg;
  const sl_optimizer *o = call->attrs->user;
  const float *scale = call->in[0];
  float *p = call->out[0], *m = call->out[1];
  float lr = sl_optimizer_lr(o, call->tick.step);
  float keep = 1.0f - lr * sl_optimizer_decay(o, call->out_type[0].ndim);
  FOR_EACH_UPDATED(call, i, at, n) {
    vec g = rounded(gradient(call, 1, at, n), set(*scale)), mv = load_ahead(m + at, n);
    vec to = mean(o->beta1, mv, g);
    vec sign = pick(to > 0, set(1), pick(to < 0, set(-1), set(0)));
    store(m + at, mean(o->beta2, mv, g), n);
    store(p + at, rounded(load_ahead(p + at, n), set(keep)) - rounded(set(lr), sign), n);
  }
}
