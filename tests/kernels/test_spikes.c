/* SPDX-License-Identifier: Apache-2.0 */
/* Spikes and int8 weights follow their formulas, with the same bits on every CPU level and for any
 * part of the rows. Spike trains decode to the integers exactly, and products by trains have the
 * bits of products by integers. Spikes of a standard Gaussian are as sparse as published.
 * labels: random unthreaded */
#include <float.h>
#include <math.h>
#include <sys/mman.h>

#include "base/base.h"
#include "ops/spikes.h"
#include "ops/storage.h"
#include "tests/support/kernel_call.h"
#include "tests/support/kernel_levels.h"
#include "tests/support/seeds.h"
#include "tests/support/spike_trains.h"

enum { MOST_ROWS = 9, MOST_WIDTH = 700 };

static kernel spikes_of(int64_t rows, int64_t width, float k) {
  sl_type type = SL_TYPE(SL_F32, rows, width);
  return kernel_create(&sl_op_spikes, (sl_attrs){.spikes.k = k}, 1, &type, 2);
}

static kernel quantize_of(int64_t rows, int64_t width) {
  sl_type type = SL_TYPE(SL_F32, rows, width);
  return kernel_create(&sl_op_quantize, (sl_attrs){0}, 1, &type, 1);
}

static double normal(void) {
  double u = (double)(random_below(1 << 24) + 1) / (1 << 24), v = (double)random_below(1 << 24);
  return sqrt(-2 * log(u)) * cos(2 * acos(-1.0) * v / (1 << 24));
}

static void fill_normal(float *x, int64_t n, double times) {
  for (int64_t i = 0; i < n; i++) x[i] = (float)(times * normal());
}

/* ---- formulas -------------------------------------------------------------------------------- */

static double threshold_of(const float *x, int64_t width, double k) {
  double sum = 0;
  for (int64_t c = 0; c < width; c++) sum += fabs((double)x[c]);
  double at = sum / (double)width / k;
  return at < 1e-5 ? 1e-5 : at > 1e4 ? 1e4 : at;
}

/* Returns whether s is x / at rounded to nearest, with the threshold known to a few units in the
 * last place. */
static bool is_nearest(double s, double x, double at) {
  return s == rint(s) && fabs(s - x / at) <= 0.5 + 4 * FLT_EPSILON * (1 + fabs(s));
}

static void check_row(const float *x, const float *y, const float *counts, int64_t width,
                      double k) {
  double at = threshold_of(x, width, k), zeros = 0, bits = 0;
  for (int64_t c = 0; c < width; c++) {
    double s = rint((double)y[c] / at);
    CHECK(fabs((double)y[c] - s * at) <= 8 * FLT_EPSILON * fabs(s * at) && is_nearest(s, x[c], at),
          "x %g, threshold %g: y %g is no nearest multiple", (double)x[c], at, (double)y[c]);
    CHECK(s || !signbit(y[c]), "a zero spike is negative");
    zeros += !s;
    bits += __builtin_popcountll((unsigned long long)train_size((int64_t)s));
  }
  CHECK(counts[0] == zeros && counts[1] == bits && counts[2] == width,
        "counts %g %g %g, should be %g %g %lld", (double)counts[0], (double)counts[1],
        (double)counts[2], zeros, bits, (long long)width);
}

static void check_spikes(void) {
  static const double sizes[] = {1, 1e-7, 1e6, 30};
  for (int i = 0; i < 24; i++) {
    int64_t rows = 1 + random_below(MOST_ROWS), width = 1 + random_below(MOST_WIDTH);
    double k = i % 3 ? 0.5 + (double)random_below(9) : 0;
    kernel call = spikes_of(rows, width, (float)k);
    fill_normal(call.in[0], rows * width, sizes[i % 4]);
    kernel_run(&call, NULL);
    for (int64_t r = 0; r < rows; r++)
      check_row((float *)call.in[0] + r * width, (float *)call.out[0] + r * width,
                (float *)call.out[1] + r * SLI_SPIKE_COUNTS, width, k ? k : 3);
    kernel_destroy(&call);
  }
}

