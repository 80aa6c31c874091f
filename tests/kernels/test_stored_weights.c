/* SPDX-License-Identifier: Apache-2.0 */
/* Products, their input gradients and tables with frozen weights in each storage format match sums
 * over the unpacked weight, for any tiling. Exact products with blocks that a server reads have the
 * bits of a server; others, those with the weight in f32. A table's rows are the unpacked ones.
 * labels: random */
#include <math.h>

#include "ops/leaves.h"
#include "ops/ops.h"
#include "tests/support/kernel_levels.h"
#include "tests/support/seeds.h"
#include "tests/support/stored_weight.h"

/* Runs an op on input rows, a weight and a bias; the result is in out[0]. */
static kernel run_product(const sl_op *op, sl_attrs attrs, const sl_type *x, const float *rows,
                          const sl_type *w, const void *weights, const float *bias) {
  const sl_type in[] = {*x, *w, SL_TYPE(SL_F32, w->dim[0])};
  kernel k = kernel_create(op, attrs, bias ? 3 : 2, in, 1);
  memcpy(k.in[0], rows, sl_type_bytes(x));
  memcpy(k.in[1], weights, sl_type_bytes(w));
  if (bias) memcpy(k.in[2], bias, sl_type_bytes(&in[2]));
  kernel_run(&k, NULL);
  return k;
}

/* Checks rows of y = x w^T + b, or of dx = dy w, against sums in double. */
static void check_sums(const weight *w, const float *x, const float *bias, bool forward, int64_t m,
                       const float *y, const char *type) {
  int64_t n = w->values.dim[0], k = w->values.dim[1], sums = forward ? k : n, all = forward ? n : k;
  for (int64_t at = 0; at < m * all; at += 1 + at % 61) {
    int64_t row = at / all, c = at % all;
    double sum = bias ? (double)bias[c] : 0, size = 1;
    for (int64_t i = 0; i < sums; i++) {
      double term =
          (double)x[row * sums + i] * (double)w->unpacked[forward ? c * k + i : i * k + c];
      sum += term, size += fabs(term);
    }
    CHECK(fabs(sum - (double)y[at]) < 2e-6 * size, "%s, %s: row %lld, column %lld is %g, not %g",
          type, forward ? "forward" : "backward", (long long)row, (long long)c, (double)y[at], sum);
  }
}

/* Returns an exact product with the weight in f32, or the one of a server. */
static kernel exact_product(const weight *w, sl_attrs attrs, bool served, bool forward,
                            const sl_type *x, const float *rows, const float *bias) {
  if (!served)
    return run_product(forward ? &sl_op_linear : &sl_op_linear_b, attrs, x, rows, &w->values,
                       w->unpacked, bias);
  const sl_type none = {.ndim = -1}, b = SL_TYPE(SL_F32, w->values.dim[0]),
                in[] = {*x, w->lies, b, none, SL_TYPE(SL_I32, 8)};
  kernel k = kernel_create(&sl_op_linear_served, attrs, 5, in, 1);
  memcpy(k.in[0], rows, sl_type_bytes(x));
  memcpy(k.in[1], w->stored, sl_type_bytes(&w->lies));
  memcpy(k.in[2], bias, sl_type_bytes(&b));
  kernel_run(&k, NULL);
  return k;
}

static void check_product(const struct form *f, int64_t m, int64_t n, int64_t k, bool forward,
                          bool exact) {
  weight w = make_weight(f, n, k);
  const sl_type x = SL_TYPE(SL_F32, 1, m, forward ? k : n), b = SL_TYPE(SL_F32, n);
  float *rows = array_create(&x), *bias = forward ? array_create(&b) : NULL;
  array_random(rows, &x, 0);
  if (bias) array_random(bias, &b, 0);
  bool served = forward && sli_storage_by_digits(w.storage);
  sl_attrs attrs = attrs_of(&w, exact);
  if (exact && served) attrs.numbers.chunk = k / (1 + random_below(SLI_MOST_GROUPS));
  kernel got = run_product(forward ? &sl_op_linear_stored : &sl_op_linear_b_stored, attrs, &x, rows,
                           &w.lies, w.stored, bias);
  check_sums(&w, rows, bias, forward, m, got.out[0], f->type);
  if (exact) {
    if (!served) attrs.weight = (sl_weight_attrs){0};
    kernel want = exact_product(&w, attrs, served, forward, &x, rows, bias);
    CHECK(!memcmp(want.out[0], got.out[0], sl_type_bytes(&got.out_type[0])),
          "%s: an exact product has other bits than %s", f->type,
          served ? "a server's" : "with the weight in f32");
    kernel_destroy(&want);
  }
  kernel_destroy(&got);
  free(rows);
  free(bias);
  free_weight(&w);
}

static void check_table(const struct form *f, int64_t n, int64_t k, bool partial) {
  weight w = make_weight(f, n, k);
  const sl_type in[] = {SL_TYPE(SL_I32, 2, 5), w.lies};
  sl_attrs attrs = attrs_of(&w, false);
  attrs.place.first = partial ? 3 : 0;
  attrs.place.partial = partial;
  kernel call = kernel_create(&sl_op_embedding_stored, attrs, 2, in, 1);
  memcpy(call.in[1], w.stored, sl_type_bytes(&w.lies));
  int32_t *ids = call.in[0];
  for (int i = 0; i < 10; i++) ids[i] = (int32_t)random_below(n);
  kernel_run(&call, NULL);
  for (int i = 0; i < 10; i++)
    for (int64_t c = 0; c < k; c++) {
      float y = ((float *)call.out[0])[i * k + c];
      float want =
          ids[i] < attrs.place.first ? 0 : w.unpacked[(ids[i] - attrs.place.first) * k + c];
      CHECK(y == want, "%s: number %lld of token %d is %g, not %g", f->type, (long long)c, ids[i],
            (double)y, (double)want);
    }
  kernel_destroy(&call);
  free_weight(&w);
}

static void check_form(const struct form *f) {
  for (int forward = 0; forward < 2; forward++)
    for (int exact = 0; exact < 2; exact++)
      check_product(f, 1 + random_below(40), 1 + random_below(70), 256 * (1 + random_below(3)),
                    forward, exact);
  check_table(f, 5 + random_below(40), 256, false);
  check_table(f, 5 + random_below(40), 512, true);
}

static void check(uint64_t seed) {
  seed_random(seed);
  for (size_t f = 0; f < sizeof forms / sizeof *forms; f++) check_form(&forms[f]);
}

/* Weights cut into several tiles, the last one shorter. */
static void check_tiles(void) {
  const struct form *f = &forms[random_below(sizeof forms / sizeof *forms)];
  for (int way = 0; way < 4; way++) check_product(f, 3, 81, 16384, way & 1, way >> 1);
}

int main(int argc, char **argv) {
  uint64_t seed = seed_of(argc, argv, 1);
  seed_random(seed);
  check_tiles();
  on_every_level(check, seed);
  return 0;
}
