/* The table of shipped rows. */
#include <string.h>

#include "kernels/kernels.h"

const sl_op *const sl_ops[] = {
    &sl_op_linear,        &sl_op_linear_b,
    &sl_op_linear_w,      &sl_op_bias_w,
    &sl_op_pack,
    &sl_op_embedding,     &sl_op_embedding_w,
    &sl_op_position,      &sl_op_position_w,
    &sl_op_add,           &sl_op_mul,
    &sl_op_mul_b,         &sl_op_gelu,
    &sl_op_gelu_b,        &sl_op_relu,
    &sl_op_relu_b,        &sl_op_tanh,
    &sl_op_tanh_b,        &sl_op_swiglu,
    &sl_op_swiglu_b,      &sl_op_copy,
    &sl_op_slice,         &sl_op_join,
    &sl_op_sum,
    &sl_op_sum_part,           &sl_op_layernorm,
    &sl_op_layernorm_b,   &sl_op_layernorm_w,
    &sl_op_rmsnorm,       &sl_op_rmsnorm_b,
    &sl_op_rmsnorm_w,     &sl_op_rotary,
    &sl_op_rotary_b,      &sl_op_attention,
    &sl_op_attention_b,   &sl_op_attention_packed,
    &sl_op_attention_packed_b,
    &sl_op_attention_piece, &sl_op_attention_piece_b,
    &sl_op_attention_packed_piece, &sl_op_attention_packed_piece_b,
    &sl_op_attention_piece_again, &sl_op_attention_packed_piece_again,
    &sl_op_cross_entropy,
    &sl_op_cross_entropy_b, &sl_op_cross_entropy_part,
    &sl_op_cross_entropy_join, &sl_op_mse,
    &sl_op_mse_b,         &sl_op_fill,
    &sl_op_source,        &sl_op_report,
    &sl_op_sumsq,         &sl_op_clip,
    &sl_op_adamw,         NULL,
};

const sl_op *sl_op_find(const char *name) {
  for (int i = 0; sl_ops[i]; i++)
    if (!strcmp(sl_ops[i]->name, name)) return sl_ops[i];
  return NULL;
}
