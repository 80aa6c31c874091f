/* SPDX-License-Identifier: Apache-2.0 */
/* An op that allows an output to overwrite an input gives the same bits there as in separate
 * memory. Tests each such output over each such input, and two outputs over two inputs, on every
 * CPU level, with and without a team. One array may also serve as two inputs.
 * labels: random unthreaded */
#include <unistd.h>

#include "kernels/cpu/chunk.h"
#include "kernels/cpu/team.h"
#include "tests/support/claims.h"
#include "tests/support/kernel_levels.h"
#include "tests/support/seeds.h"

enum { BELOW = 11, THREADS = 3, NOWHERE = -1 };

#define SCALAR SL_SCALAR(SL_F32)
#define MANY F32(5, 7001)    /* elements: several chunks, not a whole number of vectors */
#define ROWS F32(3, 59, 130) /* rows: several chunks of them */

static const sl_reshaping heads = {F32(59, 130, 12), F32(59, 130, 3, 4)};

static const sl_rope in_part = {.part = 0.4};

static const sli_spans spans = {
    2, 50, {{0, 9, 0, 20, 30, 5, false}, {9, 8, 10, 10, 40, 36, false}}, false};

static const struct work {
  const sl_op *op;
  sl_attrs attrs;
  int nin;
  sl_type in[7];
} works[] = {
    {&sl_op_attention_step,
     {.attention.heads = 3, .attention.kv_heads = 1, .user = &spans},
     5,
     {F32(3, 17, 24), F32(3, 20, 16), I32(3, 50), F32(3, 17, 24), F32(3, 3, 17)}},
    {&sl_op_attention_step_b,
     {.attention.heads = 3, .attention.kv_heads = 1, .user = &spans},
     7,
     {F32(3, 17, 24), F32(3, 20, 16), F32(3, 17, 24), F32(3, 3, 17), F32(3, 17, 24), I32(3, 50),
      F32(3, 17, 24)}},
    {&sl_op_add, {0}, 2, {MANY, MANY}},
    {&sl_op_dropout, {.distribution.dropped = 0.25f}, 1, {MANY}},
    {&sl_op_reshape, {.user = &heads}, 1, {F32(59, 130, 12)}},
    {&sl_op_reshape_b, {.user = &heads}, 2, {F32(59, 130, 3, 4), F32(59, 130, 12)}},
    {&sl_op_mul, {0}, 2, {MANY, MANY}},
    {&sl_op_mul_b, {0}, 3, {MANY, MANY, MANY}},
    {&sl_op_gelu, {0}, 1, {MANY}},
    {&sl_op_gelu_b, {0}, 2, {MANY, MANY}},
    {&sl_op_relu, {0}, 1, {MANY}},
    {&sl_op_relu_b, {0}, 2, {MANY, MANY}},
    {&sl_op_tanh, {0}, 1, {MANY}},
    {&sl_op_tanh_b, {0}, 2, {MANY, MANY}},
    {&sl_op_swiglu, {0}, 2, {MANY, MANY}},
    {&sl_op_swiglu_b, {0}, 3, {MANY, MANY, MANY}},
    {&sl_op_position, {0}, 2, {ROWS, F32(60, 130)}},
    {&sl_op_layernorm, {0}, 3, {ROWS, F32(130), F32(130)}},
    {&sl_op_layernorm_b, {0}, 5, {ROWS, F32(130), F32(3, 59), F32(3, 59), ROWS}},
    {&sl_op_rmsnorm, {0}, 2, {ROWS, F32(130)}},
    {&sl_op_rmsnorm_b, {0}, 4, {ROWS, F32(130), F32(3, 59), ROWS}},
    {&sl_op_spikes, {0}, 1, {ROWS}},
    {&sl_op_quantize, {0}, 1, {ROWS}},
    {&sl_op_rotary, {.rotary.heads = 5}, 1, {ROWS}},
    {&sl_op_rotary_b, {.rotary.heads = 5}, 1, {ROWS}},
    {&sl_op_rotary, {.rotary.heads = 5, .user = &in_part}, 1, {ROWS}},
    {&sl_op_rotary_b, {.rotary.heads = 5, .user = &in_part}, 1, {ROWS}},
    {&sl_op_cross_entropy_b, {0}, 4, {F32(59, 1031), I32(59), F32(59), SCALAR}},
    {&sl_op_cross_entropy_b,
     {.place.first = 4, .place.partial = true},
     4,
     {F32(3001, 7), I32(3001), F32(3001), SCALAR}},
    {&sl_op_log_probability_b, {0}, 4, {F32(59, 1031), I32(59), F32(59), F32(59)}},
    {&sl_op_mse_b, {0}, 3, {MANY, MANY, SCALAR}},
};

static struct sl_team *team;

/* ---- one call ------------------------------------------------------------------------ */

