/* SPDX-License-Identifier: Apache-2.0 */
/* CPU kernel of copy: copies a tensor, or adds it to the output. */
#include <string.h>

#include "kernels/cpu/chunk.h"
#include "kernels/cpu/kernels.h"
#include "ops/ops.h"

static void copy_chunk(void *arg, int i) {
  const sl_call *call = arg;
  sli_range r = sli_elements(&call->in_type[0], i);
  const float *x = call->in[0];
  float *y = call->out[0];
  if (!sli_accumulates(call, 0)) memcpy(y + r.begin, x + r.begin, (size_t)(r.end - r.begin) * 4);
  else
    for (int64_t e = r.begin; e < r.end; e++) y[e] += x[e];
}

static void copy_cpu(const sl_call *call) { sli_for_elements(call, &call->in_type[0], copy_chunk); }

const sl_kernel sli_cpu_copy = {.backend = "cpu", .run = copy_cpu};
