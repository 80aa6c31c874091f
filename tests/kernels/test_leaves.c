/* SPDX-License-Identifier: Apache-2.0 */
/* Exact gradients of expert weights equal, bit for bit, sums over leaves by a scalar reference. It
 * adds rows of one leaf and one expert in order, in tiles, and rounds each leaf's sum to a multiple
 * of 2^-40. Rows that arrive at a device in another order, with their leaf numbers, give the same
 * sums, and sums of several devices add up to those of one. Leaf numbers follow the positions of
 * the ids in the whole array.
 * labels: random unthreaded */
#include <math.h>
#include <string.h>

#include <sluice/experts.h>

#include "kernels/cpu/chunk.h"
#include "kernels/cpu/kernels.h"
#include "ops/leaves.h"
#include "tests/support/kernel_call.h"
#include "tests/support/seeds.h"

enum {
  B = 3,
  T = 96,
  LEAF = 32,
  K = 2,
  EXPERTS = 5,
  N = 7,
  WIDTH = 11,
  ROWS = B * T * K,
  TILE = 64
};

typedef struct rows {
  int64_t count;
  int32_t ids[ROWS], leaves[ROWS];
  float x[ROWS][WIDTH], dy[ROWS][N];
} rows;

static float number(void) {
  return ldexpf((float)random_below(1 << 20) / (1 << 20) - 0.5f, (int)random_below(5));
}

/* Makes a row for each place of [B, T, K]; expert 4 gets none, and some rows have no expert. */
static void make(rows *r, int64_t leaf) {
  r->count = ROWS;
  for (int64_t i = 0; i < ROWS; i++) {
    r->ids[i] = (int32_t)random_below(EXPERTS) - 1;
    r->leaves[i] = (int32_t)(i / (leaf * K));
    for (int c = 0; c < WIDTH; c++) r->x[i][c] = number();
    for (int c = 0; c < N; c++) r->dy[i][c] = number();
  }
}

static float fused(float a, float b, float sum) {
  volatile float product = a * b; /* rounded separately */
  return sli_cpu_level() ? fmaf(a, b, sum) : sum + product;
}

/* ---- the reference ------------------------------------------------------------------- */

/* Returns the sum over a leaf's rows of one expert, for one element of the gradient. */
static float leaf_sum(const rows *r, int32_t leaf, int32_t expert, int n, int c) {
  float sum = 0, tile = 0;
  int64_t seen = 0;
  for (int64_t i = 0; i < r->count; i++) {
    if (r->leaves[i] != leaf || r->ids[i] != expert) continue;
    if (seen && seen % TILE == 0) sum += tile, tile = 0;
    tile = fused(r->dy[i][n], r->x[i][c], tile);
    seen++;
  }
  return sum + tile;
}

static double reference(const rows *r, int32_t expert, int n, int c) {
  double sum = 0;
  for (int32_t leaf = 0; leaf < B * T; leaf++)
    sum += sli_leaf_round(leaf_sum(r, leaf, expert, n, c));
  return sum;
}

/* ---- calls --------------------------------------------------------------------------- */

/* Runs the op on rows [b, t, k]; dw has the experts from `first` on. With `arrived`, the leaves are
 * an input. */
static void run(const rows *r, sl_type ids, int64_t leaf, int first, int experts, bool arrived,
                double *dw) {
  sl_type x = ids, dy = ids;
  x.dtype = dy.dtype = SL_F32;
  x.dim[x.ndim++] = WIDTH, dy.dim[dy.ndim++] = N;
  sl_type types[] = {x, ids, dy, SL_TYPE(SL_F32, experts, N, WIDTH), ids};
  sl_attrs attrs = {.numbers.exact = true,
                    .numbers.leaves = 7,
                    .numbers.positions = leaf < T ? 7 : 0,
                    .numbers.leaf = leaf < T ? leaf : 0,
                    .place.first = first,
                    .place.partial = true,
                    .place.whole = EXPERTS};
  kernel k = kernel_create(&sl_op_grouped_linear_w, attrs, arrived ? 5 : 4, types, 1);
  free(k.out[0]);
  k.out_type[0].dtype = SL_F64;
  k.out[0] = array_create(&k.out_type[0]);
  memcpy(k.in[0], r->x, sl_type_bytes(&x));
  memcpy(k.in[1], r->ids, sl_type_bytes(&ids));
  memcpy(k.in[2], r->dy, sl_type_bytes(&dy));
  if (arrived) memcpy(k.in[4], r->leaves, sl_type_bytes(&ids));
  kernel_run(&k, NULL);
  memcpy(dw, k.out[0], sl_type_bytes(&k.out_type[0]));
  kernel_destroy(&k);
}

