#include <sluice/program.h>

#include "base/base.h"
#include "kernels/bind.h"

#include <stdlib.h>

sl_status sl_program_prepare(sl_program *program) {
  for (int i = 0; i < sli_program_call_count(program); i++) {
    sl_program_call *c = &program->calls[i];
    if (!c->op->prepare || c->state) continue;
    sl_call call = sli_call_shape(c);
    sl_status status = c->op->prepare(&call, &c->state);
    if (status) return status;
  }
  return SL_OK;
}

void sl_program_release(sl_program *program) {
  for (int i = 0; i < sli_program_call_count(program); i++) {
    sl_program_call *c = &program->calls[i];
    if (c->state && c->op->release) c->op->release(c->state);
    c->state = NULL;
  }
}

size_t sl_program_scratch(const sl_program *program, int threads) {
  size_t most = 0;
  for (int i = 0; i < sli_program_call_count(program); i++) {
    const sl_program_call *c = &program->calls[i];
    if (!c->op->scratch) continue;
    sl_call call = sli_call_shape(c);
    most = SLI_MAX(most, c->op->scratch(&call, threads));
  }
  return most;
}
