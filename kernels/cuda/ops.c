/* SPDX-License-Identifier: Apache-2.0 */
/* The table of GPU kernels. */
#include "kernels/cuda/ops.h"

#include <sluice/attention.h>
#include <sluice/functions.h>
#include <sluice/ops.h>

#include "kernels/walks/walks.h"
#include "ops/crowded.h"
#include "ops/ops.h"
#include "ops/splice.h"

sl_status sli_cuda_parts_prepare(const sl_call *call, void **state) {
  *state = NULL;
  if (call->nin <= SLI_CUDA_PARTS) return SL_OK;
  return sl_fail(SL_E_UNSUPPORTED, "a GPU can add at most %d parts of a gradient, not %d",
                 SLI_CUDA_PARTS, call->nin);
}

#define PARTS .prepare = sli_cuda_parts_prepare
#define MUON .prepare = sli_cuda_muon_prepare, .release = sli_cuda_muon_release, SCRATCH(muon)
#define CUDA_OP(name, ...) {.op = &sl_op_##name, .launch = sli_cuda_##name, __VA_ARGS__},
#define SCRATCH(name) .scratch = sli_cuda_##name##_scratch
#define STATES(name) .scratch = sli_##name##_scratch
#define ATTENTION .prepare = sli_cuda_attention_prepare
#define PACKED .prepare = sli_cuda_attention_packed_prepare
#define CHOICE .prepare = sli_cuda_choose_blocks_prepare
#define SWEEP \
  .prepare = sli_cuda_attention_sweep_prepare, .release = sli_cuda_attention_sweep_release
#define ROTARY \
  .prepare = sli_cuda_rotary_prepare, .release = sli_cuda_rotary_release, .shares = true
#define STACKS \
  .prepare = sli_cuda_matmul_prepare, .release = sli_cuda_matmul_release, SCRATCH(matmul)
#define CONV .prepare = sli_cuda_conv_prepare
#define CONSTANT .prepare = sli_cuda_constant_prepare, .release = sli_cuda_constant_release
#define PRODUCT(name)                  \
  {.op = &sl_op_##name,                \
   .launch = sli_cuda_linear,          \
   .prepare = sli_cuda_linear_prepare, \
   .release = sli_cuda_linear_release, \
   .scratch = sli_cuda_linear_scratch},

const sli_cuda_op sli_cuda_ops[] = {
#include "kernels/cuda/ops.def"
    {0},
};

const sli_cuda_op *sli_cuda_op_find(const sl_op *op) {
  for (const sli_cuda_op *entry = sli_cuda_ops; entry->op; entry++)
    if (entry->op == op) return entry;
  return NULL;
}
