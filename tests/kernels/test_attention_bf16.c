/* SPDX-License-Identifier: Apache-2.0 */
/* Attention in bf16 differs from attention in f32 by what operands of 8 bits imply, no more and no
 * less: with grouped key/value heads, at odd lengths and widths, on every CPU level. The team
 * changes no bit.
 * labels: computes more */
#include "kernels/cpu/chunk.h"
#include "kernels/cpu/team.h"
#include "tests/support/claims.h"
#include "tests/support/kernel_levels.h"

typedef struct shape {
  int heads, kv_heads;
  int64_t rows, length, dim;
  bool full;
  int64_t window;
} shape;

static const shape shapes[] = {
    {1, 1, 1, 1, 1, false, 0},    {2, 2, 1, 67, 33, false, 0},   {4, 2, 2, 130, 64, false, 0},
    {2, 1, 1, 97, 20, true, 0},   {2, 2, 1, 200, 16, false, 37}, {1, 1, 1, 70, 256, false, 0},
    {2, 1, 1, 70, 512, false, 0},
};

static struct sl_team *team;

/* Compares the norm of the difference with the norm of the expected values. */
static void check_near(const shape *s, const char *what, const sl_type *type, const float *got,
                       const float *want) {
  double off = 0, all = 0;
  for (int64_t i = 0; i < sl_type_elements(type); i++) {
    off += pow((double)got[i] - (double)want[i], 2);
    all += pow((double)want[i], 2);
  }
  CHECK(off <= all * 0x1p-14 + 1e-8 && (all < 1e-6 || off > all * 0x1p-34),
        "%s of %d heads, %lld rows of %lld: %g of %g away (CPU level %d)", what, s->heads,
        (long long)s->length, (long long)s->dim, sqrt(off), sqrt(all), sli_cpu_level());
}

static void check_team(kernel *k) {
  for (int o = 0; o < k->nout; o++) {
    size_t bytes = sl_type_bytes(&k->out_type[o]);
    void *alone = malloc(bytes);
    memcpy(alone, k->out[o], bytes);
    memset(k->out[o], 0xff, bytes);
    kernel_run(k, team);
    CHECK(!memcmp(alone, k->out[o], bytes), "%s depends on the team", k->op->name);
    free(alone);
  }
}

/* Runs the same call in f32 and in bf16 on the same inputs. */
static void run_both(kernel both[2], const sl_op *op, sl_attrs attrs, int nin, const sl_type *in,
                     int nout, void *const *data) {
  for (int b = 0; b < 2; b++) {
    attrs.numbers.bf16 = b;
    both[b] = kernel_create(op, attrs, nin, in, nout);
    for (int i = 0; i < nin; i++) memcpy(both[b].in[i], data[i], sl_type_bytes(&in[i]));
    kernel_run(&both[b], NULL);
  }
}

static void destroy_both(kernel both[2]) {
  for (int b = 0; b < 2; b++) kernel_destroy(&both[b]);
}

static void check_shape(const shape *s) {
  const sl_attrs attrs = {.attention.heads = s->heads,
                          .attention.kv_heads = s->kv_heads,
                          .attention.full = s->full,
                          .attention.window = s->window};
  sl_type q = F32(s->rows, s->length, s->heads * s->dim),
          kv = F32(s->rows, s->length, s->kv_heads * s->dim);
  const sl_type in[] = {q, kv, kv};
  void *data[6];
  for (int i = 0; i < 3; i++) array_random(data[i] = array_create(&in[i]), &in[i], 0);
  kernel there[2], back[2];
  run_both(there, &sl_op_attention, attrs, 3, in, 2, data);
  check_near(s, "o", &there[1].out_type[0], there[1].out[0], there[0].out[0]);
  data[3] = there[0].out[0], data[4] = there[0].out[1];
  array_random(data[5] = array_create(&q), &q, 0);
  const sl_type in_back[] = {q, kv, kv, q, there[0].out_type[1], q};
  run_both(back, &sl_op_attention_b, attrs, 6, in_back, 3, data);
  for (int o = 0; o < 3; o++)
    check_near(s, (const char *[]){"dq", "dk", "dv"}[o], &back[1].out_type[o], back[1].out[o],
               back[0].out[o]);
  check_team(&there[1]);
  check_team(&back[1]);
  destroy_both(there);
  destroy_both(back);
  for (int i = 0; i < 6; i++)
    if (i < 3 || i > 4) free(data[i]);
}

static void check_all(uint64_t seed) {
  seed_random(seed);
  team = sli_team_create(3, NULL, NULL);
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) check_shape(&shapes[i]);
  sli_team_destroy(team);
}

int main(void) {
  RUN_AS("check_all", on_every_level(check_all, 1));
  return 0;
}
