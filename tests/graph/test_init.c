/* SPDX-License-Identifier: Apache-2.0 */
/* Tests initial values: Philox gives its published answers, and values have the requested
 * distribution.
 * labels: unthreaded */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <sluice/sluice.h>

#include "base/philox.h"
#include "graph/build/build.h"
#include "tests/support/test.h"

/* The known-answer vectors of the authors' implementation. */
static void philox_gives_the_known_answers(void) {
  static const struct {
    uint32_t counter[4];
    uint64_t key;
    uint32_t out[4];
  } rows[] = {
      {{0, 0, 0, 0}, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
      {{~0u, ~0u, ~0u, ~0u}, ~UINT64_C(0), {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
      {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
       UINT64_C(0x299f31d0a4093822),
       {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
  };
  for (size_t i = 0; i < SLI_COUNT(rows); i++) {
    uint32_t x[4];
    memcpy(x, rows[i].counter, sizeof x);
    sli_philox(x, rows[i].key);
    CHECK(!memcmp(x, rows[i].out, sizeof x), "known answer %zu", i);
  }
}

static float *values(int64_t n, sl_init init, const char *name, uint64_t seed) {
  sl_type type = SL_TYPE(SL_F32, n);
  float *out = calloc((size_t)n + 1, sizeof *out);
  out[n] = 42;
  sli_init_values(&type, init, name, seed, out);
  CHECK(out[n] == 42, "%lld values are written past their end", (long long)n);
  return out;
}

/* The formula written out for one element. */
static double plain_normal(const char *name, uint64_t seed, int64_t i) {
  uint64_t hash = sli_hash(SLI_HASH_SEED, name, strlen(name));
  uint32_t x[4] = {(uint32_t)(i / 4), (uint32_t)(i / 4 >> 32), (uint32_t)hash,
                   (uint32_t)(hash >> 32)};
  sli_philox(x, seed);
  const uint32_t *pair = x + i % 4 / 2 * 2;
  double radius = sqrt(-2 * log(((pair[0] >> 8) + 1) * 0x1p-24));
  double angle = 2 * M_PI * ((pair[1] >> 8) * 0x1p-24);
  return radius * (i % 2 ? sin(angle) : cos(angle));
}

static void normal_numbers_follow_the_formula(void) {
  enum { N = 100003 };
  float *out = values(N, SL_NORMAL(0.02f), "h.3.weight", 1234567);
  for (int64_t i = 0; i < N; i++) {
    double want = 0.02 * plain_normal("h.3.weight", 1234567, i);
    CHECK(fabs(out[i] - want) <= 1e-8 + 1e-6 * fabs(want), "value %d is %.9g, not %.9g", (int)i,
          (double)out[i], want);
  }
  free(out);
}

/* Values are the same for every vector length and every version of the program. */
static void bits_are_pinned(void) {
  enum { N = 1 << 20 };
  static const struct {
    sl_init init;
    uint64_t hash;
  } rows[] = {{SL_NORMAL(0.02f), UINT64_C(0xdf4d45fd90733106)},
              {SL_UNIFORM(0.3f), UINT64_C(0x9243d03bfbeaa636)}};
  for (size_t i = 0; i < SLI_COUNT(rows); i++) {
    float *out = values(N, rows[i].init, "h.3.weight", 1234567);
    uint64_t hash = sli_hash(SLI_HASH_SEED, out, N * sizeof *out);
    CHECK(hash == rows[i].hash, "row %zu has hash %#llx", i, (unsigned long long)hash);
    free(out);
  }
}

static void check_moments(const char *what, const float *x, int n, double second, double fourth) {
  double sum = 0, squares = 0, fourths = 0, neighbours = 0;
  for (int i = 0; i < n; i++) {
    double v = (double)x[i];
    sum += v, squares += v * v, fourths += v * v * v * v;
    if (i) neighbours += v * (double)x[i - 1];
  }
  double error = 5 / sqrt(n);
  CHECK(fabs(sum / n) < error, "%s: mean %g", what, sum / n);
  CHECK(fabs(squares / n / second - 1) < 2 * error, "%s: variance %g", what, squares / n);
  CHECK(fabs(fourths / n / fourth - 1) < 4 * error, "%s: fourth moment %g", what, fourths / n);
  CHECK(fabs(neighbours / n) < error, "%s: neighbours go together: %g", what, neighbours / n);
}

static void numbers_are_spread_as_asked(void) {
  enum { N = 400000 };
  float *normal = values(N, SL_NORMAL(1), "a", 1), *uniform = values(N, SL_UNIFORM(1), "a", 1);
  float *constant = values(100, SL_CONSTANT(0.5f), "a", 1);
  check_moments("normal", normal, N, 1, 3);
  check_moments("uniform", uniform, N, 1.0 / 3, 1.0 / 5);
  for (int i = 0; i < N; i++) CHECK(fabsf(uniform[i]) < 1, "uniform[%d] is out of range", i);
  for (int i = 0; i < 100; i++) CHECK(constant[i] == 0.5f, "constant[%d]", i);
  free(normal), free(uniform), free(constant);
}

static void values_depend_on_seed_name_and_index_only(void) {
  float *all = values(5000, SL_NORMAL(1), "w", 9);
  for (int64_t n = 1; n < 5000; n = n * 3 + 1) {
    float *some = values(n, SL_NORMAL(1), "w", 9);
    CHECK(!memcmp(all, some, (size_t)n * sizeof *all), "the first %d differ", (int)n);
    free(some);
  }
  float *name = values(5000, SL_NORMAL(1), "v", 9), *seed = values(5000, SL_NORMAL(1), "w", 10);
  int same = 0;
  for (int i = 0; i < 5000; i++) same += all[i] == name[i] || all[i] == seed[i];
  CHECK(same < 5, "%d values are the same for another name or seed", same);
  free(all), free(name), free(seed);
}

static void many_at_once_are_the_same(void) {
  enum { N = 5 };
  static const int64_t sizes[N] = {700000, 1, 0, 3000001, 262144};
  sl_type types[N];
  sli_init_item items[N];
  for (int i = 0; i < N; i++) {
    types[i] = SL_TYPE(SL_F32, sizes[i]);
    sl_init init = i == 4 ? SL_CONSTANT(3) : i % 2 ? SL_UNIFORM(2) : SL_NORMAL(1);
    items[i] = (sli_init_item){&types[i], init, i % 2 ? "odd" : "even",
                               calloc((size_t)sizes[i] + 1, sizeof(float))};
  }
  sli_init_all(N, items, 4);
  for (int i = 0; i < N; i++) {
    float *alone = values(sizes[i], items[i].init, items[i].name, 4);
    CHECK(!memcmp(items[i].out, alone, (size_t)sizes[i] * sizeof *alone), "item %d differs", i);
    CHECK(items[i].out[sizes[i]] == 0, "item %d is written beyond its end", i);
    free(alone), free(items[i].out);
  }
}

int main(void) {
  RUN(philox_gives_the_known_answers);
  RUN(normal_numbers_follow_the_formula);
  RUN(bits_are_pinned);
  RUN(numbers_are_spread_as_asked);
  RUN(values_depend_on_seed_name_and_index_only);
  RUN(many_at_once_are_the_same);
  return 0;
}
