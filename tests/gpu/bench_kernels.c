/* SPDX-License-Identifier: Apache-2.0 */
/* Measures what the kernels reach on this GPU, absolutely and as a share of what the card can do in
 * the same run. For memory-bound ops that is a plain copy, for the others a bf16 product of 8192 x
 * 8192 x 8192. Prints lines of `case<TAB>value<TAB>unit<TAB>share`, in GB/s or TFLOP/s. Shapes are
 * those of GPT-2 124M with 8 sequences of 1024; bytes and flops come from the ops' cost rules at
 * the device's types.
 *
 *   bench_kernels [FILTER]      the two ceilings, and cases with FILTER in their names */
#include "tests/gpu/timed_call.h"

enum { B = 8, T = 1024, C = 768, V = 50304 };

#define F32(...) SL_TYPE(SL_F32, __VA_ARGS__)
#define BF16(...) SL_TYPE(SL_BF16, __VA_ARGS__)
#define I32(...) SL_TYPE(SL_I32, __VA_ARGS__)
#define NOTHING ((sl_type){SL_F32, -1, {0}})

typedef struct bench {
  const char *name;
  const sl_op *op;
  sl_attrs attrs;
  bool flops;
  int nin, nout;
  sl_type in[7], out[4];
} bench;

static const sl_optimizer optimizer = {.lr = 1e-4f, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f};

#define X BF16(B, T, C)
#define ROW F32(B, T)
#define LSE F32(B, 12, T)

/* The ceilings of bytes and of flops. */
static const bench ceilings[] = {
    {"copy", &sl_op_copy, {0}, false, 1, 1, {F32(64 << 20)}, {F32(64 << 20)}},
    {"linear_8192",
     &sl_op_linear,
     {0},
     true,
     2,
     1,
     {BF16(8192, 8192), BF16(8192, 8192)},
     {BF16(8192, 8192)}},
};

