/* SPDX-License-Identifier: Apache-2.0 */
/* Products with one fixed order of sums have the bits of a scalar reference. Each group of k is a
 * chain of fused products, the first starting at the bias; a binary tree adds the groups. No bit
 * depends on the number of rows or columns, the forms of the operands, the team, the chunk or the
 * CPU level, unless the level does not fuse. Products of two halves of k add up to the whole. Sums
 * of leaves are rounded and added in f64.
 * labels: computes more */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "kernels/cpu/product.h"
#include "kernels/cpu/team.h"
#include "ops/leaves.h"
#include "tests/support/kernel_call.h"
#include "tests/support/kernel_levels.h"
#include "tests/support/products.h"

enum { MOST_SLOTS = 64 };

/* Returns numbers over several powers of two, so that different orders of sums round
 * differently. */
static float number(void) {
  float x = (float)(rand() % 2000001 - 1000000) / 1000000;
  return ldexpf(x, rand() % 7 - 3);
}

static float fused(float a, float b, float sum) {
  volatile float product = a * b; /* rounded separately */
  return sli_cpu_level() ? fmaf(a, b, sum) : sum + product;
}

/* ---- the reference ------------------------------------------------------------------- */

/* Returns the group of step k. */
static int64_t group_of(const sli_product_shape *s, int64_t k) {
  int64_t groups = (s->k + s->chunk - 1) / s->chunk;
  if (!s->part[0]) return k / s->chunk;
  for (int p = 0; p < SL_PART_RANGES; k -= s->part[p++])
    if (k < s->part[p]) return k / (s->part[p] / groups);
  return -1;
}

static float element(const operands *o, int64_t row, int64_t column) {
  const sli_product_shape *s = &o->shape;
  int64_t groups = (s->k + s->chunk - 1) / s->chunk;
  float slot[MOST_SLOTS], sum = 0;
  for (int64_t g = 0; g < groups; g++) {
    int64_t left = g;
    int b = 0;
    sum = o->bias && !g ? o->bias[column] : 0;
    for (int64_t k = 0; k < s->k; k++)
      if (group_of(s, k) == g)
        sum = fused(o->a[s->a_transposed ? k * s->m + row : row * s->k + k],
                    o->b[s->b_transposed ? column * s->k + k : k * s->n + column], sum);
    for (; left & 1; left >>= 1) sum = slot[b++] + sum;
    slot[b] = sum;
    if (g + 1 == groups)
      for (; left; left >>= 1, b++)
        if (left & 1) sum = slot[b] + sum;
  }
  return s->add ? o->start[row * s->n + column] + sum : sum;
}

/* ---- products ------------------------------------------------------------------------ */

static void check_rows(const operands *o, int64_t rows, const char *how) {
  const sli_product_shape *s = &o->shape;
  for (int64_t i = 0; i < rows * s->n; i++)
    CHECK(!memcmp(&o->c[i], &o->want[i], sizeof *o->c),
          "[%lld, %lld] of %lld x %lld x %lld (%d, %d), groups of %lld, is %a %s, not %a",
          (long long)(i / s->n), (long long)(i % s->n), (long long)s->m, (long long)s->k,
          (long long)s->n, s->a_transposed, s->b_transposed, (long long)s->chunk, (double)o->c[i],
          how, (double)o->want[i]);
}

static void check_cuts(operands *o, const sli_product *p, struct sl_team *const teams[2]) {
  const sli_product_shape *s = &o->shape;
  for (int t = 0; t < 2; t++) {
    operands_start(o);
    sli_product_run(p, teams[t], s->add, o->a, o->b, o->bias, o->c, NULL);
    check_rows(o, s->m, "on a team");
  }
  operands_start(o);
  for (int i = 0; i < sli_product_chunks(p); i++)
    sli_product_run_chunk(p, s->add, o->a, o->b, o->bias, o->c, i);
  check_rows(o, s->m, "chunk by chunk");
  if (s->add) return;
  int64_t rows = 1 + rand() % s->m;
  memset(o->c, 0xff, (size_t)(s->m * s->n) * sizeof *o->c);
  sli_product_run_rows(p, teams[0], rows, o->a, o->b, o->bias, o->c, NULL);
  check_rows(o, rows, "of the first rows");
}

static sli_product *product_of(sli_product_shape shape) {
  sli_product *p;
  CHECK(!sli_product_create(&shape, &p), "%s", sl_detail());
  return p;
}

static void check(sli_product_shape shape, struct sl_team *const teams[2]) {
  operands o = operands_of(shape, number);
  sli_product *p = product_of(shape);
  for (int64_t i = 0; i < shape.m * shape.n; i++) o.want[i] = element(&o, i / shape.n, i % shape.n);
  operands_start(&o);
  sli_product_run(p, NULL, shape.add, o.a, o.b, o.bias, o.c, NULL);
  check_rows(&o, shape.m, "on a thread");
  check_cuts(&o, p, teams);
  sli_product_destroy(p);
  operands_release(&o);
}

