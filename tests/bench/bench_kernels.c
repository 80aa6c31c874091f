/* SPDX-License-Identifier: Apache-2.0 */
/* Benchmarks each op's kernel with the shapes of a GPT of 6 layers, width 384, 6 heads, vocabulary
 * 256, and 8 sequences of 256 tokens. Prints one line per op:
 *
 *   op <TAB> calls per microbatch <TAB> ms (best) <TAB> GFLOP/s <TAB> GB/s
 *
 * and at the end the time that a microbatch spends in matrix products and in everything else.
 * Usage: bench_kernels [threads [rounds [word in the ops' names]]] */
#include "base/base.h"
#include "kernels/cpu/team.h"
#include "tests/support/kernel_call.h"

enum { BATCH = 8, LENGTH = 256, WIDTH = 384, HEADS = 6, VOCAB = 256, LAYERS = 6 };

#define F32(...) SL_TYPE(SL_F32, __VA_ARGS__)
#define I32(...) SL_TYPE(SL_I32, __VA_ARGS__)
#define ROWS(width) F32(BATCH, LENGTH, width)
#define IDS I32(BATCH, LENGTH)
#define PER_ROW F32(BATCH, LENGTH)
#define LSE F32(BATCH, HEADS, LENGTH)

static const sl_optimizer optimizer = {.lr = 1e-3f, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f};

static const struct row {
  const char *what;
  const sl_op *op;
  sl_attrs attrs;
  double calls; /* calls per microbatch; for the update, per step */
  int nin, nout;
  sl_type in[5];
} rows[] = {
#define PRODUCTS(name, k, n, calls)                                          \
  {name, &sl_op_linear, {0}, calls, 3, 1, {ROWS(k), F32(n, k), F32(n)}},     \
      {name " dx", &sl_op_linear_b, {0}, calls, 2, 1, {ROWS(n), F32(n, k)}}, \
      {name " dw", &sl_op_linear_w, {0}, calls, 2, 1, {ROWS(k), ROWS(n)}}, { \
    name " db", &sl_op_bias_w, {0}, calls, 1, 1, { ROWS(n) }                 \
  }
    PRODUCTS("linear qkv", WIDTH, 3 * WIDTH, LAYERS),
    PRODUCTS("linear proj", WIDTH, WIDTH, LAYERS),
    PRODUCTS("linear up", WIDTH, 4 * WIDTH, LAYERS),
    PRODUCTS("linear down", 4 * WIDTH, WIDTH, LAYERS),
    {"linear head", &sl_op_linear, {0}, 1, 2, 1, {ROWS(WIDTH), F32(VOCAB, WIDTH)}},
    {"linear head dx", &sl_op_linear_b, {0}, 1, 2, 1, {ROWS(VOCAB), F32(VOCAB, WIDTH)}},
    {"linear head dw", &sl_op_linear_w, {0}, 1, 2, 1, {ROWS(WIDTH), ROWS(VOCAB)}},
    {"attention",
     &sl_op_attention_packed,
     {.attention.heads = HEADS},
     LAYERS,
     1,
     2,
     {ROWS(3 * WIDTH)}},
    {"attention_b",
     &sl_op_attention_packed_b,
     {.attention.heads = HEADS},
     LAYERS,
     4,
     1,
     {ROWS(3 * WIDTH), ROWS(WIDTH), LSE, ROWS(WIDTH)}},
    {"attention bf16",
     &sl_op_attention_packed,
     {.attention.heads = HEADS, .numbers.bf16 = true},
     0,
     1,
     2,
     {ROWS(3 * WIDTH)}},
    {"attention_b bf16",
     &sl_op_attention_packed_b,
     {.attention.heads = HEADS, .numbers.bf16 = true},
     0,
     4,
     1,
     {ROWS(3 * WIDTH), ROWS(WIDTH), LSE, ROWS(WIDTH)}},
    {"layernorm",
     &sl_op_layernorm,
     {0},
     2 * LAYERS + 1,
     3,
     3,
     {ROWS(WIDTH), F32(WIDTH), F32(WIDTH)}},
    {"layernorm_b",
     &sl_op_layernorm_b,
     {0},
     2 * LAYERS + 1,
     5,
     1,
     {ROWS(WIDTH), F32(WIDTH), PER_ROW, PER_ROW, ROWS(WIDTH)}},
    {"layernorm_w",
     &sl_op_layernorm_w,
     {0},
     2 * LAYERS + 1,
     4,
     2,
     {ROWS(WIDTH), PER_ROW, PER_ROW, ROWS(WIDTH)}},
    {"gelu", &sl_op_gelu, {0}, LAYERS, 1, 1, {ROWS(4 * WIDTH)}},
    {"gelu_b", &sl_op_gelu_b, {0}, LAYERS, 2, 1, {ROWS(4 * WIDTH), ROWS(4 * WIDTH)}},
    {"add", &sl_op_add, {0}, 4 * LAYERS, 2, 1, {ROWS(WIDTH), ROWS(WIDTH)}},
    {"embedding", &sl_op_embedding, {0}, 1, 2, 1, {IDS, F32(VOCAB, WIDTH)}},
    {"embedding_w", &sl_op_embedding_w, {0}, 1, 3, 1, {IDS, ROWS(WIDTH), F32(VOCAB, WIDTH)}},
    {"position", &sl_op_position, {0}, 1, 2, 1, {ROWS(WIDTH), F32(LENGTH, WIDTH)}},
    {"position_w", &sl_op_position_w, {0}, 1, 2, 1, {ROWS(WIDTH), F32(LENGTH, WIDTH)}},
    {"cross_entropy", &sl_op_cross_entropy, {0}, 1, 2, 2, {ROWS(VOCAB), IDS}},
    {"cross_entropy_b",
     &sl_op_cross_entropy_b,
     {0},
     1,
     4,
     1,
     {ROWS(VOCAB), IDS, PER_ROW, SL_SCALAR(SL_F32)}},
    {"sumsq (12 C^2)", &sl_op_sumsq, {0}, LAYERS, 1, 1, {F32(12 * WIDTH, WIDTH)}},
    {"adamw (12 C^2)",
     &sl_op_adamw,
     {.user = &optimizer},
     LAYERS,
     2,
     3,
     {SL_SCALAR(SL_F32), F32(12 * WIDTH, WIDTH)}},
    {"rmsnorm", &sl_op_rmsnorm, {0}, 0, 2, 2, {ROWS(WIDTH), F32(WIDTH)}},
    {"rmsnorm_b", &sl_op_rmsnorm_b, {0}, 0, 4, 1, {ROWS(WIDTH), F32(WIDTH), PER_ROW, ROWS(WIDTH)}},
    {"swiglu", &sl_op_swiglu, {0}, 0, 2, 1, {ROWS(4 * WIDTH), ROWS(4 * WIDTH)}},
    {"swiglu_b",
     &sl_op_swiglu_b,
     {0},
     0,
     3,
     2,
     {ROWS(4 * WIDTH), ROWS(4 * WIDTH), ROWS(4 * WIDTH)}},
    {"rotary", &sl_op_rotary, {.rotary.heads = HEADS}, 0, 1, 1, {ROWS(WIDTH)}},
};

