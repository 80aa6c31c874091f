/* SPDX-License-Identifier: Apache-2.0 */
/* Preparation of programs for a GPU.
 *
 * A call's CUDA kernel is looked up once, when its program is prepared, and stored in the call's
 * state for the queue. A user-defined op is not in the table; it brings a "cuda" kernel. The calls
 * are then grouped into steps (fuse.c), which the queue launches. */
#include "kernels/cuda/program.h"

#include <stdlib.h>

#include "base/base.h"
#include "kernels/bind.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/fuse.h"
#include "kernels/cuda/ops.h"
#include "ops/ops.h"

/* Fills the state that c->state points to. */
static sl_status make_state(const sl_program_call *c, int device, sli_cuda_call *made) {
  sl_call call = sli_call_shape(c);
  const sli_cuda_op *entry = sli_cuda_op_find(c->op);
  const sl_kernel *own = entry ? NULL : sli_op_kernel(c->op, "cuda");
  if (!entry && !own)
    return sl_fail(SL_E_UNSUPPORTED, "op '%s' (%s) has no CUDA function", c->name ? c->name : "",
                   c->op->name);
  *made = (sli_cuda_call){.launch = entry ? entry->launch : own->launch,
                          .release = entry ? entry->release : own->release,
                          .shared = sli_op_memory(c->op)->keeps && (!entry || entry->shares),
                          .knows_rows = entry && entry->knows_rows};
  sli_prepare *prepare = entry ? entry->prepare : own->prepare;
  if (!prepare) return SL_OK;
  return made->shared ? sli_state_share(&call, device, prepare, &made->state)
                      : prepare(&call, &made->state);
}

static sl_status prepare_calls(sl_program *program, int device) {
  sl_status status = SL_OK;
  for (int i = 0; i < sli_program_call_count(program) && !status; i++) {
    sl_program_call *c = &program->calls[i];
    if (c->state) continue;
    sli_cuda_call made = {0};
    status = make_state(c, device, &made);
    if (status) break;
    sli_cuda_call *kept = sli_calloc(1, sizeof *kept);
    *kept = made;
    c->state = kept;
  }
  return status;
}

static bool is_timed(const sl_program *program) {
  for (int i = 0; i < sli_program_call_count(program); i++)
    if (program->calls[i].time) return true;
  return false;
}

static sl_status make_steps(sl_program *program) {
  sli_cuda_lengths *lengths;
  SLI_TRY(sli_cuda_lengths_create(program, &lengths));
  sli_cuda_program *made = sli_calloc(1, sizeof *made);
  made->lengths = lengths;
  made->nvariants = SLI_MAX(program->nvariants, 1);
  made->is_timed = is_timed(program);
  made->variants = sli_calloc((size_t)made->nvariants, sizeof *made->variants);
  for (int v = 0; v < made->nvariants; v++) sli_cuda_fuse(program, v, &made->variants[v]);
  program->state = made;
  made->graphs = sli_cuda_graphs_create(program, made->variants[0].count);
  return SL_OK;
}

sl_status sli_cuda_program_prepare(sl_program *program, int device) {
  if (program->state) return SL_OK;
  sl_status status = sli_cuda_use(device);
  if (!status) status = prepare_calls(program, device);
  if (!status) status = make_steps(program);
  return status;
}

static void release_steps(sl_program *program) {
  sli_cuda_program *made = program->state;
  if (!made) return;
  for (int v = 0; v < made->nvariants; v++) sli_cuda_unfuse(&made->variants[v]);
  sli_cuda_graphs_destroy(made->graphs);
  sli_cuda_lengths_destroy(made->lengths);
  free(made->variants);
  free(made);
  program->state = NULL;
}

static void release_state(const sli_cuda_call *made) {
  bool last = !made->shared || !made->state || sli_state_leave(made->state);
  if (last && made->release) made->release(made->state);
}

void sli_cuda_program_release(sl_program *program) {
  release_steps(program);
  for (int i = 0; i < sli_program_call_count(program); i++) {
    sl_program_call *c = &program->calls[i];
    sli_cuda_call *made = c->state;
    if (made) release_state(made);
    free(made);
    c->state = NULL;
  }
}

static size_t call_scratch(const sl_program_call *c, int threads) {
  sl_call call = sli_call_shape(c);
  const sli_cuda_op *entry = sli_cuda_op_find(c->op);
  if (entry) return entry->scratch ? entry->scratch(&call) : 0;
  const sl_kernel *own = sli_op_kernel(c->op, "cuda");
  return own && own->scratch ? own->scratch(&call, threads) : 0;
}

static size_t step_scratch(const sli_cuda_step *step) {
  if (!step->fused || !step->fused->scratch) return 0;
  sl_call calls[step->ncalls];
  for (int i = 0; i < step->ncalls; i++) calls[i] = sli_call_shape(step->calls[i]);
  return step->fused->scratch(calls, step->ncalls);
}

/* Returns the maximum scratch of any step or call. A step of which only some outputs are needed is
 * launched call by call. */
size_t sli_cuda_program_scratch(const sl_program *program, int threads) {
  const sli_cuda_program *made = program->state;
  size_t most = 0;
  for (int i = 0; i < sli_program_call_count(program); i++)
    most = SLI_MAX(most, call_scratch(&program->calls[i], threads));
  for (int v = 0; made && v < made->nvariants; v++)
    for (int i = 0; i < made->variants[v].count; i++)
      most = SLI_MAX(most, step_scratch(&made->variants[v].steps[i]));
  return most;
}
