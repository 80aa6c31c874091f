/* SPDX-License-Identifier: Apache-2.0 */
/* GPU kernels: the table with one entry per op that a GPU can run. */
#ifndef SLUICE_KERNELS_CUDA_OPS_H
#define SLUICE_KERNELS_CUDA_OPS_H

#include <sluice/op.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sli_cuda_op {
  const sl_op *op;
  /* Returns the bytes of call->scratch, in device memory. NULL: none. */
  size_t (*scratch)(const sl_call *call);
  /* Makes call->state from types and attrs for the calling thread's device, and rejects calls that
   * launch() cannot run. Both may be NULL. */
  sl_status (*prepare)(const sl_call *call, void **state);
  void (*release)(void *state);
  bool shares; /* the state is read-only: calls share it as sl_op_memory.keeps says */
  /* Enqueues the op. Checks nothing and never waits. */
  void (*launch)(const sl_call *call, void *stream);
  /* launch() depends on more than types, attrs, addresses, `accumulate` and tick.row: for example
   * on the step, or on a mutable record. */
  bool varies;
  /* For ops that set valid lengths (sl_op_rows.fills): launch() knows the number of rows and
   * reports it. Otherwise its kernels write it to call->out_rows, which is accessible to host and
   * device. */
  bool knows_rows;
  /* Fails with a message that `rows` exceed the output's capacity. May be NULL. */
  sl_status (*crowded)(const sl_call *call, int64_t rows);
} sli_cuda_op;

extern const sli_cuda_op sli_cuda_ops[];              /* ends with op NULL */
const sli_cuda_op *sli_cuda_op_find(const sl_op *op); /* NULL if there is none */

enum { SLI_CUDA_PARTS = 16 }; /* maximum parts of one gradient */

/* Launchers of ops.c's table; attention_*.cu, update.cu and so on. */
#define CUDA_OP(name, ...) void sli_cuda_##name(const sl_call *call, void *stream);
#define PRODUCT(name)
#include "kernels/cuda/ops.def"
#undef CUDA_OP
#undef PRODUCT
void sli_cuda_linear(const sl_call *call, void *stream); /* also linear_b and linear_w */

size_t sli_cuda_sums_scratch(const sl_call *call); /* weight gradients of norms, bias_w */
size_t sli_cuda_cross_entropy_scratch(const sl_call *call);
size_t sli_cuda_target_weight_scratch(const sl_call *call);
size_t sli_cuda_chunks_scratch(const sl_call *call); /* mse, sumsq */
size_t sli_cuda_embedding_w_scratch(const sl_call *call);
size_t sli_cuda_gather_b_scratch(const sl_call *call);
size_t sli_cuda_scatter_add_scratch(const sl_call *call);
size_t sli_cuda_embedding_bag_w_scratch(const sl_call *call);
size_t sli_cuda_clip_scratch(const sl_call *call);
size_t sli_cuda_attention_b_scratch(const sl_call *call);
size_t sli_cuda_attention_step_scratch(const sl_call *call);
size_t sli_cuda_attention_served_scratch(const sl_call *call); /* all that attend to pages */
size_t sli_cuda_attention_latent_served_scratch(const sl_call *call);
size_t sli_cuda_attention_sinks_scratch(const sl_call *call);
size_t sli_cuda_attention_dual_scratch(const sl_call *call);
size_t sli_cuda_choose_blocks_scratch(const sl_call *call);
size_t sli_cuda_choose_tokens_scratch(const sl_call *call);
size_t sli_cuda_choose_tokens_served_scratch(const sl_call *call);
size_t sli_cuda_index_loss_scratch(const sl_call *call);
size_t sli_cuda_index_loss_b_scratch(const sl_call *call);
size_t sli_cuda_muon_scratch(const sl_call *call);
size_t sli_cuda_sample_scratch(const sl_call *call);
size_t sli_cuda_linear_served_scratch(const sl_call *call);
size_t sli_cuda_grouped_linear_served_scratch(const sl_call *call);
size_t sli_cuda_bit_choice_scratch(const sl_call *call);
size_t sli_cuda_loaded_experts_scratch(const sl_call *call);
size_t sli_cuda_matmul_scratch(const sl_call *call);  /* all three products */
size_t sli_cuda_grouped_scratch(const sl_call *call); /* all three ops */
size_t sli_cuda_expert_limit_scratch(const sl_call *call);
size_t sli_cuda_dispatch_scratch(const sl_call *call);
size_t sli_cuda_own_ids_scratch(const sl_call *call);
size_t sli_cuda_give_back_scratch(const sl_call *call);
size_t sli_cuda_restore_scratch(const sl_call *call);
size_t sli_cuda_conv_w_scratch(const sl_call *call);
size_t sli_cuda_linear_scratch(const sl_call *call); /* all three products */

/* Refuses gradients of more than SLI_CUDA_PARTS parts. */
sl_status sli_cuda_parts_prepare(const sl_call *call, void **state);
sl_status sli_cuda_slice_prepare(const sl_call *call, void **state);
sl_status sli_cuda_join_prepare(const sl_call *call, void **state);
sl_status sli_cuda_sum_prepare(const sl_call *call, void **state);
sl_status sli_cuda_slice_b_prepare(const sl_call *call, void **state);
sl_status sli_cuda_concat_prepare(const sl_call *call, void **state);
sl_status sli_cuda_concat_b_prepare(const sl_call *call, void **state);
sl_status sli_cuda_attention_prepare(const sl_call *call, void **state);
sl_status sli_cuda_attention_packed_prepare(const sl_call *call, void **state);
sl_status sli_cuda_choose_blocks_prepare(const sl_call *call, void **state);
sl_status sli_cuda_muon_prepare(const sl_call *call, void **state);
void sli_cuda_muon_release(void *state);
sl_status sli_cuda_linear_attention_join_prepare(const sl_call *call, void **state);
sl_status sli_cuda_attention_sweep_prepare(const sl_call *call, void **state); /* also _b */
void sli_cuda_attention_sweep_release(void *state);
sl_status sli_cuda_conv_prepare(const sl_call *call, void **state); /* also conv_b and conv_w */
sl_status sli_cuda_restore_prepare(const sl_call *call, void **state);
sl_status sli_cuda_rotary_prepare(const sl_call *call, void **state);
void sli_cuda_rotary_release(void *state);
sl_status sli_cuda_constant_prepare(const sl_call *call, void **state);
void sli_cuda_constant_release(void *state);
sl_status sli_cuda_linear_prepare(const sl_call *call, void **state);
sl_status sli_cuda_matmul_prepare(const sl_call *call, void **state);
void sli_cuda_matmul_release(void *state);
void sli_cuda_linear_release(void *state);

/* Rounds `count` floats to bf16, and appends `zeros` zeros. */
void sli_cuda_round(const float *from, void *to, int64_t count, int64_t zeros, void *stream);

#ifdef __cplusplus
}
#endif
#endif
