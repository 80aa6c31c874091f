/* SPDX-License-Identifier: Apache-2.0 */
#include "models/models.h"

extern const sl_model sl_model_decoder, sl_model_deepseek, sl_model_dit, sl_model_gpt,
    sl_model_gpt_oss, sl_model_hybrid, sl_model_llama, sl_model_mamba2, sl_model_mixtral,
    sl_model_pipeline, sl_model_qwen3_next, sl_model_qwen_moe, sl_model_unet;

const sl_model *const sli_models[] = {&sl_model_gpt,        &sl_model_llama,
                                      &sl_model_mixtral,    &sl_model_qwen_moe,
                                      &sl_model_gpt_oss,    &sl_model_deepseek,
                                      &sl_model_hybrid,     &sl_model_mamba2,
                                      &sl_model_qwen3_next, &sl_model_decoder,
                                      &sl_model_dit,        &sl_model_unet,
                                      &sl_model_pipeline,   0};
