/* SPDX-License-Identifier: Apache-2.0 */
/* f32 matrix products match the sums of their definition for any layout of the operands. Teams of
 * any size, single chunks and concurrent threads give the same bits. On every CPU level this holds
 * for the level's library and for the project's kernel. On the best level it also holds for tiles,
 * which that level can emulate (test_split.c shows that all levels multiply alike on tiles).
 * labels: computes more */
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/product.h"
#include "kernels/cpu/team.h"
#include "tests/support/kernel_call.h"
#include "tests/support/kernel_levels.h"
#include "tests/support/products.h"

static float number(void) { return (float)(rand() % 2001 - 1000) / 1000; }

static double summed(const operands *o, int64_t row, int64_t column) {
  const sli_product_shape *s = &o->shape;
  double sum = s->add ? o->start[row * s->n + column] : 0;
  for (int64_t k = 0; k < s->k; k++)
    sum += (double)o->a[s->a_transposed ? k * s->m + row : row * s->k + k] *
           o->b[s->b_transposed ? column * s->k + k : k * s->n + column];
  return sum + (o->bias ? o->bias[column] : 0);
}

/* Checks every row, and some of its columns. */
static void check_sums(const operands *o) {
  const sli_product_shape *s = &o->shape;
  for (int64_t row = 0; row < s->m; row++)
    for (int64_t column = row % 7; column < s->n; column += 7) {
      double want = summed(o, row, column), got = o->want[row * s->n + column];
      CHECK(fabs(got - want) < 1e-6 * (double)(s->k + 16),
            "[%lld, %lld] of %lld x %lld x %lld (%d, %d) is %g, not %g", (long long)row,
            (long long)column, (long long)s->m, (long long)s->k, (long long)s->n, s->a_transposed,
            s->b_transposed, got, want);
    }
}

static void check_same(const operands *o, const char *how) {
  const sli_product_shape *s = &o->shape;
  CHECK(!memcmp(o->c, o->want, (size_t)(s->m * s->n) * sizeof *o->c),
        "%lld x %lld x %lld %s has other bits", (long long)s->m, (long long)s->k, (long long)s->n,
        how);
}

static void check_cuts(operands *o, const sli_product *p, struct sl_team *const *teams,
                       int nteams) {
  const sli_product_shape *s = &o->shape;
  for (int t = 0; t < nteams; t++) {
    operands_start(o);
    sli_product_run(p, teams[t], s->add, o->a, o->b, o->bias, o->c, NULL);
    check_same(o, "on a team");
  }
  operands_start(o);
  for (int i = 0; i < sli_product_chunks(p); i++)
    sli_product_run_chunk(p, s->add, o->a, o->b, o->bias, o->c, i);
  check_same(o, "chunk by chunk");
}

static void check(sli_product_shape shape, struct sl_team *const *teams, int nteams) {
  operands o = operands_of(shape, number);
  sli_product *p;
  CHECK(!sli_product_create(&shape, &p), "%s", sl_detail());
  memcpy(o.want, o.start, (size_t)(shape.m * shape.n) * sizeof *o.want);
  sli_product_run(p, NULL, shape.add, o.a, o.b, o.bias, o.want, NULL);
  check_sums(&o);
  check_cuts(&o, p, teams, nteams);
  sli_product_destroy(p);
  operands_release(&o);
}

/* Sizes: less than a tile, tile edges, several blocks; sums of one stretch and of several. */
static void products_are_sums(struct sl_team *const *teams, int nteams) {
  static const int64_t sizes[][3] = {{1, 1, 1},      {7, 5, 3},     {8, 48, 16},    {13, 50, 17},
                                     {1, 100, 600},  {9, 33, 512},  {270, 47, 20},  {40, 300, 9},
                                     {263, 97, 530}, {515, 20, 64}, {90, 1100, 40}, {70, 30, 1100}};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
    for (int form = 0; form < 12; form++)
      check((sli_product_shape){.m = sizes[i][0],
                                .n = sizes[i][1],
                                .k = sizes[i][2],
                                .a_transposed = form & 1,
                                .b_transposed = form & 2,
                                .add = form / 4 == 1,
                                .bias = form / 4 == 0},
            teams, nteams);
}

/* ---- concurrent threads ---------------------------------------------------------------------- */

enum { THREADS = 4 };

typedef struct worker {
  const sli_product *product;
  const operands *o;
  int times;
  pthread_t thread;
} worker;

static void *multiply(void *arg) {
  const worker *w = arg;
  const operands *o = w->o;
  size_t bytes = (size_t)(o->shape.m * o->shape.n) * sizeof(float);
  float *c = malloc(bytes);
  for (int i = 0; i < w->times; i++) {
    memset(c, 0xff, bytes);
    sli_product_run(w->product, NULL, false, o->a, o->b, NULL, c, NULL);
    CHECK(!memcmp(c, o->want, bytes),
          "%lld x %lld x %lld gives other numbers while other threads multiply",
          (long long)o->shape.m, (long long)o->shape.k, (long long)o->shape.n);
  }
  free(c);
  return NULL;
}

static void threads_do_not_disturb_each_other(int times) {
  worker w[THREADS];
  operands o[THREADS];
  for (int t = 0; t < THREADS; t++) {
    sli_product *product;
    o[t] = operands_of(
        (sli_product_shape){
            .m = 15 + 7 * t, .n = 29 - 5 * t, .k = 18 + 9 * t, .a_transposed = t % 2},
        number);
    CHECK(!sli_product_create(&o[t].shape, &product), "%s", sl_detail());
    sli_product_run(product, NULL, false, o[t].a, o[t].b, NULL, o[t].want, NULL);
    w[t] = (worker){.product = product, .o = &o[t], .times = times};
  }
  for (int t = 0; t < THREADS; t++)
    CHECK(!pthread_create(&w[t].thread, NULL, multiply, &w[t]), "a thread");
  for (int t = 0; t < THREADS; t++) {
    pthread_join(w[t].thread, NULL);
    sli_product_destroy((sli_product *)w[t].product);
    operands_release(&o[t]);
  }
}

static void check_all(uint64_t seed) {
  struct sl_team *teams[] = {sli_team_create(2, NULL, NULL), sli_team_create(3, NULL, NULL)};
  bool best = atoi(getenv("SLUICE_CPU_LEVEL")) == best_level();
  static const char *const ways[] = {"library", "own", "tiles"};
  for (int way = 0; way < 2 + best; way++) {
    setenv("SLUICE_CPU_FP32", ways[way], 1);
    srand((unsigned)seed);
    products_are_sums(teams, 2);
    int times = way ? 100 : test_many(2000, 200, 2000); /* the library needs the most rounds */
    threads_do_not_disturb_each_other(times);
  }
  for (int t = 0; t < 2; t++) sli_team_destroy(teams[t]);
}

int main(void) {
  RUN_AS("check_all", on_every_level(check_all, 1));
  return 0;
}
