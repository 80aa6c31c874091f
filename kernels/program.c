#include <sluice/program.h>

#include "base/base.h"

#include <stdlib.h>

/* A call as prepare() and scratch() see it: types and attrs, no data. */
static sl_call shape_of(const sl_program_call *c) {
  return (sl_call){.op = c->op, .attrs = &c->attrs, .nin = c->nin, .nout = c->nout,
                   .in_type = c->in_type, .out_type = c->out_type, .state = c->state};
}

/* Of all variants. */
static int call_count(const sl_program *program) {
  return program->ncalls * SLI_MAX(program->nvariants, 1);
}

sl_status sl_program_prepare(sl_program *program) {
  for (int i = 0; i < call_count(program); i++) {
    sl_program_call *c = &program->calls[i];
    if (!c->op->prepare || c->state) continue;
    sl_call call = shape_of(c);
    sl_status status = c->op->prepare(&call, &c->state);
    if (status) return status;
  }
  return SL_OK;
}

void sl_program_release(sl_program *program) {
  for (int i = 0; i < call_count(program); i++) {
    sl_program_call *c = &program->calls[i];
    if (c->state && c->op->release) c->op->release(c->state);
    c->state = NULL;
  }
}

size_t sl_program_scratch(const sl_program *program, int threads) {
  size_t most = 0;
  for (int i = 0; i < call_count(program); i++) {
    const sl_program_call *c = &program->calls[i];
    if (!c->op->scratch) continue;
    sl_call call = shape_of(c);
    most = SLI_MAX(most, c->op->scratch(&call, threads));
  }
  return most;
}
