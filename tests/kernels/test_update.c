/* SPDX-License-Identifier: Apache-2.0 */
/* The update follows its formulas: sums of squares, clipping, AdamW, the learning rate schedule.
 * The ops at the ends of a graph do what they promise.
 * labels: unthreaded smoke */
#include <stdbool.h>

#include "tests/support/kernel_call.h"

static void check_near(double got, double want, double tolerance, const char *what) {
  CHECK(fabs(got - want) <= tolerance * (1 + fabs(want)), "%s is %.12g, should be %.12g", what, got,
        want);
}

static sl_optimizer settings(void) {
  return (sl_optimizer){.lr = 1e-2f,
                        .min_lr = 1e-3f,
                        .warmup = 4,
                        .decay_steps = 20,
                        .beta1 = 0.9f,
                        .beta2 = 0.95f,
                        .eps = 1e-8f,
                        .weight_decay = 0.1f,
                        .clip = 1};
}

static void check_learning_rate_warms_up_then_follows_the_cosine(void) {
  sl_optimizer o = settings();
  check_near(sl_optimizer_lr(&o, 0), 1e-2 / 4, 1e-6, "lr of the first step");
  check_near(sl_optimizer_lr(&o, 3), 1e-2, 1e-6, "lr at the end of the warm-up");
  check_near(sl_optimizer_lr(&o, 4), 1e-2, 1e-6, "lr where the cosine starts");
  check_near(sl_optimizer_lr(&o, 12), (1e-2 + 1e-3) / 2, 1e-6, "lr half way down");
  check_near(sl_optimizer_lr(&o, 20), 1e-3, 1e-6, "lr at decay_steps");
  check_near(sl_optimizer_lr(&o, 1000), 1e-3, 1e-6, "lr ever after");
  o.decay_steps = 0;
  check_near(sl_optimizer_lr(&o, 1000), 1e-2, 1e-6, "lr without decay");
}

static void check_sumsq_squares_the_sum_of_the_parts(int64_t n, int parts) {
  sl_type types[3] = {{0}};
  for (int i = 0; i < parts; i++) types[i] = SL_TYPE(SL_F32, n);
  kernel k = kernel_create(&sl_op_sumsq, (sl_attrs){0}, parts, types, 1);
  for (int i = 0; i < parts; i++) array_random(k.in[i], &types[i], 0);
  kernel_run(&k, NULL);
  double want = 0;
  for (int64_t e = 0; e < n; e++) {
    double g = 0;
    for (int i = 0; i < parts; i++) g += array_get(k.in[i], &types[i], e);
    want += g * g;
  }
  check_near(*(double *)k.out[0], want, 1e-6, "sumsq");
  kernel_destroy(&k);
}

static void check_clip_scales_to_the_limit(double a, double b, float limit, double want) {
  sl_optimizer o = settings();
  o.clip = limit;
  sl_type types[] = {SL_SCALAR(SL_F64), SL_SCALAR(SL_F64)};
  kernel k = kernel_create(&sl_op_clip, (sl_attrs){.user = &o}, 2, types, 2);
  *(double *)k.in[0] = a;
  *(double *)k.in[1] = b;
  kernel_run(&k, NULL);
  check_near(*(float *)k.out[0], want, 1e-6, "the scale");
  check_near(*(double *)k.out[1], sqrt(a + b), 1e-12, "the norm");
  kernel_destroy(&k);
}

/* Updates one element by the plain formula. */
static void plain_adamw(const sl_optimizer *o, int64_t step, bool decay, double g, double *p,
                        double *m, double *v) {
  double lr = (double)sl_optimizer_lr(o, step), t = (double)step + 1;
  double b1 = (double)o->beta1, b2 = (double)o->beta2;
  *m = b1 * *m + (1 - b1) * g;
  *v = b2 * *v + (1 - b2) * g * g;
  if (decay) *p -= lr * (double)o->weight_decay * *p;
  *p -= lr * (*m / (1 - pow(b1, t))) / (sqrt(*v / (1 - pow(b2, t))) + (double)o->eps);
}

