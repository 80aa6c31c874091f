/* SPDX-License-Identifier: Apache-2.0 */
/* CPU kernels of batch norm. Each thread takes some channels. */
#include "kernels/cpu/chunk.h"
#include "kernels/cpu/kernels.h"
#include "ops/ops.h"

static void for_channels(const sl_call *call, sli_chunk_fn *fn) {
  const sl_type *x = &call->in_type[0];
  sli_channel_norm c = {.call = call, .images = x->dim[0], .count = x->dim[1], .inner = 1};
  for (int d = 2; d < x->ndim; d++) c.inner *= x->dim[d];
  c.size = c.images * c.inner;
  c.block = SLI_MAX(SLI_CHUNK_ELEMENTS / c.size, 1);
  sl_team_for(call->team, sli_chunk_count(c.count, c.block), fn, &c);
}

static void batch_norm_cpu(const sl_call *call) { for_channels(call, sli_cpu()->batch_norm); }

static void batch_norm_b_cpu(const sl_call *call) { for_channels(call, sli_cpu()->batch_norm_b); }

static void batch_norm_w_cpu(const sl_call *call) { for_channels(call, sli_cpu()->batch_norm_w); }

const sl_kernel sli_cpu_batch_norm = {.backend = "cpu", .run = batch_norm_cpu};

const sl_kernel sli_cpu_batch_norm_b = {.backend = "cpu", .run = batch_norm_b_cpu};

const sl_kernel sli_cpu_batch_norm_w = {.backend = "cpu", .run = batch_norm_w_cpu};
