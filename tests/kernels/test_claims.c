/* SPDX-License-Identifier: Apache-2.0 */
/* The result of an op depends neither on the team size nor on whether an output overwrites an input
 * where the op allows it. The bits are the same on every CPU level, in gradients too.
 * labels: random smoke */
#include <unistd.h>

#include "base/base.h"
#include "kernels/cpu/chunk.h"
#include "kernels/cpu/team.h"
#include "tests/support/claims.h"
#include "tests/support/kernel_levels.h"
#include "tests/support/seeds.h"

enum { TEAMS = 3 };
static struct sl_team *teams[TEAMS]; /* with 1, 2, 3 threads */

/* Arrays larger than a chunk, and not a whole number of vectors. */
static const math_claim large_claims[] = {
    {&sl_op_silu, ref_silu, {0}, 1, {F32(5, 7001)}, 0, 0},
    {&sl_op_rsqrt, ref_rsqrt, {0}, 1, {F32(5, 7001)}, 0, 1.5},
    {&sl_op_mul_broadcast, ref_mul_any, {0}, 2, {F32(5, 7, 1001), F32(7, 1)}, 0, 0},
    {&sl_op_reduce_sum, ref_reduce_sum, {.along.axes = 1}, 1, {F32(300, 130)}, 0, 0},
    {&sl_op_reduce_sum, ref_reduce_sum, {0}, 1, {F32(5, 7001)}, 0, 0},
    {&sl_op_softmax, ref_softmax, {.along.axes = 2}, 1, {F32(7, 130, 35)}, 0, 0},
};

static void check_same(const kernel *k, void *const *got, const char *when) {
  for (int o = 0; o < k->nout; o++)
    CHECK(!memcmp(got[o], k->out[o], sl_type_bytes(&k->out_type[o])),
          "%s: output %d differs %s (CPU level %d)", k->op->name, o, when, sli_cpu_level());
}

/* Compares with k, which holds the results of a single thread. */
static void check_teams(const kernel *k) {
  kernel c = *k;
  for (int o = 0; o < k->nout; o++) c.out[o] = array_create(&k->out_type[o]);
  for (int t = 0; t < TEAMS; t++) {
    kernel_run(&c, teams[t]);
    check_same(k, c.out, "in a team");
  }
  for (int o = 0; o < k->nout; o++) free(c.out[o]);
}

static void check_over(const kernel *k, int o, int i) {
  kernel c = *k;
  for (int p = 0; p < k->nout; p++) c.out[p] = array_create(&k->out_type[p]);
  memcpy(c.out[o], k->in[i], sl_type_bytes(&k->in_type[i]));
  c.in[i] = c.out[o];
  kernel_run(&c, teams[TEAMS - 1]);
  check_same(k, c.out, "over an input");
  for (int p = 0; p < k->nout; p++) free(c.out[p]);
}

static void check_call(kernel *k) {
  kernel_run(k, NULL);
  check_teams(k);
  for (int o = 0; o < k->nout && o < SL_IN_PLACE_OUTPUTS; o++)
    for (int i = 0; i < k->nin; i++)
      if (k->in[i] && sli_op_memory(k->op)->in_place[o] >> i & 1 &&
          sl_type_equal(&k->out_type[o], &k->in_type[i]))
        check_over(k, o, i);
}

static void check_claim(const math_claim *c) {
  kernel k = kernel_create(c->op, c->attrs, c->nin, c->in, c->op->nout);
  claim_fill(c, &k);
  check_call(&k);
  for (const sl_grad_rule *rule = c->op->grad; rule->nwrt; rule++) {
    if (!rule->op) continue;
    kernel back = claim_rule(&k, rule);
    check_call(&back);
    kernel_destroy(&back);
  }
  kernel_destroy(&k);
}

static void check_all(uint64_t seed) {
  seed_random(seed);
  for (int t = 0; t < TEAMS; t++) teams[t] = sli_team_create(t + 1, NULL, NULL);
  for (size_t i = 0; i < SLI_COUNT(math_claims); i++) check_claim(&math_claims[i]);
  for (size_t i = 0; i < SLI_COUNT(large_claims); i++) check_claim(&large_claims[i]);
  for (int t = 0; t < TEAMS; t++) sli_team_destroy(teams[t]);
}

int main(int argc, char **argv) {
  seeds s = seeds_of(argc, argv, 1, 1);
  for (uint64_t seed = s.first; seed < s.end; seed++)
    RUN_AS("check_all", on_every_level(check_all, seed));
  return 0;
}
