/* SPDX-License-Identifier: Apache-2.0 */
/* f32 products on tiles: numbers split into parts that add up to them, for any layout of the
 * matrices; the neglected terms are smaller than f32 rounding; and every CPU level has the same
 * bits, including AMX.
 * labels: random */
#include <float.h>
#include <math.h>

#include "kernels/cpu/chunk.h"
#include "kernels/cpu/product.h"
#include "tests/support/kernel_call.h"
#include "tests/support/kernel_levels.h"
#include "tests/support/seeds.h"

/* C [m, n] = A [m, k] B [k, n], each possibly stored transposed; the stride of C exceeds its row
 * length. */
typedef struct product {
  int64_t m, n, k, c_row;
  bool a_turned, b_turned, adds, streams;
  float *a, *b, *bias, *start, *c;
} product;

static float *floats(int64_t count) {
  return aligned_alloc(64, ((size_t)count * sizeof(float) + 63) / 64 * 64);
}

static product product_of(int64_t m, int64_t n, int64_t k, int form) {
  int64_t c_row = (n + 15) / 16 * 16 + 16;
  return (product){.m = m,
                   .n = n,
                   .k = k,
                   .c_row = c_row,
                   .a_turned = form & 1,
                   .b_turned = form & 2,
                   .adds = form & 4,
                   .streams = form & 8,
                   .a = floats(m * k),
                   .b = floats(k * n),
                   .bias = form & 4 ? NULL : floats(n),
                   .start = floats(m * c_row),
                   .c = floats(m * c_row)};
}

static void release(product *p) {
  free(p->a), free(p->b), free(p->bias), free(p->start), free(p->c);
}

static float *a_at(const product *p, int64_t row, int64_t k) {
  return p->a + (p->a_turned ? k * p->m + row : row * p->k + k);
}
static float *b_at(const product *p, int64_t k, int64_t column) {
  return p->b + (p->b_turned ? column * p->k + k : k * p->n + column);
}

static void multiply(product *p, int level) {
  size_t strip = SLI_STRETCH_NUMBERS * sizeof(uint16_t), panels = (size_t)sli_strips(p->n) * strip;
  int64_t sums = sli_strips(p->m) * sli_strips(p->n) * SLI_SQUARE;
  sli_split_product call = {
      .a = {p->a, p->a_turned ? p->m : p->k, p->m, !p->a_turned, aligned_alloc(64, 2 * strip)},
      .b = {p->b, p->b_turned ? p->k : p->n, p->n, p->b_turned, aligned_alloc(64, 2 * panels)},
      .k = p->k,
      .c = p->c,
      .c_row = p->c_row,
      .adds = p->adds,
      .bias = p->bias,
      .streams = p->streams,
      .sums = p->k > SLI_DEPTH ? floats(sums) : NULL};
  memcpy(p->c, p->start, (size_t)(p->m * p->c_row) * sizeof *p->c);
  level_chunks(level)->split_product(&call, 0);
  free(call.a.room), free(call.b.room), free(call.sums);
}

static void fill(float *to, int64_t count, float (*number)(void)) {
  for (int64_t i = 0; i < count; i++) to[i] = number();
}

static float zero(void) { return 0; }
static float unit(void) { return (float)random_unit(); }

/* Returns any number that three parts can hold: 24 bits, from 2^-100 to below 2^127. */
static float any(void) {
  uint32_t bits = (uint32_t)random_bits();
  bits = (bits & 0x807fffffu) | (uint32_t)(127 - 100 + (bits >> 8) % 226) << 23;
  float x;
  memcpy(&x, &bits, sizeof x);
  return random_bits() % 16 ? x : 0;
}

/* ---- parts add up ------------------------------------------------------------------------ */

