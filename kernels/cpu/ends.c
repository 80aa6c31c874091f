/* Rows at the ends of a graph: constants, sources of data, reports. */
#include <stdint.h>
#include <string.h>

#include "kernels/kernels.h"

static sl_status fill_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)nin, (void)in;
  if (!attrs->user) return sl_fail(SL_E_SHAPE, "attrs.user must point to the type to fill");
  out[0] = *(const sl_type *)attrs->user;
  return SL_OK;
}

static uint16_t to_bf16(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16); /* to nearest, ties to even */
}

static void fill_cpu(const sl_call *call) {
  int64_t n = sl_type_elements(&call->out_type[0]);
  float value = call->attrs->value;
  void *out = call->out[0];
  for (int64_t i = 0; out && i < n; i++) switch (call->out_type[0].dtype) {
      case SL_F64: ((double *)out)[i] = value; break;
      case SL_I32: ((int32_t *)out)[i] = (int32_t)value; break;
      case SL_BF16: ((uint16_t *)out)[i] = to_bf16(value); break;
      default: ((float *)out)[i] = value; break;
    }
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

static void source_cpu(const sl_call *call) {
  const sl_source *source = call->attrs->user;
  sl_tick tick = call->tick;
  if (call->attrs->full) tick.row = tick.rows = 0;
  source->fill(source->ctx, &tick, call->out);
}

static sl_status report_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)nin, (void)in, (void)out;
  if (!attrs->user) return sl_fail(SL_E_SHAPE, "attrs.user must point to an sl_sink");
  return SL_OK;
}

static void report_cpu(const sl_call *call) {
  const sl_sink *sink = call->attrs->user;
  sink->take(sink->ctx, &call->tick, call->nin, call->in);
}

static uint64_t source_hash(uint64_t hash, const sl_attrs *attrs, int nin) {
  (void)nin;
  const sl_source *source = attrs->user;
  for (int o = 0; o < source->nout; o++) hash = sli_hash_type(hash, &source->types[o]);
  return sli_hash_word(hash, (uint64_t)source->cut);
}

const sl_op sl_op_fill = {
    .name = "fill", .min_in = 0, .max_in = 0, .nout = 1, .infer = fill_infer, .cpu = fill_cpu,
};

const sl_op sl_op_source = {
    .name = "source", .min_in = 0, .max_in = 0, .nout = -1, .outputs = source_outputs,
    .infer = source_infer, .cpu = source_cpu, .hash = source_hash,
};

const sl_op sl_op_report = {
    .name = "report", .min_in = 1, .max_in = -1, .nout = 0,
    .infer = report_infer, .cpu = report_cpu,
};
