/* SPDX-License-Identifier: Apache-2.0 */
/* CPU kernels of spiking layers. */
#include "kernels/cpu/chunk.h"
#include "kernels/cpu/kernels.h"
#include "ops/ops.h"

static void spikes_cpu(const sl_call *call) {
  sli_for_rows(call, &call->in_type[0], sli_cpu()->spikes);
}

static void quantize_cpu(const sl_call *call) {
  sli_for_rows(call, &call->in_type[0], sli_cpu()->quantize);
}

const sl_kernel sli_cpu_spikes = {.backend = "cpu", .run = spikes_cpu};

const sl_kernel sli_cpu_quantize = {.backend = "cpu", .run = quantize_cpu};
