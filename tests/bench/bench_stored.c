/* SPDX-License-Identifier: Apache-2.0 */
/* Compares products of served graphs by the storage format of their weights, on one thread, with
 * the same random input of each number of rows. Prints one line per format and number of rows:
 *
 *   format <TAB> rows <TAB> products per second, 1e9 <TAB> its time over that of Q4_1
 *
 * Times are processor time, the best of the rounds, which take turns.
 * Usage: bench_stored [rounds [columns [width]]] */
#include <math.h>
#include <time.h>

#include "ops/ops.h"
#include "tests/support/kernel_call.h"
#include "tests/support/stored_weight.h"

static const int rows[] = {1, 4, 16, 256};

typedef struct product {
  const struct form *form;
  kernel call;
  double best[SLI_COUNT(rows)];
} product;

static double seconds_of(kernel *k, int32_t count, void *scratch) {
  const int32_t in_rows[] = {count, -1, -1, -1, -1};
  sl_call call = kernel_call(k, NULL);
  clock_t start = clock();
  int times = 0;
  call.in_rows = in_rows;
  call.scratch = scratch;
  while (clock() - start < CLOCKS_PER_SEC / 50) k->kernel->run(&call), times++;
  return (double)(clock() - start) / CLOCKS_PER_SEC / times;
}

static product make(const struct form *f, int64_t n, int64_t k) {
  const sl_type none = {.ndim = -1};
  weight w = make_weight(f, n, k);
  const sl_type in[] = {SL_TYPE(SL_F32, 1, rows[SLI_COUNT(rows) - 1], k), w.lies, none, none,
                        SL_TYPE(SL_I32, 8)};
  product p = {f, kernel_create(&sl_op_linear_served, attrs_of(&w, false), 5, in, 1), {0}};
  array_random(p.call.in[0], &in[0], 0);
  memcpy(p.call.in[1], w.stored, sl_type_bytes(&w.lies));
  for (size_t i = 0; i < SLI_COUNT(rows); i++) p.best[i] = INFINITY;
  free_weight(&w);
  return p;
}

int main(int argc, char **argv) {
  int rounds = argc > 1 ? atoi(argv[1]) : 5, count = 0, first = 0;
  int64_t n = argc > 2 ? atoll(argv[2]) : 2048, k = argc > 3 ? atoll(argv[3]) : 2048;
  product all[SLI_COUNT(forms)];
  for (size_t f = 0; f < SLI_COUNT(forms); f++) {
    if (!strcmp(forms[f].type, "Q4_1")) first = count;
    all[count++] = make(&forms[f], n, k);
  }
  sl_call call = kernel_call(&all[first].call, NULL);
  void *scratch = aligned_alloc(64, (all[first].call.kernel->scratch(&call, 1) + 64) / 64 * 64);
  for (int r = 0; r < rounds; r++)
    for (size_t i = 0; i < SLI_COUNT(rows); i++)
      for (int f = 0; f < count; f++)
        all[f].best[i] = fmin(all[f].best[i], seconds_of(&all[f].call, rows[i], scratch));
  for (int f = 0; f < count; f++)
    for (size_t i = 0; i < SLI_COUNT(rows); i++)
      printf("%s\t%d\t%.1f\t%.2f\n", all[f].form->type, rows[i],
             (double)(rows[i] * n * k) / all[f].best[i] * 1e-9,
             all[f].best[i] / all[first].best[i]);
  for (int f = 0; f < count; f++) kernel_destroy(&all[f].call);
  free(scratch);
  return 0;
}
