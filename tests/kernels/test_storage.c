/* SPDX-License-Identifier: Apache-2.0 */
/* Products and tables with weights in their stored format: bf16 gives the bits of the same weights
 * in f32. Blocks give the same bits on every CPU level, about as accurate as f32 sums. A row's
 * result does not depend on other rows. Exact products with blocks are a tree over products of
 * groups.
 * Floats of 8 and 4 bits are numbers that a plain reference decodes alike.
 * labels: random */
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "kernels/cpu/served.h"
#include "ops/leaves.h"
#include "ops/ops.h"
#include "ops/storage.h"
#include "tests/support/rng.h"
#include "tests/support/kernel_levels.h"
#include "tests/support/seeds.h"
#include "tests/support/test.h"

enum { MOST_ROWS = 97, MOST_N = 37, MOST_K = 1280 };

static float x[MOST_ROWS * MOST_K], w[MOST_N * MOST_K], w_again[MOST_N * MOST_K], bias[MOST_N];
static float want[MOST_ROWS * MOST_N], got[MOST_ROWS * MOST_N];
static sli_digits digits[MOST_ROWS * MOST_K / SLI_STORAGE_BLOCK];
static unsigned char lies[MOST_N * MOST_K * 4], again[MOST_N * MOST_K * 2],
    blocks[MOST_N * MOST_K * 2];

/* Numbers and bytes of a block (1: a number), and the places of its halves. */
static const struct form {
  const char *type;
  sl_storage storage;
  int numbers, bytes, nhalves, halves[2];
} forms[] = {
    {"BF16", SL_STORAGE_BF16, 1, 2, 0, {0}},        {"Q8_0", SL_STORAGE_Q8_0, 32, 34, 1, {0}},
    {"Q4_1", SL_STORAGE_Q4_1, 32, 20, 2, {0, 2}},   {"Q4_0", SL_STORAGE_Q4_1, 32, 18, 1, {0}},
    {"Q5_0", SL_STORAGE_Q8_0, 32, 22, 1, {0}},      {"Q3_K", SL_STORAGE_Q3_K, 256, 110, 1, {108}},
    {"Q4_K", SL_STORAGE_Q4_K, 256, 144, 2, {0, 2}}, {"Q5_K", SL_STORAGE_Q5_K, 256, 176, 2, {0, 2}},
    {"Q6_K", SL_STORAGE_Q6_K, 256, 210, 1, {208}},  {"FP8", SL_STORAGE_SCALED, 128, 132, 0, {0}},
    {"NVFP4", SL_STORAGE_NVFP4, 128, 76, 0, {0}},   {"F16", SL_STORAGE_F16, 1, 2, 0, {0}},
    {"Q5_1", SL_STORAGE_Q5_1, 32, 24, 2, {0, 2}},   {"Q2_K", SL_STORAGE_Q2_K, 256, 84, 2, {80, 82}},
    {"IQ4_NL", SL_STORAGE_IQ4_NL, 32, 18, 1, {0}},  {"IQ4_XS", SL_STORAGE_IQ4_XS, 256, 136, 1, {0}},
    {"MXFP4", SL_STORAGE_MXFP4, 32, 17, 0, {0}},    {"MXFP4", SL_STORAGE_Q8_0, 32, 17, 0, {0}}};

static float number(rng *d) { return (float)rng_below(d, 2000) / 1000 - 1; }

/* Replaces what is no number, and scales of a block of floats of 8 or 4 bits. A negative factor is
 * a divisor. */
static void make_small(const struct form *f, unsigned char *block, rng *d) {
  float factor = (float)(1 + rng_below(d, 1000)) * 1e-5f;
  if (f->storage == SL_STORAGE_NVFP4 && rng_below(d, 2)) factor = -1 / factor;
  for (int i = 0; i < f->bytes - 4; i++) block[i] ^= (block[i] & 127) == 127;
  memcpy(block + f->bytes - 4, &factor, sizeof factor);
}

/* Fills blocks with small scales, including subnormal and negative ones. */
static void make_blocks(const struct form *f, int64_t n, int64_t k, rng *d) {
  for (int64_t b = 0; b < n * k / f->numbers; b++) {
    unsigned char *block = blocks + b * f->bytes;
    for (int i = 0; i < f->bytes; i++) block[i] = (unsigned char)rng_below(d, 256);
    for (int i = 0; i < f->nhalves; i++)
      block[f->halves[i] + 1] = (unsigned char)(rng_below(d, 2) << 7 | rng_below(d, 0x28));
    if (sli_storage_small(f->storage)) make_small(f, block, d);
    if (f->bytes == 17) block[0] = (unsigned char)(118 + rng_below(d, 8));
  }
}

