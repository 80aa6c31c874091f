/* SPDX-License-Identifier: Apache-2.0 */
/* Ops that draw random numbers. */
#include "ops/ops.h"

/* ---- dropout ------------------------------------------------------------------------ */

static sl_status dropout_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)nin;
  SLI_TRY(sli_want_array("x", &in[0], SL_F32, in[0].ndim ? -1 : 0));
  if (!(attrs->distribution.dropped >= 0 && attrs->distribution.dropped < 1))
    return sl_fail(
        SL_E_SHAPE,
        "attrs.distribution.dropped, the probability that an element is dropped, must be in [0, 1), got %g",
        (double)attrs->distribution.dropped);
  out[0] = in[0];
  return SL_OK;
}

SLI_COST(dropout_cost, 0, 1, 25)

/* ---- numbers ------------------------------------------------------------------------ */

static sl_status numbers_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)attrs, (void)nin;
  SLI_TRY(sli_want_array("like", &in[0], in[0].dtype, in[0].ndim ? -1 : 0));
  out[0] = in[0];
  out[0].dtype = SL_F32;
  return SL_OK;
}

SLI_COST(numbers_cost, 0, 1, 40)

/* ---- ops ---------------------------------------------------------------------------- */

/* The backward pass drops the same elements as the forward pass. */
const sl_op sl_op_dropout = {
    .name = "dropout",
    .attrs = {&sl_attrs_distribution},
    .min_in = 1,
    .max_in = 1,
    .nout = 1,
    .narrow = &(const sl_op_narrow){.in = 1, .out = 1},
    .traits = SL_OP_RANDOM | SL_OP_SKIPPED | SL_OP_CHEAP | SL_OP_LOCATED,
    .cut = &sl_cut_elements,
    .memory = &(const sl_op_memory){.in_place = {1}},
    .infer = dropout_infer,
    .cost = dropout_cost,
    .grad = {{.op = &sl_op_dropout, .cls = SL_CLASS_B, .in = {SL_DOUT(0)}, .nwrt = 1, .wrt = {0}}},
};

const sl_op sl_op_uniform = {
    .name = "uniform",
    .attrs = {&sl_attrs_distribution},
    .min_in = 1,
    .max_in = 1,
    .nout = 1,
    .traits = SL_OP_RANDOM | SL_OP_CHEAP | SL_OP_LOCATED,
    .memory = &(const sl_op_memory){.unread = 1},
    .cut = &sl_cut_elements,
    .infer = numbers_infer,
    .cost = numbers_cost,
};

const sl_op sl_op_normal = {
    .name = "normal",
    .attrs = {&sl_attrs_distribution},
    .min_in = 1,
    .max_in = 1,
    .nout = 1,
    .traits = SL_OP_RANDOM | SL_OP_CHEAP | SL_OP_LOCATED,
    .memory = &(const sl_op_memory){.unread = 1},
    .cut = &sl_cut_elements,
    .infer = numbers_infer,
    .cost = numbers_cost,
};