/* Returns the time of the fastest round: an op's cost when no other load disturbs it. */
static double best_ms(kernel *k, struct sl_team *team, int rounds) {
  double best = INFINITY;
  kernel_run(k, team);
  for (int r = 0; r < rounds; r++) {
    uint64_t start = sli_now_ns();
    kernel_run(k, team);
    best = fmin(best, (double)(sli_now_ns() - start) * 1e-6);
  }
  return best;
}

static double measure(const struct row *row, struct sl_team *team, int rounds) {
  kernel k = kernel_create(row->op, row->attrs, row->nin, row->in, row->nout);
  for (int i = 0; i < k.nin; i++) array_random(k.in[i], &k.in_type[i], VOCAB);
  for (int o = 0; o < k.nout; o++) memset(k.out[o], 0, sl_type_bytes(&k.out_type[o]));
  double flops = 0, bytes = 0, ms = best_ms(&k, team, rounds);
  row->op->cost(&k.attrs, k.nin, k.in_type, k.out_type, &flops, &bytes);
  printf("%s\t%g\t%.3f\t%.1f\t%.1f\n", row->what, row->calls, ms, flops / ms * 1e-6,
         bytes / ms * 1e-6);
  fflush(stdout);
  kernel_destroy(&k);
  return ms * row->calls;
}

int main(int argc, char **argv) {
  int threads = argc > 1 ? atoi(argv[1]) : 1, rounds = argc > 2 ? atoi(argv[2]) : 20;
  CHECK(threads > 0 && rounds > 0, "usage: bench_kernels [threads [rounds [word]]]");
  struct sl_team *team = sli_team_create(threads, NULL, NULL);
  double products = 0, others = 0;
  seed_random(1);
  printf("row\tcalls\tms\tGFLOP/s\tGB/s\n");
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    if (argc > 3 && !strstr(rows[i].what, argv[3])) continue;
    double ms = measure(&rows[i], team, rounds);
    bool product = rows[i].op == &sl_op_linear || rows[i].op == &sl_op_linear_b ||
                   rows[i].op == &sl_op_linear_w;
    *(product ? &products : &others) += ms;
  }
  printf("products\t\t%.1f\nothers\t\t%.1f\nothers/products\t\t%.3f\n", products, others,
         others / products);
  sli_team_destroy(team);
  return 0;
}