/* Groups the rows for products, and checks that ungrouping restores them. */
static void group(sl_storage storage, const sl_type *values) {
  const sl_type type = sli_storage_type(storage, values);
  sli_storage_group(storage, &type, lies);
  memcpy(again, lies, sl_type_bytes(&type));
  sli_storage_ungroup(storage, &type, again);
  sli_storage_unpack(storage, values, again, w_again);
  CHECK(!memcmp(w_again, w, sl_type_bytes(values)), "rows come back from their groups");
}

static void make_weight(const struct form *f, int64_t n, int64_t k, rng *d) {
  const sl_type values = SL_TYPE(SL_F32, n, k);
  if (f->numbers > 1)
    make_blocks(f, n, k, d), sli_storage_take(f->storage, f->type, &values, blocks, lies);
  else {
    for (int64_t i = 0; i < n * k; i++) w[i] = number(d);
    sli_storage_pack(f->storage, &values, w, lies);
  }
  sli_storage_unpack(f->storage, &values, lies, w);
  group(f->storage, &values);
}

static void multiply_with(const sl_attrs *how, const sli_cpu_chunks *cpu, sl_storage storage,
                          const void *weight, const float *rows_of, int64_t rows, int64_t n,
                          int64_t k, float *y) {
  const sl_type weights = SL_TYPE(SL_F32, n, k);
  sl_attrs attrs = *how;
  attrs.weight.storage = storage;
  const sl_type in_type[5] = {SL_TYPE(SL_F32, 1, rows, k), sli_storage_type(storage, &weights)};
  const sl_type out_type[1] = {SL_TYPE(SL_F32, 1, rows, n)};
  const void *in[5] = {rows_of, weight, bias};
  void *out[1] = {y};
  sl_call call = {.attrs = &attrs,
                  .nin = 5,
                  .nout = 1,
                  .in_type = in_type,
                  .out_type = out_type,
                  .in = in,
                  .out = out};
  sli_served_product product = {
      &call, 1 + (int)rows % sli_chunk_count(n, SLI_SERVED_COLUMNS),
      sli_storage_by_digits(storage) && (rows * k > SLI_OWN_DIGITS * SLI_STORAGE_BLOCK || n == 1)
          ? digits
          : NULL};
  for (int i = 0; product.x && i < rows; i++) cpu->served_digits(&product, i);
  for (int i = 0; i < product.pieces; i++) cpu->linear_served(&product, i);
}

static void multiply(const sli_cpu_chunks *cpu, sl_storage storage, const void *weight,
                     const float *rows_of, int64_t rows, int64_t n, int64_t k, float *y) {
  multiply_with(&(sl_attrs){0}, cpu, storage, weight, rows_of, rows, n, k, y);
}

static void check_close(int64_t rows, int64_t n, int64_t k) {
  for (int64_t r = 0; r < rows; r++)
    for (int64_t c = 0; c < n; c++) {
      double sum = (double)bias[c], size = 1;
      for (int64_t i = 0; i < k; i++) {
        double term = (double)x[r * k + i] * (double)w[c * k + i];
        sum += term;
        size += fabs(term);
      }
      CHECK(fabs(sum - (double)got[r * n + c]) < 1e-6 * size, "row %lld, column %lld", (long long)r,
            (long long)c);
    }
}

/* Compares blocks with level 0, and floats with f32. */
static void check_form(int level, const struct form *f, int64_t rows, int64_t n, int64_t k) {
  const sli_cpu_chunks *cpu = level_chunks(level);
  bool blocks = sli_storage_by_digits(f->storage);
  multiply(blocks ? level_chunks(0) : cpu, blocks ? f->storage : SL_STORAGE_F32,
           blocks ? (void *)lies : w, x, rows, n, k, want);
  multiply(cpu, f->storage, lies, x, rows, n, k, got);
  size_t bytes = (size_t)(rows * n) * sizeof *got;
  CHECK(!memcmp(want, got, bytes), "%s at level %d: %lld rows of %lld by %lld are others", f->type,
        level, (long long)rows, (long long)k, (long long)n);
  check_close(rows, n, k);
  for (int64_t r = 0; r < rows; r++) {
    multiply(cpu, f->storage, lies, x + r * k, 1, n, k, want);
    CHECK(!memcmp(want, got + r * n, (size_t)n * sizeof *got),
          "%s: row %lld of %lld is another alone", f->type, (long long)r, (long long)rows);
  }
}

/* ---- exact products ------------------------------------------------------------------------- */

/* Returns the sum of a group, computed by level 0 from a row that is 0 elsewhere. */
static float group_sum(const struct form *f, const float *row, int64_t n, int64_t k, int64_t chunk,
                       int64_t group, int64_t column) {
  static float alone[MOST_K], zeros[MOST_N], kept[MOST_N], y[MOST_N];
  for (int64_t i = 0; i < k; i++)
    alone[i] = i / f->numbers * f->numbers / chunk == group ? row[i] : 0;
  memcpy(kept, bias, sizeof kept);
  memcpy(bias, zeros, sizeof zeros);
  multiply(level_chunks(0), f->storage, lies, alone, 1, n, k, y);
  memcpy(bias, kept, sizeof kept);
  return y[column] + (group ? 0 : bias[column]);
}