static sli_product_shape in_form(int64_t m, int64_t n, int64_t k, int form) {
  return (sli_product_shape){.m = m,
                             .n = n,
                             .k = k,
                             .a_transposed = form & 1,
                             .b_transposed = form & 2,
                             .add = form / 4 == 1,
                             .bias = form / 4 == 2};
}

/* Sizes: less than a tile, tile edges, several blocks of each dim; groups of one step up to all. */
static void products_have_the_bits_of_the_reference(struct sl_team *const teams[2]) {
  static const int64_t sizes[][4] = {{1, 1, 1, 1},      {7, 5, 3, 2},       {13, 50, 17, 17},
                                     {29, 65, 40, 5},   {1, 100, 600, 64},  {9, 33, 512, 100},
                                     {90, 300, 9, 9},   {33, 20, 390, 390}, {15, 18, 800, 400},
                                     {6, 16, 1201, 96}, {520, 7, 20, 4}};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
    for (int form = 0; form < 12; form++) {
      sli_product_shape shape = in_form(sizes[i][0], sizes[i][1], sizes[i][2], form);
      shape.chunk = sizes[i][3];
      check(shape, teams);
    }
}

static void random_products(struct sl_team *const teams[2], int times) {
  for (int i = 0; i < times; i++) {
    sli_product_shape shape =
        in_form(1 + rand() % 70, 1 + rand() % 90, 1 + rand() % 500, rand() % 12);
    shape.chunk = 1 + rand() % shape.k;
    check(shape, teams);
  }
}

/* k consists of q|k|v with fewer keys than queries, or of gate|up. */
static void groups_have_a_share_of_each_part(struct sl_team *const teams[2]) {
  for (int groups = 1; groups <= 8; groups++)
    for (int form = 0; form < 12; form++) {
      int64_t keys = groups * (5 + form), queries = groups * (form % 2 ? 40 : 450 / groups);
      sli_product_shape shape = in_form(17, 35, queries + 2 * keys, form);
      memcpy(shape.part, (int64_t[]){queries, keys, form % 3 ? keys : 0}, sizeof shape.part);
      if (!shape.part[2]) shape.k -= keys;
      shape.chunk = shape.k / groups;
      check(shape, teams);
    }
}

/* Copies half of an operand's k: rows of a matrix [k, lines], or columns of [lines, k]. */
static void take_half(const float *from, bool rows, int64_t lines, int64_t k, int half, float *to) {
  int64_t length = k / 2;
  for (int64_t l = 0; l < lines; l++)
    for (int64_t i = 0; i < length; i++)
      to[rows ? i * lines + l : l * length + i] =
          from[rows ? (half * length + i) * lines + l : l * k + half * length + i];
}

/* Two devices with half of k each produce the sums of one device with all of k. */
static void halves_add_up(void) {
  for (int form = 0; form < 4; form++)
    for (int64_t groups = 2; groups <= 16; groups *= 2) {
      operands o = operands_of(in_form(31, 45, 24 * groups, form), number);
      o.shape.chunk = 24;
      sli_product *whole = product_of(o.shape);
      sli_product_run(whole, NULL, false, o.a, o.b, NULL, o.want, NULL);
      sli_product_destroy(whole);
      operands h[2];
      for (int i = 0; i < 2; i++) {
        sli_product_shape shape = o.shape;
        shape.k /= 2;
        h[i] = operands_of(shape, number);
        take_half(o.a, shape.a_transposed, shape.m, o.shape.k, i, h[i].a);
        take_half(o.b, !shape.b_transposed, shape.n, o.shape.k, i, h[i].b);
        sli_product *p = product_of(shape);
        sli_product_run(p, NULL, false, h[i].a, h[i].b, NULL, h[i].c, NULL);
        sli_product_destroy(p);
      }
      for (int64_t i = 0; i < o.shape.m * o.shape.n; i++) o.c[i] = h[0].c[i] + h[1].c[i];
      check_rows(&o, o.shape.m, "from halves");
      for (int i = 0; i < 2; i++) operands_release(&h[i]);
      operands_release(&o);
    }
}

/* A weight gradient over the valid rows only. */
static void the_first_steps_of_k(struct sl_team *team) {
  operands o = operands_of(in_form(40, 70, 900, 5), number);
  o.shape.chunk = o.shape.k;
  sli_product *p = product_of(o.shape);
  for (int64_t steps = 1; steps < 900; steps = steps * 3 + 1) {
    operands_start(&o);
    sli_product_run_steps(p, team, steps, true, o.a, o.b, o.c);
    operands few = o;
    few.shape.k = steps;
    for (int64_t i = 0; i < o.shape.m * o.shape.n; i++)
      o.want[i] = element(&few, i / o.shape.n, i % o.shape.n);
    check_rows(&o, o.shape.m, "over some steps");
  }
  sli_product_destroy(p);
  operands_release(&o);
}

