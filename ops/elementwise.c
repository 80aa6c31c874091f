/* SPDX-License-Identifier: Apache-2.0 */
/* Element-wise ops. */
#include "ops/ops.h"

/* Checks that all inputs have the same shape, and gives it to every output. */
static sl_status infer_same(int nin, const sl_type *in, int nout, sl_type *out) {
  SLI_TRY(sli_want_array("input 0", &in[0], SL_F32, in[0].ndim ? -1 : 0));
  static const char *const names[] = {"input 0", "input 1", "input 2"};
  for (int i = 1; i < nin; i++) SLI_TRY(sli_want(names[i], &in[i], &in[0]));
  for (int o = 0; o < nout; o++) out[o] = in[0];
  return SL_OK;
}

static sl_status infer_one(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)attrs;
  return infer_same(nin, in, 1, out);
}

static sl_status infer_two(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)attrs;
  return infer_same(nin, in, 2, out);
}

/* The sum of two partial sums is a partial sum. */
static int add_signatures(const sl_attrs *attrs, int nin, const sl_type *in, sl_signature *out) {
  (void)attrs, (void)nin, (void)in;
  out[0] = (sl_signature){.in = {sli_partial(), sli_partial()}, .out = {sli_partial()}};
  return 1;
}

SLI_COST(cost_1, 0, 1, 1)

SLI_COST(cost_tanh, 0, 1, 20)

SLI_COST(cost_2, 0, 2, 2)

SLI_COST(cost_swiglu_b, 0, 2, 25)

const sl_op sl_op_add = {
    .name = "add",
    .min_in = 2,
    .max_in = 2,
    .nout = 1,
    .narrow = &(const sl_op_narrow){.in = 3, .out = 1},
    .traits = SL_OP_CHEAP,
    .cut = &sl_cut_elements,
    .memory = &(const sl_op_memory){.in_place = {3}},
    .infer = infer_one,
    .cost = cost_1,
    .shard = &(const sl_op_shard){.signatures = add_signatures},
    .grad = {{.cls = SL_CLASS_B, .in = {SL_DOUT(0)}, .nwrt = 1, .wrt = {0}},
             {.cls = SL_CLASS_B, .in = {SL_DOUT(0)}, .nwrt = 1, .wrt = {1}}},
};

/* A product of two tensors, perhaps of a function of the first. */
#define PRODUCT(name_, cost_, cost_b_)                     \
  const sl_op sl_op_##name_ = {                            \
      .name = #name_,                                      \
      .min_in = 2,                                         \
      .max_in = 2,                                         \
      .nout = 1,                                           \
      .narrow = &(const sl_op_narrow){.in = 3, .out = 1},  \
      .traits = SL_OP_CHEAP,                               \
      .cut = &sl_cut_elements,                             \
      .memory = &(const sl_op_memory){.in_place = {3}},    \
      .infer = infer_one,                                  \
      .cost = cost_,                                       \
      .grad = {{.op = &sl_op_##name_##_b,                  \
                .cls = SL_CLASS_B,                         \
                .in = {SL_IN(0), SL_IN(1), SL_DOUT(0)},    \
                .nwrt = 2,                                 \
                .wrt = {0, 1}}},                           \
  };                                                       \
  const sl_op sl_op_##name_##_b = {                        \
      .name = #name_ "_b",                                 \
      .min_in = 3,                                         \
      .max_in = 3,                                         \
      .nout = 2,                                           \
      .narrow = &(const sl_op_narrow){.in = 7, .out = 3},  \
      .cut = &sl_cut_rows,                                 \
      .memory = &(const sl_op_memory){.in_place = {7, 7}}, \
      .infer = infer_two,                                  \
      .cost = cost_b_,                                     \
  };
PRODUCT(mul, cost_1, cost_2)
PRODUCT(swiglu, cost_tanh, cost_swiglu_b)

const sl_op sl_op_gelu = {
    .name = "gelu",
    .min_in = 1,
    .max_in = 1,
    .nout = 1,
    .narrow = &(const sl_op_narrow){.in = 1, .out = 1},
    .traits = SL_OP_CHEAP,
    .cut = &sl_cut_elements,
    .memory = &(const sl_op_memory){.in_place = {1}},
    .infer = infer_one,
    .cost = cost_tanh,
    .grad = {{.op = &sl_op_gelu_b,
              .cls = SL_CLASS_B,
              .in = {SL_IN(0), SL_DOUT(0)},
              .nwrt = 1,
              .wrt = {0}}},
};

const sl_op sl_op_gelu_b = {
    .name = "gelu_b",
    .min_in = 2,
    .max_in = 2,
    .nout = 1,
    .narrow = &(const sl_op_narrow){.in = 3, .out = 1},
    .cut = &sl_cut_rows,
    .memory = &(const sl_op_memory){.in_place = {3}},
    .infer = infer_one,
    .cost = cost_tanh,
};

const sl_op sl_op_relu = {
    .name = "relu",
    .min_in = 1,
    .max_in = 1,
    .nout = 1,
    .narrow = &(const sl_op_narrow){.in = 1, .out = 1},
    .traits = SL_OP_CHEAP,
    .cut = &sl_cut_elements,
    .memory = &(const sl_op_memory){.in_place = {1}},
    .infer = infer_one,
    .cost = cost_1,
    .grad = {{.op = &sl_op_relu_b,
              .cls = SL_CLASS_B,
              .in = {SL_OUT(0), SL_DOUT(0)},
              .nwrt = 1,
              .wrt = {0}}},
};

const sl_op sl_op_relu_b = {
    .name = "relu_b",
    .min_in = 2,
    .max_in = 2,
    .nout = 1,
    .narrow = &(const sl_op_narrow){.in = 3, .out = 1},
    .cut = &sl_cut_rows,
    .memory = &(const sl_op_memory){.in_place = {3}},
    .infer = infer_one,
    .cost = cost_1,
};

const sl_op sl_op_tanh = {
    .name = "tanh",
    .min_in = 1,
    .max_in = 1,
    .nout = 1,
    .narrow = &(const sl_op_narrow){.in = 1, .out = 1},
    .traits = SL_OP_CHEAP,
    .cut = &sl_cut_elements,
    .memory = &(const sl_op_memory){.in_place = {1}},
    .infer = infer_one,
    .cost = cost_tanh,
    .grad = {{.op = &sl_op_tanh_b,
              .cls = SL_CLASS_B,
              .in = {SL_OUT(0), SL_DOUT(0)},
              .nwrt = 1,
              .wrt = {0}}},
};

const sl_op sl_op_tanh_b = {
    .name = "tanh_b",
    .min_in = 2,
    .max_in = 2,
    .nout = 1,
    .narrow = &(const sl_op_narrow){.in = 3, .out = 1},
    .cut = &sl_cut_rows,
    .memory = &(const sl_op_memory){.in_place = {3}},
    .infer = infer_one,
    .cost = cost_1,
};
