/* Programs made ready for a GPU.
 *
 * A call's CUDA row is looked up once, when its program is made ready, and waits in the
 * call's state for the queue. A user's op that is not in the table brings its own
 * function in op->cuda. Then the calls become steps (fuse.c), which the queue launches. */
#include "kernels/cuda/program.h"

#include <stdlib.h>

#include "base/base.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/fuse.h"
#include "kernels/cuda/rows.h"

static int call_count(const sl_program *program) {
  return program->ncalls * SLI_MAX(program->nvariants, 1);
}

/* A call as prepare() and scratch() see it. */
static sl_call shape_of(const sl_program_call *c) {
  return (sl_call){.op = c->op, .attrs = &c->attrs, .nin = c->nin, .nout = c->nout,
                   .in_type = c->in_type, .out_type = c->out_type};
}

/* What c->state points to. */
static sl_status make_state(const sl_program_call *c, sli_cuda_call *made) {
  sl_call call = shape_of(c);
  const sli_cuda_row *row = sli_cuda_row_find(c->op);
  if (!row && !c->op->cuda)
    return sl_fail(SL_E_UNSUPPORTED, "op '%s' (%s) has no CUDA function", c->name ? c->name : "",
                   c->op->name);
  *made = (sli_cuda_call){.launch = row ? row->launch : c->op->cuda,
                          .release = row ? row->release : c->op->release};
  sl_status (*prepare)(const sl_call *, void **) = row ? row->prepare : c->op->prepare;
  return prepare ? prepare(&call, &made->state) : SL_OK;
}

static sl_status prepare_calls(sl_program *program) {
  sl_status status = SL_OK;
  for (int i = 0; i < call_count(program) && !status; i++) {
    sl_program_call *c = &program->calls[i];
    if (c->state) continue;
    sli_cuda_call made = {0};
    status = make_state(c, &made);
    if (status) break;
    sli_cuda_call *kept = sli_calloc(1, sizeof *kept);
    *kept = made;
    c->state = kept;
  }
  return status;
}

static sl_status make_steps(sl_program *program) {
  sl_status status = SL_OK;
  sli_cuda_program *made = sli_calloc(1, sizeof *made);
  made->nvariants = SLI_MAX(program->nvariants, 1);
  made->variants = sli_calloc((size_t)made->nvariants, sizeof *made->variants);
  program->state = made;
  for (int v = 0; v < made->nvariants && !status; v++)
    status = sli_cuda_fuse(program->calls + v * program->ncalls, program->ncalls,
                           &made->variants[v]);
  return status;
}

sl_status sli_cuda_program_prepare(sl_program *program, int device) {
  if (program->state) return SL_OK;
  sl_status status = sli_cuda_use(device);
  if (!status) status = prepare_calls(program);
  return status ? status : make_steps(program);
}

static void release_steps(sl_program *program) {
  sli_cuda_program *made = program->state;
  if (!made) return;
  for (int v = 0; v < made->nvariants; v++) sli_cuda_unfuse(&made->variants[v]);
  free(made->variants);
  free(made);
  program->state = NULL;
}

void sli_cuda_program_release(sl_program *program) {
  release_steps(program);
  for (int i = 0; i < call_count(program); i++) {
    sl_program_call *c = &program->calls[i];
    sli_cuda_call *made = c->state;
    if (made && made->release) made->release(made->state);
    free(made);
    c->state = NULL;
  }
}

size_t sli_cuda_program_scratch(const sl_program *program, int threads) {
  size_t most = 0;
  for (int i = 0; i < call_count(program); i++) {
    const sl_program_call *c = &program->calls[i];
    sl_call call = shape_of(c);
    const sli_cuda_row *row = sli_cuda_row_find(c->op);
    size_t bytes = 0;
    if (row && row->scratch) bytes = row->scratch(&call);
    if (!row && c->op->scratch) bytes = c->op->scratch(&call, threads);
    most = SLI_MAX(most, bytes);
  }
  return most;
}