/* mean|x| = 2, k = 2: the threshold is 1. Ties go to even numbers. */
static void check_known_row(void) {
  static const float x[] = {0.5f, 1.5f, -2.5f, 3.5f, 0.25f, -0.5f, 5.25f, 2};
  static const float y[] = {0, 2, -2, 4, 0, 0, 5, 2};
  kernel call = spikes_of(1, 8, 2);
  memcpy(call.in[0], x, sizeof x);
  kernel_run(&call, NULL);
  const float *counts = call.out[1];
  CHECK(!memcmp(call.out[0], y, sizeof y), "ties do not go to even numbers");
  CHECK(counts[0] == 3 && counts[1] == 6 && counts[2] == 8, "counts %g %g", (double)counts[0],
        (double)counts[1]);
  memset(call.in[0], 0, sizeof x);
  ((float *)call.in[0])[3] = NAN;
  kernel_run(&call, NULL);
  CHECK(isnan(((float *)call.out[0])[0]), "a NaN is hidden");
  kernel_destroy(&call);
}

static void check_group(const float *w, const float *q, int64_t n) {
  float most = 0;
  for (int64_t i = 0; i < n; i++) most = fabsf(w[i]) > most ? fabsf(w[i]) : most;
  double scale = (double)most / SLI_INT8_MOST, largest = 0;
  for (int64_t i = 0; i < n; i++) {
    double s = scale > 0 ? rint((double)q[i] / scale) : 0;
    largest = fmax(largest, fabs(s));
    CHECK(fabs((double)q[i] - s * scale) <= 4 * FLT_EPSILON * (double)most &&
              (!most || is_nearest(s, w[i], scale)),
          "weight %g of a group up to %g became %g", (double)w[i], (double)most, (double)q[i]);
  }
  CHECK(largest <= SLI_INT8_MOST && (largest == SLI_INT8_MOST || !most), "integers up to %g",
        largest);
}

/* Weights that a server rounds when loading have the op's bits. */
static void check_loaded(const kernel *call) {
  const sl_type *type = &call->in_type[0];
  CHECK(sli_storage_fits(SL_STORAGE_INT8, type), "rounded weights can lie in memory");
  void *lies = array_create(type), *values = array_create(type);
  sli_storage_pack(SL_STORAGE_INT8, type, call->in[0], lies);
  sli_storage_unpack(SL_STORAGE_INT8, type, lies, values);
  CHECK(!memcmp(lies, call->out[0], sl_type_bytes(type)) &&
            !memcmp(values, lies, sl_type_bytes(type)),
        "weights rounded when they are loaded differ");
  free(lies);
  free(values);
}

/* The last group is shorter if 128 does not divide the width. */
static void check_quantize(void) {
  static const int64_t widths[] = {128, 1, 16, 256, 129, 300};
  for (size_t i = 0; i < SLI_COUNT(widths); i++) {
    int64_t rows = 1 + random_below(MOST_ROWS), width = widths[i];
    kernel call = quantize_of(rows, width);
    float *w = call.in[0], *q = call.out[0];
    fill_normal(w, rows * width, i % 2 ? 0.02 : 1e3);
    memset(w, 0, (size_t)SLI_MIN(width, SLI_INT8_GROUP) * sizeof *w); /* a group of zeros */
    kernel_run(&call, NULL);
    for (int64_t r = 0; r < rows; r++)
      for (int64_t g = 0; g < width; g += SLI_INT8_GROUP)
        check_group(w + r * width + g, q + r * width + g, SLI_MIN(SLI_INT8_GROUP, width - g));
    check_loaded(&call);
    kernel_destroy(&call);
  }
}

/* A call on some of the rows has the same bits. */
static void check_parts(void) {
  const int64_t rows = 70, width = 333;
  kernel all[] = {spikes_of(rows, width, 3), quantize_of(rows, width)};
  for (int o = 0; o < 2; o++) {
    fill_normal(all[o].in[0], rows * width, 2);
    kernel_run(&all[o], NULL);
    for (int64_t r = 0, n; r < rows; r += n) {
      n = 1 + random_below(rows - r);
      kernel part = o ? quantize_of(n, width) : spikes_of(n, width, 3);
      memcpy(part.in[0], (float *)all[o].in[0] + r * width, (size_t)(n * width) * sizeof(float));
      kernel_run(&part, NULL);
      CHECK(!memcmp(part.out[0], (float *)all[o].out[0] + r * width,
                    (size_t)(n * width) * sizeof(float)),
            "%s: %lld rows by themselves differ", all[o].op->name, (long long)n);
      kernel_destroy(&part);
    }
    kernel_destroy(&all[o]);
  }
}

/* ---- trains ---------------------------------------------------------------------------------- */

enum { LONGEST_TRAIN = 200, NUMBERS = 300, OUTPUTS = 7 };

