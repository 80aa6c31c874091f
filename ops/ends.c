/* SPDX-License-Identifier: Apache-2.0 */
/* Ops at the ends of a graph: constants, data sources, reports. */
#include <stdint.h>

#include "ops/ops.h"

static sl_status fill_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)nin, (void)in;
  if (!attrs->user) return sl_fail(SL_E_SHAPE, "attrs.user must point to the type to fill");
  out[0] = *(const sl_type *)attrs->user;
  return SL_OK;
}

static sl_status source_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)nin, (void)in;
  const sl_source *source = attrs->user;
  if (!source) return sl_fail(SL_E_SHAPE, "attrs.user must point to an sl_source");
  for (int o = 0; o < source->nout; o++) out[o] = source->types[o];
  return SL_OK;
}

static int source_outputs(const sl_attrs *attrs, int nin) {
  (void)nin;
  return attrs->user ? ((const sl_source *)attrs->user)->nout : -1;
}

static sl_status report_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)nin, (void)in, (void)out;
  if (!attrs->user) return sl_fail(SL_E_SHAPE, "attrs.user must point to an sl_sink");
  return SL_OK;
}

static uint64_t source_hash(uint64_t hash, const sl_attrs *attrs, int nin) {
  (void)nin;
  const sl_source *source = attrs->user;
  for (int o = 0; o < source->nout; o++) hash = sli_hash_type(hash, &source->types[o]);
  return sli_hash_word(hash, (uint64_t)source->cut);
}

const sl_op sl_op_fill = {
    .name = "fill",
    .attrs = {&sl_attrs_fill},
    .min_in = 0,
    .max_in = 0,
    .nout = 1,
    .infer = fill_infer,
};

const sl_op sl_op_source = {
    .name = "source",
    .attrs = {&sl_attrs_source},
    .min_in = 0,
    .max_in = 0,
    .traits = SL_OP_SOURCE,
    .nout = -1,
    .outputs = source_outputs,
    .infer = source_infer,
    .hash = source_hash,
};

const sl_op sl_op_report = {
    .name = "report",
    .min_in = 1,
    .max_in = -1,
    .nout = 0,
    .rows = &(const sl_op_rows){.looks = 1},
    .infer = report_infer,
};
