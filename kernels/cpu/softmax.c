/* SPDX-License-Identifier: Apache-2.0 */
/* CPU kernels of softmax along a dim: the bit of attrs.along.axes, or the last dim. */
#include "kernels/cpu/chunk.h"
#include "kernels/cpu/kernels.h"
#include "ops/space.h"

static void softmax_run(const sl_call *call, bool is_log, sli_chunk_fn *fn) {
  const sl_type *x = &call->in_type[0];
  sli_softmax s = {
      .outer = 1, .inner = 1, .is_log = is_log, .in = {call->in[0]}, .out = call->out[0]};
  int axis = sli_one_axis(call->attrs, x);
  if (call->nin > 1) s.in[1] = call->in[1];
  s.n = x->dim[axis];
  for (int d = 0; d < axis; d++) s.outer *= x->dim[d];
  for (int d = axis + 1; d < x->ndim; d++) s.inner *= x->dim[d];
  s.block = sli_chunk_rows(s.n * s.inner);
  sl_team_for(call->team, sli_chunk_count(s.outer, s.block), fn, &s);
}

static void softmax_cpu(const sl_call *call) { softmax_run(call, false, sli_cpu()->softmax); }
static void softmax_b_cpu(const sl_call *call) { softmax_run(call, false, sli_cpu()->softmax_b); }
static void log_softmax_cpu(const sl_call *call) { softmax_run(call, true, sli_cpu()->softmax); }
static void log_softmax_b_cpu(const sl_call *call) {
  softmax_run(call, true, sli_cpu()->softmax_b);
}

#define KERNEL(name) const sl_kernel sli_cpu_##name = {.backend = "cpu", .run = name##_cpu};
KERNEL(softmax)
KERNEL(softmax_b)
KERNEL(log_softmax)
KERNEL(log_softmax_b)