static bool may_lie(const kernel *k, int o, int i) {
  const sl_type *out = &k->out_type[o], *in = &k->in_type[i];
  return sli_op_memory(k->op)->in_place[o] >> i & 1 && out->dtype == in->dtype &&
         sl_type_bytes(out) == sl_type_bytes(in);
}

/* Returns a call like k with copied inputs, and with output o over input over[o] unless that is
 * none. */
static kernel overlaid(const kernel *k, const int *over) {
  kernel c = *k;
  for (int i = 0; i < k->nin; i++) {
    c.in[i] = NULL;
    for (int j = 0; j < i && !c.in[i]; j++)
      if (k->in[j] == k->in[i]) c.in[i] = c.in[j];
    if (c.in[i]) continue;
    c.in[i] = array_create(&k->in_type[i]);
    memcpy(c.in[i], k->in[i], sl_type_bytes(&k->in_type[i]));
  }
  for (int o = 0; o < k->nout; o++)
    c.out[o] = o < SL_IN_PLACE_OUTPUTS && over[o] != NOWHERE ? c.in[over[o]]
                                                             : array_create(&k->out_type[o]);
  return c;
}

static void free_overlaid(kernel *c, const int *over) {
  for (int o = 0; o < c->nout; o++)
    if (o >= SL_IN_PLACE_OUTPUTS || over[o] == NOWHERE) free(c->out[o]);
  for (int i = 0; i < c->nin; i++) {
    bool again = false;
    for (int j = 0; j < i; j++) again |= c->in[j] == c->in[i];
    if (!again) free(c->in[i]);
  }
}

/* Compares with k, which holds the results in separate memory. */
static void check_over(const kernel *k, const int *over) {
  for (int t = 0; t < 2; t++) {
    kernel c = overlaid(k, over);
    kernel_run(&c, t ? team : NULL);
    for (int o = 0; o < k->nout; o++)
      CHECK(!memcmp(c.out[o], k->out[o], sl_type_bytes(&k->out_type[o])),
            "%s with outputs over inputs %d and %d: output %d differs (CPU level %d%s)",
            k->op->name, over[0], over[1], o, sli_cpu_level(), t ? ", in a team" : "");
    free_overlaid(&c, over);
  }
}

/* ---- all ops -------------------------------------------------------------------------- */

static int check_places(const kernel *k) {
  int tried = 0;
  for (int a = NOWHERE; a < k->nin; a++)
    for (int b = NOWHERE; b < (k->nout > 1 ? k->nin : 0); b++) {
      const int over[SL_IN_PLACE_OUTPUTS] = {a, b};
      bool clash = a != NOWHERE && b != NOWHERE && k->in[a] == k->in[b];
      if (clash || (a != NOWHERE && !may_lie(k, 0, a)) || (b != NOWHERE && !may_lie(k, 1, b)))
        continue;
      tried += a != NOWHERE || b != NOWHERE;
      check_over(k, over);
    }
  return tried;
}

/* One array serves as two inputs, and an output may overwrite either. */
static void check_one_array_twice(kernel *k, int i, int j) {
  void *own = k->in[j];
  if (!may_lie(k, 0, i) || !may_lie(k, 0, j)) return;
  k->in[j] = k->in[i];
  kernel_run(k, NULL);
  check_over(k, (const int[]){i, NOWHERE});
  k->in[j] = own;
}

static void check_all(uint64_t seed) {
  seed_random(seed);
  team = sli_team_create(THREADS, NULL, NULL);
  for (size_t w = 0; w < sizeof works / sizeof *works; w++) {
    const struct work *work = &works[w];
    kernel k = kernel_create(work->op, work->attrs, work->nin, work->in, work->op->nout);
    for (int i = 0; i < k.nin; i++) array_random(k.in[i], &k.in_type[i], BELOW);
    kernel_run(&k, NULL);
    CHECK(check_places(&k), "%s lies over nothing", k.op->name);
    for (int i = 0; i < k.nin; i++)
      for (int j = i + 1; j < k.nin; j++) check_one_array_twice(&k, i, j);
    kernel_destroy(&k);
  }
  sli_team_destroy(team);
}

static void check_every_row_that_says_so_is_here(void) {
  for (int i = 0; sl_ops[i]; i++) {
    bool here = !sli_op_memory(sl_ops[i])->in_place[0] && !sli_op_memory(sl_ops[i])->in_place[1];
    for (size_t w = 0; w < sizeof works / sizeof *works; w++) here |= works[w].op == sl_ops[i];
    here |= claim_covers(sl_ops[i]); /* in test_claims.c */
    CHECK(here, "%s has outputs that may lie over inputs, and is not tested", sl_ops[i]->name);
  }
}

int main(int argc, char **argv) {
  seeds s = seeds_of(argc, argv, 1, 1);
  RUN(check_every_row_that_says_so_is_here);
  for (uint64_t seed = s.first; seed < s.end; seed++)
    RUN_AS("check_all", on_every_level(check_all, seed));
  return 0;
}