static void check_adamw_follows_the_formula(sl_type type) {
  sl_optimizer o = settings();
  sl_type types[] = {SL_SCALAR(SL_F32), type, type};
  kernel k = kernel_create(&sl_op_adamw, (sl_attrs){.user = &o}, 3, types, 3);
  int64_t n = sl_type_elements(&type);
  double *state = calloc((size_t)(3 * n), sizeof *state), *p = state, *m = p + n, *v = m + n;
  array_random(k.out[0], &type, 0);
  memset(k.out[1], 0, sl_type_bytes(&type));
  memset(k.out[2], 0, sl_type_bytes(&type));
  for (int64_t e = 0; e < n; e++) p[e] = array_get(k.out[0], &type, e);
  for (k.tick.step = 0; k.tick.step < 6; k.tick.step++) {
    *(float *)k.in[0] = 0.5f;
    array_random(k.in[1], &type, 0);
    array_random(k.in[2], &type, 0);
    kernel_run(&k, NULL);
    for (int64_t e = 0; e < n; e++) {
      double g = 0.5 * (array_get(k.in[1], &type, e) + array_get(k.in[2], &type, e));
      plain_adamw(&o, k.tick.step, type.ndim >= 2, g, &p[e], &m[e], &v[e]);
      check_near(array_get(k.out[0], &type, e), p[e], 2e-6, "a parameter");
      check_near(array_get(k.out[1], &type, e), m[e], 2e-6, "a first moment");
      check_near(array_get(k.out[2], &type, e), v[e], 2e-6, "a second moment");
    }
  }
  free(state);
  kernel_destroy(&k);
}

/* ---- ends of the graph ---------------------------------------------------------------- */

static void check_fill_writes_the_value_in_every_dtype(void) {
  for (sl_dtype dtype = 0; dtype < SL_DTYPE_COUNT; dtype++) {
    sl_type type = SL_TYPE(dtype, 3, 5);
    kernel k = kernel_create(&sl_op_fill, (sl_attrs){.fill.value = 3, .user = &type}, 0, NULL, 1);
    kernel_run(&k, NULL);
    for (int64_t e = 0; e < 15; e++) {
      bool is = dtype == SL_BF16 ? ((uint16_t *)k.out[0])[e] == 0x4040
                                 : array_get(k.out[0], &type, e) == 3;
      CHECK(is, "fill of %s at %lld", sl_dtype_name(dtype), (long long)e);
    }
    kernel_destroy(&k);
  }
}

static void count_up(void *ctx, const sl_tick *tick, void *const *out) {
  *(float *)out[0] = (float)tick->number + *(float *)ctx;
  *(int32_t *)out[1] = tick->microbatch;
}

static void add_to(void *ctx, const sl_tick *tick, int n, const void *const *values) {
  (void)tick;
  for (int i = 0; i < n; i++) *(double *)ctx += (double)*(const float *)values[i];
}

static void check_sources_and_reports_call_back(void) {
  float base = 100;
  sl_type types[] = {SL_SCALAR(SL_F32), SL_TYPE(SL_I32, 1)};
  sl_source source = {.nout = 2, .types = types, .fill = count_up, .ctx = &base};
  kernel from = kernel_create(&sl_op_source, (sl_attrs){.user = &source}, 0, NULL, 2);
  from.tick = (sl_tick){.number = 7, .microbatch = 3};
  kernel_run(&from, NULL);
  CHECK(*(float *)from.out[0] == 107 && *(int32_t *)from.out[1] == 3, "the source filled both");

  double total = 0;
  sl_sink sink = {.take = add_to, .ctx = &total};
  sl_type values[] = {SL_SCALAR(SL_F32), SL_SCALAR(SL_F32)};
  kernel to = kernel_create(&sl_op_report, (sl_attrs){.user = &sink}, 2, values, 0);
  *(float *)to.in[0] = 1;
  *(float *)to.in[1] = 2;
  kernel_run(&to, NULL);
  CHECK(total == 3, "the sink took both");
  kernel_destroy(&from);
  kernel_destroy(&to);
}

int main(void) {
  seed_random(11);
  RUN(check_learning_rate_warms_up_then_follows_the_cosine);
  RUN(check_sumsq_squares_the_sum_of_the_parts, 1, 1);
  RUN(check_sumsq_squares_the_sum_of_the_parts, 33, 2);
  RUN(check_sumsq_squares_the_sum_of_the_parts, 40001, 3);
  RUN(check_clip_scales_to_the_limit, 9, 16, 1, 0.2);
  RUN(check_clip_scales_to_the_limit, 0.09, 0.16, 1, 1);
  RUN(check_clip_scales_to_the_limit, 9, 16, 0, 1);
  RUN(check_adamw_follows_the_formula, SL_TYPE(SL_F32, 33));
  RUN(check_adamw_follows_the_formula, SL_TYPE(SL_F32, 7, 33));
  RUN(check_adamw_follows_the_formula, SL_TYPE(SL_F32, 1, 1));
  RUN(check_fill_writes_the_value_in_every_dtype);
  RUN(check_sources_and_reports_call_back);
  return 0;
}
