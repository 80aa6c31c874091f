/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of one number, listed in unary.def. */
#include "ops/ops.h"

#include <math.h>

static sl_status unary_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)attrs, (void)nin;
  SLI_TRY(sli_want_numbers("x", &in[0]));
  out[0] = in[0];
  return SL_OK;
}

static sl_status clamp_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  if (!(attrs->function.c <= attrs->function.u))
    return sl_fail(SL_E_SHAPE, "the lower bound must not be above the upper one, got %g and %g",
                   (double)attrs->function.c, (double)attrs->function.u);
  return unary_infer(attrs, nin, in, out);
}

static sl_status softcap_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  if (!(attrs->function.c > 0 && isfinite(attrs->function.c)))
    return sl_fail(SL_E_SHAPE, "the cap must be finite and above 0, got %g",
                   (double)attrs->function.c);
  return unary_infer(attrs, nin, in, out);
}

/* The gradient of an f64 scalar is f32. */
static sl_status unary_b_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  SLI_TRY(unary_infer(attrs, nin, in, out));
  out[0].dtype = SL_F32;
  return sli_want("dy", &in[1], &out[0]);
}

/* A linear function of a partial sum is a partial sum. */
static int linear_signatures(const sl_attrs *attrs, int nin, const sl_type *in, sl_signature *out) {
  (void)attrs, (void)nin, (void)in;
  out[0] = (sl_signature){.in = {sli_partial()}, .out = {sli_partial()}};
  return 1;
}

#define FORWARD(name_, flops_, infer_, traits_, ...)                               \
  SLI_COST(name_##_cost, 0, 1, flops_)                                             \
  const sl_op sl_op_##name_ = {.name = #name_,                                     \
                               .attrs = {&sl_attrs_function},                      \
                               .min_in = 1,                                        \
                               .max_in = 1,                                        \
                               .nout = 1,                                          \
                               .narrow = &(const sl_op_narrow){.in = 1, .out = 1}, \
                               .traits = traits_,                                  \
                               .cut = &sl_cut_elements,                            \
                               .memory = &(const sl_op_memory){.in_place = {1}},   \
                               .infer = infer_,                                    \
                               .cost = name_##_cost,                               \
                               __VA_ARGS__};

#define BACK(name_, flops_)                               \
  SLI_COST(name_##_b_cost, 0, 1, flops_ + 2)              \
  const sl_op sl_op_##name_##_b = {                       \
      .name = #name_ "_b",                                \
      .attrs = {&sl_attrs_function},                      \
      .min_in = 2,                                        \
      .max_in = 2,                                        \
      .nout = 1,                                          \
      .narrow = &(const sl_op_narrow){.in = 3, .out = 1}, \
      .cut = &sl_cut_elements,                            \
      .memory = &(const sl_op_memory){.in_place = {3}},   \
      .infer = unary_b_infer,                             \
      .cost = name_##_b_cost,                             \
  };

#define ROWS(name, flops, infer, ...)                \
  FORWARD(name, flops, infer, SL_OP_CHEAP,           \
          .grad = {{.op = &sl_op_##name##_b,         \
                    .cls = SL_CLASS_B,               \
                    .in = {__VA_ARGS__, SL_DOUT(0)}, \
                    .nwrt = 1,                       \
                    .wrt = {0}}})                    \
  BACK(name, flops)
#define ROWS_IN(name, flops) ROWS(name, flops, unary_infer, SL_IN(0))
#define ROWS_BOUNDS(name, flops) ROWS(name, flops, clamp_infer, SL_IN(0))
#define ROWS_OUT(name, flops) ROWS(name, flops, unary_infer, SL_OUT(0))
#define ROWS_CAP(name, flops) ROWS(name, flops, softcap_infer, SL_OUT(0))
#define ROWS_SAME(name, flops)                                        \
  FORWARD(                                                            \
      name, flops, unary_infer, SL_OP_CHEAP,                          \
      .shard = &(const sl_op_shard){.signatures = linear_signatures}, \
      .grad = {                                                       \
          {.op = &sl_op_##name, .cls = SL_CLASS_B, .in = {SL_DOUT(0)}, .nwrt = 1, .wrt = {0}}})
#define ROWS_THROUGH(name, flops)                \
  FORWARD(name, flops, unary_infer, SL_OP_CHEAP, \
          .grad = {{.cls = SL_CLASS_B, .in = {SL_DOUT(0)}, .nwrt = 1, .wrt = {0}}})
#define ROWS_DETACHED(name, flops) FORWARD(name, flops, unary_infer, SL_OP_CHEAP | SL_OP_DETACHED, )
#define UNARY(name, how, flops, y, dx) ROWS_##how(name, flops)

#include "ops/unary.def"
#undef UNARY
