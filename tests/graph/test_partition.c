/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that the cut into stages is the best one, by trying all cuts.
 * labels: random unthreaded */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <sluice/sluice.h>

#include "base/philox.h"
#include "graph/passes/passes.h"
#include "tests/support/seeds.h"
#include "tests/support/test.h"

static uint32_t rng_below(uint64_t seed, uint32_t *count, uint32_t sides) {
  uint32_t words[4] = {(*count)++};
  sli_philox(words, seed);
  return words[0] % sides;
}

/* An op with its cost in its attributes, so that it keeps blocks alive. */
static sl_status any(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)attrs, (void)nin, (void)in;
  out[0] = SL_TYPE(SL_F32, 1);
  return SL_OK;
}
static void cost(const sl_attrs *attrs, int nin, const sl_type *in, const sl_type *out,
                 double *flops, double *bytes) {
  (void)nin, (void)in, (void)out;
  *flops = (double)attrs->fill.value * 5e10;
  *bytes = 0;
}
static const sl_op work = {
    .name = "work", .max_in = 1, .nout = 1, .infer = any, .cost = cost, .attrs = {&sl_attrs_fill}};

/* Blocks b0, b1, ... with the given costs; stages[b] >= 0 forces the stage from block b on. */
static sl_graph *chain(int n, const float *costs, const int *stages) {
  sl_graph *g = sl_graph_create(&(sl_graph_options){.infer = true});
  CHECK(sl_graph_infer(g), "a model asks whether it is built for inference");
  sl_tensor *x = NULL;
  for (int b = 0; b < n; b++) {
    sl_block(g, "b%d", b);
    if (stages && stages[b] >= 0) sl_block_stage(g, stages[b]);
    sl_apply(g, &work, &(sl_attrs){.fill.value = costs[b]}, b > 0, &x, 0, &x);
  }
  sl_output(g, "x", x);
  CHECK(!sli_pass_outputs(g), "%s", sl_detail());
  return g;
}

static double price(int n, const float *costs, int stages, const int *of, double *squares) {
  double max = 0;
  *squares = 0;
  for (int s = 0; s < stages; s++) {
    double sum = 0;
    for (int b = 0; b < n; b++)
      if (of[b] == s) sum += (double)costs[b];
    max = SLI_MAX(max, sum);
    *squares += sum * sum;
  }
  return max;
}

static bool legal(int n, int stages, const int *of, const int *forced) {
  if (of[0] != 0 || of[n - 1] != stages - 1) return false;
  for (int b = 0; b < n; b++) {
    if (b && (of[b] < of[b - 1] || of[b] > of[b - 1] + 1)) return false;
    if (forced[b] >= 0 && of[b] != forced[b]) return false;
  }
  return true;
}

/* Tries every set of cut positions. Returns the number of legal cuts. */
static int brute(int n, const float *costs, int stages, const int *forced, double *max,
                 double *squares) {
  int found = 0;
  *max = *squares = INFINITY;
  for (int cuts = 0; cuts < 1 << (n - 1); cuts++) {
    int of[16] = {0};
    for (int b = 1; b < n; b++) of[b] = of[b - 1] + (cuts >> (b - 1) & 1);
    if (!legal(n, stages, of, forced)) continue;
    found++;
    double q, m = price(n, costs, stages, of, &q);
    if (m < *max - 1e-9 || (m < *max + 1e-9 && q < *squares)) *max = m, *squares = q;
  }
  return found;
}

static void the_cut_is_the_best(seeds s) {
  for (uint64_t seed = s.first; seed < s.end; seed++) {
    uint32_t count = 0;
    int n = 1 + (int)rng_below(seed, &count, 11),
        stages = 1 + (int)rng_below(seed, &count, (uint32_t)n);
    float costs[16];
    int given[16], forced[16], of[16];
    bool force = rng_below(seed, &count, 3) == 0;
    for (int b = 0; b < n; b++) {
      costs[b] = (float)(1 + rng_below(seed, &count, 9));
      given[b] = -1;
    }
    int from = (int)rng_below(seed, &count, (uint32_t)n);
    if (force) given[from] = (int)rng_below(seed, &count, (uint32_t)stages);
    for (int b = 0; b < n; b++) forced[b] = force && b >= from ? given[from] : -1;
    sl_graph *g = chain(n, costs, given);
    double max, squares, found_squares;
    int cuts = brute(n, costs, stages, forced, &max, &squares);
    sl_status status = sli_pass_partition(g, NULL, stages, of);
    CHECK(!status == (cuts > 0), "seed %d: status %d, but %d cuts are legal", (int)seed, status,
          cuts);
    if (!status) {
      CHECK(legal(n, stages, of, forced), "seed %d: the cut is not legal", (int)seed);
      double found = price(n, costs, stages, of, &found_squares);
      CHECK(fabs(found - max) < 1e-6, "seed %d: largest stage %g, best %g", (int)seed, found, max);
      CHECK(found_squares < squares + 1e-3, "seed %d: squares %g, best %g", (int)seed,
            found_squares, squares);
    }
    sl_graph_destroy(g);
  }
}

static void more_stages_than_blocks_are_refused(void) {
  float costs[16];
  int of[32];
  for (int b = 0; b < 16; b++) costs[b] = 1;
  sl_graph *g = chain(3, costs, NULL);
  CHECK(sli_pass_partition(g, NULL, 4, of) == SL_E_USAGE, "4 stages of 3 blocks");
  CHECK(!strcmp(sl_detail(), "4 stages asked for, but the model has only 3 blocks (b0, b1, b2)"),
        "%s", sl_detail());
  CHECK(sli_pass_partition(g, NULL, 0, of) == SL_E_USAGE, "no stages");
  sl_graph_destroy(g);
  g = chain(16, costs, NULL);
  CHECK(sli_pass_partition(g, NULL, 17, of) == SL_E_USAGE, "17 stages of 16 blocks");
  CHECK(strstr(sl_detail(), "(b0, b1, b2, b3, ..., b15)"), "%s", sl_detail());
  sl_graph_destroy(g);
}

static void forced_stages_must_exist(void) {
  float costs[] = {1, 1, 1};
  int given[] = {0, 5, -1}, of[3];
  sl_graph *g = chain(3, costs, given);
  CHECK(sli_pass_partition(g, NULL, 2, of) == SL_E_USAGE, "stage 5 of 2");
  CHECK(strstr(sl_detail(), "block b1 on stage 5, but there are 2 stages"), "%s", sl_detail());
  sl_graph_destroy(g);
  g = chain(3, costs, (int[]){0, 1, -1});
  CHECK(!sli_pass_partition(g, NULL, 2, of) && of[0] == 0 && of[1] == 1 && of[2] == 1,
        "the next blocks follow a forced one");
  CHECK(sli_pass_partition(g, NULL, 3, of) == SL_E_USAGE, "stage 2 is left empty");
  CHECK(strstr(sl_detail(), "without a block"), "%s", sl_detail());
  sl_graph_destroy(g);
}

int main(int argc, char **argv) {
  RUN(the_cut_is_the_best, seeds_of(argc, argv, 0, 400));
  RUN(more_stages_than_blocks_are_refused);
  RUN(forced_stages_must_exist);
  return 0;
}
