/* SPDX-License-Identifier: Apache-2.0 */
/* Preparation of programs for CPUs: the kernels of the calls, their states and the scratch they
 * need. */
#include <sluice/program.h>

#include "kernels/bind.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/leaves.h"
#include "ops/ops.h"

static bool shares_state(const sl_program_call *c) {
  return sli_op_memory(c->op)->keeps && c->kernel != &sli_cpu_leaves;
}

sl_status sl_program_prepare(sl_program *program) {
  for (int i = 0; i < sli_program_call_count(program); i++) {
    sl_program_call *c = &program->calls[i];
    c->kernel = c->attrs.numbers.leaves && !sli_op_exact(c->op)->by_leaf ? &sli_cpu_leaves
                                                                         : sli_cpu_kernel(c->op);
    if (!c->kernel || !c->kernel->prepare || c->state) continue;
    sl_call call = sli_call_shape(c);
    sl_status status = shares_state(c)
                           ? sli_state_share(&call, program->device, c->kernel->prepare, &c->state)
                           : c->kernel->prepare(&call, &c->state);
    if (status) return status;
  }
  return SL_OK;
}

void sl_program_release(sl_program *program) {
  for (int i = 0; i < sli_program_call_count(program); i++) {
    sl_program_call *c = &program->calls[i];
    bool last = c->state && (!shares_state(c) || sli_state_leave(c->state));
    if (last && c->kernel->release) c->kernel->release(c->state);
    c->state = NULL;
  }
}

size_t sl_program_scratch(const sl_program *program, int threads) {
  size_t most = 0;
  for (int i = 0; i < sli_program_call_count(program); i++) {
    const sl_program_call *c = &program->calls[i];
    if (!c->kernel || !c->kernel->scratch) continue;
    sl_call call = sli_call_shape(c);
    most = SLI_MAX(most, c->kernel->scratch(&call, threads));
  }
  return most;
}
