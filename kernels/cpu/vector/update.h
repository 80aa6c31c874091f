/* The update: sums of squares and the optimizers, on gradients that come in parts. */

/* The sum of parts from..nin-1 of a gradient at one place. */
static inline vec gradient(const sl_call *call, int from, int64_t at, int64_t n) {
  vec g = load((const float *)call->in[from] + at, n);
  for (int k = from + 1; k < call->nin; k++) g += load((const float *)call->in[k] + at, n);
  return g;
}

static void sumsq_chunk(void *arg, int i) {
  const sl_call *call = arg;
  double *partial = call->scratch;
  dvec total = {0};
  FOR_EACH(call, i, at, n) {
    dvec g = __builtin_convertvector(gradient(call, 0, at, n), dvec);
    total += g * g;
  }
  partial[i] = dsum(&total);
}

/* Elements [at, at + n) of a chunk, LANES at a time. */
#define FOR_EACH_UPDATED(call, i, at, n)                                                         \
  for (int64_t at = sli_elements(&(call)->out_type[0], i).begin,                                 \
               n = sli_elements(&(call)->out_type[0], i).end - at;                               \
       n > 0; at += LANES, n -= LANES)

static void adamw_chunk(void *arg, int i) {
  const sl_call *call = arg;
  const sl_optimizer *o = call->attrs->user;
  const float *scale = call->in[0];
  float *p = call->out[0], *m = call->out[1], *v = call->out[2];
  double t = (double)call->tick.step + 1;
  float lr = sl_optimizer_lr(o, call->tick.step);
  float keep = 1.0f - lr * sl_optimizer_decay(o, call->out_type[0].ndim);
  float rate = (float)(lr / (1.0 - pow(o->beta1, t)));
  float root = (float)(1.0 / sqrt(1.0 - pow(o->beta2, t)));
  FOR_EACH_UPDATED(call, i, at, n) {
    vec g = gradient(call, 1, at, n) * *scale;
    vec mv = o->beta1 * load(m + at, n) + (1.0f - o->beta1) * g;
    vec vv = o->beta2 * load(v + at, n) + (1.0f - o->beta2) * g * g;
    store(m + at, mv, n);
    store(v + at, vv, n);
    store(p + at, load(p + at, n) * keep - rate * mv / (vsqrt(vv) * root + o->eps), n);
  }
}

static void adam_chunk(void *arg, int i) {
  const sl_call *call = arg;
  const sl_optimizer *o = call->attrs->user;
  const float *scale = call->in[0];
  float *p = call->out[0], *m = call->out[1], *v = call->out[2];
  double t = (double)call->tick.step + 1;
  float lr = sl_optimizer_lr(o, call->tick.step);
  float decay = sl_optimizer_decay(o, call->out_type[0].ndim);
  float rate = (float)(lr / (1.0 - pow(o->beta1, t)));
  float root = (float)(1.0 / sqrt(1.0 - pow(o->beta2, t)));
  FOR_EACH_UPDATED(call, i, at, n) {
    vec pv = load(p + at, n), g = gradient(call, 1, at, n) * *scale + decay * pv;
    vec mv = o->beta1 * load(m + at, n) + (1.0f - o->beta1) * g;
    vec vv = o->beta2 * load(v + at, n) + (1.0f - o->beta2) * g * g;
    store(m + at, mv, n);
    store(v + at, vv, n);
    store(p + at, pv - rate * mv / (vsqrt(vv) * root + o->eps), n);
  }
}

/* Without momentum nothing is kept. */
static void sgd_chunk(void *arg, int i) {
  const sl_call *call = arg;
  const sl_optimizer *o = call->attrs->user;
  const float *scale = call->in[0];
  float *p = call->out[0], *kept = call->out[1];
  float lr = sl_optimizer_lr(o, call->tick.step);
  float decay = sl_optimizer_decay(o, call->out_type[0].ndim);
  FOR_EACH_UPDATED(call, i, at, n) {
    vec pv = load(p + at, n), g = gradient(call, 1, at, n) * *scale + decay * pv, u = g;
    if (kept) {
      u = o->momentum * load(kept + at, n) + g;
      store(kept + at, u, n);
      if (o->nesterov) u = g + o->momentum * u;
    }
    store(p + at, pv - lr * u, n);
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
    vec g = gradient(call, 1, at, n) * *scale, mv = load(m + at, n);
    vec to = o->beta1 * mv + (1.0f - o->beta1) * g;
    vec sign = pick(to > 0, set(1), pick(to < 0, set(-1), set(0)));
    store(m + at, o->beta2 * mv + (1.0f - o->beta2) * g, n);
    store(p + at, load(p + at, n) * keep - lr * sign, n);
  }
}
