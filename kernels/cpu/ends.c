/* SPDX-License-Identifier: Apache-2.0 */
/* CPU kernels at the ends of a graph: constants, data sources, reports. */
#include "kernels/cpu/bf16.h"
#include "kernels/cpu/kernels.h"
#include "ops/ops.h"

static void fill_cpu(const sl_call *call) {
  int64_t n = sl_type_elements(&call->out_type[0]);
  float value = call->attrs->fill.value;
  void *out = call->out[0];
  for (int64_t i = 0; out && i < n; i++) switch (call->out_type[0].dtype) {
    case SL_F64: ((double *)out)[i] = value; break;
    case SL_I32: ((int32_t *)out)[i] = (int32_t)value; break;
    case SL_BF16: ((uint16_t *)out)[i] = sli_bf16_from(value); break;
    default: ((float *)out)[i] = value; break;
    }
}

static void source_cpu(const sl_call *call) {
  const sl_source *source = call->attrs->user;
  sl_tick tick = call->tick;
  if (call->attrs->source.whole) tick.row = tick.rows = 0;
  source->fill(source->ctx, &tick, call->out);
}

static void report_cpu(const sl_call *call) {
  const sl_sink *sink = call->attrs->user;
  sink->take(sink->ctx, &call->tick, call->nin, call->in);
}

const sl_kernel sli_cpu_fill = {.backend = "cpu", .run = fill_cpu};

const sl_kernel sli_cpu_source = {.backend = "cpu", .run = source_cpu};

const sl_kernel sli_cpu_report = {.backend = "cpu", .run = report_cpu};
