/* SPDX-License-Identifier: Apache-2.0 */
/* Weights in planes: the example of the definition, digit by digit; for random matrices of odd
 * sizes, each further plane gives what the definition says, computed apart, and errs less.
 * labels: unthreaded random */
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "ops/planes.h"
#include "ops/storage.h"
#include "tests/support/kernel_call.h"
#include "tests/support/seeds.h"
#include "tests/support/test.h"

static void unpack(const sl_type *matrix, const char *packed, int base, int width, float *out) {
  const void *planes[SLI_PLANES_MOST];
  for (int p = 0; p < width; p++) planes[p] = packed + (size_t)p * sli_plane_bytes(matrix);
  sli_planes_unpack(planes, base, width, matrix->dim[1], 0, matrix->dim[0], out);
}

static double error_of(const float *w, const float *v, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++) sum += ((double)w[i] - v[i]) * ((double)w[i] - v[i]);
  return sum;
}

static void the_example_comes_out(void) {
  const sl_type matrix = SL_TYPE(SL_F32, 1, 6);
  const float w[] = {.9f, -.4f, .1f, -1.1f, .6f, -.2f};
  const double errors[] = {.2344444, .0327778, .0061111, .0014815};
  const float steps[] = {.1833333f, .0666667f, .0277778f}, s = .6666667f;
  const int q[] = {3, 1, 2, 0, 3, 2},
            signs[3][6] = {{1, 1, 1, 1, -1, -1}, {1, 1, -1, 1, 1, -1}, {-1, 1, -1, -1, 1, 1}};
  char packed[5 * 8];
  float v[6], want[6];
  CHECK(sli_plane_bytes(&matrix) == 8, "a plane has %zu bytes", sli_plane_bytes(&matrix));
  sli_planes_pack(&matrix, 2, 5, w, packed);
  for (int i = 0; i < 6; i++) want[i] = (float)(q[i] - 2) * s;
  for (int n = 0; n < 4; n++) {
    for (int i = 0; i < 6 && n; i++) want[i] += steps[n - 1] * (float)signs[n - 1][i];
    unpack(&matrix, packed, 2, 2 + n, v);
    for (int i = 0; i < 6; i++)
      CHECK(fabsf(v[i] - want[i]) < 3e-7f, "width %d: number %d is %g, not %g", 2 + n, i, v[i],
            want[i]);
    CHECK(fabs(error_of(w, v, 6) - errors[n]) < 6e-8, "width %d errs by %.7f", 2 + n,
          error_of(w, v, 6));
  }
}

/* Computes a group by the definition, in place of what the planes so far stand for. */
static void next_width(const float *w, int64_t n, int width, int base, float *v) {
  float least = w[0], most = w[0], top = (float)((1 << base) - 1);
  for (int64_t i = 1; i < n; i++) least = fminf(least, w[i]), most = fmaxf(most, w[i]);
  float s = (most - least) / top, z = s > 0 ? rintf(-least / s) : 0;
  double sum = 0;
  for (int64_t i = 0; i < n; i++) sum += fabsf(w[i] - v[i]);
  for (int64_t i = 0; i < n; i++)
    if (width > base)
      v[i] += w[i] - v[i] >= 0 ? (float)(sum / (double)n) : -(float)(sum / (double)n);
    else v[i] = s > 0 ? (fminf(fmaxf(rintf(w[i] / s + z), 0), top) - z) * s : w[i];
}

static void check_random(uint64_t seed) {
  srand((unsigned)seed);
  int base = 2 + rand() % 3, most = base + rand() % (SLI_PLANES_MOST - base + 1);
  const sl_type matrix = SL_TYPE(SL_F32, 1 + rand() % 5, 1 + rand() % 300);
  int64_t k = matrix.dim[1], n = sl_type_elements(&matrix);
  float *w = sli_calloc((size_t)n, sizeof *w), *v = sli_calloc((size_t)n, sizeof *v),
        *got = sli_calloc((size_t)n, sizeof *got);
  for (int64_t i = 0; i < n; i++) w[i] = (float)rand() / (float)RAND_MAX - .3f;
  for (int64_t i = 0; i < k && seed % 3 == 0; i++) w[i] = seed % 2 ? -.7f : 0; /* an even row */
  char *packed = sli_calloc((size_t)most, sli_plane_bytes(&matrix));
  sli_planes_pack(&matrix, base, most, w, packed);
  double before = INFINITY;
  for (int width = base; width <= most; width++) {
    for (int64_t r = 0; r < matrix.dim[0]; r++)
      for (int64_t at = 0; at < k; at += SLI_PLANE_GROUP)
        next_width(w + r * k + at, SLI_MIN(k - at, SLI_PLANE_GROUP), width, base, v + r * k + at);
    unpack(&matrix, packed, base, width, got);
    CHECK(!memcmp(v, got, (size_t)n * sizeof *v), "base %d, width %d of %lld by %lld", base, width,
          (long long)matrix.dim[0], (long long)k);
    CHECK(error_of(w, got, n) <= before, "width %d errs more", width);
    before = error_of(w, got, n);
  }
  free(w);
  free(v);
  free(got);
  free(packed);
}

static void widths_follow_the_definition(seeds s) {
  for (uint64_t seed = s.first; seed < s.end; seed++) check_random(seed);
}

/* The storage format of all experts' matrices packs and unpacks each. */
static void experts_have_a_format(void) {
  const sl_type values = SL_TYPE(SL_F32, 3, 5, 70), one = SL_TYPE(SL_F32, 5, 70);
  sl_storage storage = sli_storage_planes(2, 4);
  sl_type stored = sli_storage_type(storage, &values);
  float w[3 * 5 * 70], all[3 * 5 * 70], each[5 * 70];
  char *packed = sli_calloc(1, sl_type_bytes(&stored));
  for (int i = 0; i < 3 * 5 * 70; i++) w[i] = sinf((float)i);
  sli_storage_pack(storage, &values, w, packed);
  sli_storage_unpack(storage, &values, packed, all);
  for (int e = 0; e < 3; e++) {
    unpack(&one, packed + (size_t)e * 4 * sli_plane_bytes(&one), 2, 4, each);
    CHECK(!memcmp(each, all + (size_t)e * 5 * 70, sizeof each), "expert %d differs", e);
  }
  free(packed);
}

/* The op of training gives the numbers of a server's planes. */
static void training_computes_the_same(void) {
  const sl_type values = SL_TYPE(SL_F32, 3, 5, 300), one = SL_TYPE(SL_F32, 15, 300);
  kernel k = kernel_create(&sl_op_plane_values, (sl_attrs){.planes.base = 2, .planes.width = 4}, 1,
                           &values, 1);
  float *w = (float *)k.in[0], *want = sli_calloc(15 * 300, sizeof *want);
  for (int i = 0; i < 15 * 300; i++) w[i] = sinf((float)(i * i));
  char *packed = sli_calloc(4, sli_plane_bytes(&one));
  sli_planes_pack(&one, 2, 4, w, packed);
  unpack(&one, packed, 2, 4, want);
  kernel_run(&k, NULL);
  CHECK(!memcmp(want, k.out[0], 15 * 300 * sizeof *want), "other numbers");
  kernel_destroy(&k);
  free(packed);
  free(want);
}

int main(int argc, char **argv) {
  seeds s = seeds_of(argc, argv, 1, 200);
  RUN(the_example_comes_out);
  RUN(widths_follow_the_definition, s);
  RUN(experts_have_a_format);
  RUN(training_computes_the_same);
  return 0;
}
