/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters of a GPT, listed by hand as a reference for the grid tests. */
#ifndef SLUICE_TESTS_SUPPORT_GPT_PARAMS_H
#define SLUICE_TESTS_SUPPORT_GPT_PARAMS_H

#include <stdint.h>

#include "base/base.h"

enum { GPT_LAYERS = 2, GPT_BLOCKS = GPT_LAYERS + 2, GPT_USES = 2 };

typedef struct gpt_shape {
  int64_t width, heads, context, vocab, batch;
} gpt_shape;

/* Sharding of a parameter if matrices are split in pairs, by columns and by rows. */
typedef enum gpt_pairing {
  GPT_EVERYWHERE,
  GPT_BY_DIM_0,
  GPT_BY_DIM_1,
  GPT_ON_THE_FIRST /* added to a partial sum by one device */
} gpt_pairing;

/* A block that reads a parameter, and so gives it a gradient. */
typedef struct gpt_use {
  int block;
  bool again; /* also read in the backward pass */
} gpt_use;

typedef struct gpt_param {
  int64_t dim[2]; /* the second one is 1 for a vector */
  gpt_pairing lies;
  int64_t segments, units; /* layout of the split dim: see sli_dim */
  int nuses;
  gpt_use use[GPT_USES];
} gpt_param;

static inline int64_t gpt_elements(const gpt_param *p) { return p->dim[0] * p->dim[1]; }

typedef void gpt_each(void *ctx, const gpt_param *p);

static inline void gpt_layer_params(const gpt_shape *s, int block, gpt_each *fn, void *ctx) {
  const int64_t c = s->width;
  const struct {
    int64_t rows, columns;
    gpt_pairing lies;
    int64_t segments, units;
    bool again;
  } all[] = {
      {c, 1, GPT_EVERYWHERE, 0, 0, true},           /* ln_1.weight */
      {c, 1, GPT_EVERYWHERE, 0, 0, false},          /* ln_1.bias */
      {c, 3 * c, GPT_BY_DIM_1, 3, s->heads, true},  /* attn.c_attn.weight */
      {3 * c, 1, GPT_BY_DIM_0, 3, s->heads, false}, /* attn.c_attn.bias */
      {c, c, GPT_BY_DIM_0, 1, s->heads, true},      /* attn.c_proj.weight */
      {c, 1, GPT_ON_THE_FIRST, 0, 0, false},        /* attn.c_proj.bias */
      {c, 1, GPT_EVERYWHERE, 0, 0, true},           /* ln_2.weight */
      {c, 1, GPT_EVERYWHERE, 0, 0, false},          /* ln_2.bias */
      {c, 4 * c, GPT_BY_DIM_1, 1, 4 * c, true},     /* mlp.c_fc.weight */
      {4 * c, 1, GPT_BY_DIM_0, 1, 4 * c, false},    /* mlp.c_fc.bias */
      {4 * c, c, GPT_BY_DIM_0, 1, 4 * c, true},     /* mlp.c_proj.weight */
      {c, 1, GPT_ON_THE_FIRST, 0, 0, false},        /* mlp.c_proj.bias */
  };
  for (size_t i = 0; i < SLI_COUNT(all); i++)
    fn(ctx, &(gpt_param){{all[i].rows, all[i].columns},
                         all[i].lies,
                         all[i].segments,
                         all[i].units,
                         1,
                         {{block, all[i].again}}});
}

/* Lists the parameters. The token table is used as embedding, and again as the classifier. */
static inline void gpt_params(const gpt_shape *s, gpt_each *fn, void *ctx) {
  const int64_t c = s->width;
  const int head = GPT_BLOCKS - 1;
  fn(ctx, &(gpt_param){{s->vocab, c}, GPT_BY_DIM_0, 1, s->vocab, 2, {{0, false}, {head, true}}});
  fn(ctx, &(gpt_param){{s->context, c}, GPT_EVERYWHERE, 0, 0, 1, {{0, false}}});
  for (int i = 0; i < GPT_LAYERS; i++) gpt_layer_params(s, 1 + i, fn, ctx);
  fn(ctx, &(gpt_param){{c, 1}, GPT_EVERYWHERE, 0, 0, 1, {{head, true}}});
  fn(ctx, &(gpt_param){{c, 1}, GPT_EVERYWHERE, 0, 0, 1, {{head, false}}});
}

#endif
