/* SPDX-License-Identifier: Apache-2.0 */
/* Measures what fusing saves: microseconds of programs with GPT-2 124M's calls (8 sequences of
 * 1024), call by call and fused, as lines of `case<TAB>value<TAB>unit`. bf16 arrays of a few
 * megabytes that pass from call to call may still be cached when they are read, as in a model.
 *
 *   bench_fuse [FILTER] */
#include <time.h>

#include "kernels/cuda/program.h"
#include "tests/gpu/device_call.h"

enum {
  B = 8,
  T = 1024,
  C = 768,
  V = 50304,
  LAYERS = 12,
  ROUNDS = 30,
  GOES = 4,
  MOST_ARGS = 6,
  MOST_CALLS = 160
};

#define F32(...) SL_TYPE(SL_F32, __VA_ARGS__)
#define X SL_TYPE(SL_BF16, B, T, C)
#define WIDE SL_TYPE(SL_BF16, B, T, 4 * C)
#define WEIGHT SL_TYPE(SL_BF16, 4 * C, C)
#define ROW F32(B, T)

/* A call with its inputs, then outputs; input `from` of the second call is the first one's
 * output. */
typedef struct half {
  const sl_op *op;
  int nin, nout;
  sl_type type[MOST_ARGS];
} half;

static const struct {
  const char *name;
  half first, second;
  int from;
} pairs[] = {
    {"add_layernorm",
     {&sl_op_add, 2, 1, {X, X, X}},
     {&sl_op_layernorm, 3, 3, {X, F32(C), F32(C), X, ROW, ROW}},
     0},
    {"add_rmsnorm", {&sl_op_add, 2, 1, {X, X, X}}, {&sl_op_rmsnorm, 2, 2, {X, F32(C), X, ROW}}, 0},
    {"layernorm_b_add",
     {&sl_op_layernorm_b, 5, 1, {X, F32(C), ROW, ROW, X, X}},
     {&sl_op_add, 2, 1, {X, X, X}},
     1},
    {"rmsnorm_b_add",
     {&sl_op_rmsnorm_b, 4, 1, {X, F32(C), ROW, X, X}},
     {&sl_op_add, 2, 1, {X, X, X}},
     1},
    {"linear_gelu",
     {&sl_op_linear, 3, 1, {X, WEIGHT, F32(4 * C), WIDE}},
     {&sl_op_gelu, 1, 1, {WIDE, WIDE}},
     0},
    {"linear_b_gelu_b",
     {&sl_op_linear_b, 2, 1, {X, SL_TYPE(SL_BF16, C, 4 * C), WIDE}},
     {&sl_op_gelu_b, 2, 1, {WIDE, WIDE, WIDE}},
     1},
};

/* The parameters of a layer (there are 12 layers), then the others. */
static const sl_type tensors[] = {
    F32(C),        F32(C),     F32(C, 3 * C), F32(3 * C), F32(C, C), F32(C),    F32(C), F32(C),
    F32(C, 4 * C), F32(4 * C), F32(4 * C, C), F32(C),     F32(V, C), F32(T, C), F32(C), F32(C)};
enum { OF_A_LAYER = 12, OTHERS = 4 };

static const sl_optimizer optimizer = {.lr = 1e-4f, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f};

/* Bases: all inputs and outputs, and the workspace. */
typedef struct bench {
  sl_program program;
  sl_program_call calls[MOST_CALLS];
  sl_type types[MOST_CALLS][MOST_ARGS];
  sl_place places[MOST_CALLS][MOST_ARGS];
  size_t bytes[2];
} bench;

static void add_call(bench *b, const half *h) {
  int at = b->program.ncalls++;
  for (int i = 0; i < h->nin + h->nout; i++) {
    b->types[at][i] = h->type[i];
    b->places[at][i] = (sl_place){0, b->bytes[0]};
    b->bytes[0] += (sl_type_bytes(&h->type[i]) + 63) / 64 * 64;
  }
  b->calls[at] = (sl_program_call){.op = h->op,
                                   .name = h->op->name,
                                   .nin = h->nin,
                                   .nout = h->nout,
                                   .in_type = b->types[at],
                                   .out_type = b->types[at] + h->nin,
                                   .in = b->places[at],
                                   .out = b->places[at] + h->nin};
  b->calls[at].attrs.user = &optimizer;
}

/* ---- measuring ------------------------------------------------ */