/* Returns the sum of groups [first, end), a power of two or what is left of it. */
static float tree_sum(const float *sums, int64_t first, int64_t end) {
  int64_t half = 1;
  if (end - first == 1) return sums[first];
  while (2 * half < end - first) half *= 2;
  return tree_sum(sums, first, first + half) + tree_sum(sums, first + half, end);
}

/* Exact products with blocks add the blocks that begin in a group, and groups by a tree. The other
 * formats have the bits of f32 weights. Level 0 rounds their products before it adds them; the
 * other levels are alike. */
static void check_exact(int level, const struct form *f, int64_t rows, int64_t n, int64_t k) {
  const sl_attrs attrs = {.numbers.exact = true, .numbers.chunk = k % 7 ? (k + 7) / 8 : 0};
  int64_t chunk = attrs.numbers.chunk ? attrs.numbers.chunk : k, ngroups = (k + chunk - 1) / chunk;
  float sums[SLI_MOST_GROUPS];
  multiply_with(&attrs, level_chunks(level), f->storage, lies, x, rows, n, k, got);
  if (!sli_storage_by_digits(f->storage))
    multiply_with(&attrs, level_chunks(SLI_MIN(level, 1)), SL_STORAGE_F32, w, x, rows, n, k, want);
  else
    for (int64_t e = 0; e < rows * n; e++) {
      bool checked = rows < 8 || e % 41 == 0;
      for (int64_t g = 0; checked && g < ngroups; g++)
        sums[g] = group_sum(f, x + e / n * k, n, k, chunk, g, e % n);
      want[e] = checked ? tree_sum(sums, 0, ngroups) : got[e];
    }
  CHECK(!memcmp(want, got, (size_t)(rows * n) * sizeof *got),
        "%s at level %d, exact: %lld rows of %lld by %lld are others", f->type, level,
        (long long)rows, (long long)k, (long long)n);
  check_close(rows, n, k);
}

static void check_table(const sli_cpu_chunks *cpu, const struct form *f, int64_t n, int64_t k) {
  const sl_type values = SL_TYPE(SL_F32, n, k);
  const sl_type in_type[3] = {SL_TYPE(SL_I32, 1, 3), sli_storage_type(f->storage, &values)};
  const sl_type out_type[1] = {SL_TYPE(SL_F32, 1, 3, k)};
  const sl_attrs attrs = {.weight = {k, (int)f->storage}};
  const int32_t ids[3] = {(int32_t)n - 1, 0, (int32_t)n};
  const void *in[3] = {ids, lies};
  float y[3 * MOST_K];
  void *out[1] = {y};
  sl_call call = {.attrs = &attrs,
                  .nin = 3,
                  .nout = 1,
                  .in_type = in_type,
                  .out_type = out_type,
                  .in = in,
                  .out = out};
  for (int i = 0; i < 3; i++) cpu->embedding_served(&call, i);
  CHECK(!memcmp(y, w + (n - 1) * k, (size_t)k * 4) && !memcmp(y + k, w, (size_t)k * 4),
        "%s: rows of a table", f->type);
  CHECK(isnan(y[2 * k]), "none is there");
}

/* ---- accuracy ------------------------------------------------------------------------------- */

/* Fills rows with numbers of mixed size within `spread` powers of two below 2^top, and some
 * zeros. */
static void make_rows(int64_t count, int top, int spread, rng *d) {
  for (int64_t i = 0; i < count; i++)
    x[i] = rng_below(d, 8) ? ldexpf(number(d), top - (int)rng_below(d, (uint32_t)spread + 1)) : 0;
}

/* Returns the mean squared error of a product relative to the sum of its squared terms. */
static double error_of(const float *y, int64_t rows, int64_t n, int64_t k) {
  double total = 0;
  for (int64_t r = 0; r < rows; r++)
    for (int64_t c = 0; c < n; c++) {
      double sum = (double)bias[c], size = 0x1p-298;
      for (int64_t i = 0; i < k; i++) {
        double term = (double)x[r * k + i] * (double)w[c * k + i];
        sum += term;
        size += term * term;
      }
      total += pow(sum - (double)y[r * n + c], 2) / size;
    }
  return sqrt(total / (double)(rows * n));
}

/* If a block's numbers differ in size, the largest one's integer limits the precision of the
 * smallest. Numbers of blocks of 256 are rounded in f32, which products do not see. */