static void check_unchanged(product *p, const float *(*at)(const product *, int64_t, int64_t),
                            int level) {
  multiply(p, level);
  for (int64_t row = 0; row < p->m; row++)
    for (int64_t column = 0; column < p->n; column++) {
      float got = p->c[row * p->c_row + column], want = *at(p, row, column);
      CHECK(got == want,
            "%a becomes %a when multiplied by 1, form %d%d of %lld x %lld x %lld (CPU level %d)",
            (double)want, (double)got, p->a_turned, p->b_turned, (long long)p->m, (long long)p->k,
            (long long)p->n, level);
    }
}

static const float *in_a(const product *p, int64_t row, int64_t column) {
  return a_at(p, row, column);
}
static const float *in_b(const product *p, int64_t row, int64_t column) {
  return b_at(p, row, column);
}

/* Multiplies X by the identity matrix, from either side. */
static void parts_add_up(void) {
  static const int64_t sizes[][2] = {{1, 1}, {16, 32}, {40, 17}, {33, 64}, {5, 131}, {70, 300}};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
    for (int form = 0; form < 4; form++) {
      int64_t rows = sizes[i][0], columns = sizes[i][1];
      product x = product_of(rows, columns, columns, form),
              y = product_of(columns, rows, columns, form);
      product *both[] = {&x, &y};
      for (int side = 0; side < 2; side++) {
        product *p = both[side];
        fill(p->a, p->m * p->k, side ? zero : any);
        fill(p->b, p->k * p->n, side ? any : zero);
        fill(p->bias, p->n, zero);
        for (int64_t d = 0; d < p->k; d++) *(side ? a_at(p, d, d) : b_at(p, d, d)) = 1;
        for (int level = 0; level <= sli_cpu_level(); level++)
          check_unchanged(p, side ? in_b : in_a, level);
        release(p);
      }
    }
}

/* ---- special numbers ------------------------------------------------------------------------ */

static void what_is_not_finite_stays_so(void) {
  const float odd[] = {NAN, INFINITY, -INFINITY, FLT_MAX, -0x1.ffp127f};
  for (int side = 0; side < 2; side++)
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
      product p = product_of(40, 40, 40, 0);
      fill(p.a, 40 * 40, unit), fill(p.b, 40 * 40, unit), fill(p.bias, 40, unit);
      *(side ? b_at(&p, 7, 35) : a_at(&p, 35, 7)) = odd[i];
      for (int level = 0; level <= sli_cpu_level(); level++) {
        multiply(&p, level);
        for (int64_t row = 0; row < 40; row++)
          for (int64_t column = 0; column < 40; column++)
            CHECK(!isfinite(p.c[row * p.c_row + column]) == ((side ? column : row) == 35),
                  "%g makes (%lld, %lld) %g (CPU level %d)", (double)odd[i], (long long)row,
                  (long long)column, (double)p.c[row * p.c_row + column], level);
      }
      release(&p);
    }
}

/* Parts that products take for 0 are negligible. */
static void what_is_tiny_is_nearly_there(void) {
  product p = product_of(32, 32, 32, 0);
  for (int i = 0; i < 32 * 32; i++) p.a[i] = ldexpf(unit(), -100 - i % 48), p.b[i] = unit();
  fill(p.bias, 32, zero);
  for (int level = 0; level <= sli_cpu_level(); level++) {
    multiply(&p, level);
    for (int64_t row = 0; row < 32; row++)
      for (int64_t column = 0; column < 32; column++) {
        double want = 0, got = p.c[row * p.c_row + column];
        for (int64_t k = 0; k < 32; k++) want += (double)*a_at(&p, row, k) * *b_at(&p, k, column);
        CHECK(fabs(got - want) < 32 * 2 * 0x1p-126, "(%lld, %lld) is %a, not %a (CPU level %d)",
              (long long)row, (long long)column, got, want, level);
      }
  }
  release(&p);
}

/* ---- as good as f32 -------------------------------------------------------------------------- */