/* Fills a base with small numbers: 0.0115, as f32 and as bf16. */
static void *small_numbers(size_t bytes) {
  void *to, *from = malloc(bytes);
  memset(from, 0x3c, bytes);
  CHECK(!sl_cuda_memory_create(0, bytes, &to) && !sl_cuda_copy(to, from, bytes), "%s", sl_detail());
  free(from);
  return to;
}

static double time_rounds(void *queue, const bench *b, const sl_firing *firing) {
  struct timespec begin, end;
  uint64_t fence = 0;
  clock_gettime(CLOCK_MONOTONIC, &begin);
  for (int i = 0; i < ROUNDS; i++) sl_queue_cuda.launch(queue, &b->program, firing, 0, 0, &fence);
  wait_for(queue, fence);
  clock_gettime(CLOCK_MONOTONIC, &end);
  return ((double)(end.tv_sec - begin.tv_sec) * 1e9 + (double)(end.tv_nsec - begin.tv_nsec)) /
         ROUNDS / 1e3;
}

/* Returns the best run except the first; *steps: number of launches. */
static double measure(bench *b, bool fused, int *steps) {
  void *queue, *bases[] = {small_numbers(b->bytes[0]), small_numbers(b->bytes[1] + 64)};
  sl_firing firing = {.bases = bases, .first = (const uint8_t[]){0, 0}};
  double best = INFINITY;
  b->program.calls = b->calls;
  b->program.nbases = 2;
  setenv("SLUICE_CUDA_FUSE", fused ? "1" : "0", 1);
  CHECK(!sl_queue_cuda.prepare(&b->program, 0), "%s", sl_detail());
  *steps = ((const sli_cuda_program *)b->program.state)->variants[0].count;
  sl_queue_config config = {.scratch_bytes = sl_queue_cuda.scratch(&b->program, 1)};
  CHECK(!sl_queue_cuda.open(&config, &queue), "%s", sl_detail());
  for (int go = 0; go < GOES; go++) {
    double us = time_rounds(queue, b, &firing);
    if (go && us < best) best = us;
  }
  sl_queue_cuda.close(queue);
  sl_queue_cuda.release(&b->program);
  for (int i = 0; i < 2; i++) sl_cuda_memory_destroy(bases[i]);
  return best;
}

static void show(const char *name, bench *b) {
  int steps[2];
  double apart = measure(b, false, &steps[0]), fused = measure(b, true, &steps[1]);
  printf("%s\t%.1f\tus\t%d steps\n", name, apart, steps[0]);
  printf("%s_fused\t%.1f\tus\t%d step%s, %.2f times as fast\n", name, fused, steps[1],
         steps[1] > 1 ? "s" : "", apart / fused);
  fflush(stdout);
  free(b);
}

static bench *pair_bench(size_t p) {
  bench *b = calloc(1, sizeof *b);
  add_call(b, &pairs[p].first);
  add_call(b, &pairs[p].second);
  sl_place *made = &b->places[0][pairs[p].first.nin];
  made->base = 1;
  made->offset = 0;
  b->bytes[1] = sl_type_bytes(&b->types[1][pairs[p].from]);
  b->places[1][pairs[p].from] = *made;
  return b;
}

/* A program with one call for each parameter of the model. */
static bench *update_bench(const sl_op *op) {
  bench *b = calloc(1, sizeof *b);
  for (int i = 0; i < LAYERS * OF_A_LAYER + OTHERS; i++) {
    sl_type t = tensors[i < LAYERS * OF_A_LAYER ? i % OF_A_LAYER : i - (LAYERS - 1) * OF_A_LAYER];
    if (op == &sl_op_sumsq) add_call(b, &(half){op, 1, 1, {t, SL_SCALAR(SL_F64)}});
    else add_call(b, &(half){op, 2, 3, {SL_SCALAR(SL_F32), t, t, t, t}});
  }
  return b;
}

int main(int argc, char **argv) {
  need_gpu();
  setenv("SLUICE_CUDA_GRAPHS", "0", 1); /* without CUDA graphs */
  for (size_t p = 0; p < sizeof pairs / sizeof *pairs; p++)
    if (argc < 2 || strstr(pairs[p].name, argv[1])) show(pairs[p].name, pair_bench(p));
  if (argc < 2 || strstr("sumsq_148", argv[1])) show("sumsq_148", update_bench(&sl_op_sumsq));
  if (argc < 2 || strstr("adamw_148", argv[1])) show("adamw_148", update_bench(&sl_op_adamw));
  return 0;
}
