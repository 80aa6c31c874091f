/* The table of rows, and programs made of them.
 *
 * A call's CUDA row is looked up once, when its program is made ready, and waits in the
 * call's state for the queue. A user's op that is not in the table brings its own
 * function in op->cuda. */
#include "kernels/cuda/rows.h"

#include <stdlib.h>

#include <sluice/ops.h>
#include <sluice/program.h>

#include "base/base.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/program.h"

static sl_status parts_prepare(const sl_call *call, void **state) {
  *state = NULL;
  if (call->nin <= SLI_CUDA_PARTS) return SL_OK;
  return sl_fail(SL_E_UNSUPPORTED, "a GPU adds at most %d parts of a gradient, not %d",
                 SLI_CUDA_PARTS, call->nin);
}

#define ROW(name, ...) {.op = &sl_op_##name, .launch = sli_cuda_##name, __VA_ARGS__}
#define SCRATCH(name) .scratch = sli_cuda_##name##_scratch
#define ATTENTION .prepare = sli_cuda_attention_prepare
#define ROTARY .prepare = sli_cuda_rotary_prepare, .release = sli_cuda_rotary_release
#define PRODUCT(name)                                                                \
  {.op = &sl_op_##name, .launch = sli_cuda_linear, .prepare = sli_cuda_linear_prepare, \
   .release = sli_cuda_linear_release, .scratch = sli_cuda_linear_scratch}

const sli_cuda_row sli_cuda_rows[] = {
    PRODUCT(linear), PRODUCT(linear_b), PRODUCT(linear_w),
    ROW(bias_w, SCRATCH(sums)),
    ROW(pack),
    ROW(embedding), ROW(embedding_w), ROW(position), ROW(position_w),
    ROW(add), ROW(mul), ROW(mul_b), ROW(gelu), ROW(gelu_b), ROW(relu), ROW(relu_b),
    ROW(tanh), ROW(tanh_b), ROW(swiglu), ROW(swiglu_b), ROW(copy), ROW(fill),
    ROW(slice, .prepare = sli_cuda_slice_prepare), ROW(join, .prepare = sli_cuda_join_prepare),
    ROW(sum, .prepare = sli_cuda_sum_prepare), ROW(sum_part),
    ROW(layernorm), ROW(layernorm_b), ROW(layernorm_w, SCRATCH(sums)),
    ROW(rmsnorm), ROW(rmsnorm_b), ROW(rmsnorm_w, SCRATCH(sums)),
    ROW(rotary, ROTARY), ROW(rotary_b, ROTARY),
    ROW(attention, ATTENTION), ROW(attention_b, ATTENTION, SCRATCH(attention_b)),
    ROW(attention_packed, ATTENTION), ROW(attention_packed_b, ATTENTION, SCRATCH(attention_b)),
    ROW(attention_piece, ATTENTION), ROW(attention_piece_b, ATTENTION, SCRATCH(attention_b)),
    ROW(attention_packed_piece, ATTENTION),
    ROW(attention_packed_piece_b, ATTENTION, SCRATCH(attention_b)),
    ROW(cross_entropy, SCRATCH(cross_entropy)), ROW(cross_entropy_b),
    ROW(cross_entropy_part), ROW(cross_entropy_join, SCRATCH(cross_entropy)),
    ROW(mse, SCRATCH(chunks)), ROW(mse_b),
    ROW(sumsq, .prepare = parts_prepare, SCRATCH(chunks)),
    ROW(clip, SCRATCH(clip)),
    ROW(adamw, .prepare = parts_prepare),
    {0},
};

const sli_cuda_row *sli_cuda_row_find(const sl_op *op) {
  for (const sli_cuda_row *row = sli_cuda_rows; row->op; row++)
    if (row->op == op) return row;
  return NULL;
}

/* ---- programs ------------------------------------------------ */

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

sl_status sli_cuda_program_prepare(sl_program *program, int device) {
  sl_status status = sli_cuda_use(device);
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

void sli_cuda_program_release(sl_program *program) {
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