static void random_integers(int64_t *s, int64_t n, int64_t most, bool negative) {
  for (int64_t i = 0; i < n; i++)
    s[i] = random_below(negative ? 2 * most + 1 : most + 1) - (negative ? most : 0);
}

static void check_trains(void) {
  int64_t s[NUMBERS], back[NUMBERS];
  static int8_t train[LONGEST_TRAIN * NUMBERS];
  static const int64_t bits[][2] = {{0, 1}, {1, 1}, {2, 2}, {3, 2}, {4, 3}, {7, 3}, {8, 4}};
  for (int i = 0; i < 30; i++)
    for (train_code code = 0; code < TRAIN_CODES; code++) {
      random_integers(s, NUMBERS, 1 + random_below(LONGEST_TRAIN - 1), code != TRAIN_BINARY);
      int64_t steps = train_steps(code, s, NUMBERS);
      CHECK(steps >= 1 && steps < LONGEST_TRAIN, "%lld steps", (long long)steps);
      train_encode(code, s, NUMBERS, steps, train);
      train_decode(code, train, NUMBERS, steps, back);
      CHECK(!memcmp(s, back, sizeof s), "a train of code %d decodes to other numbers", (int)code);
    }
  for (size_t i = 0; i < SLI_COUNT(bits); i++)
    CHECK(train_steps(TRAIN_BITWISE, &bits[i][0], 1) == bits[i][1], "steps of %lld",
          (long long)bits[i][0]);
  CHECK(train_steps(TRAIN_TERNARY, (int64_t[]){-5, 3}, 2) == 5, "steps of 5");
  CHECK(train_steps(TRAIN_BINARY, (int64_t[]){-1}, 1) < 0, "no spike of 1 carries -1");
}

/* Returns an element of a product by integers, group by group in order. */
static float product_of(const int64_t *sums, const float *scales, int groups, float at) {
  float y = 0;
  for (int g = 0; g < groups; g++) y += scales[g] * (float)sums[g];
  return y * at;
}

typedef struct layer {
  kernel x, w, y;
  float at, scales[OUTPUTS][4];
  int64_t s[NUMBERS], q[OUTPUTS][NUMBERS];
} layer;

static layer layer_create(bool negative) {
  const sl_type in[] = {SL_TYPE(SL_F32, 1, NUMBERS), SL_TYPE(SL_F32, OUTPUTS, NUMBERS)};
  layer l = {.x = spikes_of(1, NUMBERS, 3), .w = quantize_of(OUTPUTS, NUMBERS)};
  l.y = kernel_create(&sl_op_linear, (sl_attrs){0}, 2, in, 1);
  float *x = l.x.in[0], *w = l.w.in[0];
  fill_normal(x, NUMBERS, 1);
  for (int i = 0; i < NUMBERS && !negative; i++) x[i] = fabsf(x[i]);
  fill_normal(w, OUTPUTS * NUMBERS, 0.02);
  kernel_run(&l.x, NULL);
  kernel_run(&l.w, NULL);
  memcpy(l.y.in[0], l.x.out[0], sl_type_bytes(&in[0]));
  memcpy(l.y.in[1], l.w.out[0], sl_type_bytes(&in[1]));
  kernel_run(&l.y, NULL);
  l.at = (float)threshold_of(x, NUMBERS, 3);
  for (int i = 0; i < NUMBERS; i++) l.s[i] = lrintf(((float *)l.x.out[0])[i] / l.at);
  for (int n = 0; n < OUTPUTS; n++)
    for (int i = 0; i < NUMBERS; i++) {
      float *scale = &l.scales[n][i / SLI_INT8_GROUP];
      if (i % SLI_INT8_GROUP == 0)
        for (int c = i; c < NUMBERS && c < i + SLI_INT8_GROUP; c++)
          *scale = fmaxf(*scale, fabsf(w[n * NUMBERS + c]) / SLI_INT8_MOST);
      l.q[n][i] = lrintf(((float *)l.w.out[0])[n * NUMBERS + i] / *scale);
    }
  return l;
}

/* Computes output n from the train: sums of weights at the spikes, step by step. */
static float from_train(const layer *l, train_code code, const int8_t *train, int64_t steps,
                        int n) {
  int64_t sums[4] = {0};
  for (int64_t t = 0; t < steps; t++)
    for (int i = 0; i < NUMBERS; i++)
      sums[i / SLI_INT8_GROUP] += train_weight(code, t) * train[t * NUMBERS + i] * l->q[n][i];
  return product_of(sums, l->scales[n], 3, l->at);
}

