/* SPDX-License-Identifier: Apache-2.0 */
/* Exact calls have the same bits on all CPU levels that fuse multiply and add: sums use a number of
 * lanes that does not depend on the level.
 * labels: random unthreaded */
#include <sys/mman.h>

#include "tests/support/claims.h"
#include "tests/support/kernel_levels.h"
#include "tests/support/seeds.h"

static const sl_rope in_part = {.part = 0.4};

enum { ROOM = 64, LEVELS = 8 };

/* clang-format off */
static const math_claim calls[] = {
    {.op = &sl_op_linear, .nin = 3, .in = {F32(7, 70), F32(33, 70), F32(33)}},
    {.op = &sl_op_linear, .attrs = {.numbers.chunk = 24, .product.transposed = true}, .nin = 3, .in = {F32(5, 96), F32(96, 50), F32(50)}},
    {.op = &sl_op_linear_b, .nin = 2, .in = {F32(7, 33), F32(33, 70)}},
    {.op = &sl_op_add, .nin = 2, .in = {F32(7, 33), F32(7, 33)}},
    {.op = &sl_op_gelu, .nin = 1, .in = {F32(7, 333)}, .from = 2},
    {.op = &sl_op_gelu_b, .nin = 2, .in = {F32(7, 333), F32(7, 333)}},
    {.op = &sl_op_silu, .nin = 1, .in = {F32(7, 333)}},
    {.op = &sl_op_tanh, .nin = 1, .in = {F32(7, 333)}},
    {.op = &sl_op_swiglu, .nin = 2, .in = {F32(7, 333), F32(7, 333)}},
    {.op = &sl_op_swiglu_b, .nin = 3, .in = {F32(7, 333), F32(7, 333), F32(7, 333)}},
    {.op = &sl_op_layernorm, .nin = 3, .in = {F32(7, 333), F32(333), F32(333)}},
    {.op = &sl_op_layernorm, .nin = 3, .in = {F32(7, 20), F32(20), F32(20)}},
    {.op = &sl_op_layernorm_b, .nin = 5, .in = {F32(7, 333), F32(333), F32(7), F32(7), F32(7, 333)}},
    {.op = &sl_op_rmsnorm, .nin = 2, .in = {F32(7, 333), F32(333)}},
    {.op = &sl_op_rmsnorm_b, .nin = 4, .in = {F32(7, 333), F32(333), F32(7), F32(7, 333)}},
    {.op = &sl_op_spikes, .nin = 1, .in = {F32(7, 333)}},
    {.op = &sl_op_quantize, .nin = 1, .in = {F32(7, 333)}},
    {.op = &sl_op_rotary, .attrs = {.rotary.heads = 3}, .nin = 1, .in = {F32(2, 7, 90)}},
    {.op = &sl_op_rotary_b, .attrs = {.rotary.heads = 3}, .nin = 1, .in = {F32(2, 7, 90)}},
    {.op = &sl_op_rotary, .attrs = {.rotary.heads = 3, .user = &in_part}, .nin = 1, .in = {F32(2, 7, 90)}},
    {.op = &sl_op_reduce_sum, .attrs = {.along.axes = 2}, .nin = 1, .in = {F32(7, 333)}},
    {.op = &sl_op_reduce_sum, .attrs = {.along.axes = 1}, .nin = 1, .in = {F32(7, 333)}},
    {.op = &sl_op_mse, .nin = 2, .in = {F32(70, 333), F32(70, 333)}},
    {.op = &sl_op_softmax, .nin = 1, .in = {F32(7, 333)}},
    {.op = &sl_op_log_softmax, .nin = 1, .in = {F32(7, 333)}},
    {.op = &sl_op_softmax_b, .nin = 2, .in = {F32(7, 333), F32(7, 333)}},
    {.op = &sl_op_attention, .attrs = {.attention.heads = 2}, .nin = 3, .in = {F32(2, 37, 40), F32(2, 37, 40), F32(2, 37, 40)}},
    {.op = &sl_op_attention, .attrs = {.attention.heads = 4, .attention.kv_heads = 2, .attention.window = 70}, .nin = 3,
     .in = {F32(1, 150, 64), F32(1, 150, 32), F32(1, 150, 32)}},
    {.op = &sl_op_attention_packed, .attrs = {.attention.heads = 3}, .nin = 1, .in = {F32(1, 133, 99)}},
    {.op = &sl_op_attention_packed_b, .attrs = {.attention.heads = 3}, .nin = 4,
     .in = {F32(1, 133, 99), F32(1, 133, 33), F32(1, 3, 133), F32(1, 133, 33)}},
    {.op = &sl_op_cross_entropy, .nin = 2, .in = {F32(7, 333), I32(7)}, .below = 333},
    {.op = &sl_op_cross_entropy, .attrs = {.numbers.chunk = 40}, .nin = 2, .in = {F32(7, 320), I32(7)}, .below = 320},
    {.op = &sl_op_cross_entropy_b, .nin = 4, .in = {F32(7, 333), I32(7), F32(7), SL_SCALAR(SL_F32)}, .below = 333},
    {.op = &sl_op_log_probability_b, .nin = 4, .in = {F32(7, 333), I32(7), F32(7), F32(7)}, .below = 333},
    {.op = &sl_op_log_probability, .attrs = {.numbers.chunk = 40}, .nin = 2, .in = {F32(7, 320), I32(7)}, .below = 320},
};
/* clang-format on */

