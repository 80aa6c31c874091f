/* SPDX-License-Identifier: Apache-2.0 */
/* Pooling ops. A chunk is several planes; a plane is one channel of one image. */
#include "ops/layout.h"
#include "ops/ops.h"

static sl_status pool_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)nin;
  SLI_TRY(sli_window_check(attrs, &in[0], NULL));
  sli_window w = sli_window_of(attrs, &in[0], NULL);
  out[0] = sli_window_output(&w, &in[0], in[0].dim[1]);
  return SL_OK;
}

/* Checks the types of x and dy, and sets that of dx. */
static sl_status gradient_infer(const sl_attrs *attrs, const sl_type *x, const sl_type *dy,
                                sl_type *dx) {
  sl_type y, like = *x;
  like.dtype = dy->dtype;
  SLI_TRY(pool_infer(attrs, 1, &like, &y));
  *dx = like;
  return sli_want("dy", dy, &y);
}

static sl_status max_pool_b_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)nin;
  return gradient_infer(attrs, &in[0], &in[1], &out[0]);
}

static sl_status mean_pool_b_infer(const sl_attrs *attrs, int nin, const sl_type *in,
                                   sl_type *out) {
  (void)nin;
  return gradient_infer(attrs, &in[1], &in[0], &out[0]);
}

/* Splits by images and channels. */
static int pool_signatures(const sl_attrs *attrs, int nin, const sl_type *in, sl_signature *out) {
  (void)attrs, (void)nin, (void)in;
  for (int d = 0; d < 2; d++) out[d] = (sl_signature){.in = {sli_split(d)}, .out = {sli_split(d)}};
  return 2;
}

SLI_COST(pool_cost, 0, 1, 1)

SLI_COST(max_pool_b_cost, 0, 1, 2)

SLI_COST(mean_pool_b_cost, 1, 1, 1)

/* ---- ops ----------------------------------------------------------------------------------- */

#define POOL(name_, memory_, ...)                                   \
  const sl_op sl_op_##name_ = {                                     \
      .name = #name_,                                               \
      .min_in = 1,                                                  \
      .max_in = 1,                                                  \
      .nout = 1,                                                    \
      .narrow = &(const sl_op_narrow){.in = 1, .out = 1},           \
      .traits = SL_OP_CHEAP,                                        \
      .cut = &(const sl_op_cut){.pieces = SL_PIECES_SIGNATURES},    \
      .shard = &(const sl_op_shard){.signatures = pool_signatures}, \
      .infer = pool_infer,                                          \
      .cost = pool_cost,                                            \
      .hash = sli_window_hash,                                      \
      .grad = {{.op = &sl_op_##name_##_b,                           \
                .cls = SL_CLASS_B,                                  \
                .in = {__VA_ARGS__},                                \
                .nwrt = 1,                                          \
                .wrt = {0}}},                                       \
  };                                                                \
  const sl_op sl_op_##name_##_b = {                                 \
      .name = #name_ "_b",                                          \
      .min_in = 2,                                                  \
      .max_in = 2,                                                  \
      .nout = 1,                                                    \
      .narrow = &(const sl_op_narrow){.in = 3, .out = 1},           \
      .memory = memory_,                                            \
      .cut = &(const sl_op_cut){.pieces = SL_PIECES_SIGNATURES},    \
      .infer = name_##_b_infer,                                     \
      .cost = name_##_b_cost,                                       \
      .hash = sli_window_hash,                                      \
  };
POOL(max_pool, NULL, SL_IN(0), SL_DOUT(0))
POOL(mean_pool, &(const sl_op_memory){.unread = 1 << 1}, SL_DOUT(0), SL_IN(0))
