/* SPDX-License-Identifier: Apache-2.0 */
/* Random attention calls, forward and backward, for tests that compare two implementations. */
#ifndef SLUICE_TESTS_SUPPORT_ATTENTION_CALLS_H
#define SLUICE_TESTS_SUPPORT_ATTENTION_CALLS_H

#include "ops/ops.h"
#include "tests/support/kernel_call.h"

typedef struct attention_shape {
  sl_attrs attrs;
  int64_t length, width, kv_width; /* positions; elements per row of a query and of a key */
  bool ids;                        /* documents */
} attention_shape;

/* Draws a shape: up to two key heads, each for up to `most_group` query heads. */
static inline attention_shape attention_shape_random(int64_t most_length, int64_t most_group) {
  static const int64_t dims[] = {4, 16, 24, 64};
  int kv_heads = 1 + (int)random_below(2), group = 1 + (int)random_below(most_group);
  int64_t dim = dims[random_below(SLI_COUNT(dims))];
  attention_shape s = {
      .attrs = {.attention.heads = kv_heads * group, .attention.kv_heads = kv_heads},
      .length = 1 + random_below(most_length),
      .width = dim * kv_heads * group,
      .kv_width = dim * kv_heads,
      .ids = random_below(2)};
  if (random_below(2)) s.attrs.attention.window = 1 + random_below(s.length);
  if (random_below(2)) s.attrs.attention.shown = random_below(100);
  return s;
}

static inline kernel attention_there(const attention_shape *s, int64_t batch) {
  sl_type q = SL_TYPE(SL_F32, batch, s->length, s->width),
          kv = SL_TYPE(SL_F32, batch, s->length, s->kv_width);
  const sl_type in[] = {q, kv, kv, SL_TYPE(SL_I32, batch, s->length)};
  return kernel_create(&sl_op_attention, s->attrs, s->ids ? 4 : 3, in, 2);
}

/* Creates the backward call for the forward call `there`, without data. */
static inline kernel attention_back(const attention_shape *s, int64_t batch, const kernel *there) {
  sl_type q = SL_TYPE(SL_F32, batch, s->length, s->width),
          kv = SL_TYPE(SL_F32, batch, s->length, s->kv_width);
  const sl_type in[] = {q, kv, kv, q, there->out_type[1], q, SL_TYPE(SL_I32, batch, s->length)};
  return kernel_create(&sl_op_attention_b, s->attrs, s->ids ? 7 : 6, in, 3);
}

/* Fills an input with random numbers; document ids increase occasionally. */
static inline void attention_fill(kernel *k, int i) {
  array_random(k->in[i], &k->in_type[i], 1);
  int32_t *ids = k->in[i];
  if (k->in_type[i].dtype == SL_I32)
    for (int64_t t = 1; t < sl_type_elements(&k->in_type[i]); t++)
      ids[t] = ids[t - 1] + !random_below(40);
}

static inline void attention_take(kernel *k, int i, const void *from) {
  memcpy(k->in[i], from, sl_type_bytes(&k->in_type[i]));
}

/* Fills the backward call of `there` with its inputs and outputs and random gradients. */
static inline void attention_fill_back(const attention_shape *s, kernel *back,
                                       const kernel *there) {
  for (int i = 0; i < 3; i++) attention_take(back, i, there->in[i]);
  for (int o = 0; o < 2; o++) attention_take(back, 3 + o, there->out[o]);
  attention_fill(back, 5);
  if (s->ids) attention_take(back, 6, there->in[3]);
}

#endif
