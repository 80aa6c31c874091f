/* SPDX-License-Identifier: Apache-2.0 */
/* A work chunk of attention covers whole heads of many sequences, or a tile of queries of one
 * sequence. Both give the same bits, forward and backward, with and without windows, documents and
 * grouped key/value heads, on every CPU level.
 * labels: random more */
#include "base/base.h"
#include "kernels/cpu/chunk.h"
#include "kernels/cpu/team.h"
#include "tests/support/attention_calls.h"
#include "tests/support/kernel_levels.h"
#include "tests/support/seeds.h"

#define F32(...) SL_TYPE(SL_F32, __VA_ARGS__)

enum { THREADS = 2, MANY = THREADS * SLI_CHUNKS_EACH + 3, MOST_LENGTH = 230, CASES = 6 };

static attention_shape random_shape(void) {
  attention_shape s = attention_shape_random(MOST_LENGTH, 2);
  s.attrs.attention.shown = 0; /* only for whole sequences and pieces */
  s.attrs.attention.full = random_below(2);
  s.attrs.numbers.bf16 = random_below(2);
  return s;
}

/* Copies the one sequence into every batch row. */
static void repeat(kernel *many, const kernel *one, int i) {
  size_t bytes = sl_type_bytes(&one->in_type[i]);
  for (int64_t b = 0; b < MANY; b++)
    memcpy((char *)many->in[i] + (size_t)b * bytes, one->in[i], bytes);
}

static void check_same(const kernel *many, const kernel *one, const attention_shape *s) {
  for (int o = 0; o < one->nout; o++) {
    size_t bytes = sl_type_bytes(&one->out_type[o]);
    for (int64_t b = 0; b < MANY; b++)
      CHECK(
          !memcmp((char *)many->out[o] + (size_t)b * bytes, one->out[o], bytes),
          "%s, output %d: sequence %lld of many has other bits than one (%lld rows of %lld, %lld of keys, heads %d, "
          "window %lld, full %d, ids %d, bf16 %d)",
          one->op->name, o, (long long)b, (long long)s->length, (long long)s->width,
          (long long)s->kv_width, (int)s->attrs.attention.heads,
          (long long)s->attrs.attention.window, s->attrs.attention.full, s->ids,
          s->attrs.numbers.bf16);
  }
}

static void check_case(struct sl_team *team) {
  attention_shape s = random_shape();
  kernel one = attention_there(&s, 1), many = attention_there(&s, MANY);
  for (int i = 0; i < one.nin; i++) attention_fill(&one, i), repeat(&many, &one, i);
  kernel_run(&one, team);
  kernel_run(&many, team);
  check_same(&many, &one, &s);
  kernel back = attention_back(&s, 1, &one), many_back = attention_back(&s, MANY, &many);
  attention_fill_back(&s, &back, &one);
  for (int i = 0; i < back.nin; i++) repeat(&many_back, &back, i);
  kernel_run(&back, team);
  kernel_run(&many_back, team);
  check_same(&many_back, &back, &s);
  kernel *all[] = {&one, &many, &back, &many_back};
  for (size_t i = 0; i < SLI_COUNT(all); i++) kernel_destroy(all[i]);
}

static void check(uint64_t seed) {
  seed_random(seed);
  struct sl_team *team = sli_team_create(THREADS, NULL, NULL);
  for (int c = 0; c < CASES; c++) check_case(team);
  sli_team_destroy(team);
}

int main(int argc, char **argv) {
  uint64_t seed = seed_of(argc, argv, 1);
  RUN_AS("check", on_every_level(check, seed));
  return 0;
}