static void check_accuracy(const struct form *f, int top, int spread, rng *d) {
  const int64_t rows = 4, n = MOST_N, k = 3 * f->numbers > 544 ? 3 * f->numbers : 544;
  const sli_cpu_chunks *cpu = sli_cpu();
  make_weight(f, n, k, d);
  make_rows(rows * k, top, spread, d);
  memset(bias, 0, sizeof bias);
  multiply(cpu, SL_STORAGE_F32, w, x, rows, n, k, want);
  multiply(cpu, f->storage, lies, x, rows, n, k, got);
  double plain = error_of(want, rows, n, k), blocks = error_of(got, rows, n, k);
  CHECK(spread ? blocks <= fmax(4 * plain, 0x1p-20) : blocks <= (f->numbers > 32 ? 3 : 2) * plain,
        "%s, sizes 2^%d to 2^%d: off by %g, sums in f32 by %g", f->type, top - spread, top, blocks,
        plain);
}

/* A row with a non-finite number gives only non-finite results, and affects no other row. */
static void check_not_finite(const struct form *f, float what, rng *d) {
  const int k = 2 * f->numbers;
  make_weight(f, 20, k, d);
  make_rows(3 * k, 0, 4, d);
  multiply(sli_cpu(), f->storage, lies, x, 3, 20, k, want);
  x[k + (int)rng_below(d, (uint32_t)k)] = what;
  multiply(sli_cpu(), f->storage, lies, x, 3, 20, k, got);
  for (int c = 0; c < 20; c++) CHECK(!isfinite(got[20 + c]), "%s: column %d is finite", f->type, c);
  CHECK(!memcmp(got, want, 20 * 4) && !memcmp(got + 40, want + 40, 20 * 4), "%s: rows beside it",
        f->type);
}

static void check_numbers(rng *d) {
  static const struct {
    int top, spread;
  } sizes[] = {{0, 0}, {4, 8}, {20, 40}, {-120, 8}, {-126, 22}, {100, 60}};
  for (size_t f = 2; f < SLI_COUNT(forms); f++) {
    for (size_t i = 0; i < SLI_COUNT(sizes) && sli_storage_by_digits(forms[f].storage); i++)
      check_accuracy(&forms[f], sizes[i].top, sizes[i].spread, d);
    check_not_finite(&forms[f], INFINITY, d);
    check_not_finite(&forms[f], NAN, d);
  }
}

/* Five-bit values from -16 on, with four bits in half-bytes and the fifth in separate words; the
 * scale is 1/2. */
static void five_bits_lie_as_bytes(rng *d) {
  const sl_type values = SL_TYPE(SL_F32, 1, 32);
  unsigned char block[22] = {0x00, 0x38};
  float out[32];
  for (int i = 2; i < 22; i++) block[i] = (unsigned char)rng_below(d, 256);
  sli_storage_take(SL_STORAGE_Q8_0, "Q5_0", &values, block, lies);
  sli_storage_unpack(SL_STORAGE_Q8_0, &values, lies, out);
  for (int i = 0; i < 32; i++) {
    int four = i < 16 ? block[6 + i] & 15 : block[6 + i - 16] >> 4,
        fifth = block[2 + i / 8] >> i % 8 & 1;
    CHECK(out[i] == 0.5f * (float)((four | fifth << 4) - 16), "number %d is %g", i, (double)out[i]);
  }
}

int main(int argc, char **argv) {
  static const int64_t rows[] = {1, 2, 3, 4, 5, 7, 16, MOST_ROWS}, columns[] = {1, 6, MOST_N},
                       widths[] = {32, 544, MOST_K - 7 * 32}, wide[] = {256, 768, MOST_K};
  seeds all = seeds_of(argc, argv, 1, 1);
  rng d = {.key = all.first};
  RUN(five_bits_lie_as_bytes, &d);
  for (int i = 0; i < MOST_ROWS * MOST_K; i++) x[i] = number(&d);
  for (int i = 0; i < MOST_N; i++) bias[i] = number(&d);
  for (size_t f = 0; f < SLI_COUNT(forms); f++)
    for (size_t i = 0; i < SLI_COUNT(rows); i++) {
      const size_t width = (i + f) % SLI_COUNT(widths);
      int64_t n = columns[i % SLI_COUNT(columns)], numbers = forms[f].numbers;
      int64_t k = numbers > 32 ? wide[width] : widths[width] - (numbers == 1 ? 15 : 0);
      make_weight(&forms[f], n, k, &d);
      for (int level = 0; level <= sli_cpu_level(); level++) {
        RUN(check_form, level, &forms[f], rows[i], n, k);
        RUN(check_exact, level, &forms[f], rows[i], n, k);
        RUN(check_table, level_chunks(level), &forms[f], n, k);
      }
    }
  for (uint64_t seed = all.first; seed < all.end; seed++) RUN(check_numbers, &(rng){.key = seed});
  return 0;
}