/* ---- leaves -------------------------------------------------------------------------- */

/* Returns the sum over the leaves within the first `steps` of k. */
static double sum_of_leaves(const operands *o, int64_t steps, int64_t row, int64_t column) {
  const sli_product_shape *s = &o->shape;
  double total = 0;
  for (int64_t begin = 0; begin < steps; begin += s->chunk) {
    float sum = 0;
    for (int64_t k = begin; k < SLI_MIN(begin + s->chunk, steps); k++)
      sum = fused(o->a[s->a_transposed ? k * s->m + row : row * s->k + k],
                  o->b[s->b_transposed ? column * s->k + k : k * s->n + column], sum);
    total += sli_leaf_round(sum);
  }
  return total;
}

/* Checks some steps of k, which may end within a leaf, with and without adding to C. */
static void check_leaves(sli_product_shape shape, struct sl_team *team) {
  operands o = operands_of(shape, number);
  sli_product *p = product_of(shape);
  double *c = malloc((size_t)(shape.m * shape.n) * sizeof *c);
  int64_t steps = 1 + rand() % shape.k;
  for (int add = 0; add < 2; add++) {
    for (int64_t i = 0; i < shape.m * shape.n; i++) c[i] = add ? (double)(i % 7) : (double)NAN;
    sli_product_run_leaves(p, team, steps, add, o.a, o.b, c);
    for (int64_t i = 0; i < shape.m * shape.n; i++) {
      double want =
          sum_of_leaves(&o, steps, i / shape.n, i % shape.n) + (add ? (double)(i % 7) : 0);
      CHECK(c[i] == want, "[%lld, %lld] of %lld x %lld x %lld, leaves of %lld, is %a, not %a",
            (long long)(i / shape.n), (long long)(i % shape.n), (long long)shape.m,
            (long long)steps, (long long)shape.n, (long long)shape.chunk, c[i], want);
    }
  }
  free(c);
  sli_product_destroy(p);
  operands_release(&o);
}

static void leaves_are_rounded_and_added(struct sl_team *team, int times) {
  for (int i = 0; i < times; i++) {
    sli_product_shape shape =
        in_form(1 + rand() % 70, 1 + rand() % 90, 1 + rand() % 1500, 4 + rand() % 4);
    shape.chunk = 1 + rand() % SLI_MIN(shape.k, i % 2 ? 64 : 1000);
    check_leaves(shape, i % 3 ? team : NULL);
  }
}

static void bad_groups_are_refused(void) {
  sli_product *p;
  sli_product_shape shape = {.m = 4, .n = 4, .k = 24, .chunk = 6, .part = {12, 8, 4}};
  CHECK(!sli_product_create(&shape, &p), "%s", sl_detail());
  sli_product_destroy(p);
  shape.part[2] = 8;
  CHECK(sli_product_create(&shape, &p) == SL_E_SHAPE && strstr(sl_detail(), "12, 8 and 8"),
        "parts longer than k: %s", sl_detail());
  memcpy(shape.part, (int64_t[]){12, 6, 6}, sizeof shape.part);
  CHECK(sli_product_create(&shape, &p) == SL_E_SHAPE && strstr(sl_detail(), "groups of 6"),
        "a part that four groups do not divide: %s", sl_detail());
  shape = (sli_product_shape){.m = 4, .n = 4, .k = 24, .chunk = 6, .bf16 = true};
  CHECK(sli_product_create(&shape, &p) == SL_E_DEVICE && strstr(sl_detail(), "bf16"), "bf16: %s",
        sl_detail());
}

static void check_all(uint64_t seed) {
  struct sl_team *teams[] = {sli_team_create(2, NULL, NULL), sli_team_create(3, NULL, NULL)};
  setenv("SLUICE_CPU_FP32", "tiles", 1); /* has no effect here */
  srand((unsigned)seed);
  products_have_the_bits_of_the_reference(teams);
  random_products(teams, test_many(60, 10, 600));
  groups_have_a_share_of_each_part(teams);
  halves_add_up();
  the_first_steps_of_k(teams[0]);
  leaves_are_rounded_and_added(teams[0], test_many(30, 10, 300));
  bad_groups_are_refused();
  for (int t = 0; t < 2; t++) sli_team_destroy(teams[t]);
}

int main(void) {
  RUN_AS("check_all", on_every_level(check_all, 1));
  return 0;
}