static const bench benches[] = {
    {"add", &sl_op_add, {0}, false, 2, 1, {X, X}, {X}},
    {"gelu", &sl_op_gelu, {0}, false, 1, 1, {BF16(B, T, 4 * C)}, {BF16(B, T, 4 * C)}},
    {"gelu_b",
     &sl_op_gelu_b,
     {0},
     false,
     2,
     1,
     {BF16(B, T, 4 * C), BF16(B, T, 4 * C)},
     {BF16(B, T, 4 * C)}},
    {"swiglu",
     &sl_op_swiglu,
     {0},
     false,
     2,
     1,
     {BF16(B, T, 4 * C), BF16(B, T, 4 * C)},
     {BF16(B, T, 4 * C)}},
    {"layernorm", &sl_op_layernorm, {0}, false, 3, 3, {X, F32(C), F32(C)}, {X, ROW, ROW}},
    {"layernorm_b", &sl_op_layernorm_b, {0}, false, 5, 1, {X, F32(C), ROW, ROW, X}, {X}},
    {"layernorm_w", &sl_op_layernorm_w, {0}, false, 4, 2, {X, ROW, ROW, X}, {F32(C), F32(C)}},
    {"rmsnorm", &sl_op_rmsnorm, {0}, false, 2, 2, {X, F32(C)}, {X, ROW}},
    {"bias_w", &sl_op_bias_w, {0}, false, 1, 1, {BF16(B, T, 4 * C)}, {F32(4 * C)}},
    {"embedding", &sl_op_embedding, {0}, false, 2, 1, {I32(B, T), F32(V, C)}, {X}},
    {"embedding_w", &sl_op_embedding_w, {0}, false, 3, 1, {I32(B, T), X, F32(V, C)}, {F32(V, C)}},
    {"position", &sl_op_position, {0}, false, 2, 1, {X, F32(T, C)}, {X}},
    {"rotary", &sl_op_rotary, {.rotary.heads = 12}, false, 1, 1, {X}, {X}},
    {"cross_entropy",
     &sl_op_cross_entropy,
     {0},
     false,
     2,
     2,
     {BF16(B, T, V), I32(B, T)},
     {SL_SCALAR(SL_F64), ROW}},
    {"cross_entropy_b",
     &sl_op_cross_entropy_b,
     {0},
     false,
     4,
     1,
     {BF16(B, T, V), I32(B, T), ROW, SL_SCALAR(SL_F32)},
     {BF16(B, T, V)}},
    {"sumsq", &sl_op_sumsq, {0}, false, 1, 1, {F32(V, C)}, {SL_SCALAR(SL_F64)}},
    {"adamw",
     &sl_op_adamw,
     {.user = &optimizer},
     false,
     2,
     3,
     {SL_SCALAR(SL_F32), F32(V, C)},
     {F32(V, C), F32(V, C), F32(V, C)}},
    {"linear_f32",
     &sl_op_linear,
     {0},
     true,
     3,
     1,
     {F32(B, T, C), F32(4 * C, C), F32(4 * C)},
     {F32(B, T, 4 * C)}},
    {"linear_bf16",
     &sl_op_linear,
     {0},
     true,
     3,
     1,
     {X, BF16(4 * C, C), F32(4 * C)},
     {BF16(B, T, 4 * C)}},
    {"linear_b_bf16", &sl_op_linear_b, {0}, true, 2, 1, {BF16(B, T, 4 * C), BF16(4 * C, C)}, {X}},
    {"linear_w_bf16", &sl_op_linear_w, {0}, true, 2, 1, {X, BF16(B, T, 4 * C)}, {F32(4 * C, C)}},
    {"attention_f32",
     &sl_op_attention_packed,
     {.attention.heads = 12},
     true,
     1,
     2,
     {F32(B, T, 3 * C)},
     {F32(B, T, C), LSE}},
    {"attention_bf16",
     &sl_op_attention_packed,
     {.attention.heads = 12},
     true,
     1,
     2,
     {BF16(B, T, 3 * C)},
     {X, LSE}},
    {"attention_b_bf16",
     &sl_op_attention_packed_b,
     {.attention.heads = 12},
     true,
     4,
     1,
     {BF16(B, T, 3 * C), X, LSE, X},
     {BF16(B, T, 3 * C)}},
    {"attention_bf16_128",
     &sl_op_attention_packed,
     {.attention.heads = 6},
     true,
     1,
     2,
     {BF16(B, T, 3 * C)},
     {X, F32(B, 6, T)}},
    {"attention_b_bf16_128",
     &sl_op_attention_packed_b,
     {.attention.heads = 6},
     true,
     4,
     1,
     {BF16(B, T, 3 * C), X, F32(B, 6, T), X},
     {BF16(B, T, 3 * C)}},
};

/* Returns nanoseconds per call. */
static double measure(const bench *b) {
  kernel k = {.op = b->op, .attrs = b->attrs, .nin = b->nin, .nout = b->nout};
  for (int i = 0; i < b->nin; i++) k.in_type[i] = b->in[i], k.in[i] = some_bytes(&b->in[i]);
  for (int o = 0; o < b->nout; o++) k.out_type[o] = b->out[o], k.out[o] = some_bytes(&b->out[o]);
  double best = time_call(&k);
  for (int i = 0; i < b->nin; i++) free(k.in[i]);
  for (int o = 0; o < b->nout; o++) free(k.out[o]);
  return best;
}

/* Returns bytes or flops per nanosecond. */
static double rate_of(const bench *b) {
  double flops = 0, bytes = 0;
  b->op->cost(&b->attrs, b->nin, b->in, b->out, &flops, &bytes);
  return (b->flops ? flops : bytes) / measure(b);
}

static void show(const bench *b, double rate, double ceiling) {
  printf("%s\t%.1f\t%s\t%.0f %% of %s\n", b->name, b->flops ? rate / 1e3 : rate,
         b->flops ? "TFLOP/s" : "GB/s", 100 * rate / ceiling, ceilings[b->flops].name);
  fflush(stdout);
}

int main(int argc, char **argv) {
  double ceiling[2];
  need_gpu();
  for (int f = 0; f < 2; f++) {
    ceiling[f] = rate_of(&ceilings[f]);
    show(&ceilings[f], ceiling[f], ceiling[f]);
  }
  for (size_t i = 0; i < sizeof benches / sizeof *benches; i++)
    if (argc < 2 || strstr(benches[i].name, argv[1]))
      show(&benches[i], rate_of(&benches[i]), ceiling[benches[i].flops]);
  return 0;
}