static uint64_t (*hashes)[ROOM]; /* [LEVELS], in memory shared with the child processes */

static uint64_t hash_of(const kernel *k) {
  uint64_t hash = SLI_HASH_SEED;
  for (int o = 0; o < k->nout; o++) {
    const uint8_t *bytes = k->out[o];
    for (size_t b = 0; b < sl_type_bytes(&k->out_type[o]); b++)
      hash = sli_hash_word(hash, bytes[b]);
  }
  return hash;
}

static uint64_t run(const math_claim *c) {
  sl_attrs attrs = c->attrs;
  attrs.numbers.exact = true;
  kernel k = kernel_create(c->op, attrs, c->nin, c->in, c->op->nout < 1 ? 1 : c->op->nout);
  for (int i = 0; i < c->nin; i++) array_random(k.in[i], &c->in[i], c->below ? c->below : 1);
  kernel_run(&k, NULL);
  uint64_t hash = hash_of(&k);
  kernel_destroy(&k);
  return hash;
}

static void run_all(uint64_t seed) {
  seed_random(seed);
  for (size_t i = 0; i < SLI_COUNT(calls); i++) hashes[sli_cpu_level()][i] = run(&calls[i]);
}

static void levels_agree(uint64_t seed) {
  int differ = 0, first = 1;
  memset(hashes, 0, LEVELS * sizeof *hashes);
  on_every_level(run_all, seed);
  while (first + 1 < LEVELS && !hashes[first][0]) first++; /* sanitizers skip some */
  for (int level = first + 1; level < LEVELS; level++)
    for (size_t i = 0; i < SLI_COUNT(calls) && hashes[level][0]; i++) {
      if (hashes[level][i] == hashes[first][i]) continue;
      printf("level %d: call %zu, %s, has other bits than on level %d\n", level, i,
             calls[i].op->name, first);
      differ++;
    }
  CHECK(!differ, "%d calls differ, seed %llu", differ, (unsigned long long)seed);
}

int main(int argc, char **argv) {
  _Static_assert(SLI_COUNT(calls) <= ROOM, "room for all");
  hashes = mmap(NULL, LEVELS * sizeof *hashes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                -1, 0);
  CHECK(hashes != MAP_FAILED, "no memory");
  seeds s = seeds_of(argc, argv, 1, 3);
  for (uint64_t seed = s.first; seed < s.end; seed++) RUN(levels_agree, seed);
  return 0;
}
