/* SPDX-License-Identifier: Apache-2.0 */
/* A chunk of attention takes whole heads of many sequences, or a tile of queries of one: the
 * numbers have the same bits, forward and backward, with and without windows, documents and heads
 * that share keys; on every CPU level.
 *
 * labels: random more */
#include "base/base.h"
#include "kernels/cpu/chunk.h"
#include "kernels/cpu/team.h"
#include "tests/support/kernel_call.h"
#include "tests/support/kernel_levels.h"
#include "tests/support/seeds.h"

#define F32(...) SL_TYPE(SL_F32, __VA_ARGS__)

enum { THREADS = 2, MANY = THREADS * SLI_CHUNKS_EACH + 3, MOST_LENGTH = 230, CASES = 6, IDS = 3 };

static int64_t below(int64_t n) { return (int64_t)(random_bits() % (uint64_t)n); }

typedef struct shape {
  sl_attrs attrs;
  int64_t length, width, kv_width;
  bool ids;
} shape;

static shape random_shape(void) {
  static const int64_t dims[] = {4, 16, 24, 64};
  int kv_heads = 1 + (int)below(2), group = 1 + (int)below(2);
  int64_t dim = dims[below(SLI_COUNT(dims))];
  shape s = {.attrs = {.heads = kv_heads * group,
                       .kv_heads = kv_heads,
                       .full = below(2),
                       .bf16 = below(2)},
             .length = 1 + below(MOST_LENGTH),
             .width = dim * kv_heads * group,
             .kv_width = dim * kv_heads,
             .ids = below(2)};
  if (below(2)) s.attrs.window = 1 + below(s.length);
  return s;
}

static kernel way_there(const shape *s, int64_t batch) {
  sl_type q = F32(batch, s->length, s->width), kv = F32(batch, s->length, s->kv_width);
  const sl_type in[] = {q, kv, kv, SL_TYPE(SL_I32, batch, s->length)};
  return kernel_create(&sl_op_attention, s->attrs, s->ids ? 4 : 3, in, 2);
}

static kernel way_back(const shape *s, int64_t batch, const kernel *there) {
  sl_type q = F32(batch, s->length, s->width), kv = F32(batch, s->length, s->kv_width);
  const sl_type in[] = {q, kv, kv, q, there->out_type[1], q, SL_TYPE(SL_I32, batch, s->length)};
  return kernel_create(&sl_op_attention_b, s->attrs, s->ids ? 7 : 6, in, 3);
}

/* Ids that now and then go up. */
static void fill(kernel *k, int i) {
  array_random(k->in[i], &k->in_type[i], 1);
  int32_t *ids = k->in[i];
  if (k->in_type[i].dtype == SL_I32)
    for (int64_t t = 1; t < sl_type_elements(&k->in_type[i]); t++) ids[t] = ids[t - 1] + !below(40);
}

/* The one sequence, many times. */
static void repeat(kernel *many, const kernel *one, int i) {
  size_t bytes = sl_type_bytes(&one->in_type[i]);
  for (int64_t b = 0; b < MANY; b++)
    memcpy((char *)many->in[i] + (size_t)b * bytes, one->in[i], bytes);
}

static void check_same(const kernel *many, const kernel *one, const shape *s) {
  for (int o = 0; o < one->nout; o++) {
    size_t bytes = sl_type_bytes(&one->out_type[o]);
    for (int64_t b = 0; b < MANY; b++)
      CHECK(
          !memcmp((char *)many->out[o] + (size_t)b * bytes, one->out[o], bytes),
          "%s, output %d: sequence %lld of many has other bits than one (%lld rows of %lld, %lld of keys, heads %d, "
          "window %lld, full %d, ids %d, bf16 %d)",
          one->op->name, o, (long long)b, (long long)s->length, (long long)s->width,
          (long long)s->kv_width, (int)s->attrs.heads, (long long)s->attrs.window, s->attrs.full,
          s->ids, s->attrs.bf16);
  }
}

static void take(kernel *k, int i, const void *from) {
  memcpy(k->in[i], from, sl_type_bytes(&k->in_type[i]));
}

static void check_case(struct sl_team *team) {
  shape s = random_shape();
  kernel one = way_there(&s, 1), many = way_there(&s, MANY);
  for (int i = 0; i < one.nin; i++) fill(&one, i), repeat(&many, &one, i);
  kernel_run(&one, team);
  kernel_run(&many, team);
  check_same(&many, &one, &s);
  kernel back = way_back(&s, 1, &one), many_back = way_back(&s, MANY, &many);
  for (int i = 0; i < IDS; i++) take(&back, i, one.in[i]);
  take(&back, 3, one.out[0]);
  take(&back, 4, one.out[1]);
  fill(&back, 5);
  if (s.ids) take(&back, 6, one.in[IDS]);
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