static void check(const rows *r, const double *dw, int first, int experts, const char *what) {
  for (int e = 0; e < experts; e++)
    for (int n = 0; n < N; n++)
      for (int c = 0; c < WIDTH; c++) {
        double got = dw[(e * N + n) * WIDTH + c], want = reference(r, first + e, n, c);
        CHECK(got == want, "%s: expert %d [%d, %d] is %a, not %a", what, first + e, n, c, got,
              want);
      }
}

/* ---- rows that arrive at a device -------------------------------------------------------- */

/* Collects the rows of some experts from parts of the whole, one part after another, with their
 * leaves. */
static void arrive(const rows *r, const sl_region *const *of, int sources, int64_t leaf, int first,
                   int experts, rows *out) {
  sl_dispatch_leaves l = {
      .to = {.type = SL_TYPE(SL_I32, 1, ROWS, 1), .first = first, .count = experts},
      .sources = sources,
      .regions = of,
      .leaf = leaf * K};
  sl_type all = SL_TYPE(SL_I32, ROWS);
  kernel k = kernel_create(&sl_op_own_leaves, (sl_attrs){.user = &l}, 1, &all, 1);
  int64_t at = 0, n = 0;
  for (int s = 0; s < sources; s++)
    for (int64_t b = 0; b < of[s]->parts[0].count[0]; b++)
      for (int64_t t = 0; t < of[s]->parts[1].count[0]; t++)
        for (int64_t j = 0; j < K; j++, at++) {
          int64_t place =
              ((of[s]->parts[0].begin[0] + b) * T + of[s]->parts[1].begin[0] + t) * K + j;
          ((int32_t *)k.in[0])[at] = r->ids[place];
          if (r->ids[place] < first || r->ids[place] >= first + experts) continue;
          out->ids[n] = r->ids[place];
          memcpy(out->x[n], r->x[place], sizeof out->x[n]);
          memcpy(out->dy[n], r->dy[place], sizeof out->dy[n]);
          out->leaves[n++] = r->leaves[place];
        }
  CHECK(at == ROWS, "the parts are no whole");
  kernel_run(&k, NULL);
  for (int64_t i = 0; i < n; i++)
    CHECK(((int32_t *)k.out[0])[i] == out->leaves[i], "row %lld is of leaf %d, not %d",
          (long long)i, ((int32_t *)k.out[0])[i], out->leaves[i]);
  out->count = n;
  kernel_destroy(&k);
}

static sl_region part(int64_t row, int64_t rows, int64_t position, int64_t positions) {
  return (sl_region){.ndim = 3,
                     .whole = {B, T, K},
                     .parts = {{0, 1, {row}, {rows}}, {1, 1, {position}, {positions}}}};
}

/* Devices split rows (with `along` 0) or positions. */
static void check_devices(const rows *r, int64_t leaf, int along) {
  int64_t cut = along ? T / 3 : 1;
  sl_region of[2] = {part(0, along ? B : cut, 0, along ? cut : T),
                     along ? part(0, B, cut, T - cut) : part(cut, B - cut, 0, T)};
  const sl_region *both[] = {&of[0], &of[1]};
  static rows here;
  for (int first = 0; first < EXPERTS; first += 2) {
    int experts = first + 2 > EXPERTS ? 1 : 2;
    double dw[2 * N * WIDTH];
    arrive(r, both, 2, leaf, first, experts, &here);
    if (!here.count) continue;
    run(&here, SL_TYPE(SL_I32, 1, here.count, 1), leaf, first, experts, true, dw);
    check(r, dw, first, experts, along ? "positions of two devices" : "rows of two devices");
  }
}

static void check_all(int64_t leaf) {
  static rows r;
  double dw[EXPERTS * N * WIDTH];
  make(&r, leaf);
  run(&r, SL_TYPE(SL_I32, B, T, K), leaf, 0, EXPERTS, false, dw);
  check(&r, dw, 0, EXPERTS, "one device");
  check_devices(&r, leaf, 0);
  check_devices(&r, leaf, 1);
}

int main(int argc, char **argv) {
  seeds s = seeds_of(argc, argv, 1, 3);
  for (uint64_t seed = s.first; seed < s.end; seed++) {
    seed_random(seed);
    RUN(check_all, T);
    RUN(check_all, LEAF);
  }
  return 0;
}
