/* SPDX-License-Identifier: Apache-2.0 */
/* Ops of spiking layers (SpikingBrain, arXiv 2509.05276): rows rounded to multiples of a threshold,
 * and weights rounded to int8. Gradients pass straight through both. */
#include "ops/spikes.h"

#include <math.h>

#include "ops/ops.h"

static sl_status spikes_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)nin;
  SLI_TRY(sli_want_array("x", &in[0], SL_F32, -1));
  if (!(attrs->spikes.k >= 0 && isfinite(attrs->spikes.k)))
    return sl_fail(
        SL_E_SHAPE,
        "attrs.spikes.k, the divisor of mean|x| in the threshold, must be finite and not "
        "negative, got %g",
        (double)attrs->spikes.k);
  out[0] = in[0];
  out[1] = sli_type_with_last(&in[0], SLI_SPIKE_COUNTS);
  return SL_OK;
}

static sl_status quantize_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)attrs, (void)nin;
  SLI_TRY(sli_want_array("w", &in[0], SL_F32, -1));
  out[0] = in[0];
  return SL_OK;
}

SLI_COST(spikes_cost, 0, 2, 6)
SLI_COST(quantize_cost, 0, 1, 5)

const sl_op sl_op_spikes = {
    .name = "spikes",
    .attrs = {&sl_attrs_spikes},
    .min_in = 1,
    .max_in = 1,
    .nout = 2,
    .traits = SL_OP_CHEAP,
    .cut = &sl_cut_rows,
    .memory = &(const sl_op_memory){.in_place = {1}},
    .infer = spikes_infer,
    .cost = spikes_cost,
    .grad = {{.cls = SL_CLASS_B, .in = {SL_DOUT(0)}, .nwrt = 1, .wrt = {0}}},
};

const sl_op sl_op_quantize = {
    .name = "quantize",
    .min_in = 1,
    .max_in = 1,
    .nout = 1,
    .traits = SL_OP_CHEAP,
    .cut = &sl_cut_rows,
    .memory = &(const sl_op_memory){.in_place = {1}},
    .infer = quantize_infer,
    .cost = quantize_cost,
    .grad = {{.cls = SL_CLASS_B, .in = {SL_DOUT(0)}, .nwrt = 1, .wrt = {0}}},
};