static float from_integers(const layer *l, int n) {
  int64_t sums[4] = {0};
  for (int i = 0; i < NUMBERS; i++) sums[i / SLI_INT8_GROUP] += l->s[i] * l->q[n][i];
  return product_of(sums, l->scales[n], 3, l->at);
}

static void check_products(void) {
  static int8_t train[LONGEST_TRAIN * NUMBERS];
  for (train_code code = 0; code < TRAIN_CODES; code++) {
    layer l = layer_create(code != TRAIN_BINARY);
    int64_t steps = train_steps(code, l.s, NUMBERS), spikes = 0;
    CHECK(steps > 0 && steps <= LONGEST_TRAIN, "%lld steps", (long long)steps);
    train_encode(code, l.s, NUMBERS, steps, train);
    for (int64_t i = 0; i < steps * NUMBERS; i++) spikes += train[i] != 0;
    CHECK(code != TRAIN_BITWISE || (float)spikes == ((float *)l.x.out[1])[1],
          "a bitwise train has %lld spikes", (long long)spikes);
    for (int n = 0; n < OUTPUTS; n++) {
      float want = from_integers(&l, n), got = from_train(&l, code, train, steps, n);
      float y = ((float *)l.y.out[0])[n];
      CHECK(!memcmp(&want, &got, sizeof got), "code %d: %a from the train, %a from integers",
            (int)code, (double)got, (double)want);
      CHECK(fabsf(y - want) <= 2e-6f * (1 + fabsf(want)), "the op's product is %g, not %g",
            (double)y, (double)want);
    }
    kernel_destroy(&l.x), kernel_destroy(&l.w), kernel_destroy(&l.y);
  }
}

/* ---- statistics ------------------------------------------------------------------------------ */

static void check_gaussian(void) {
  const int64_t rows = 64, width = 16384;
  kernel call = spikes_of(rows, width, 3);
  double sums[SLI_SPIKE_COUNTS] = {0}, small = 0, n = (double)(rows * width);
  fill_normal(call.in[0], rows * width, 1);
  kernel_run(&call, NULL);
  for (int64_t i = 0; i < rows * SLI_SPIKE_COUNTS; i++)
    sums[i % SLI_SPIKE_COUNTS] += ((float *)call.out[1])[i];
  for (int64_t r = 0; r < rows; r++) {
    double at = threshold_of((float *)call.in[0] + r * width, width, 3);
    for (int64_t c = 0; c < width; c++)
      small += fabs((double)((float *)call.out[0])[r * width + c]) < 7.5 * at;
  }
  CHECK(sums[2] == n, "%g numbers", sums[2]);
  CHECK(fabs(sums[0] / n - 0.106) < 2e-3, "%g zero, should be 10.6 %%", sums[0] / n);
  CHECK(fabs(small / n - 0.954) < 2e-3, "%g are at most 7, should be 95.4 %%", small / n);
  CHECK(fabs(sums[1] / n - 1.298) < 5e-3, "%g set bits, should be 1.298", sums[1] / n);
  kernel_destroy(&call);
}

/* ---- levels ---------------------------------------------------------------------------------- */

static uint64_t *seen; /* hash of the first level's results */

static void check_all(uint64_t seed) {
  seed_random(seed);
  check_known_row();
  check_spikes();
  check_quantize();
  check_parts();
  check_products();
  check_gaussian();
  kernel calls[] = {spikes_of(5, 517, 3), quantize_of(5, 517)};
  uint64_t hash = SLI_HASH_SEED;
  for (int o = 0; o < 2; o++) {
    fill_normal(calls[o].in[0], 5 * 517, 1);
    kernel_run(&calls[o], NULL);
    hash = sli_hash(hash, calls[o].out[0], sl_type_bytes(&calls[o].out_type[0]));
    kernel_destroy(&calls[o]);
  }
  CHECK(!*seen || *seen == hash, "level %d has other bits", sli_cpu_level());
  *seen = hash;
}

int main(int argc, char **argv) {
  seeds s = seeds_of(argc, argv, 1, 2);
  seen = mmap(NULL, sizeof *seen, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  seed_random(s.first);
  RUN(check_trains);
  for (uint64_t seed = s.first; seed < s.end; seed++, *seen = 0)
    RUN_AS("check_all", on_every_level(check_all, seed));
  return 0;
}
