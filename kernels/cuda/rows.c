/* The table of rows. */
#include "kernels/cuda/rows.h"

#include <sluice/ops.h>

static sl_status parts_prepare(const sl_call *call, void **state) {
  *state = NULL;
  if (call->nin <= SLI_CUDA_PARTS) return SL_OK;
  return sl_fail(SL_E_UNSUPPORTED, "a GPU adds at most %d parts of a gradient, not %d",
                 SLI_CUDA_PARTS, call->nin);
}

#define ROW(name, ...) {.op = &sl_op_##name, .launch = sli_cuda_##name, __VA_ARGS__}
#define SCRATCH(name) .scratch = sli_cuda_##name##_scratch
#define ATTENTION .prepare = sli_cuda_attention_prepare
#define ROTARY                                                                             \
  .prepare = sli_cuda_rotary_prepare, .release = sli_cuda_rotary_release, .shares = true
#define PRODUCT(name)                                                                \
  {.op = &sl_op_##name, .launch = sli_cuda_linear, .prepare = sli_cuda_linear_prepare, \
   .release = sli_cuda_linear_release, .scratch = sli_cuda_linear_scratch}

const sli_cuda_row sli_cuda_rows[] = {
    PRODUCT(linear), PRODUCT(linear_b), PRODUCT(linear_w),
    ROW(bias_w, SCRATCH(sums)),
    ROW(pack),
    ROW(embedding), ROW(embedding_w, SCRATCH(embedding_w)), ROW(position), ROW(position_w),
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
    ROW(attention_piece_again, ATTENTION), ROW(attention_packed_piece_again, ATTENTION),
    ROW(cross_entropy, SCRATCH(cross_entropy)), ROW(cross_entropy_b),
    ROW(cross_entropy_part), ROW(cross_entropy_join, SCRATCH(cross_entropy)),
    ROW(mse, SCRATCH(chunks)), ROW(mse_b),
    ROW(sumsq, .prepare = parts_prepare, SCRATCH(chunks)),
    ROW(clip, SCRATCH(clip), .varies = true),
    ROW(adamw, .prepare = parts_prepare, .varies = true),
    {0},
};

const sli_cuda_row *sli_cuda_row_find(const sl_op *op) {
  for (const sli_cuda_row *row = sli_cuda_rows; row->op; row++)
    if (row->op == op) return row;
  return NULL;
}
