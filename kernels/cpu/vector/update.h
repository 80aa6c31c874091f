/* The update: sums of squares and AdamW, on gradients that come in parts. */

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

static void adamw_chunk(void *arg, int i) {
  const sl_call *call = arg;
  const sl_optimizer *o = call->attrs->user;
  const float *scale = call->in[0];
  float *p = call->out[0], *m = call->out[1], *v = call->out[2];
  double t = (double)call->tick.step + 1;
  float lr = sl_optimizer_lr(o, call->tick.step);
  float keep = call->out_type[0].ndim >= 2 ? 1.0f - lr * o->weight_decay : 1.0f;
  float rate = (float)(lr / (1.0 - pow(o->beta1, t)));
  float root = (float)(1.0 / sqrt(1.0 - pow(o->beta2, t)));
  sli_range r = sli_elements(&call->out_type[0], i);
  for (int64_t at = r.begin, n = r.end - at; n > 0; at += LANES, n -= LANES) {
    vec g = gradient(call, 1, at, n) * *scale;
    vec mv = o->beta1 * load(m + at, n) + (1.0f - o->beta1) * g;
    vec vv = o->beta2 * load(v + at, n) + (1.0f - o->beta2) * g * g;
    store(m + at, mv, n);
    store(v + at, vv, n);
    store(p + at, load(p + at, n) * keep - rate * mv / (vsqrt(vv) * root + o->eps), n);
  }
}