/* Compares the root mean square error of sums on tiles with that of sequential f32 sums. */
static void sums_are_as_good_as_f32(void) {
  enum { M = 64, N = 48, K = 1500 };
  for (int form = 0; form < 4; form++) {
    product p = product_of(M, N, K, form);
    fill(p.a, M * K, unit), fill(p.b, K * N, unit), fill(p.bias, N, zero);
    multiply(&p, sli_cpu_level());
    double tiles = 0, plain = 0;
    for (int64_t row = 0; row < M; row++)
      for (int64_t column = 0; column < N; column++) {
        double want = 0;
        float sum = 0;
        for (int64_t k = 0; k < K; k++) {
          want += (double)*a_at(&p, row, k) * *b_at(&p, k, column);
          sum = fmaf(*a_at(&p, row, k), *b_at(&p, k, column), sum);
        }
        tiles += pow(p.c[row * p.c_row + column] - want, 2);
        plain += pow(sum - want, 2);
      }
    CHECK(tiles <= plain, "sums on tiles are wrong by %.3g, in f32 by %.3g", sqrt(tiles / (M * N)),
          sqrt(plain / (M * N)));
    release(&p);
  }
}

/* A single product, whose only errors are the neglected parts and one rounding. */
static void products_lose_less_than_two_roundings(void) {
  product p = product_of(256, 256, 1, 0);
  fill(p.a, 256, unit), fill(p.b, 256, unit), fill(p.bias, 256, zero);
  multiply(&p, sli_cpu_level());
  double most = 0, squares = 0;
  for (int64_t row = 0; row < 256; row++)
    for (int64_t column = 0; column < 256; column++) {
      double want = (double)p.a[row] * p.b[column],
             wrong = (p.c[row * p.c_row + column] - want) / want;
      most = fmax(most, fabs(wrong));
      squares += wrong * wrong / (256 * 256);
    }
  CHECK(most < 0x1p-22 && sqrt(squares) < 0x1p-24, "products are wrong by %g at most, %g as a rule",
        most, sqrt(squares));
  release(&p);
}

/* ---- equal on all levels --------------------------------------------------------------------- */

static void check_levels(product *p, uint64_t seed) {
  size_t bytes = (size_t)(p->m * p->c_row) * sizeof *p->c;
  float *want = floats(p->m * p->c_row);
  for (int level = 0; level <= sli_cpu_level(); level++) {
    multiply(p, level);
    if (!level) memcpy(want, p->c, bytes);
    CHECK(!memcmp(p->c, want, bytes),
          "%lld x %lld x %lld, form %d%d%d%d, has other bits on CPU level %d (seed %llu)",
          (long long)p->m, (long long)p->k, (long long)p->n, p->a_turned, p->b_turned, p->adds,
          p->streams, level, (unsigned long long)seed);
  }
  for (int64_t row = 0; row < p->m; row++)
    CHECK(!memcmp(want + row * p->c_row + p->n, p->start + row * p->c_row + p->n,
                  (size_t)(p->c_row - p->n) * sizeof *want),
          "row %lld of %lld x %lld x %lld is written past its end", (long long)row, (long long)p->m,
          (long long)p->k, (long long)p->n);
  free(want);
}

static void levels_have_the_same_bits(seeds s) {
  for (uint64_t seed = s.first; seed < s.end; seed++) {
    seed_random(seed);
    int64_t m = 1 + (int64_t)(random_bits() % 150), n = 1 + (int64_t)(random_bits() % 150);
    int64_t k = 1 + (int64_t)(random_bits() % (seed % 3 ? 400 : 40));
    product p = product_of(m, n, k, (int)(seed % 16));
    fill(p.a, m * k, unit), fill(p.b, k * n, unit), fill(p.start, m * p.c_row, unit);
    if (p.bias) fill(p.bias, n, unit);
    check_levels(&p, seed);
    release(&p);
  }
}

int main(int argc, char **argv) {
  seeds random = seeds_of(argc, argv, 1, 24);
  seed_random(11);
  RUN(parts_add_up);
  RUN(what_is_not_finite_stays_so);
  RUN(what_is_tiny_is_nearly_there);
  RUN(sums_are_as_good_as_f32);
  RUN(products_lose_less_than_two_roundings);
  RUN(levels_have_the_same_bits, random);
  return 0;
}
