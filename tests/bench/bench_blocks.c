/* SPDX-License-Identifier: Apache-2.0 */
/* Compares the forward pass of block-sparse attention with that of full attention, on random
 * inputs: one sequence, 6 heads of 64. Prints one line per length:
 *
 *   positions <TAB> full, ms <TAB> choice of blocks, ms <TAB> attention to them, ms <TAB> ratio
 *
 * Times are processor time of all threads, the best of the rounds. The ratio is full attention
 * over choice plus attention to the chosen blocks.
 * Usage: bench_blocks [threads [rounds [share [length...]]]] */
#include <time.h>

#include "base/base.h"
#include "kernels/cpu/team.h"
#include "tests/support/kernel_call.h"

enum { HEADS = 6, DIM = 64 };

/* Returns the processor time of a call, which excludes the time other programs take. */
static double ms_of(kernel *k, struct sl_team *team) {
  clock_t start = clock();
  kernel_run(k, team);
  return (double)(clock() - start) * 1e3 / CLOCKS_PER_SEC;
}

static kernel make(const sl_op *op, float share, int nin, const sl_type *in, int nout) {
  kernel k = kernel_create(op, (sl_attrs){.attention.heads = HEADS, .attention.share = share}, nin,
                           in, nout);
  for (int i = 0; i < nin; i++) array_random(k.in[i], &in[i], 1);
  return k;
}

static void measure(int64_t length, float share, struct sl_team *team, int rounds) {
  sl_type row = SL_TYPE(SL_F32, 1, length, HEADS * DIM);
  const sl_type two[] = {row, row}, three[] = {row, row, row};
  kernel plain = make(&sl_op_attention, 0, 3, three, 2);
  kernel choice = make(&sl_op_choose_blocks, share, 2, two, 2);
  kernel_run(&choice, team);
  const sl_type four[] = {row, row, row, choice.out_type[0]};
  kernel blocks = make(&sl_op_attention_blocks, share, 4, four, 2);
  memcpy(blocks.in[3], choice.out[0], sl_type_bytes(&four[3]));
  kernel *all[] = {&plain, &choice, &blocks};
  double ms[3] = {INFINITY, INFINITY, INFINITY};
  for (int r = 0; r < rounds; r++)
    for (int i = 0; i < 3; i++) ms[i] = fmin(ms[i], ms_of(all[i], team));
  printf("%lld\t%.1f\t%.1f\t%.1f\t%.2f\n", (long long)length, ms[0], ms[1], ms[2],
         ms[0] / (ms[1] + ms[2]));
  kernel_destroy(&plain);
  kernel_destroy(&choice);
  kernel_destroy(&blocks);
}

int main(int argc, char **argv) {
  int threads = argc > 1 ? atoi(argv[1]) : 1, rounds = argc > 2 ? atoi(argv[2]) : 3;
  float share = argc > 3 ? (float)atof(argv[3]) : 0.1f;
  struct sl_team *team = sli_team_create(threads, NULL, NULL);
  if (argc < 5) {
    measure(8192, share, team, rounds);
    measure(32768, share, team, rounds);
  }
  for (int i = 4; i < argc; i++) measure(atoll(argv[i]), share, team, rounds);
  sli_team_destroy(team);
  return 0;
}
